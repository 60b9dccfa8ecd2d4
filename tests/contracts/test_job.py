from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from potstill.contracts.job import JobSpec
from potstill.contracts.state import TRANSITIONS, JobState, is_legal

SPEC: dict[str, Any] = {
    "name": "demo",
    "student": {"model": "student"},
    "teachers": {"maths": {"model": "teacher", "lambda": 1.0}},
    "data": {"train": "train.jsonl"},
}


def test_the_smallest_spec_has_defaults_that_work() -> None:
    spec = JobSpec.model_validate(SPEC)
    assert spec.training.max_staleness == 1
    assert spec.objective.preset == "opd"
    assert JobSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("training", "stepz"), 3, "Extra inputs"),
        (("training", "steps"), 0, "greater than 0"),
        (("training", "steps"), "many", "valid integer"),
        (("sampling", "temperature"), 0, "greater than 0"),
        (("sampling", "temperature"), 0.7, "make them equal"),
        (("teachers",), {}, "at least 1"),
        (("teachers", "maths", "lambda"), 1.25, "only the signal `gopd`"),
        (("teachers", "maths", "context"), {"kind": "telepathy"}, "telepathy"),
        (("name",), "../up", "pattern"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(path: tuple[str, ...], value: object, says: str) -> None:
    import copy

    spec = copy.deepcopy(SPEC)
    place = spec
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = value
    with pytest.raises(ValidationError, match=says):
        JobSpec.model_validate(spec)


def test_terminal_states_lead_nowhere_and_every_state_is_reachable() -> None:
    terminal = {state for state in JobState if state.is_terminal}
    assert terminal == {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
    reached = {after for afters in TRANSITIONS.values() for after in afters}
    assert reached == set(JobState)
    assert not is_legal(JobState.PAUSED, JobState.RUNNING), "a paused job goes through the queue"
