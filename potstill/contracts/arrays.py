"""Arrays on the wire: JSON lists for people, raw little-endian buffers in msgpack for processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

MAX_DIMENSIONS = 2


class WireArray(np.ndarray):
    """An array with one fixed dtype on the wire; subclass to fix it."""

    wire_dtype: ClassVar[str] = "<f4"

    @classmethod
    def of(cls, values: Iterable[Any] | NDArray[Any]) -> Self:
        """Copy `values` into a contiguous array of this class' dtype; None becomes NaN where the dtype can hold it."""
        listed = values if isinstance(values, np.ndarray) else list(values)
        return np.ascontiguousarray(listed, dtype=cls.wire_dtype).view(cls)

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Decode a JSON list or a msgpack `{dtype, shape, data}` map. Raises ValueError when it is neither."""
        if isinstance(value, list):
            return cls._from_list(value)
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data"}:
            raise ValueError("an array is a list, or a map of dtype, shape and data")
        return cls._from_buffer(value["dtype"], value["shape"], value["data"])

    @classmethod
    def _from_list(cls, value: list[Any]) -> Self:
        try:
            array = np.array(value, dtype=object)
            if array.ndim > MAX_DIMENSIONS or any(isinstance(item, list | str | bytes | bool) for item in array.flat):
                raise ValueError
            exact = array.astype(np.float64)
            with np.errstate(invalid="ignore"):
                typed = exact.astype(cls.wire_dtype)
        except (TypeError, ValueError, OverflowError):
            raise ValueError("an array holds numbers only, in rows of equal length") from None
        if typed.dtype.kind == "i" and not np.array_equal(exact, typed):
            raise ValueError("token ids are whole numbers that fit 32 bits")
        return np.ascontiguousarray(typed).view(cls)

    @classmethod
    def _from_buffer(cls, dtype: Any, shape: Any, data: Any) -> Self:
        if dtype != cls.wire_dtype:
            raise ValueError(f"expected dtype {cls.wire_dtype}, got {dtype}")
        dimensions_are_counts = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        if not dimensions_are_counts or len(shape) > MAX_DIMENSIONS or not isinstance(data, bytes):
            raise ValueError(f"an array has at most {MAX_DIMENSIONS} dimensions and raw bytes as data")
        if len(data) != int(np.prod(shape, dtype=np.int64)) * np.dtype(cls.wire_dtype).itemsize:
            raise ValueError(f"shape {shape} does not fit {len(data)} bytes of {dtype}")
        return np.frombuffer(data, dtype=cls.wire_dtype).reshape(shape).view(cls)

    def to_buffer(self) -> dict[str, Any]:
        """The msgpack form."""
        return {"dtype": self.wire_dtype, "shape": list(self.shape), "data": np.ascontiguousarray(self).tobytes()}

    def to_list(self) -> list[Any]:
        """The JSON form: NaN as null."""
        boxed = self.view(np.ndarray)
        if self.dtype.kind == "f" and np.isnan(boxed).any():
            missing, boxed = np.isnan(boxed), boxed.astype(object)
            boxed[missing] = None
        values: list[Any] = boxed.tolist()
        return values


class TokenIds(WireArray):
    """int32 token ids, shape [T], or [T, K] for candidates."""

    wire_dtype = "<i4"


class LogProbs(WireArray):
    """float32 natural log-probabilities, shape [T] or [T, K]. NaN marks a value that could not be had; never 0.0."""

    wire_dtype = "<f4"
