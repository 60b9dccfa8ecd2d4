"""The folder of one offline evaluation. A problem is on disk as soon as it is answered, so a second start goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from potstill.contracts.problem import Problem
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.contracts.verification import Verdict
from potstill.evaluation.results import ProblemResult, SampleResult, problem_result


class OtherEvaluationError(ValueError):
    """The folder holds the results of another evaluation."""


class Settings(msgspec.Struct, frozen=True):
    """All that the results depend on, as `evaluation.json` holds it."""

    model: str
    model_files: str
    engine: str
    dtype: str
    n: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    suites: tuple[str, ...]
    problems: str  # a digest of them

    def differences(self, other: Settings) -> list[str]:
        """What another evaluation has otherwise: `temperature 0.7, not 1.0`."""
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        long = ("model_files", "problems")
        return [
            f"other {name.replace('_', ' ')}" if name in long else f"{name} {value}, not {theirs[name]}"
            for name, value in mine.items()
            if value != theirs[name]
        ]


class SampleRecord(msgspec.Struct, frozen=True):
    response: str
    verdict: Verdict
    result: SampleResult


class ProblemRecord(msgspec.Struct, frozen=True):
    """One line of `results.jsonl`."""

    data_source: str
    problem_id: str
    reference: str | None
    samples: tuple[SampleRecord, ...]
    tombstone: str | None = None

    @classmethod
    def of(cls, problem: Problem, group: TrajectoryGroup) -> ProblemRecord:
        samples = tuple(
            SampleRecord(
                sample.text,
                sample.verdict,
                SampleResult(
                    score=sample.score,
                    correct=None if sample.score is None else sample.verdict is Verdict.ACCEPTED,
                    tokens=len(sample.token_ids),
                    finish_reason=sample.finish_reason,
                    answer=sample.answer,
                ),
            )
            for sample in group.trajectories
        )
        return cls(problem.data_source, problem.id, problem.reference, samples, group.tombstone)

    def summed_up(self) -> ProblemResult:
        return problem_result(
            self.problem_id, self.data_source, [sample.result for sample in self.samples], self.tombstone
        )


class EvaluationFolder:
    """`evaluation.json`, `results.jsonl`, and what is made of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results_path = path / "results.jsonl"
        self._settings_path = path / "evaluation.json"

    def exists(self) -> bool:
        return self._settings_path.is_file()

    def settings(self) -> Settings:
        return msgspec.json.decode(self._settings_path.read_bytes(), type=Settings)

    def open(self, settings: Settings, *, restart: bool) -> list[ProblemRecord]:
        """Begin, or go on: returns what is answered already. Raises OtherEvaluationError.

        Problems that gave no samples are asked again, and a line that a kill cut short is dropped.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        answered: list[ProblemRecord] = []
        if self.exists() and not restart:
            if differences := self.settings().differences(settings):
                raise OtherEvaluationError(
                    f"{self.path} holds another evaluation ({'; '.join(differences)}): "
                    f"choose another --out, or --restart to drop it"
                )
            answered = [record for record in self.records() if record.tombstone is None]
        self._settings_path.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2))
        with self.results_path.open("wb") as file:
            file.writelines(_line(record) for record in answered)
        return answered

    def records(self) -> list[ProblemRecord]:
        """Every problem that was answered, in the order of the answers."""
        if not self.results_path.is_file():
            return []
        complete = self.results_path.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line, type=ProblemRecord) for line in complete.splitlines()]

    def append(self, records: Iterable[ProblemRecord]) -> None:
        with self.results_path.open("ab") as file:
            file.writelines(_line(record) for record in records)

    def write_json(self, name: str, document: Any) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / name
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        return path

    def write_parquet(self, records: Sequence[ProblemRecord]) -> Path | None:
        """`samples.parquet`, a row a sample; None without pyarrow."""
        try:
            import pyarrow as arrow
            import pyarrow.parquet as parquet
        except ImportError:
            return None
        path = self.path / "samples.parquet"
        parquet.write_table(arrow.Table.from_pylist(list(_rows(records))), path)
        return path


def _line(record: ProblemRecord) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _rows(records: Sequence[ProblemRecord]) -> Iterable[dict[str, Any]]:
    for record in records:
        for index, sample in enumerate(record.samples):
            yield {
                "data_source": record.data_source,
                "problem_id": record.problem_id,
                "sample": index,
                "response": sample.response,
                "reference": record.reference,
                "answer": sample.result.answer,
                "verdict": str(sample.verdict),
                "score": sample.result.score,
                "correct": sample.result.correct,
                "tokens": sample.result.tokens,
                "finish_reason": str(sample.result.finish_reason),
            }
