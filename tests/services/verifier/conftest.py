from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.verifier.running import Verifier, running_verifier


@pytest.fixture(scope="package")
def verifier() -> Iterator[Verifier]:
    """A verifier with patience enough for a busy test machine."""
    with running_verifier(verifier_workers=2, verifier_deadline_seconds=20, verifier_recycle_after=10**6) as started:
        yield started
