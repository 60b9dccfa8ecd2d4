from __future__ import annotations

from learner.batch import step_batch
from learner.objectives import resolve
from potstill.contracts.objective import ObjectiveSpec
from tests.learner.groups import group, random_groups, sample

OPD = resolve(ObjectiveSpec())


def test_micro_batches_keep_to_the_budget_and_hold_every_token_once() -> None:
    groups = random_groups(1, count=9)
    batch = step_batch(groups, OPD, 40)
    assert len(batch.micro_batches) > 3
    assert all(micro.input_ids_NL.numel() <= 40 for micro in batch.micro_batches)
    responses = sorted(token for g in groups for t in g.trajectories for token in t.token_ids.tolist())
    assert sorted(token for micro in batch.micro_batches for token in micro.target_M.tolist()) == responses
    assert batch.num_tokens == sum(len(g.prompt_token_ids) + len(t.token_ids) for g in groups for t in g.trajectories)


def test_a_row_above_the_budget_gets_a_micro_batch_of_its_own() -> None:
    batch = step_batch([group([sample([5] * 50), sample([6])])], OPD, 10)
    assert [micro.num_rows for micro in batch.micro_batches] == [1, 1]


def test_rows_keep_their_own_teacher_wherever_they_land() -> None:
    groups = random_groups(2, count=6)
    batch = step_batch(groups, OPD, 30)
    teacher_of = {tuple(t.token_ids.tolist()): g.teacher for g in groups for t in g.trajectories}
    seen = 0
    for micro in batch.micro_batches:
        for row in range(micro.num_rows):
            ids = tuple(micro.target_M[micro.row_M == row].tolist())
            assert batch.teachers[micro.teacher_N[row]] == teacher_of[ids]
            seen += 1
    assert seen == 18


def test_a_step_of_tombstones_only_has_no_micro_batches() -> None:
    assert step_batch([group([], tombstone="gone")], OPD, 10).micro_batches == ()
