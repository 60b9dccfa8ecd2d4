"""One update by TRL's DistillationTrainer, asked for over stdin. Runs where trl is installed; imports nothing of ours.

The trainer's own `compute_loss` gets ready samples, where it would have generated them, so that an update is what it
does with samples: forward and backward of the student, forward of the teacher, divergence, clipping, AdamW.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import DistillationConfig, DistillationTrainer


def trainer_of(model: str, dtype: str, folder: str) -> DistillationTrainer:
    kwargs = {"dtype": dtype}
    config = DistillationConfig(
        folder,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        bf16=False,
        beta=1.0,  # reverse KL
        temperature=1.0,
        per_device_train_batch_size=8,
        gradient_checkpointing=False,
        model_init_kwargs=dict(kwargs),
        teacher_model_init_kwargs=dict(kwargs),
    )
    rows = Dataset.from_list([{"prompt": "a"}] * 8)
    return DistillationTrainer(model=model, teacher_model=model, args=config, train_dataset=rows)


class TeacherClock:
    """Times the teacher's share: the forwards without gradient."""

    def __init__(self, trainer: DistillationTrainer) -> None:
        self.seconds = 0.0
        self._forward = trainer._get_last_hidden_state
        trainer._get_last_hidden_state = self  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        hidden = self._forward(*args, **kwargs)
        if not torch.is_grad_enabled():
            self.seconds += time.perf_counter() - begun
        return hidden


def inputs_of(order: dict[str, Any]) -> dict[str, torch.Tensor]:
    prompt, responses = order["prompt"], order["responses"]
    prompt_ids, completion_ids = torch.tensor([prompt] * len(responses)), torch.tensor(responses)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": torch.ones_like(prompt_ids),
        "completion_ids": completion_ids,
        "completion_mask": torch.ones_like(completion_ids),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("dtype")
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(given.model, given.dtype, folder)
        clock, optimizer = TeacherClock(trainer), torch.optim.AdamW(trainer.model.parameters(), lr=1e-6, fused=True)
        trainer.model.train()
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            inputs = inputs_of(json.loads(line))
            ctypes.CDLL("libc.so.6").malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
            clock.seconds, begun = 0.0, time.perf_counter()
            loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            told = {
                "seconds": time.perf_counter() - begun,
                "teacher_seconds": clock.seconds,
                "loss": float(loss.detach()),
            }
            print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
