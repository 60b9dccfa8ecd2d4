"""The guard against lost speed, on real measurements: of the codec, which takes a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import quick
from potstill.contracts import wire

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "CODEC_ROUNDS", 5)
    monkeypatch.setattr(quick, "CODEC_SECONDS", 0.05)


@pytest.fixture
def against(tmp_path: Path) -> Path:
    """Ratios of today's code, as it is measured here and now."""
    path = tmp_path / "quick.json"
    path.write_text("{}")
    quick.main(["--write", "--parts", "codec", "--against", str(path)])
    return path


def test_the_guard_lets_pass_what_is_as_fast_as_it_was(against: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick.main(["--parts", "codec", "--against", str(against)])
    assert "once more" not in capsys.readouterr().out


def test_the_guard_fails_when_a_ratio_falls(against: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is made three times as slow; the other side stays as it is."""
    encode = wire.encode

    def slowed(message: Any, media_type: str = wire.MSGPACK) -> bytes:
        if media_type == wire.MSGPACK:
            for _ in range(2):
                wire.decode(encode(message), type(message))
        return encode(message, media_type)

    monkeypatch.setattr(wire, "encode", slowed)
    with pytest.raises(SystemExit, match="more than a quarter was lost") as failed:
        quick.main(["--parts", "codec", "--against", str(against)])
    assert "groups encoded and decoded" in str(failed.value)


def test_what_looks_like_a_loss_is_measured_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_then_fast = iter([0.5, 1.0])
    figure = quick.beside("speed", [1.0], [1.0], "peer", "groups/s", "")

    def part(_: Path) -> list[quick.Figure]:
        return [quick.beside("speed", [next(slow_then_fast)], [1.0], "peer", "groups/s", "")]

    monkeypatch.setitem(quick.PARTS, "codec", part)
    assert quick.compare(["codec"], tmp_path, {"codec": {quick.key(figure): 1.0}}) == []
    assert "codec once more" in capsys.readouterr().out


def test_every_part_has_its_committed_ratios_and_every_processor_the_stable_ones() -> None:
    committed = json.loads((ROOT / quick.COMMITTED).read_text())
    assert {part for parts in committed.values() for part in parts} == set(quick.PARTS)
    assert all(set(quick.STABLE) <= set(parts) for parts in committed.values())
    assert all(r > 0 for parts in committed.values() for ratios in parts.values() for r in ratios.values())


def test_a_processor_is_compared_with_itself_and_a_new_one_with_the_lowest() -> None:
    every = {"a": {"codec": {"speed": 3.0}, "queue": {"rate": 2.0}}, "b": {"codec": {"speed": 1.0}}}
    assert quick.committed_for("a", every) == every["a"]
    assert quick.committed_for("b", every) == {"codec": {"speed": 1.0}, "queue": {"rate": 2.0}}
    assert quick.committed_for("c", every) == {"codec": {"speed": 1.0}, "queue": {"rate": 2.0}}
