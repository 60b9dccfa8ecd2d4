"""Continuous batching: which sample holds which slot, and when it is done. Knows no threads and no HTTP."""

from __future__ import annotations

import math
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from potstill.contracts.arrays import LogProbs, TokenIds
from potstill.contracts.generation import FinishReason, Prompt, Sample, Sampling
from potstill.service.errors import ServiceError
from services.student import metrics
from services.student.engine import sample_seed
from services.student.slot_decoder import Prefill, SlotDecoder
from services.student.token_sampling import Draw, Token, draw_tokens


@dataclass(eq=False)
class Group:
    """All samples of one prompt. Cancelling `future` gives them up."""

    prompt: Prompt
    sampling: Sampling
    top_k: int
    future: Future[tuple[Sample, ...]] = field(default_factory=Future)
    placed: int = 0
    prefill: Prefill | None = None  # kept until every sample has its copy
    finished: dict[int, Sample] = field(default_factory=dict)
    is_poisoned: bool = False  # its logits were not finite, and so may be its keys and values

    def fail(self, error: Exception) -> None:
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def finish(self, index: int, sample: Sample) -> None:
        self.finished[index] = sample
        is_last = len(self.finished) == self.prompt.n
        if is_last and not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(tuple(self.finished[i] for i in range(self.prompt.n)))


class RunningSample:
    """One sample being written."""

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.tokens: list[Token] = []
        self._stream = np.random.Generator(np.random.Philox(sample_seed(group.prompt.seed, index)))

    @property
    def cached(self) -> int:
        """Positions in the key/value cache: all but the newest token, which is fed next."""
        return len(self.group.prompt.token_ids) + len(self.tokens) - 1

    def draw(self) -> Draw:
        """What the next step draws for this sample: the t-th token takes the t-th number of its stream."""
        sampling = self.group.sampling
        return Draw(sampling.temperature, self._stream.random(), self.group.top_k, sampling.top_p)

    def finish_reason(self) -> FinishReason | None:
        """None while the sample goes on."""
        sampling = self.group.sampling
        if self.tokens[-1].id in sampling.stop_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= sampling.max_tokens else None

    def result(self, reason: FinishReason, policy_version: int) -> Sample:
        shape = len(self.tokens), self.group.top_k
        has_top = self.group.top_k > 0
        return Sample(
            token_ids=TokenIds.of([token.id for token in self.tokens]),
            logprobs=LogProbs.of([token.logprob for token in self.tokens]),
            finish_reason=reason,
            policy_version=policy_version,
            top_ids=TokenIds.of(np.array([token.top_ids for token in self.tokens]).reshape(shape)) if has_top else None,
            top_logprobs=(
                LogProbs.of(np.array([token.top_logprobs for token in self.tokens]).reshape(shape)) if has_top else None
            ),
        )


class SlotScheduler:
    """Running samples always hold slots 0 … A-1; a sample that ends gives its slot to the last one."""

    def __init__(self, decoder: SlotDecoder) -> None:
        self.decoder = decoder
        self.policy_version = 0
        self._waiting: deque[Group] = deque()
        self._running: list[RunningSample] = []

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, group: Group) -> None:
        self._waiting.append(group)

    def advance(self) -> None:
        """Do one piece of work: read one prompt if there is a free slot for it, else one decode step."""
        self.drop_abandoned()
        if self._waiting and len(self._running) < self.decoder.slots:
            self._place(self._waiting[0])
        elif self._running:
            self._decode()
        metrics.samples_running.set(len(self._running))

    def drop_abandoned(self) -> None:
        """Free what belongs to groups that were cancelled or have failed."""
        if any(group.future.done() for group in self._waiting):
            self._waiting = deque(group for group in self._waiting if not group.future.done())
        for slot in reversed(range(len(self._running))):
            if self._running[slot].group.future.done():
                self._release(slot)

    def fail_all(self, error: Exception) -> None:
        """Answer everything unfinished with `error`."""
        for group in [*self._waiting, *(sample.group for sample in self._running)]:
            group.fail(error)
        self.drop_abandoned()

    def _place(self, group: Group) -> None:
        """Start as many samples of the prompt as there are free slots, from one reading of it."""
        if group.prefill is None:
            begun = time.perf_counter()
            group.prefill = self.decoder.prefill(group.prompt.token_ids.tolist())
            metrics.prefill_seconds.inc(time.perf_counter() - begun)
        count = min(self.decoder.slots - len(self._running), group.prompt.n - group.placed)
        samples = [RunningSample(group, group.placed + offset) for offset in range(count)]
        tokens = draw_tokens(group.prefill.logits.expand(count, -1), [sample.draw() for sample in samples])
        for sample, token in zip(samples, tokens, strict=True):
            if self._append(sample, token):
                self.decoder.place(group.prefill, len(self._running))
                self._running.append(sample)
        group.placed += count
        if group.placed == group.prompt.n:
            self._waiting.popleft()
            group.prefill = None

    def _decode(self) -> None:
        begun = time.perf_counter()
        newest = [sample.tokens[-1].id for sample in self._running]
        logits = self.decoder.step(newest, [sample.cached for sample in self._running])
        tokens = draw_tokens(logits, [sample.draw() for sample in self._running])
        for slot in reversed(range(len(tokens))):
            if not self._append(self._running[slot], tokens[slot]):
                self._release(slot)
        metrics.decode_steps.inc()
        metrics.decode_seconds.inc(time.perf_counter() - begun)

    def _append(self, sample: RunningSample, token: Token) -> bool:
        """Add a token; returns whether the sample goes on."""
        if not math.isfinite(token.logprob):
            sample.group.is_poisoned = True
            sample.group.fail(
                ServiceError(f"policy {self.policy_version} gives logits that are not finite", code="non_finite_logits")
            )
            return False
        sample.tokens.append(token)
        reason = sample.finish_reason()
        if reason is None:
            return True
        sample.group.finish(sample.index, sample.result(reason, self.policy_version))
        return False

    def _release(self, slot: int) -> None:
        if self._running[slot].group.is_poisoned:
            self.decoder.scrub(slot)
        last = self._running.pop()
        if slot < len(self._running):
            self.decoder.move(len(self._running), slot, last.cached)
            self._running[slot] = last
