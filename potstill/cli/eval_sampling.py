"""How many samples, and how they are drawn: as asked, or as somebody published."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

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


def list_suites() -> Table:
    table = Table("suite", "what", "from", "published sampling")
    for suite in SUITES.values():
        told = [
            f"{one.by}: n={one.n}, T={one.temperature:g}, top_p={one.top_p:g}"
            + (f", {one.max_tokens} tokens" if one.max_tokens else "")
            for one in suite.published
        ]
        table.add_row(suite.name, suite.title, str(suite.hub), "\n".join(told))
    table.add_row("reasoning-gym/TASK", "generated tasks, no hub needed", "pip install 'potstill[reasoning-gym]'", "")
    return table
