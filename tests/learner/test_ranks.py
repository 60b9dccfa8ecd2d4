"""Several ranks train the student that one would, and nothing is lost when one of them dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from learner.errors import RanksLost
from learner.ranks import Ranks
from potstill.contracts.state import JobState
from tests.broker.conftest import SERVERS, QueueServer
from tests.learner.lane_harness import TinyRollout, Workplace, free_port, launched, learner, probe, tiny_job
from tests.learner.ranked import CASES, case_folder, outcome
from tests.ship import chart
from tests.tiny_model import write_tiny_model

JOB = "job_tiny"
SIZE = 2
TWO = ("--standalone", "--nproc-per-node", str(SIZE), "-m", "learner")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], list[Any], Path]:
    """What one rank finds, what two find, and what the two complain of; each took up checkpoints of the other too."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("tied", "untied"):
        write_tiny_model(folder / name, seed=3, hidden=32, layers=3, tied=name == "tied")
    alone = {name: outcome(Ranks(), case, folder, None) for name, case in CASES.items()}
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(SIZE), "-m", "tests.learner.ranked"]
    ended = subprocess.run(
        [sys.executable, "-m", *command, str(folder)], env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300
    )
    assert ended.returncode != 0, "the last order breaks the ranks"
    told = torch.load(folder / "ranked.pt", weights_only=False)
    for name, case in CASES.items():
        alone[name]["resumed"] = outcome(Ranks(), case, folder, folder / f"of-{SIZE}")["resumed"]
    return alone, told["found"], told["complaints"], folder


def distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Largest difference, as a share of the largest value."""
    assert ours.keys() == theirs.keys()
    scale = max((float(tensor.abs().max()) for tensor in theirs.values()), default=1.0)
    return max((float((ours[name] - theirs[name]).abs().max()) for name in theirs), default=0.0) / scale


def apart(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """Norm of the difference over the norm. AdamW makes much of the last bits where a gradient is all but zero."""
    assert ours.keys() == theirs.keys()
    difference = torch.stack([(ours[name] - theirs[name]).norm() for name in theirs]).norm()
    return float(difference / torch.stack([tensor.norm() for tensor in theirs.values()]).norm())


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_the_gradient_of_one(runs: Any, case: str) -> None:
    alone, ranked, _, _ = runs
    assert distance(ranked[case]["gradients"], alone[case]["gradients"]) < 1e-5
    assert bool(ranked[case]["gradients"]) is (CASES[case].count > 0)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_report_the_numbers_of_one(runs: Any, case: str) -> None:
    alone, ranked, _, _ = runs
    for ours, theirs in zip(ranked[case]["numbers"], alone[case]["numbers"], strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert ours[name] == (value if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)), name


@pytest.mark.parametrize("case", CASES)
def test_a_job_goes_on_with_another_number_of_ranks(runs: Any, case: str) -> None:
    alone, ranked, _, _ = runs
    straight = alone[case]["weights"]
    assert apart(ranked[case]["weights"], straight) < 2e-5
    assert apart(ranked[case]["resumed"], straight) < 2e-5, "from one to two"
    assert apart(alone[case]["resumed"], straight) < 2e-5, "from two to one"


def test_a_rank_holds_its_part_of_the_layers_and_no_more(runs: Any) -> None:
    alone, ranked, _, _ = runs
    assert ranked["adapter"]["held"] == alone["adapter"]["held"] / SIZE
    tied = alone["tied"]
    layers = sum(tensor.numel() for name, tensor in tied["weights"].items() if ".layers." in name)
    assert ranked["tied"]["held"] == tied["held"] - layers / 2


@pytest.mark.parametrize("case", ["tied", "untied", "adapter"])
def test_the_files_are_those_of_one_rank(runs: Any, case: str) -> None:
    folders = [runs[3] / f"final-{size}" / case_folder(CASES[case]) for size in (1, SIZE)]
    one, two = ({path.name for path in folder.iterdir()} for folder in folders)
    assert one == two
    name = "adapter_model.safetensors" if case == "adapter" else "model.safetensors"
    ours, theirs = (load_file(folder / name) for folder in reversed(folders))
    assert apart(ours, theirs) < 2e-5


def test_a_reason_reaches_the_job_from_whichever_rank(runs: Any) -> None:
    by_first, by_second, in_the_midst = runs[2]
    assert by_first == ("student_load_failed", "there is no such folder", False)
    assert by_second == ("student_load_failed", "rank 1: there is no such folder", False)
    code, detail, broken = in_the_midst
    assert (code, broken) == ("out_of_memory", True)
    assert detail.startswith("rank 1: ")


def test_a_single_process_meets_nobody() -> None:
    ranks = Ranks.join("cpu")
    assert (ranks.rank, ranks.size, ranks.leads) == (0, 1, True)
    assert ranks.gather("x") == ["x"]
    assert issubclass(RanksLost, Exception)


@pytest.fixture
def workplace(tmp_path: Path, student_folder: Path, teacher_folder: Path) -> Iterator[Workplace]:
    server = QueueServer(str(SERVERS["valkey"]), tmp_path)
    with Workplace(server.url, TinyRollout(student_folder, teacher_folder)) as running:
        yield running
    server.kill()


def rank_process(launcher: int, rank: int) -> int:
    """Process id of a rank that torchrun started."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"rank {rank} is not there")


def test_a_job_on_two_ranks_loses_one_and_goes_on(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    spec = tiny_job(tmp_path, student_folder, teacher_folder)
    workplace.submit(JOB, spec)
    with launched(workplace.url, tmp_path / "artifacts", *TWO) as launcher:
        workplace.wait(JOB, lambda record: record.step >= 3)
        os.kill(rank_process(launcher.pid, 1), signal.SIGKILL)
        assert launcher.wait(timeout=60) != 0
        assert workplace.job(JOB).state is not JobState.FAILED
    with launched(workplace.url, tmp_path / "artifacts", *TWO) as launcher:
        record = workplace.wait_for_end(JOB)
        assert record.state is JobState.SUCCEEDED, record.error
        assert probe(launcher, "/readyz").status_code == 200
        launcher.terminate()
        launcher.wait(timeout=30)
    job = tmp_path / "artifacts" / "jobs" / JOB
    tickets = [json.loads(line)["ticket"] for line in (job / "ledger.jsonl").read_text().splitlines()]
    assert len(set(tickets)) == len(tickets) == 15
    _assert_like_one_rank(workplace, tmp_path, load_file(job / "final" / "model.safetensors"), spec)


def _assert_like_one_rank(workplace: Workplace, folder: Path, trained: dict[str, Tensor], spec: Any) -> None:
    with learner(workplace.url, folder / "alone"):
        workplace.submit("job_alone", spec)
        assert workplace.wait_for_end("job_alone").state is JobState.SUCCEEDED
    alone = load_file(folder / "alone" / "jobs" / "job_alone" / "final" / "model.safetensors")
    assert apart(trained, alone) < 1e-3


def test_what_cannot_be_done_fails_the_job_and_not_the_ranks(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    spec = tiny_job(tmp_path, student_folder, teacher_folder, steps=1)
    with launched(workplace.url, tmp_path / "artifacts", *TWO):
        bad = spec.model_copy(update={"student": spec.student.model_copy(update={"model": "/nowhere"})})
        workplace.submit("job_bad", bad)
        record = workplace.wait_for_end("job_bad")
        assert record.error is not None
        assert record.error["code"] == "student_load_failed"
        workplace.submit(JOB, spec)
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
        workplace.submit("job_cancelled", tiny_job(tmp_path, student_folder, teacher_folder, steps=500))
        workplace.wait("job_cancelled", lambda record: record.step >= 1)
        workplace.command("job_cancelled", "cancel")
        assert workplace.wait_for_end("job_cancelled").state is JobState.CANCELLED


def test_ranks_asked_to_end_hand_their_job_on(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder, steps=500))
    with launched(workplace.url, tmp_path / "artifacts", *TWO) as launcher:
        workplace.wait(JOB, lambda record: record.step >= 1)
        launcher.terminate()
        workplace.wait(JOB, lambda record: record.state is JobState.QUEUED, seconds=25.0)
        launcher.wait(timeout=30)


def test_two_nodes_are_started_by_what_the_chart_says(
    workplace: Workplace, tmp_path: Path, student_folder: Path, teacher_folder: Path
) -> None:
    port = free_port()

    def of_node(index: int) -> list[str]:
        given = [part.replace("$(POD_INDEX)", str(index)) for part in _arguments_of_the_chart()]
        here = {"--master-addr": "127.0.0.1", "--master-port": str(port), "--nproc-per-node": "1"}
        return [f"{name}={here[name]}" if (name := part.partition("=")[0]) in here else part for part in given]

    workplace.submit(JOB, tiny_job(tmp_path, student_folder, teacher_folder))
    artifacts = tmp_path / "artifacts"
    with (
        launched(workplace.url, artifacts, *of_node(0)) as leader,
        launched(workplace.url, artifacts, *of_node(1)) as follower,
    ):
        assert workplace.wait_for_end(JOB).state is JobState.SUCCEEDED
        assert [probe(node, "/livez").status_code for node in (leader, follower)] == [200, 200]
        assert "potstill_learner_step 5.0" in probe(leader, "/metrics").text


def _arguments_of_the_chart() -> list[str]:
    learner = chart.named(
        chart.objects(chart.case("learner_of_two_nodes")), "StatefulSet", "demo-potstill-learner-default"
    )
    container = learner["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python", "-m", "torch.distributed.run"]
    arguments: list[str] = container["args"]
    return arguments
