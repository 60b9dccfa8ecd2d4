"""Write `docs/benchmarks.md` and its plot from `docs/benchmarks.json`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from benchmarks.figures import Figure, number, read

PAGE, PLOT = Path("docs/benchmarks.md"), Path("docs/benchmarks.png")
SAYS = {
    "queue": "Trajectory groups through the broker: issued, taken, handed in, read and acknowledged. "
    "Each group has 4 samples of 512 tokens.",
    "learner": "One update of the student on the same sequences.",
    "scoring": "Teacher log-probabilities of groups of eight responses to one prompt.",
    "publish": "From the learner's weights to a student that answers with them.",
    "scale": "Rollout workers against services whose latency is simulated.",
    "gateway": "Many clients at once, each of which submits a job, polls it, follows its events and cancels it.",
    "end_to_end": "Prompts in, an updated student out: the whole stack, rollout and learning overlapping, "
    "beside a trainer that does one after the other. Steps in full swing.",
    "overlap": "Where the seconds of a job go: the demo's, in turns and overlapping.",
    "recovery": "From the kill of a process to the end of the first step that was begun after it.",
    "gpu": "The learner's parts on a GPU.",
}


def write_page() -> None:
    figures = read()
    PAGE.write_text(page(figures))
    plot(figures, PLOT)


def topic(figure: Figure) -> str:
    return figure.command.split("benchmarks.")[1].split()[0]


def page(figures: Sequence[Figure]) -> str:
    """The Markdown, a section a command."""
    lines = [
        "# Benchmarks",
        "",
        "Both sides of a ratio are measured in turn in one run on one machine; a ratio is the median of the rounds'",
        "own ratios, with a 95% bootstrap interval over rounds. Above 1 is in our favour. Bad figures are here too.",
        "`make bench` measures all of it again, `make bench-quick` looks for losses; the numbers are in",
        "[benchmarks.json](benchmarks.json). `load` is the load average: above the number of cores, others had work",
        "on the machine too, which hurts latencies most and ratios least. How far rollout and learning overlap is in",
        "[results/overlap.md](results/overlap.md). `benchmarks/gpu.sh` is for one GPU and has run on a CPU only.",
        "",
        "![ratios to peers](benchmarks.png)",
        "",
    ]
    for name, group in groupby(figures, topic):
        section = list(group)
        lines += [f"## {name.replace('_', ' ').capitalize()}", "", SAYS.get(name, ""), "", *_table(section), ""]
        if notes := list(dict.fromkeys(figure.note for figure in section if figure.note)):
            lines += [*(f"- {note}" for note in notes), ""]
        facts = ", ".join(f"{key} {value}" for key, value in section[0].machine.items())
        lines += [f"Command: `{section[0].command}`. Machine: {facts}.", ""]
    return "\n".join(lines)


def _table(figures: Sequence[Figure]) -> list[str]:
    lines = ["| | ours | peer | | ratio | interval | aim |", "|---|---|---|---|---|---|---|"]
    for figure in figures:
        interval = "{} to {}".format(*map(number, figure.interval)) if figure.interval else ""
        lines.append(
            f"| {figure.name} | {number(figure.ours)} {figure.unit} "
            f"| {'' if figure.peer is None else number(figure.peer)} | {figure.peer_name or ''} "
            f"| {'' if figure.ratio is None else f'**{figure.ratio:.2f}**'} | {interval} | {figure.aim or ''} |"
        )
    return lines


def plot(figures: Sequence[Figure], path: Path) -> None:
    """The ratios with their intervals."""
    compared = [(figure, figure.ratio) for figure in figures if figure.ratio is not None][::-1]
    canvas = Canvas(figsize=(8, 1 + 0.34 * len(compared)), layout="constrained")
    axes = canvas.subplots()
    for place, (figure, ratio) in enumerate(compared):
        low, high = figure.interval or (ratio, ratio)
        axes.plot([low, high], [place, place], color="C0", linewidth=2)
        axes.plot(ratio, place, "o", color="C0", markersize=5)
    names = [f"{figure.name}\nagainst {figure.peer_name}" for figure, _ in compared]
    axes.set_yticks(range(len(compared)), names, fontsize=7)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="ratio, above 1 is in our favour")
    ticks = [tick for tick in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3, axis="x")
    canvas.savefig(path, dpi=110)


if __name__ == "__main__":
    write_page()
