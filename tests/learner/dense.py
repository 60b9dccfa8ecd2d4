"""The objectives as one would write them on a blackboard: float64, every sample by itself, the whole vocabulary.

Shares no code with `learner`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from potstill.contracts.trajectory import Trajectory, TrajectoryGroup

Logits = Callable[[list[int]], Tensor]  # token ids of one row to logits [L, V], float64


def loss(
    groups: Sequence[TrajectoryGroup],
    logits_of: Logits,
    *,
    gated: bool,
    temperature: float,
    cap: float,
    importance: str,
) -> Tensor:
    """Loss of a step whose gradient is the policy gradient of `opd`, or of `opd` with the correctness gate."""
    terms: list[Tensor] = []
    for group in groups:
        for trajectory in group.trajectories:
            if gated and trajectory.score is None:
                continue
            terms += _sample(
                group.prompt_token_ids.tolist(), trajectory, logits_of, gated, temperature, cap, importance
            )
    if not terms:
        return logits_of([0]).sum() * 0.0
    return torch.stack(terms).sum() / len(terms)


def _sample(
    prompt: list[int], trajectory: Trajectory, logits_of: Logits, gated: bool, temperature: float, cap: float, kind: str
) -> list[Tensor]:
    assert trajectory.teacher_logprobs is not None
    response = trajectory.token_ids.tolist()
    table = torch.log_softmax(logits_of(prompt + response) / temperature, dim=-1)
    rows = []
    for index, token in enumerate(response):
        student = table[len(prompt) - 1 + index, token]
        teacher, behaviour = float(trajectory.teacher_logprobs[index]), float(trajectory.behaviour_logprobs[index])
        if math.isfinite(teacher) and math.isfinite(behaviour):
            rows.append((student, teacher, behaviour))
    whole = math.exp(sum(student.item() - behaviour for student, _, behaviour in rows))
    terms = []
    for student, teacher, behaviour in rows:
        d = teacher - student.item()
        if gated:
            right = trajectory.score is not None and trajectory.score > 0
            d = max(d, 0.0) if right else min(d, 0.0)
        weight = {"off": 1.0, "token": math.exp(student.item() - behaviour), "sequence": whole}[kind]
        terms.append(-min(weight, cap) * d * student)
    return terms
