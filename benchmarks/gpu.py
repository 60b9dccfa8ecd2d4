"""The learner's parts on one GPU, at 152k vocabulary: `benchmarks/gpu.sh`, `--small` for a trial on a CPU

Random weights of a Qwen2-0.5B shape, so nothing is downloaded. In turn: ours, and what one writes first (whole rows,
all logits). An update is forward and backward in bfloat16 over float32 masters; scoring is a forward without gradient.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.figures import Figure, alone, beside, line, publish
from learner.batch import MicroBatch, step_batch
from learner.head import head_logprobs
from learner.layout import supports
from learner.model import Student, response_logprobs
from learner.objectives import resolve
from learner.packing import Layout
from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason
from potstill.contracts.objective import ObjectiveSpec
from potstill.contracts.ticket import Phase, TicketId
from potstill.contracts.trajectory import Trajectory, TrajectoryGroup
from potstill.contracts.verification import Verdict

COMMAND = "python -m benchmarks.gpu"
NAIVE = "whole rows, all logits"
MIB = 2**20

Sides = tuple[Callable[[], Any], Callable[[], Any]]  # ours, and the naive one


@dataclass(frozen=True)
class Size:
    vocab: int
    hidden: int
    layers: int
    prompt: int
    response: int
    samples: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.samples} x ({self.prompt} + {self.response}) tokens, vocabulary {self.vocab:,}"

    @property
    def num_tokens(self) -> int:
        return self.samples * (self.prompt + self.response)


LARGE = Size(vocab=151_936, hidden=896, layers=24, prompt=512, response=512, samples=8, rounds=10)
SMALL = Size(vocab=2_000, hidden=64, layers=2, prompt=48, response=16, samples=4, rounds=3)


def student_of(size: Size, device: torch.device) -> Student:
    heads = size.hidden // 64
    config = Qwen2Config(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        intermediate_size=size.hidden * 11 // 2,
        num_hidden_layers=size.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 7),
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).to(device).train()
    student = Student(model, None, "random", torch.bfloat16, is_adapter=False)
    assert supports(student.body, Layout.BRANCHES)
    return student


def micro_batch(size: Size, seed: int, layout: Layout) -> MicroBatch:
    rng = np.random.default_rng(seed)
    values = LogProbs.of(np.full(size.response, -10.0))
    samples = tuple(
        Trajectory(ids, values, FinishReason.LENGTH, 0, "", Verdict.ACCEPTED, 1.0, values)
        for ids in (TokenIds.of(rng.integers(0, size.vocab, size.response)) for _ in range(size.samples))
    )
    prompt = TokenIds.of(rng.integers(0, size.vocab, size.prompt))
    group = TrajectoryGroup(TicketId("bench", Phase.TRAIN, 1, 0), "p", "t", prompt, samples, 0.0, 0.0, "bench")
    (micro,) = step_batch([group], resolve(ObjectiveSpec()), 10**9, layout).micro_batches
    return micro


def ours(student: Student, batch: MicroBatch) -> Tensor:
    return response_logprobs(student, batch, 1.0).logprob_M


def naive(student: Student, batch: MicroBatch) -> Tensor:
    with torch.autocast(student.device.type, torch.bfloat16):
        logits_NLV = student.causal(input_ids=batch.inputs.stem_ids_GL, use_cache=False).logits
    logprob_NLV = logits_NLV.float().log_softmax(-1)
    return logprob_NLV.flatten(0, 1)[batch.hidden_M].gather(-1, batch.target_M[:, None])[:, 0]


def our_head(head: nn.Module, hidden_MD: Tensor, target_M: Tensor) -> Tensor:
    return head_logprobs(head, hidden_MD, target_M[:, None], 1.0)[0][:, 0]


def naive_head(head: nn.Module, hidden_MD: Tensor, target_M: Tensor) -> Tensor:
    return head(hidden_MD).log_softmax(-1).gather(-1, target_M[:, None])[:, 0]  # type: ignore[no-any-return]


class Meter:
    """Seconds, and on a GPU the peak of what was allocated on top of what was there."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device, self.clock = device, clock

    def __call__(self, work: Callable[[], Any]) -> tuple[float, float]:
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        rest = torch.cuda.memory_allocated() if cuda else 0
        begun = self.clock()
        work()
        if cuda:
            torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - rest if cuda else 0
        return self.clock() - begun, peak / MIB


def compare(name: str, tokens: int, sides: Sides, meter: Meter, rounds: int) -> list[Figure]:
    """Speed and memory of ours and the naive side, in turn."""
    told: list[list[tuple[float, float]]] = [[], []]
    for number in range(rounds + 1):
        for side, seen in zip(sides, told, strict=True):
            measured = meter(side)
            if number:  # the first warms up
                seen.append(measured)
    ours, peer = ([tokens / seconds for seconds, _ in seen] for seen in told)
    figures = [beside(name, ours, peer, NAIVE, "tokens/s", COMMAND)]
    if meter.device.type == "cuda":
        ours, peer = ([peak for _, peak in seen] for seen in told)
        figures.append(beside(f"peak memory, {name}", ours, peer, NAIVE, "MiB", COMMAND))
    return figures


def measure(size: Size, meter: Meter) -> list[Figure]:
    device = meter.device
    student = student_of(size, device)
    shared, whole = (micro_batch(size, 1, layout).to(device) for layout in (Layout.BRANCHES, Layout.ROWS))

    def update(logprobs: Callable[[Student, MicroBatch], Tensor], batch: MicroBatch) -> None:
        logprobs(student, batch).mean().backward()  # type: ignore[no-untyped-call]
        student.model.zero_grad()

    def score(logprobs: Callable[[Student, MicroBatch], Tensor], batch: MicroBatch) -> Tensor:
        with torch.no_grad():
            return logprobs(student, batch)

    assert torch.equal(shared.target_M, whole.target_M), "one group, in one order"
    apart = (score(ours, shared) - score(naive, whole)).abs().mean()
    compared: dict[str, Sides] = {
        "update": (partial(update, ours, shared), partial(update, naive, whole)),
        "scoring": (partial(score, ours, shared), partial(score, naive, whole)),
    }
    found = [
        figure
        for name, sides in compared.items()
        for figure in compare(f"{name}, {size}", size.num_tokens, sides, meter, size.rounds)
    ]
    found.append(alone(f"mean difference of a log-probability, {size}", [float(apart)], "nats", COMMAND))
    return found + _head(student, size, meter)


def packed(size: Size, meter: Meter) -> list[Figure]:
    """An update of samples in one row, on a GPU with flex attention."""
    student = student_of(size, meter.device)
    whole, row = (micro_batch(size, 1, layout).to(meter.device) for layout in (Layout.ROWS, Layout.PACKED))

    def update(attention: str, logprobs: Callable[[Student, MicroBatch], Tensor], batch: MicroBatch) -> None:
        student.causal.set_attn_implementation(attention)
        logprobs(student, batch).mean().backward()  # type: ignore[no-untyped-call]
        student.model.zero_grad()

    attention = "flex_attention" if meter.device.type == "cuda" else "sdpa"
    sides = (partial(update, attention, ours, row), partial(update, "sdpa", naive, whole))
    return compare(f"update, packed row, {size}", size.num_tokens, sides, meter, size.rounds)


def _head(student: Student, size: Size, meter: Meter) -> list[Figure]:
    """The head alone, over as many positions as a micro-batch has tokens, forward and backward in float32."""
    hidden_MD = torch.randn(size.num_tokens, size.hidden, device=student.device, requires_grad=True)
    target_M = torch.randint(size.vocab, (size.num_tokens,), device=student.device)

    def run(logprobs: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        logprobs(student.head, hidden_MD, target_M).mean().backward()  # type: ignore[no-untyped-call]
        student.model.zero_grad()
        hidden_MD.grad = None

    name = f"head alone, {size.num_tokens:,} positions, vocabulary {size.vocab:,}"
    return compare(name, size.num_tokens, (partial(run, our_head), partial(run, naive_head)), meter, size.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="sizes for a CPU; nothing is published")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not given.small:
        raise SystemExit("there is no GPU here: --small tries it on the CPU")
    size, meter = SMALL if given.small else LARGE, Meter(device)
    figures = measure(size, meter) + packed(size, meter)
    if given.small:
        print("\n".join(line(figure) for figure in figures))
    else:
        publish(figures)


if __name__ == "__main__":
    main()
