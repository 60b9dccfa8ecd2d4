"""Admission: first come first served, bounded in bytes, places and time."""

from __future__ import annotations

import asyncio

import pytest

from potstill.service.errors import OverloadedError, TooLargeError
from services.teacher.admission import Admission


async def _hold(admission: Admission, num_bytes: int, release: asyncio.Event, order: list[int]) -> None:
    async with admission.admit(num_bytes):
        order.append(num_bytes)
        await release.wait()


async def test_work_waits_until_it_fits_and_is_let_in_in_order() -> None:
    admission, order = Admission(100, max_waiting=8, wait_seconds=5), []
    releases = [asyncio.Event() for _ in range(3)]
    tasks = [
        asyncio.create_task(_hold(admission, size, event, order))
        for size, event in zip((60, 70, 10), releases, strict=True)
    ]
    await asyncio.sleep(0.01)
    assert order == [60]  # 10 would fit, but it came after 70
    releases[0].set()
    await asyncio.sleep(0.01)
    assert order == [60, 70, 10]
    for event in releases:
        event.set()
    await asyncio.gather(*tasks)
    async with admission.admit(100):
        pass  # all was given back


async def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(TooLargeError, match="POTSTILL_TEACHER_MEMORY_BYTES"):
        async with Admission(100, max_waiting=8, wait_seconds=5).admit(101):
            pass


async def test_a_wait_that_is_too_long_ends_with_advice_to_retry() -> None:
    admission = Admission(100, max_waiting=8, wait_seconds=0.02)
    async with admission.admit(80):
        with pytest.raises(OverloadedError, match="not admitted") as caught:
            async with admission.admit(30):
                pass
        assert caught.value.retry_after
    async with admission.admit(100):
        pass


async def test_the_queue_is_bounded() -> None:
    admission, release = Admission(100, max_waiting=1, wait_seconds=5), asyncio.Event()
    tasks = [asyncio.create_task(_hold(admission, 100, release, [])) for _ in range(2)]
    await asyncio.sleep(0.01)
    with pytest.raises(OverloadedError):
        async with admission.admit(1):
            pass
    release.set()
    await asyncio.gather(*tasks)


async def test_a_caller_that_gives_up_lets_the_next_one_in() -> None:
    admission, order, release = Admission(100, max_waiting=8, wait_seconds=5), [], asyncio.Event()
    running = asyncio.create_task(_hold(admission, 60, release, order))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(_hold(admission, 70, release, order))
    behind = asyncio.create_task(_hold(admission, 10, release, order))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert order == [60, 10]
    release.set()
    await asyncio.gather(running, behind)
