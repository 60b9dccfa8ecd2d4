"""How many samples, and how they are drawn: as asked, or as somebody published."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Column, Table

from potstill.cli.terminal import CommandError
from potstill.contracts.generation import Sampling
from potstill.evaluation.suites import SUITES
from potstill.evaluation.suites.suite import PublishedSampling

DEFAULT = PublishedSampling("default", n=1, temperature=0.0, top_p=1.0, max_tokens=1024)


def choose_sampling(
    suites: Sequence[str],
    published: str | None,
    n: int | None,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
) -> tuple[int, Sampling]:
    """n and sampling: what is given, then what is published, then greedy. Raises CommandError."""
    base = _published(suites, published) if published else DEFAULT
    count = n if n is not None else base.n
    sampling = Sampling(
        temperature=base.temperature if temperature is None else temperature,
        max_tokens=max_tokens or base.max_tokens or DEFAULT.max_tokens or 1024,
        top_p=base.top_p if top_p is None else top_p,
    )
    if count > 1 and sampling.temperature == 0:
        raise CommandError(
            f"{count} greedy samples of a problem are the same one: give --temperature, or leave out --n"
        )
    return count, sampling


def _published(suites: Sequence[str], by: str) -> PublishedSampling:
    """What all the suites have under this name."""
    known = [suite for name in suites if (suite := SUITES.get(name.partition("=")[0])) is not None]
    found = {one for suite in known for one in suite.published if one.by == by}
    if (
        len(known) < len(suites)
        or not all(any(one.by == by for one in suite.published) for suite in known)
        or not found
    ):
        names = sorted({one.by for suite in known for one in suite.published})
        has = f"there are {', '.join(names)}" if names else "none is published for them"
        raise CommandError(f"--published {by} is not known for every suite here: {has}; give --n and --temperature")
    (sampling,) = found
    return sampling


def list_suites() -> Group:
    """Every suite with where its rows come from, then how published results sampled them."""
    table = Table("suite", "what", Column("from", overflow="fold"), "published")
    published: dict[PublishedSampling, None] = {}
    for suite in SUITES.values():
        table.add_row(suite.name, suite.title, str(suite.hub), ", ".join(one.by for one in suite.published))
        published |= dict.fromkeys(suite.published)
    table.add_row("reasoning-gym/TASK", "generated tasks", "the extra reasoning-gym", "")
    return Group(table, *map(_told, published))


def _told(published: PublishedSampling) -> str:
    limit = f", {published.max_tokens} tokens" if published.max_tokens else ""
    sampling = f"n={published.n}, temperature {published.temperature:g}, top_p {published.top_p:g}{limit}"
    return f"--published {published.by}: {sampling}"
