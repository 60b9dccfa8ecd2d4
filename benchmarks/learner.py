"""How fast is one update, and what memory does it take? `python -m benchmarks.learner`

The same sequences, weights and dtype for all, each in a process of its own and never two at a time: our learner; TRL's
DistillationTrainer; and a plain transformers update with all logits. Forward, backward, clipping and AdamW are timed.
TRL computes its teacher inside the update; ours gets the teacher's values with the samples, so TRL is also given
without the time of its teacher's forward. It lives in an environment of its own (`POTSTILL_TRL_PYTHON`, or made on
first use).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, beside, publish
from examples.smollm2.weights import prepare_weights

COMMAND = "python -m benchmarks.learner"
TRL_REQUIREMENT, TRL_ENVIRONMENT = "trl==1.16.0", Path("artifacts/trl")
OURS, TRL, PLAIN = "potstill", "TRL DistillationTrainer", "transformers, all logits"
GROUP_SIZE, VOCAB_SIZE, FIRST_PLAIN_ID = 8, 49152, 17
THREADS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Shape:
    prompt: int
    response: int

    def __str__(self) -> str:
        return f"prompt {self.prompt}, response {self.response}"

    def order(self, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng([seed, self.prompt])
        prompt, *responses = (
            rng.integers(FIRST_PLAIN_ID, VOCAB_SIZE, length).tolist()
            for length in (self.prompt, *[self.response] * GROUP_SIZE)
        )
        return {"prompt": prompt, "responses": responses}

    @property
    def num_tokens(self) -> int:
        """Prompt and response tokens of the samples, however often they are read."""
        return GROUP_SIZE * (self.prompt + self.response)


SHAPES = (Shape(256, 64), Shape(64, 128))
Update = Callable[[dict[str, Any]], float]  # an order to the loss


def our_update(model: str, dtype: str) -> Update:
    import torch

    from learner.batch import step_batch
    from learner.model import load_student
    from learner.objectives import resolve
    from learner.optimizer import StudentOptimizer
    from learner.report import Stopwatch
    from learner.update import accumulate_gradients
    from potstill.contracts.job import StudentSpec, TrainingSpec
    from potstill.contracts.objective import ObjectiveSpec

    student = load_student(StudentSpec(model=model, dtype=dtype), seed=0, device=torch.device("cpu"))
    spec, objective = TrainingSpec(), resolve(ObjectiveSpec())
    optimizer = StudentOptimizer(student.trainable(), spec)

    def update(order: dict[str, Any]) -> float:
        batch = step_batch([_group(order)], objective, spec.micro_batch_tokens, student.layout)
        numbers = accumulate_gradients(student, batch, objective, 1.0, stopwatch=Stopwatch(), check=lambda: None)
        optimizer.step(1)
        return numbers.loss

    return update


def _group(order: dict[str, Any]) -> Any:
    from potstill.contracts.arrays import LogProbs, TokenIds
    from potstill.contracts.generation import FinishReason
    from potstill.contracts.ticket import Phase, TicketId
    from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
    from potstill.contracts.verification import Verdict

    values = LogProbs.of(np.full(len(order["responses"][0]), -10.0))
    samples = tuple(
        Trajectory(TokenIds.of(ids), values, FinishReason.LENGTH, 0, "", Verdict.ACCEPTED, 1.0, values)
        for ids in order["responses"]
    )
    ticket = TicketId("job_bench", Phase.TRAIN, 1, 0)
    return TrajectoryGroup(ticket, "p", "maths", TokenIds.of(order["prompt"]), samples, 0.0, 0.0, "bench")


def plain_update(model: str, dtype: str) -> Update:
    import torch
    from transformers import AutoModelForCausalLM

    student = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-6, fused=True)

    def update(order: dict[str, Any]) -> float:
        ids = torch.tensor([order["prompt"] + response for response in order["responses"]])
        logprobs = student(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
        chosen = logprobs.gather(-1, ids[:, 1:, None])[:, len(order["prompt"]) - 1 :, 0]
        loss = -((-10.0 - chosen.detach()) * chosen).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return update


def serve(update: Update) -> None:
    """An order a line in, what it took a line out."""
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        begun = time.perf_counter()
        loss = update(order)
        print(json.dumps({"seconds": time.perf_counter() - begun, "loss": loss}), file=answers, flush=True)


class Contestant:
    """A process that is asked for updates."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self.answer() == "ready"

    def update(self, order: dict[str, Any]) -> dict[str, float]:
        """Seconds, and MiB of the whole process at the peak."""
        answer: dict[str, float] = self.ask(order)
        return answer | {"peak": self._mib("VmHWM")}

    def ask(self, order: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contestant ended with {self.process.wait()}")
        return json.loads(line)

    def _mib(self, field: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


@contextmanager
def started(command: list[str], **variables: str) -> Iterator[Contestant]:
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "MALLOC_ARENA_MAX": "1", "HF_HUB_OFFLINE": "1"}
    environment |= variables
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        yield Contestant(process)
    finally:
        process.kill()
        process.wait()


def trl_python() -> str:
    """The interpreter of an environment that has TRL, on top of this one: the same torch and transformers."""
    if given := os.environ.get("POTSTILL_TRL_PYTHON"):
        return given
    python = TRL_ENVIRONMENT / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(TRL_ENVIRONMENT)], check=True)
        (site_packages,) = TRL_ENVIRONMENT.glob("lib/python*/site-packages")
        (site_packages / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", TRL_REQUIREMENT], check=True)
    return str(python)


def measure(names: list[str], model: Path, dtype: str, rounds: int, shapes: tuple[Shape, ...]) -> list[Figure]:
    commands = {
        OURS: [sys.executable, "-m", "benchmarks.learner", "--role", "ours"],
        PLAIN: [sys.executable, "-m", "benchmarks.learner", "--role", "plain"],
    }
    commands = {name: [*command, "--model", str(model), "--dtype", dtype] for name, command in commands.items()}
    if TRL in names:
        commands[TRL] = [
            trl_python(),
            "-P",
            str(Path(__file__).with_name("trl_update.py")),
            str(model),
            dtype,
            str(THREADS),
        ]
    told: dict[tuple[str, Shape], list[dict[str, float]]] = defaultdict(list)
    with ExitStack() as stack:
        running = {name: stack.enter_context(started(commands[name])) for name in names}
        for contestant in running.values():
            contestant.update(Shape(32, 16).order(0))
        for number in range(rounds):
            for shape in shapes:
                for name in [*names[number % len(names) :], *names[: number % len(names)]]:
                    told[name, shape].append(running[name].update(shape.order(1 + number)))
                    print(name, shape, told[name, shape][-1], file=sys.stderr, flush=True)
    return [figure for shape in shapes for figure in figures(told, shape, [n for n in names if n != OURS], dtype)]


def figures(
    told: dict[tuple[str, Shape], list[dict[str, float]]], shape: Shape, peers: list[str], dtype: str
) -> Iterator[Figure]:
    def speeds(name: str, *, teacher: bool = True) -> list[float]:
        spent = [each["seconds"] - (0.0 if teacher else each["teacher_seconds"]) for each in told[name, shape]]
        return [shape.num_tokens / seconds for seconds in spent]

    def memory(name: str) -> list[float]:
        return [each["peak"] for each in told[name, shape]]

    where = f"{shape}, {dtype}"
    note = (
        f"SmolLM2-135M, {GROUP_SIZE} samples of one prompt; tokens are those of prompts and responses of all samples, "
        "however often they are read. Memory holds weights, gradient and moments of the optimizer, and TRL's teacher. "
        "TRL compares whole distributions with a teacher at hand; ours has the teacher's values of the sampled tokens."
    )
    for name in peers:
        aim = "2" if name == TRL else None
        yield beside(f"update, {where}", speeds(OURS), speeds(name), name, "tokens/s", COMMAND, aim=aim, note=note)
        if name == TRL:
            without = speeds(name, teacher=False)
            yield beside(
                f"update, {where}",
                speeds(OURS),
                without,
                f"{TRL}, its teacher's forward not counted",
                "tokens/s",
                COMMAND,
            )
        yield beside(f"peak memory of the process, {where}", memory(OURS), memory(name), name, "MiB", COMMAND, aim=aim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--role", choices=("ours", "plain"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        serve((our_update if given.role == "ours" else plain_update)(str(given.model), given.dtype))
        return
    model = given.model or prepare_weights().resolve()
    publish(measure([OURS, TRL, PLAIN], model, given.dtype, given.rounds, SHAPES))


if __name__ == "__main__":
    main()
