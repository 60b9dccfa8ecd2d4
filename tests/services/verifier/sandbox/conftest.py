from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.verifier.running import Verifier, running_verifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with running_verifier(verifier_workers=2) as started:
        yield started
