"""Do our divergences agree with TRL's? `python -m benchmarks.trl_losses`, in an environment that has trl 1.16.0.

The same random logits go through TRL's generalised JSD over the whole vocabulary and through ours on every token but
one, whose mass is the tail bucket: the same distributions, so the same losses and the same gradients.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version

import torch
from torch import Tensor
from trl.experimental.gkd import GKDTrainer

from benchmarks.machine import machine_facts
from benchmarks.results import RESULTS
from learner.objectives import DIVERGENCES
from learner.objectives.candidates import Candidates, divergence

TOKENS, VOCAB, TEMPERATURE, TOLERANCE = 64, 300, 0.7, 1e-4
CASES = {"forward_kl": 0.0, "reverse_kl": 1.0, "jsd, β = 0.1": 0.1, "jsd, β = 0.5": 0.5, "jsd, β = 0.9": 0.9}


def logits(seed: int) -> Tensor:
    return torch.randn(TOKENS, VOCAB, generator=torch.Generator().manual_seed(seed))


def trl_loss(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    labels = torch.zeros(1, TOKENS, dtype=torch.int64)
    loss: Tensor = GKDTrainer.generalized_jsd_loss(
        student[None], teacher[None], labels=labels, beta=beta, temperature=TEMPERATURE
    )
    return loss


def our_loss(student: Tensor, teacher: Tensor, name: str, beta: float) -> Tensor:
    sides = [(side / TEMPERATURE).log_softmax(-1)[:, :-1] for side in (student, teacher)]
    return divergence(Candidates(*sides), DIVERGENCES[name.split(",")[0]], beta).mean()


def with_gradient(loss: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
    student = logits(0).requires_grad_()
    value = loss(student)
    value.backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None
    return value.item(), student.grad


def main() -> None:
    teacher, rows = logits(1), []
    for name, beta in CASES.items():
        ours, our_gradient = with_gradient(lambda s, name=name, beta=beta: our_loss(s, teacher, name, beta))
        theirs, their_gradient = with_gradient(lambda s, beta=beta: trl_loss(s, teacher, beta))
        apart = ((our_gradient - their_gradient).norm() / their_gradient.norm()).item()
        rows.append({"divergence": name, "ours": ours, "trl": theirs, "relative_gradient_difference": apart})
        if abs(ours - theirs) > TOLERANCE * max(1.0, abs(theirs)) or apart > TOLERANCE:
            raise SystemExit(f"{name}: ours {ours}, TRL's {theirs}, gradients {apart:.1e} apart")
    document = {"trl": version("trl"), "rows": rows, "machine": machine_facts()}
    (RESULTS / "trl-losses.json").write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / "trl-losses.md").write_text(_page(rows))


def _page(rows: list[dict[str, object]]) -> str:
    table = [
        f"| {row['divergence']} | {row['ours']:.6f} | {row['trl']:.6f} | {row['relative_gradient_difference']:.1e} |"
        for row in rows
    ]
    lines = [
        f"# Divergences beside those of TRL {version('trl')}",
        "",
        f"`python -m benchmarks.trl_losses`: {TOKENS} positions of {VOCAB} random logits, temperature {TEMPERATURE:g},",
        "float32. TRL's `GKDTrainer.generalized_jsd_loss` sees the whole vocabulary; ours every token but one, and the",
        f"bucket for the rest. Agreement to {TOLERANCE:g} is asserted. TRL has no skewed divergences and no bucket.",
        "Logits are standard normal, so that no bucket is below the 1e-6 that ours is floored at; where one is,",
        "a forward KL is lower than the exact one.",
        "",
        "| divergence | ours | TRL | relative difference of the gradients |",
        "|---|---|---|---|",
        *table,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
