"""A few samples of every step, for people to read: `trajectories/step-000012.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from learner.storage import write_file
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup


def write_samples(folder: Path, step: int, groups: Sequence[TrajectoryGroup], tokenizer: Any, kept: int) -> None:
    """Write the first sample of the first `kept` groups that have one."""
    chosen = [group for group in groups if group.trajectories][:kept]
    lines = [msgspec.json.encode(_line(step, group, group.trajectories[0], tokenizer)) + b"\n" for group in chosen]
    write_file(folder / f"step-{step:06d}.jsonl", b"".join(lines))


def _line(step: int, group: TrajectoryGroup, sample: Trajectory, tokenizer: Any) -> dict[str, Any]:
    return {
        "step": step,
        "ticket": str(group.ticket),
        "problem_id": group.problem_id,
        "teacher": group.teacher,
        "prompt": tokenizer.decode(group.prompt_token_ids.tolist()),
        "response": sample.text,
        "score": sample.score,
        "verdict": sample.verdict,
        "finish_reason": sample.finish_reason,
        "policy_version": sample.policy_version,
        "tokens": len(sample.token_ids),
        "mean_teacher_logprob": _mean(sample.teacher_logprobs),
        "mean_behaviour_logprob": _mean(sample.behaviour_logprobs),
    }


def _mean(logprobs: Any) -> float | None:
    """Over the values that could be had."""
    finite = logprobs[np.isfinite(logprobs)] if logprobs is not None else ()
    return float(np.mean(finite)) if len(finite) else None
