"""`potstill eval` as a person runs it: the real command and every real process, on a tiny model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from potstill.evaluation.files import EvaluationFolder
from tests.tiny_model import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROBLEMS = 150
SAMPLING = ("--n", "3", "--temperature", "1.2", "--top-p", "0.9", "--max-tokens", "48")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    write_tiny_model(folder / "model")
    rows = [{"prompt": f"{i}+1?", "answer": str(i + 1), "data_source": ("a", "b")[i % 2]} for i in range(PROBLEMS)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # Where the tests themselves run in the background of a shell, Ctrl-C is ignored, and children inherit that.
    hears_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        [sys.executable, "-m", "potstill.cli.main", "eval", *arguments], cwd=folder, preexec_fn=hears_ctrl_c, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_an_interrupted_evaluation_goes_on_where_it_was_and_is_compared(folder: Path) -> None:
    asked = ("model", "--data", "sums.jsonl", "--slots", "4", *SAMPLING)
    first = start(folder, *asked, "--out", "out")
    assert first.stdout is not None
    for line in first.stdout:
        if f"/{PROBLEMS} problems" in line:
            break
    first.send_signal(signal.SIGINT)
    printed, complaints = first.communicate(timeout=60)
    assert first.returncode == 130, complaints
    assert "goes on from there" in printed
    results = EvaluationFolder(folder / "out")
    kept = results.records()
    assert 0 < len(kept) < PROBLEMS

    second = start(folder, *asked, "--out", "out")
    printed, complaints = second.communicate()
    assert second.returncode == 0, complaints
    assert f"{len(kept)} of {PROBLEMS} problems are answered already" in printed
    records = results.records()
    assert records[: len(kept)] == kept
    assert len({record.problem_id for record in records}) == len(records) == PROBLEMS
    assert {len(record.samples) for record in records} == {3}
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert [(scores["data_source"], scores["problems"]) for scores in summary["data_sets"]] == [
        ("a", PROBLEMS // 2),
        ("b", PROBLEMS // 2),
    ]
    assert set(summary["data_sets"][0]["passed"]) == {"1", "2", "3"}
    assert (folder / "out" / "plot.png").exists()
    for word in ("avg@3", "pass@3", "mean of data sets", "samples: out/samples.parquet"):
        assert word in printed

    refused = start(folder, *asked, "--seed", "1", "--out", "out")
    _, complaints = refused.communicate()
    assert refused.returncode == 1
    assert "holds another evaluation (seed 0, not 1)" in complaints

    # The same model on the same problems, half of them from before the interruption: nothing may have changed.
    alone = start(folder, *asked, "--out", "again")
    assert alone.wait(timeout=200) == 0
    by_id = {record.problem_id: record for record in EvaluationFolder(folder / "again").records()}
    assert by_id == {record.problem_id: record for record in records}
    compared = start(folder, "--compare", "out", "again", "--out", "compared")
    printed, complaints = compared.communicate()
    assert compared.returncode == 0, complaints
    gains = json.loads((folder / "compared" / "comparison.json").read_text())
    assert gains["all problems"]["n"] == PROBLEMS
    assert gains["all problems"]["interval"] == [0.0, 0.0]
    assert "gain (paired)" in printed
