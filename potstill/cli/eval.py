"""`potstill eval`: a model on benchmark suites or data files, on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from potstill.cli.eval_progress import EvalProgress
from potstill.cli.eval_report import changes, plot_scores, score_document, score_table
from potstill.cli.eval_sampling import choose_sampling, list_suites
from potstill.cli.progress import format_seconds
from potstill.cli.summary import change_table
from potstill.cli.terminal import INTERRUPTED_EXIT, CommandError, errors, interrupt_on_sigterm, output
from potstill.contracts.capabilities import Capabilities
from potstill.contracts.generation import Sampling
from potstill.contracts.job import DataSpec
from potstill.contracts.problem import Problem
from potstill.contracts.trajectory import TrajectoryGroup
from potstill.data import DataError
from potstill.evaluation.files import EvaluationFolder, OtherEvaluationError, ProblemRecord, Settings
from potstill.evaluation.models import EvaluatedModel, ModelError, find_model
from potstill.evaluation.offline import Plan, run_plan
from potstill.evaluation.suites.loading import load_data_file, load_suite
from potstill.local.stack import Engine, Stack, StackSpec
from potstill.local.threads import Threads, usable_cores
from potstill.service.logs import configure_logging
from potstill.service.peers import Peer

DEFAULT_SLOTS = 32  # samples that the student generates at once
GENERATE_SECONDS = 6 * 3600.0  # one ticket may be many long samples; a student that dies is noticed without it
Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Wanted:
    """What is evaluated, and how; the same for every model of one command."""

    problems: list[Problem]
    left_out: Counter[str]
    suites: tuple[str, ...]
    n: int
    sampling: Sampling
    seed: int
    engine: Engine
    dtype: Dtype
    slots: int
    restart: bool


def evaluate(
    model: Annotated[
        str | None, typer.Argument(help="A folder, a hub id, or the artifacts of a finished job or run.")
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option(help="NAME, NAME=FILE, NAME=hub:owner/name, or reasoning-gym/TASK; repeatable.")
    ] = None,
    data: Annotated[list[str] | None, typer.Option(help="A data file or hub:owner/name; repeatable.")] = None,
    n: Annotated[int | None, typer.Option("--n", "-n", min=1, help="Samples a problem. [default: 1]")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is greedy. [default: 0]")] = None,
    top_p: Annotated[float | None, typer.Option(min=1e-6, max=1, help="[default: 1]")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of a response. [default: 1024]")] = None,
    published: Annotated[
        str | None, typer.Option(help="Sample as published results did: g-opd, opdvr, …; see --suites.")
    ] = None,
    max_problems: Annotated[int | None, typer.Option(min=1, help="Of each suite and file, the first ones.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    engine: Annotated[Engine, typer.Option()] = "torch",
    dtype: Annotated[Dtype, typer.Option()] = "float32",
    slots: Annotated[int, typer.Option(min=1, help="Samples that are generated at once.")] = DEFAULT_SLOTS,
    out: Annotated[Path | None, typer.Option(help="Where results go. [default: artifacts/eval/<model>]")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Drop what an earlier start left in --out.")] = False,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Two models, or two folders of results: the gain.")
    ] = None,
    suites: Annotated[bool, typer.Option("--suites", help="List the suites and end.")] = False,
) -> None:
    """Evaluate a model on benchmark suites or data files: avg@n, pass@k, maj@n, with intervals.

    Starts a queue, the student, the verifier and a rollout worker, and stops them again. What is answered is on disk at
    once: the same command again goes on where an interrupted one stopped.
    """
    if suites:
        output.print(list_suites())
        return
    if (model is None) == (compare is None):
        raise CommandError("give one model to evaluate, or --compare A B with two models or two folders of results")
    if compare is not None and all(EvaluationFolder(Path(name)).exists() for name in compare):
        _compare(EvaluationFolder(Path(compare[0])), EvaluationFolder(Path(compare[1])), out)
        return
    named, files = suite or [], data or []
    count, sampling = choose_sampling(named, published, n, temperature, top_p, max_tokens)
    problems, left_out = _problems(named, files, max_problems)
    wanted = Wanted(problems, left_out, (*named, *files), count, sampling, seed, engine, dtype, slots, restart)
    interrupt_on_sigterm()
    configure_logging("warning", "console")
    if compare is None:
        assert model is not None
        found = _find(model)
        _evaluate(found, wanted, EvaluationFolder(out or _default_folder(found)))
        return
    root = out or Path("artifacts") / "eval" / "comparison"
    folders = [EvaluationFolder(root / name) for name in ("a", "b")]
    for name, folder in zip(compare, folders, strict=True):
        _evaluate(_find(name), wanted, folder)
    _compare(folders[0], folders[1], root)


def _problems(
    suites: Sequence[str], files: Sequence[str], max_problems: int | None
) -> tuple[list[Problem], Counter[str]]:
    """The problems of all suites and files, and the rows left out by reason. Raises CommandError."""
    if not suites and not files:
        raise CommandError("name what to evaluate on: --suite NAME (see --suites), or --data FILE")
    problems: dict[tuple[str, str], Problem] = {}
    left_out: Counter[str] = Counter()
    try:
        for loaded in [*map(load_suite, suites), *(load_data_file(name, DataSpec(train="")) for name in files)]:
            problems |= {(problem.data_source, problem.id): problem for problem in loaded.problems[:max_problems]}
            left_out.update(loaded.left_out)
    except DataError as error:
        raise CommandError(error.message) from error
    return list(problems.values()), left_out


def _find(model: str) -> EvaluatedModel:
    try:
        return find_model(model)
    except ModelError as error:
        raise CommandError(str(error)) from error


def _default_folder(model: EvaluatedModel) -> Path:
    parts = [part for part in Path(model.name).parts if part not in ("/", "..", ".")]
    return Path("artifacts") / "eval" / "-".join(parts[-3:])


def _evaluate(model: EvaluatedModel, wanted: Wanted, folder: EvaluationFolder) -> None:
    """Answer what is not answered yet, then write and print what all of it comes to."""
    try:
        answered = folder.open(_settings(model, wanted), restart=wanted.restart)
    except OtherEvaluationError as error:
        raise CommandError(str(error)) from error
    for reason, count in wanted.left_out.items():
        errors.print(f"{count} rows are left out: {reason}", style="yellow", markup=False, highlight=False)
    known = {(record.data_source, record.problem_id) for record in answered}
    missing = [problem for problem in wanted.problems if (problem.data_source, problem.id) not in known]
    if answered:
        _say(f"{len(answered)} of {len(wanted.problems)} problems are answered already in {folder.path}")
    begun = time.monotonic()
    if missing:
        _answer(model, wanted, folder, missing)
    _report(model, wanted, folder, time.monotonic() - begun)


def _settings(model: EvaluatedModel, wanted: Wanted) -> Settings:
    digest = hashlib.sha256(msgspec.json.encode(wanted.problems)).hexdigest()
    return Settings(
        model=model.name,
        model_files=hashlib.sha256(model.digest().encode()).hexdigest(),
        engine=wanted.engine,
        dtype=wanted.dtype,
        n=wanted.n,
        temperature=wanted.sampling.temperature,
        top_p=wanted.sampling.top_p,
        max_tokens=wanted.sampling.max_tokens,
        seed=wanted.seed,
        suites=wanted.suites,
        problems=digest,
    )


def _answer(model: EvaluatedModel, wanted: Wanted, folder: EvaluationFolder, missing: Sequence[Problem]) -> None:
    shutil.rmtree(folder.path / "valkey", ignore_errors=True)  # of an earlier start; what it answered is in the results
    policy = model.publish(folder.path)
    progress = EvalProgress(output, len(wanted.problems), len(wanted.problems) - len(missing))

    def take(problem: Problem, group: TrajectoryGroup) -> None:
        record = ProblemRecord.of(problem, group)
        folder.append([record])
        progress.take(record.summed_up())

    with Stack(_stack_spec(model, wanted, folder.path), progress=_say) as stack:
        asyncio.run(_check_services(stack, wanted))
        plan = Plan(model.base, missing, wanted.n, wanted.sampling, wanted.seed, policy)
        try:
            with progress:
                asyncio.run(run_plan(stack.redis_url, plan, take, stack.check))
        except KeyboardInterrupt:
            _say(f"interrupted: what is answered is in {folder.path}, and the same command goes on from there")
            raise typer.Exit(INTERRUPTED_EXIT) from None


def _stack_spec(model: EvaluatedModel, wanted: Wanted, folder: Path) -> StackSpec:
    cores = usable_cores()
    tickets = max(2, 2 * wanted.slots // wanted.n)  # twice what fits, so that no slot waits for the next ticket
    student = {"POTSTILL_STUDENT_MAX_PENDING": str(max(1024, (tickets + 1) * wanted.n))}
    worker = {
        "POTSTILL_ROLLOUT_CONCURRENCY": str(tickets),
        "POTSTILL_ROLLOUT_GENERATE_SECONDS": str(GENERATE_SECONDS),
    }
    return StackSpec(
        artifacts=folder,
        student_model=model.base,
        teachers={},
        without=frozenset({"gateway", "learner"}),
        engine=wanted.engine,
        student_dtype=wanted.dtype,
        student_slots=wanted.slots,
        threads=Threads(student=cores, teacher=1, learner=1),
        process_env={"student": student, "rollout-0": worker},
    )


async def _check_services(stack: Stack, wanted: Wanted) -> None:
    """Raises CommandError when the model or the verifier cannot do what is asked."""
    sampling = wanted.sampling
    known = await _capabilities(stack, "student")
    if known.model is not None and sampling.max_tokens >= known.model.max_length:
        limit = known.model.max_length
        raise CommandError(
            f"--max-tokens {sampling.max_tokens} leaves no room for a prompt in {limit} tokens: lower it"
        )
    judged = (await _capabilities(stack, "verifier")).features
    if absent := sorted({problem.kind for problem in wanted.problems} - set(judged)):
        raise CommandError(f"the verifier here judges {', '.join(judged)}, but problems need {', '.join(absent)}")


async def _capabilities(stack: Stack, name: str) -> Capabilities:
    peer = Peer(stack.urls[name], stack.token)
    try:
        return await peer.capabilities()
    finally:
        await peer.close()


def _report(model: EvaluatedModel, wanted: Wanted, folder: EvaluationFolder, seconds: float) -> None:
    place = {(problem.data_source, problem.id): index for index, problem in enumerate(wanted.problems)}
    records = sorted(folder.records(), key=lambda record: place[record.data_source, record.problem_id])
    problems = [record.summed_up() for record in records]
    output.print(f"\n{model.name} after {format_seconds(seconds)}", highlight=False, markup=False, soft_wrap=True)
    output.print(score_table(problems))
    for reason, count in Counter(record.tombstone for record in records if record.tombstone).most_common(3):
        errors.print(f"{count} problems gave no samples: {reason}", style="yellow", markup=False, highlight=False)
    document = {
        "settings": folder.settings(),
        "seconds": round(seconds, 1),
        **score_document(problems),
        "rows_left_out": dict(wanted.left_out),
    }
    written = {
        "summary": folder.write_json("summary.json", document),
        "plot": plot_scores(folder.path / "plot.png", model.name, problems),
        "samples": folder.write_parquet(records) or folder.results_path,
    }
    for name, path in written.items():
        if path is not None:
            output.print(f"{name}: {path}", highlight=False, markup=False, soft_wrap=True)
    if written["samples"] == folder.results_path:
        _say("samples are in JSONL; pip install 'potstill[parquet]' for a Parquet file as well")
    if all(record.tombstone is not None for record in records):
        raise CommandError("no problem gave a sample")


def _compare(before: EvaluationFolder, after: EvaluationFolder, out: Path | None) -> None:
    """Print, and with `out` write, what the second has over the first."""
    settings = before.settings(), after.settings()
    for difference in settings[1].differences(settings[0]):
        if not difference.startswith(("model", "other model")):
            errors.print(f"B was evaluated otherwise: {difference}", style="yellow", markup=False, highlight=False)
    found = changes(*([record.summed_up() for record in folder.records()] for folder in (before, after)))
    if not found:
        raise CommandError(f"{before.path} and {after.path} have no problem in common that both could verify")
    first = next(iter(found.values()))
    output.print(f"\nbefore: {settings[0].model}\nafter: {settings[1].model}", highlight=False, markup=False)
    output.print(change_table(f"on the same problems, {first.n} in the first data set", found))
    if out is not None:
        document = {name: change.model_dump(mode="json") for name, change in found.items()}
        path = EvaluationFolder(out).write_json("comparison.json", document)
        output.print(f"comparison: {path}", highlight=False, markup=False, soft_wrap=True)


def _say(line: str) -> None:
    output.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
