from __future__ import annotations

from learner.batch import step_batch
from learner.objectives import resolve
from learner.packed import PackedRow
from learner.packing import Layout
from potstill.contracts.objective import ObjectiveSpec
from tests.learner.groups import group, random_groups, sample

OPD = resolve(ObjectiveSpec())


def test_micro_batches_keep_to_the_budget_and_hold_every_token_once() -> None:
    groups = random_groups(1, count=9)
    batch = step_batch(groups, OPD, 40)
    assert len(batch.micro_batches) > 3
    assert all(micro.inputs.num_padded_tokens <= 40 for micro in batch.micro_batches)
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


def test_a_shared_prompt_is_in_a_micro_batch_once() -> None:
    long = list(range(3, 40))
    groups = [group([sample([5, 6, 7]), sample([8, 9]), sample([5])], prompt=long, slot=slot) for slot in range(4)]
    batch = step_batch(groups, OPD, 100, Layout.BRANCHES)
    assert [micro.inputs.stem_ids_GL.tolist() for micro in batch.micro_batches] == [[long, long]] * 2
    assert all(micro.inputs.num_padded_tokens <= 100 for micro in batch.micro_batches)
    assert sum(len(micro.target_M) for micro in batch.micro_batches) == 4 * 6


def test_a_prompt_is_not_shared_where_ragged_responses_would_cost_more_padding_than_it_saves() -> None:
    ragged = [group([sample([5] * length) for length in (1, 60)], prompt=[1, 2], slot=slot) for slot in range(3)]
    for micro in step_batch(ragged, OPD, 200, Layout.BRANCHES).micro_batches:
        assert micro.inputs.branch_ids_NT.numel() == 0


def test_a_group_above_the_budget_is_cut() -> None:
    samples = [sample([5] * 9) for _ in range(6)]
    batch = step_batch([group(samples, prompt=list(range(3, 33)))], OPD, 50, Layout.BRANCHES)
    assert [micro.num_rows for micro in batch.micro_batches] == [2, 2, 2]
    assert all(micro.inputs.num_padded_tokens <= 50 for micro in batch.micro_batches)


def test_a_packed_row_holds_each_prompt_once_and_no_padding() -> None:
    groups = [group([sample([5, 6, 7]), sample([8]), sample([5, 9])], prompt=[3, 4], slot=slot) for slot in range(2)]
    (micro,) = step_batch(groups, OPD, 100, Layout.PACKED).micro_batches
    assert isinstance(micro.inputs, PackedRow)
    assert micro.inputs.ids_L.tolist() == [3, 4, 5, 6, 5] * 2
    assert micro.inputs.position_L.tolist() == [0, 1, 2, 3, 2] * 2
    assert micro.hidden_M.tolist() == [1, 2, 3, 1, 1, 4, 6, 7, 8, 6, 6, 9]


def test_packed_rows_keep_to_the_budget_and_hold_every_token_once() -> None:
    groups = random_groups(4, count=9)
    batch = step_batch(groups, OPD, 25, Layout.PACKED)
    assert len(batch.micro_batches) > 3
    assert all(micro.inputs.num_padded_tokens <= 25 for micro in batch.micro_batches)
    responses = sorted(token for g in groups for t in g.trajectories for token in t.token_ids.tolist())
    assert sorted(token for micro in batch.micro_batches for token in micro.target_M.tolist()) == responses
