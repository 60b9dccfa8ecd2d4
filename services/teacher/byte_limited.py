"""A mapping of bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLimited(Generic[K, V]):
    """Keeps values of at most `limit_bytes` together; the least recently used go first. Not thread-safe."""

    def __init__(self, limit_bytes: int, size_of: Callable[[V], int]) -> None:
        self.limit_bytes = limit_bytes
        self.num_bytes = 0
        self._size_of = size_of
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value, now the most recently used; None where there is none."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def peek(self, key: K) -> V | None:
        """The value, without a use of it."""
        return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        """Keep a value, dropping old ones for it; one larger than the limit, or kept already, is left out."""
        size = self._size_of(value)
        if size > self.limit_bytes or key in self._values:
            return
        while self.num_bytes + size > self.limit_bytes:
            _, dropped = self._values.popitem(last=False)
            self.num_bytes -= self._size_of(dropped)
        self._values[key] = value
        self.num_bytes += size
