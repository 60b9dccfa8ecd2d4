"""What runs inside vLLM's engine: a pooler that turns hidden states into log-probabilities where they are computed.

vLLM's pooling models end in a pooler instead of a sampler. Ours sends the hidden states of response positions through
the model's own head, a chunk at a time, and gives back the few numbers that were asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.pooler import PoolingParamsUpdate
from vllm.model_executor.layers.pooler.abstract import Pooler
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
from vllm.model_executor.models import ModelRegistry
from vllm.platforms import current_platform
from vllm.v1.pool.metadata import PoolingMetadata

from services.teacher.head import PositionScores, Wanted, exact_products, score_hidden
from services.teacher.hidden_states import HiddenStates
from services.teacher.scoring_task import Columns, ScoringTask

TASK = "token_classify"  # one of vLLM's: numbers for each token
TASK_FIELD = "potstill_scoring"
# Vocabulary entries in one chunk: 64 MiB of float32.
CHUNK_ENTRIES = 2**24
HIDDEN_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Rows:
    """Positions of one request that go through the head in this step."""

    task: ScoringTask
    hidden: Tensor  # [N, H]
    table: Tensor  # [T, width], of the whole request
    begin: int  # row of the table

    @property
    def end(self) -> int:
        return self.begin + len(self.hidden)

    @property
    def targets(self) -> NDArray[np.int64]:
        return np.frombuffer(self.task.targets, dtype="<i4")[self.begin : self.end].astype(np.int64)

    @property
    def candidates(self) -> NDArray[np.int64]:
        table = np.frombuffer(self.task.candidates, dtype="<i4").reshape(self.task.num_targets, -1)
        return table[self.begin : self.end].astype(np.int64)


class ScoringPooler(Pooler):  # type: ignore[misc]
    """Answers a request with its table [T, width]; a row that could not be had is NaN."""

    def __init__(self, model: nn.Module, config: VllmConfig) -> None:
        super().__init__()
        self._modules_of_model: Callable[[], Iterator[nn.Module]] = model.modules
        self._compute_logits = cast(Callable[[Tensor], Tensor | None], model.compute_logits)
        self._vocab_size = config.model_config.get_vocab_size()
        self._head_is_ready = False
        self._chunk = max(1, CHUNK_ENTRIES // self._vocab_size)
        self._hidden_states = HiddenStates(HIDDEN_BYTES, config.cache_config.block_size)

    def get_supported_tasks(self) -> Set[str]:
        return {TASK}

    def get_pooling_updates(self, task: str) -> PoolingParamsUpdate:
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: Tensor, pooling_metadata: PoolingMetadata) -> list[Tensor | None]:
        """Tables of the requests that end in this step, None for the others."""
        self._prepare_head(hidden_states)
        cursor = pooling_metadata.get_pooling_cursor()
        counts = cursor.num_scheduled_tokens_cpu.tolist()
        ends = cursor.seq_lens_cpu.tolist()
        all_ids = pooling_metadata.get_prompt_token_ids_cpu()
        work: list[Rows] = []
        for index, hidden in enumerate(torch.tensor_split(hidden_states, np.cumsum(counts)[:-1].tolist())):
            parameters = pooling_metadata.pooling_params[index]
            task = _task_of(parameters.extra_kwargs, len(hidden))
            state = pooling_metadata.pooling_states[index].hidden_states_cache
            if not state:
                shape = (task.num_targets, task.columns.width)
                state.append(torch.full(shape, torch.nan, device=hidden.device))
            ids = all_ids[index].numpy().astype(np.int64)
            work += self._rows(task, ids, ends[index] - counts[index], hidden, state[0])
        self._fill(work)
        return [
            _take(state) if is_finished else None
            for state, is_finished in zip(pooling_metadata.pooling_states, cursor.get_finished_mask(), strict=True)
        ]

    def _rows(self, task: ScoringTask, ids: NDArray[np.int64], begin: int, hidden: Tensor, table: Tensor) -> list[Rows]:
        """What the head must see of `hidden`, the states from position `begin` on, and of a prefix hit before it."""
        first = task.num_prompt - 1
        self._hidden_states.keep(ids, first, begin, hidden)
        rows = []
        is_after_a_hit = begin > first and bool(table[begin - first - 1, 0].isnan())
        if is_after_a_hit and (earlier := self._hidden_states.find(ids, first, begin)) is not None:
            rows.append(Rows(task, earlier, table, 0))
        if begin + len(hidden) > first:
            rows.append(Rows(task, hidden[max(0, first - begin) :], table, max(0, begin - first)))
        return rows

    def _fill(self, work: list[Rows]) -> None:
        alike: dict[tuple[Wanted, int], list[Rows]] = defaultdict(list)
        for rows in work:
            task = rows.task
            alike[Wanted(task.temperature, task.top_k, task.entropy), task.columns.num_candidates].append(rows)
        for (wanted, num_candidates), batch in alike.items():
            hidden = torch.cat([rows.hidden for rows in batch])
            targets = torch.from_numpy(np.concatenate([rows.targets for rows in batch])).to(hidden.device)
            candidates = None
            if num_candidates:
                candidates = torch.from_numpy(np.concatenate([rows.candidates for rows in batch])).to(hidden.device)
            with exact_products(hidden.dtype):
                scores = score_hidden(hidden, self._head, targets, candidates, wanted, self._chunk)
            _write(scores, batch)

    def _head(self, hidden: Tensor) -> Tensor:
        logits = self._compute_logits(hidden)
        if logits is None:  # gathered by another rank, which answers
            return hidden.new_zeros(1).expand(len(hidden), self._vocab_size)
        return logits

    def _prepare_head(self, hidden: Tensor) -> None:
        """Give a CPU's head float32 weights once: vLLM would convert all of them for every chunk."""
        if self._head_is_ready or not current_platform.is_cpu():
            return
        self._head_is_ready = True
        for head in self._modules_of_model():
            if isinstance(head, ParallelLMHead) and isinstance(head.quant_method, UnquantizedEmbeddingMethod):
                head.weight = nn.Parameter(head.weight.float(), requires_grad=False)


def _task_of(extra: dict[str, Any] | None, num_tokens: int) -> ScoringTask:
    """The task of a request; for vLLM's own trial run, which has none, one that scores everything."""
    if extra is not None:
        return msgspec.msgpack.decode(extra[TASK_FIELD], type=ScoringTask)
    return ScoringTask(1, bytes(4 * num_tokens), b"", 1.0, 1, entropy=True)


def _take(state: Any) -> Tensor:
    table: Tensor = state.hidden_states_cache[0]
    state.clean()
    return table


def _write(scores: PositionScores, batch: list[Rows]) -> None:
    columns: Columns = batch[0].task.columns
    parts = [scores.logprobs[:, None]]
    parts += [values[:, None] for values in (scores.entropy, scores.tail_logprobs) if values is not None]
    if scores.top_logprobs is not None and scores.top_ids is not None:
        parts += [scores.top_logprobs, scores.top_ids.view(torch.float32)]
    if scores.candidate_logprobs is not None:
        parts.append(scores.candidate_logprobs)
    values = torch.cat(parts, dim=1)
    assert values.shape[1] == columns.width
    row = 0
    for rows in batch:
        rows.table[rows.begin : rows.end] = values[row : row + len(rows.hidden)]
        row += len(rows.hidden)


def register(architecture: str) -> None:
    """Make vLLM build models of this architecture with a scoring pooler, in this process.

    Raises KeyError when vLLM has no such architecture.
    """
    base = ModelRegistry.models[architecture].load_model_cls()
    if not issubclass(base, _Scoring):
        ModelRegistry.register_model(architecture, type(base.__name__, (_Scoring, base), {}))


class _Scoring:
    """Mixed into a model class of vLLM."""

    is_pooling_model = True

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "", **more: Any) -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix, **more)  # type: ignore[call-arg]
        self.pooler = ScoringPooler(cast(nn.Module, self), vllm_config)
