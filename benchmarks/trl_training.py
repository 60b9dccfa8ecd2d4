"""TRL's DistillationTrainer as it trains, a few steps at a time, asked for over stdin.

Runs where trl is installed; imports nothing of ours that needs more. `trainer.train()` does everything: it generates
with transformers, runs the teacher, updates. Between steps it waits for the next order. Every completion is of full
length, so that both sides do the same work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import DistillationConfig, DistillationTrainer

from benchmarks.trl_update import TeacherClock

ENDLESS = 1_000_000


class GenerationClock:
    """Times generation."""

    def __init__(self, trainer: DistillationTrainer) -> None:
        self.seconds, self.tokens = 0.0, 0
        self._generate = trainer._generate_single_turn
        trainer._generate_single_turn = self  # type: ignore[method-assign]

    def __call__(self, *args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        completions = self._generate(*args, **options)
        self.seconds += time.perf_counter() - begun
        self.tokens += sum(map(len, completions))
        return completions


class Orders(TrainerCallback):
    """Lets the trainer take as many steps as a line of stdin says, and tells what they took."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.left, self.begun = answers, 0, 0.0
        self.told: list[dict[str, float]] = []
        self.teacher: TeacherClock | None = None
        self.generation: GenerationClock | None = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self.left == 0:
            line = sys.stdin.readline()
            if not line:
                raise SystemExit
            self.left = json.loads(line)["steps"]
        assert self.teacher is not None
        assert self.generation is not None
        self.teacher.seconds = self.generation.seconds = 0.0
        self.generation.tokens, self.begun = 0, time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        assert self.teacher is not None
        assert self.generation is not None
        self.told.append(
            {
                "seconds": time.perf_counter() - self.begun,
                "generate": self.generation.seconds,
                "teacher": self.teacher.seconds,
                "response_tokens": self.generation.tokens,
            }
        )
        self.left -= 1
        if self.left == 0:
            print(json.dumps({"steps": self.told}), file=self.answers, flush=True)
            self.told.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("rows", type=Path, help="JSON lines with a prompt each; a step takes `--samples` of them")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    prompts = [json.loads(line)["prompt"] for line in given.rows.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        config = DistillationConfig(
            folder,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            bf16=given.dtype == "bfloat16",
            max_steps=ENDLESS,
            beta=1.0,  # reverse KL
            temperature=1.0,
            max_completion_length=given.max_tokens,
            generation_kwargs={"min_new_tokens": given.max_tokens},
            shuffle_dataset=False,
            per_device_train_batch_size=given.micro_batch,
            gradient_accumulation_steps=given.samples // given.micro_batch,
            gradient_checkpointing=False,  # on by default, and slower
            disable_tqdm=True,
            model_init_kwargs={"dtype": "float32"},
            teacher_model_init_kwargs={"dtype": given.dtype},
        )
        rows = Dataset.from_list([{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts])
        orders = Orders(answers)
        trainer = DistillationTrainer(
            model=given.model, teacher_model=given.model, args=config, train_dataset=rows, callbacks=[orders]
        )
        orders.teacher, orders.generation = TeacherClock(trainer), GenerationClock(trainer)
        print(json.dumps("ready"), file=answers, flush=True)
        trainer.train()


if __name__ == "__main__":
    main()
