from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.rollout.bed import Bed, running_bed


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running_bed(tmp_path_factory.mktemp("bed")) as running:
        yield running
