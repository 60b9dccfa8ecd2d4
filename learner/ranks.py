"""The processes that train one student together, each with a part of it; mostly there is one. See docs/ranks.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from learner.errors import JobError, RanksLost, job_error
from potstill.contracts import wire
from potstill.service.logs import get_logger

log = get_logger("learner")

S = TypeVar("S", contravariant=True)
T = TypeVar("T", covariant=True)
V = TypeVar("V")

IDLE = timedelta(days=365)  # a rank without an order waits for as long as there is no job
WORDS_SECONDS = 3.0  # what a rank that fails may take to say why
FAILURE = "failure"


class Order(Protocol[S, T]):
    """A message: what every rank does at the same time to its part of the student."""

    def carry_out(self, shard: S) -> T: ...


class Ranks:
    """This process among those of the student: rank `rank` of `size`. By itself, rank 0 of 1.

    Rank 0 leads: it alone knows the queue, the disk and the people, and gives orders that all ranks carry out together.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, store: PrefixStore | None = None) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.mesh: DeviceMesh | None = None
        self.broken = False  # the ranks are no longer at the same place, and must all begin again
        self._store = store
        self._orders: dist.ProcessGroup | None = None

    @classmethod
    def join(cls, device_type: str) -> Ranks:
        """Meet the other processes that torchrun started; alone where it did not."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        store, rank, size = next(rendezvous("env://"))
        backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        ranks = cls(rank, size, int(os.environ["LOCAL_RANK"]), PrefixStore("learner", store))
        ranks.mesh = init_device_mesh(device_type, (size,))
        ranks._orders = dist.new_group(backend="gloo", timeout=IDLE)
        log.info("ranks have met", rank=rank, size=size, backend=backend)
        return ranks

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def lead(self, order: Order[S, V], shard: S) -> V:
        """Have all ranks carry out an order; returns what it gave on this one.

        Raises JobError where an order cannot be carried out, whichever rank found that out, and RanksLost where a rank
        is gone.
        """
        if self.size == 1:
            return order.carry_out(shard)
        try:
            self._tell(order)
            return self._together(order, shard)
        except JobError:
            raise
        except Exception as error:
            self.broken = True
            raise self._cause(error) from error

    def follow(self, shard: Any, orders: Any) -> bool:
        """Wait for one of the `orders` (message types) and carry it out; False when there will be no more."""
        order: Order[Any, Any] | None = wire.decode(self._hear(), orders | None)
        if order is None:
            return False
        try:
            self._together(order, shard)
        except JobError as error:
            log.warning("order not carried out", rank=self.rank, reason=error.detail)
        except Exception as error:
            if not _is_lost_connection(error):
                self._say_why(job_error(error))
            raise
        return True

    def dismiss(self) -> None:
        """The leader has no more orders."""
        if self.size > 1 and not self.broken:
            self._tell(None)

    def gather(self, value: Any) -> list[Any]:
        """The plain values of all ranks, in their order; tuples come as lists."""
        if self.size == 1:
            return [value]
        mine = _bytes(wire.encode(value))
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=self._orders)
        longest = max(int(size) for size in sizes)
        told = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(told, torch.nn.functional.pad(mine, (0, longest - len(mine))), group=self._orders)
        return [wire.decode(each[: int(size)].numpy().tobytes(), Any) for each, size in zip(told, sizes, strict=True)]

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over all ranks."""
        return [sum(column) for column in zip(*self.gather(list(values)), strict=True)]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put the sum over all ranks in the place of each tensor."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def _tell(self, order: Order[Any, Any] | None) -> None:
        told = _bytes(wire.encode(order))
        dist.broadcast(torch.tensor([len(told)]), src=0, group=self._orders)
        dist.broadcast(told, src=0, group=self._orders)

    def _hear(self) -> bytes:
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, src=0, group=self._orders)
        told = torch.zeros(int(size), dtype=torch.uint8)
        dist.broadcast(told, src=0, group=self._orders)
        return told.numpy().tobytes()

    def _together(self, order: Order[S, V], shard: S) -> V:
        """A JobError leaves the ranks at the same place: each raises it where the others do, or before they meet."""
        result, complaint = None, None
        try:
            result = order.carry_out(shard)
        except JobError as error:
            complaint = (error.code, error.detail)
        for rank, other in enumerate(self.gather(complaint)):
            if other is not None:
                raise JobError(other[0], other[1] if rank == 0 else f"rank {rank}: {other[1]}")
        return result  # type: ignore[return-value]

    def _say_why(self, error: JobError) -> None:
        """Leave word for the leader, whose next exchange with this rank fails."""
        assert self._store is not None
        self._store.set(FAILURE, json.dumps([error.code, f"rank {self.rank}: {error.detail}"]))

    def _cause(self, error: Exception) -> Exception:
        """What a failed exchange comes from: another rank's reason, its loss, or else what was raised here."""
        if not _is_lost_connection(error):
            return error
        assert self._store is not None
        deadline = time.monotonic() + WORDS_SECONDS
        while time.monotonic() < deadline:
            if self._store.check([FAILURE]):
                code, detail = json.loads(self._store.get(FAILURE))
                return JobError(code, detail)
            time.sleep(0.1)
        return RanksLost(f"another rank is gone: {error}")


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _is_lost_connection(error: Exception) -> bool:
    """Gloo tells of a peer that is gone by a plain RuntimeError."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())


def device_of(name: str) -> torch.device:
    """The device that a setting names, for this rank."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


ALONE = Ranks()
