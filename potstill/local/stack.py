"""Everything a job needs, on one machine."""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import httpx
import msgspec
import redis

from potstill.client import Client
from potstill.local.supervisor import ProcessSpec, RestartPolicy, Supervised, Supervisor
from potstill.local.threads import Threads, thread_environment, usable_cores
from potstill.local.valkey import EmbeddedValkey
from potstill.service.errors import Problem

Engine = Literal["torch", "vllm"]
HOST = "127.0.0.1"
POLL_SECONDS = 0.2
MODEL_LOAD_FAILED = "model_load_failed"  # the code of a service that goes on serving probes only to say why
LIGHT_PROCESS_THREADS = 1  # those that wait for others more than they compute


class StackError(Exception):
    """The stack did not come up."""


@dataclass(frozen=True)
class TeacherProcess:
    """How one teacher is served. Names whose processes are equal share one."""

    model: str
    dtype: str = "bfloat16"
    engine: Engine | None = None  # None: the stack's


@dataclass(frozen=True)
class GpuShares:
    """Of one GPU's memory, for vLLM; the rest is the learner's. Teachers share theirs."""

    student: float = 0.35
    teacher: float = 0.35


@dataclass(frozen=True)
class StackSpec:
    """What to start. Paths of models and the artifacts root are used as they are given."""

    artifacts: Path
    student_model: str
    teachers: Mapping[str, TeacherProcess]
    engine: Engine = "torch"
    student_dtype: str = "float32"
    max_length: int | None = None  # prompt and response together; None: what each model was made for
    student_slots: int | None = None  # samples at the same time; None: the student's own choice
    rollout_workers: int = 1
    verifier_workers: int | None = None  # None: the verifier's own choice
    threads: Threads = field(default_factory=lambda: Threads.split(usable_cores(), overlapping=True))
    gpu: GpuShares = field(default_factory=GpuShares)
    data_roots: tuple[Path, ...] = ()  # folders that data files may lie in, beside the gateway's own
    without: frozenset[str] = frozenset()  # processes that are not started
    redis_url: str | None = None  # None: an embedded Valkey under the artifacts root
    env: Mapping[str, str] = field(default_factory=dict)  # of every process
    process_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # process name to more variables
    start_seconds: float = 900.0
    restarts: RestartPolicy = field(default_factory=RestartPolicy)


class Stack:
    """The running processes. Use as a context manager; processes that die are started again.

    Process names: `valkey`, `student`, `teacher-<name>` for every name in the registry, `verifier`, `gateway`,
    `rollout-0`…, `learner`. Those in `without` are left out.
    """

    def __init__(self, spec: StackSpec, progress: Callable[[str], None] = lambda line: None) -> None:
        self.spec = spec
        self.token = secrets.token_hex(32)
        self.artifacts = spec.artifacts.resolve()
        self._progress = progress
        self._teachers = _shared(spec)
        self._ports = free_ports([*self._http_names(), "valkey"])
        self._supervisor: Supervisor | None = None
        self._valkey: EmbeddedValkey | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The gateway's base URL."""
        return self._url("gateway")

    @property
    def urls(self) -> dict[str, str]:
        """Base URL of every process that serves HTTP, by name."""
        return {name: self._url(name) for name in self._http_names()}

    @property
    def redis_url(self) -> str:
        if self.spec.redis_url is not None:
            return self.spec.redis_url
        assert self._valkey is not None, "start the stack first"
        return self._valkey.url

    def client(self) -> Client:
        return Client(self.url, self.token)

    def process(self, name: str) -> Supervised:
        """A process by name; a teacher by any name it serves. Raises KeyError."""
        assert self._supervisor is not None, "start the stack first"
        return self._supervisor.process(self._teachers.get(name, name))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the processes, in starting order."""
        return self._supervisor.names if self._supervisor else ()

    def check(self) -> None:
        """Raises SupervisorError once a process died too often to go on."""
        if self._supervisor is not None:
            self._supervisor.check()

    def start(self) -> None:
        """Start everything and wait until all of it is ready. Raises StackError or SupervisorError."""
        self.artifacts.mkdir(parents=True, exist_ok=True)
        self._supervisor = Supervisor(self.artifacts / "logs", self.spec.restarts)
        deadline = time.monotonic() + self.spec.start_seconds
        if self.spec.redis_url is None:
            self._valkey = EmbeddedValkey.prepare(self.artifacts / "valkey", self._ports["valkey"])
            self._supervisor.start(self._valkey.process())
        self._await(["queue"], lambda _: _queue_trouble(self.redis_url), deadline)
        for process in self._process_specs():
            self._supervisor.start(process)
        self._await(self._http_names(), lambda name: _http_trouble(name, self._url(name)), deadline)

    def stop(self) -> None:
        """Stop everything, in reverse order. Safe to call twice."""
        if self._supervisor is not None:
            self._supervisor.stop()

    def _http_names(self) -> list[str]:
        workers = [f"rollout-{index}" for index in range(self.spec.rollout_workers)]
        names = ["student", *dict.fromkeys(self._teachers.values()), "verifier", "gateway", *workers, "learner"]
        return [name for name in names if name not in self.spec.without]

    def _url(self, name: str) -> str:
        return f"http://{HOST}:{self._ports[name]}"

    def _process_specs(self) -> list[ProcessSpec]:
        return [self._process_spec(name) for name in self._http_names()]

    def _process_spec(self, name: str) -> ProcessSpec:
        kind = name.split("-")[0]
        module = "learner" if kind == "learner" else f"services.{kind}"
        environment = {
            **self._shared_environment(),
            **self._own_environment(name, kind),
            **self.spec.env,
            **self.spec.process_env.get(name, {}),
            "POTSTILL_PORT": str(self._ports[name]),
        }
        return ProcessSpec(name, (sys.executable, "-m", module), environment)

    def _shared_environment(self) -> dict[str, str]:
        teachers = ",".join(
            f"{alias.removeprefix('teacher-')}={self._url(name)}" for alias, name in self._teachers.items()
        )
        return {
            "POTSTILL_HOST": HOST,
            "POTSTILL_TOKEN": self.token,
            "POTSTILL_ARTIFACTS": str(self.artifacts),
            "POTSTILL_REDIS_URL": self.redis_url,
            "POTSTILL_STUDENT_URL": self._url("student"),
            "POTSTILL_TEACHERS": teachers,
            "POTSTILL_VERIFIER_URL": self._url("verifier"),
            "POTSTILL_LOG_FORMAT": "console",
        }

    def _own_environment(self, name: str, kind: str) -> dict[str, str]:
        if kind == "student":
            return self._student_environment()
        if kind == "teacher":
            return self._teacher_environment(name)
        if kind == "learner":
            count = self.spec.threads.learner
            own = {"POTSTILL_LEARNER_THREADS": str(count), "POTSTILL_LEARNER_NAME": name}
            return own | thread_environment(count)
        own = {"POTSTILL_WORKER_NAME": name} if kind == "rollout" else {}
        if kind == "verifier" and self.spec.verifier_workers is not None:
            own["POTSTILL_VERIFIER_WORKERS"] = str(self.spec.verifier_workers)
        if kind == "gateway" and self.spec.data_roots:
            roots = [str(self.artifacts), str(Path.cwd()), *(str(root.resolve()) for root in self.spec.data_roots)]
            own["POTSTILL_DATA_ROOTS"] = ",".join(dict.fromkeys(roots))
        return own | thread_environment(LIGHT_PROCESS_THREADS)

    def _student_environment(self) -> dict[str, str]:
        own = {
            "POTSTILL_STUDENT_ENGINE": self.spec.engine,
            "POTSTILL_STUDENT_MODEL": self.spec.student_model,
            "POTSTILL_STUDENT_DTYPE": self.spec.student_dtype,
            "POTSTILL_STUDENT_THREADS": str(self.spec.threads.student),
            "POTSTILL_STUDENT_GPU_MEMORY_SHARE": f"{self.spec.gpu.student:.3f}",
        }
        if self.spec.max_length is not None:
            own["POTSTILL_STUDENT_MAX_LENGTH"] = str(self.spec.max_length)
        if self.spec.student_slots is not None:
            own["POTSTILL_STUDENT_SLOTS"] = str(self.spec.student_slots)
        return own | thread_environment(self.spec.threads.student)

    def _teacher_environment(self, name: str) -> dict[str, str]:
        teacher = self.spec.teachers[name.removeprefix("teacher-")]
        processes = len(set(self._teachers.values()))
        count = max(1, self.spec.threads.teacher // processes)
        own = {
            "POTSTILL_TEACHER_ENGINE": teacher.engine or self.spec.engine,
            "POTSTILL_TEACHER_MODEL": teacher.model,
            "POTSTILL_TEACHER_DTYPE": teacher.dtype,
            "POTSTILL_TEACHER_THREADS": str(count),
            "POTSTILL_TEACHER_GPU_MEMORY_SHARE": f"{self.spec.gpu.teacher / processes:.3f}",
        }
        if self.spec.max_length is not None:
            own["POTSTILL_TEACHER_MAX_LENGTH"] = str(self.spec.max_length)
        return own | thread_environment(count)

    def _await(self, names: list[str], trouble: Callable[[str], str | None], deadline: float) -> None:
        """Wait until none of `names` has trouble, saying so as each one comes up."""
        waiting = dict.fromkeys(names, "")
        while waiting:
            self.check()
            for name in list(waiting):
                found = trouble(name)
                if found is None:
                    del waiting[name]
                    self._progress(f"{name} is ready" + (f"; waiting for {', '.join(waiting)}" if waiting else ""))
                else:
                    waiting[name] = found
            if waiting and time.monotonic() > deadline:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in waiting.items())
                logs = self.artifacts / "logs"
                raise StackError(f"not ready after {self.spec.start_seconds:.0f} s ({reasons}); the logs are in {logs}")
            if waiting:
                time.sleep(POLL_SECONDS)


def _shared(spec: StackSpec) -> dict[str, str]:
    """`teacher-<name>` for every name, to the name of the process that serves it: the first with the same needs."""
    first: dict[TeacherProcess, str] = {}
    return {f"teacher-{name}": first.setdefault(process, f"teacher-{name}") for name, process in spec.teachers.items()}


def free_ports(names: list[str]) -> dict[str, int]:
    """A port of the kernel's choice for each name; all are held until all are chosen, so that none comes twice."""
    held = [socket.socket() for _ in names]
    try:
        for listener in held:
            listener.bind((HOST, 0))
        return {name: listener.getsockname()[1] for name, listener in zip(names, held, strict=True)}
    finally:
        for listener in held:
            listener.close()


def _queue_trouble(url: str) -> str | None:
    try:
        with redis.Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=5.0) as client:
            client.ping()
    except redis.RedisError as error:
        return str(error)
    return None


def _http_trouble(name: str, url: str) -> str | None:
    """Why a service is not ready; None once it is. Raises StackError when it never will be."""
    try:
        response = httpx.get(f"{url}/readyz", timeout=15.0)
    except httpx.TransportError as error:
        return str(error) or type(error).__name__
    if response.is_success:
        return None
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return response.text[:300]
    if problem.code == MODEL_LOAD_FAILED:
        raise StackError(f"{name}: {problem.detail}")
    return problem.detail
