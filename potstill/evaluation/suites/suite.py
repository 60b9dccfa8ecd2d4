"""What a suite is, and what its rows become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from potstill.contracts.problem import Message, Problem
from potstill.data.hub import HubSource

Row = dict[str, Any]
BOXED = "{problem}\n\nPlease reason step by step, and put your final answer within \\boxed{{}}."


class UnmappableRowError(ValueError):
    """A row that cannot be asked; it is left out and counted under this text."""


@dataclass(frozen=True)
class PublishedSampling:
    """How somebody's published numbers were sampled."""

    by: str
    n: int
    temperature: float
    top_p: float = 1.0
    max_tokens: int | None = None  # None: not stated


G_OPD = PublishedSampling("g-opd", n=32, temperature=1.0, max_tokens=16384)  # arXiv 2602.12125
OPDVR = PublishedSampling("opdvr", n=16, temperature=0.7, top_p=0.95)  # arXiv 2608.24696
MATHS_SAMPLING = (G_OPD, OPDVR)


@dataclass(frozen=True)
class Suite:
    """One benchmark: where its rows are, which columns they have, and how a row becomes a problem."""

    name: str
    title: str
    hub: HubSource
    columns: tuple[str, ...]  # of a hub row, all that `read` needs
    read: Callable[[Row], Problem]  # its id may be empty: then the row's number is it
    published: tuple[PublishedSampling, ...] = MATHS_SAMPLING
    selects: Callable[[Row], bool] = lambda row: True  # of the hub's rows; a local file is taken whole


def maths_problem(problem: str, answer: object, *, id: str = "") -> Problem:
    """A question whose answer is expected in a box."""
    prompt = BOXED.format(problem=str(problem).strip())
    return Problem(id=id, prompt=(Message("user", prompt),), kind="math", reference=plain_answer(answer))


def plain_answer(answer: object) -> str:
    """An answer as text: whole numbers without a point, whatever type the column has."""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    text = str(answer).strip()
    if not text:
        raise UnmappableRowError("the row has no answer")
    return text
