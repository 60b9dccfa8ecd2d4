"""A worker process: reads items from standard input, writes judgements to standard output. See pool.py."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from typing import BinaryIO

import msgspec

from potstill.contracts.verification import VerifyItem
from services.verifier.frames import LEAVING, Hello, Receipt, Reply, frame, receive_blocking
from services.verifier.judgement import Judgement, sandbox_error, undetermined
from services.verifier.kinds import MODULES, Kind, KindUnavailableError, load
from services.verifier.limits import bind_to_parent, limit_cpu, limit_memory
from services.verifier.sandbox.runner import SandboxFailedError
from services.verifier.settings import GvisorOptions, SandboxOptions

RECURSION_LIMIT = 3_000  # sympy's printers and the parser go deep on honest answers


def main() -> None:
    options = _options()
    sys.setrecursionlimit(RECURSION_LIMIT)
    isolation = ["process"]
    if bind_to_parent(options.parent):
        isolation.append("parent_death_signal")
    replies = _claim_output()
    logging.disable(logging.WARNING)  # math-verify warns that its timeouts are off: the kill from outside is ours
    kinds = {name: load(name) for name in MODULES}
    hello = _prepare(kinds, _sandbox_options(options))
    if limit_memory(options.memory_bytes):
        isolation.append("rlimit_as")
    cpu_seconds = math.ceil(options.deadline_seconds)
    if limit_cpu(cpu_seconds):
        isolation.append("rlimit_cpu")
    _self_test(kinds)
    _send(
        replies, frame(msgspec.structs.replace(hello, isolation=tuple(dict.fromkeys((*isolation, *hello.isolation)))))
    )
    _serve(kinds, replies, cpu_seconds, options.recycle_after)


def _prepare(kinds: dict[str, Kind], options: SandboxOptions) -> Hello:
    """Let kinds set up what they need, and leave out those that this host cannot judge."""
    layers: tuple[str, ...] = ()
    missing: dict[str, str] = {}
    unavailable: dict[str, str] = {}
    for name, kind in list(kinds.items()):
        try:
            prepared = kind.prepare(options)
        except KindUnavailableError as error:
            unavailable[name] = str(error)
            del kinds[name]
            continue
        layers += prepared.layers
        missing |= prepared.missing
    return Hello(layers, missing, unavailable)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--deadline-seconds", type=float, required=True)
    parser.add_argument("--recycle-after", type=int, required=True)
    parser.add_argument("--sandbox-user-id", type=int, required=True)
    parser.add_argument("--runsc")
    parser.add_argument("--runsc-platform", default="")
    return parser.parse_args()


def _sandbox_options(given: argparse.Namespace) -> SandboxOptions:
    gvisor = None if given.runsc is None else GvisorOptions(given.runsc, given.runsc_platform)
    return SandboxOptions(given.sandbox_user_id, gvisor)


def _claim_output() -> BinaryIO:
    """Keep standard output for frames alone: whatever a library prints goes to standard error."""
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return frames


def _self_test(kinds: dict[str, Kind]) -> None:
    for name, kind in kinds.items():
        judgement = kind.judge(kind.self_test)
        if judgement.score != 1.0:
            sys.exit(f"verifier worker: kind {name} does not accept its self-test: {judgement}")


def _serve(kinds: dict[str, Kind], replies: BinaryIO, cpu_seconds: int, recycle_after: int) -> None:
    for served in range(1, recycle_after + 1):
        item = receive_blocking(sys.stdin.buffer, VerifyItem)
        if item is None:
            return
        _send(replies, frame(Receipt()))
        limit_cpu(cpu_seconds)
        judgement, broken = _judge(kinds[item.kind], item)
        leaving = broken or ("recycled" if served == recycle_after else "")
        _send(replies, frame(Reply(judgement, leaving)))
        if leaving:
            sys.exit(LEAVING[leaving])


def _judge(kind: Kind, item: VerifyItem) -> tuple[Judgement, str]:
    """The judgement, and why the worker can no longer be trusted, if so."""
    try:
        return kind.judge(item), ""
    except SandboxFailedError as error:
        return sandbox_error(str(error)), "sandbox"
    except MemoryError:
        return undetermined("judging it took more memory than a worker may use"), "memory"
    except RecursionError:
        return undetermined("the answer is nested too deeply"), ""
    except Exception as error:  # noqa: BLE001  # sympy raises anything: no verdict, and the caller sees what it was
        return undetermined(f"judging it failed: {type(error).__name__}: {error}"), ""


def _send(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()


if __name__ == "__main__":
    main()
