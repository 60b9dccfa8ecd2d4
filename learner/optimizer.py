"""The update: AdamW, a learning-rate schedule, clipping, and what happens to a gradient that is not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from learner.errors import JobError
from learner.sharding import by_kind, clip_gradients, gathered, placed_like
from potstill.contracts.job import TrainingSpec


def learning_rate(spec: TrainingSpec, step: int) -> float:
    """The rate of step `step` (from 1): linear warm-up, then constant, or falling to 0 at the step after the last."""
    if step <= spec.warmup_steps:
        return spec.lr * step / spec.warmup_steps
    done = (step - spec.warmup_steps - 1) / max(1, spec.steps - spec.warmup_steps)
    match spec.schedule:
        case "constant":
            return spec.lr
        case "cosine":
            return spec.lr * 0.5 * (1.0 + math.cos(math.pi * done))
        case "linear":
            return spec.lr * (1.0 - done)


@dataclass(frozen=True)
class Update:
    gradient_norm: float  # before clipping; not finite when the step was skipped
    learning_rate: float
    skipped: bool


class StudentOptimizer:
    """AdamW over the trainable parameters, of which a rank may hold slices."""

    def __init__(self, parameters: Sequence[nn.Parameter], spec: TrainingSpec) -> None:
        self._parameters = list(parameters)
        self._spec = spec
        self._adamw = torch.optim.AdamW(
            [{"params": kind} for kind in by_kind(self._parameters)],
            lr=spec.lr,
            betas=spec.betas,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        self.nonfinite_in_a_row = 0

    def step(self, step: int) -> Update:
        """Apply the accumulated gradient as step `step` and clear it.

        A gradient that is not finite leaves the weights alone. Raises JobError after `max_nonfinite_steps` in a row.
        """
        rate = learning_rate(self._spec, step)
        norm = clip_gradients(self._parameters, self._spec.clip_norm)
        skipped = not math.isfinite(norm)
        if not skipped:
            for group in self._adamw.param_groups:
                group["lr"] = rate
            self._adamw.step()
        self.clear()
        self._count(skipped)
        return Update(norm, rate, skipped)

    def clear(self) -> None:
        """Forget accumulated gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def _count(self, skipped: bool) -> None:
        self.nonfinite_in_a_row = self.nonfinite_in_a_row + 1 if skipped else 0
        if self.nonfinite_in_a_row >= self._spec.max_nonfinite_steps:
            message = f"{self.nonfinite_in_a_row} gradients in a row were not finite: lower training.lr, or use float32"
            raise JobError("gradient_not_finite", message)

    def state(self, *, keep: bool = True) -> dict[str, Any]:
        """Tensors and plain values only, so that it loads without pickle's code; the same for any number of ranks.

        Every rank takes part; those without `keep` get no tensors.
        """
        moments = {
            index: {name: gathered(value, keep=keep) for name, value in self._adamw.state[parameter].items()}
            for index, parameter in enumerate(self._parameters)
            if parameter in self._adamw.state
        }
        settings = {name: value for name, value in self._adamw.param_groups[0].items() if name != "params"}
        adamw = {"state": moments, "param_groups": [settings | {"params": list(range(len(self._parameters)))}]}
        return {"adamw": adamw, "nonfinite_in_a_row": self.nonfinite_in_a_row}

    def load(self, state: dict[str, Any]) -> None:
        for index, moments in state["adamw"]["state"].items():
            parameter = self._parameters[index]
            self._adamw.state[parameter] = {name: placed_like(value, parameter) for name, value in moments.items()}
        self.nonfinite_in_a_row = state["nonfinite_in_a_row"]
