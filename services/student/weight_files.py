"""What a safetensors file holds, read from its header alone. Needs neither torch nor the weights' memory.

Format: 8 bytes little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`, the data.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
TIED_HEAD = "lm_head.weight"  # absent from files of models that tie it to the embedding
ADAPTED = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
FLOATS = frozenset({"F32", "BF16", "F16"})
NAMED = 3  # names listed in an error

Shapes = Mapping[str, tuple[int, ...]]


class WeightsRejectedError(ValueError):
    """The weights cannot be served; the text says why."""


def header_bytes(path: Path) -> bytes:
    """The JSON header. Raises WeightsRejectedError when this is no safetensors file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(LENGTH_BYTES).ljust(LENGTH_BYTES, b"\xff"))
            header = file.read(length) if length <= MAX_HEADER_BYTES else b""
    except OSError as error:
        raise WeightsRejectedError(f"{path} cannot be read: {error.strerror}") from error
    if len(header) != length:
        raise WeightsRejectedError(f"{path} is no safetensors file, or it is cut off")
    return header


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Tensor names to shapes. Raises WeightsRejectedError when the file is damaged, cut off or holds no floats."""
    header = header_bytes(path)
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        kinds = {entry["dtype"] for entry in entries.values()}
        shapes = {name: tuple(entry["shape"]) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise WeightsRejectedError(f"{path} has a damaged header: {error}") from error
    expected, actual = LENGTH_BYTES + len(header) + end, path.stat().st_size
    if expected != actual:
        raise WeightsRejectedError(f"{path} has {actual} bytes but its header promises {expected}: it is cut off")
    if not kinds <= FLOATS:
        raise WeightsRejectedError(f"{path} holds {', '.join(sorted(kinds - FLOATS))}; weights are {', '.join(FLOATS)}")
    return shapes


def read_folder_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a model, sharded or not. Raises WeightsRejectedError when it has no safetensors."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise WeightsRejectedError(f"{folder} has no safetensors")
    return {name: shape for path in paths for name, shape in read_shapes(path).items()}


def require_same_tensors(path: Path, found: Shapes, expected: Shapes, optional: Iterable[str] = ()) -> None:
    """Raises WeightsRejectedError unless names and shapes agree; `optional` names (tied weights) may be absent."""
    missing = sorted(expected.keys() - found.keys() - set(optional))
    unknown = sorted(found.keys() - expected.keys() - set(optional))
    reshaped = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    complaints = [
        f"{len(names)} tensors {verb}: {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}"
        for names, verb in ((missing, "are missing"), (unknown, "are unknown"), (reshaped, "have another shape"))
        if names
    ]
    if complaints:
        raise WeightsRejectedError(f"{path} does not fit the served model: {'; '.join(complaints)}")


def require_adapter_fits(path: Path, found: Shapes, base: Shapes, max_rank: int) -> None:
    """Raises WeightsRejectedError unless every tensor is one half of a LoRA pair that fits a matrix of `base`."""
    halves: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in found.items():
        match = ADAPTED.fullmatch(name)
        if match is None or f"{match['module']}.weight" not in base:
            raise WeightsRejectedError(f"{path}: {name} adapts nothing that the served model has")
        halves.setdefault(match["module"], {})[match["side"]] = shape
    if not halves:
        raise WeightsRejectedError(f"{path} holds no LoRA weights")
    for module, pair in halves.items():
        _require_pair_fits(path, module, pair, base[f"{module}.weight"], max_rank)


def _require_pair_fits(
    path: Path, module: str, pair: dict[str, tuple[int, ...]], matrix: tuple[int, ...], max_rank: int
) -> None:
    rank = pair.get("A", (0,))[0]
    if not 0 < rank <= max_rank:
        raise WeightsRejectedError(
            f"{path}: {module} has rank {rank}; ranks are 1 … {max_rank} (POTSTILL_STUDENT_MAX_LORA_RANK)"
        )
    if (*pair.get("B", ())[:1], *pair.get("A", ())[1:]) != matrix or pair["B"][1:] != (rank,):
        raise WeightsRejectedError(f"{path}: {module} has shapes {pair}, which do not fit a {matrix} matrix")
