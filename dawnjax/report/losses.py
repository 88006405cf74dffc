"""Figures of the training loss of our own runs, by step."""

import re
from collections.abc import Sequence

from dawnjax.page import plots, svg, words
from dawnjax.page.section import Figure
from dawnjax.page.table import Column, Table
from dawnjax.report.curves import MOST_NAMED, MOST_STRANDS
from dawnjax.report.pooled import pooled
from dawnjax.trials.trial import Trial

_COLUMNS = (
    Column("run", "run"),
    Column("step", "step", kind="integer"),
    Column("loss", "training loss", kind="number"),
)

_X = svg.Axis("step", words.number, zero=True)
_Y = svg.Axis("training loss", words.number)


def losses_figures(runs: Sequence[Trial]) -> list[Figure]:
    """Training loss against the step, a figure for each experiment; none where no log has it."""
    return [_figure(number, *of) for number, of in enumerate(_groups(runs).items(), start=1)]


def losses_table(runs: Sequence[Trial]) -> Table:
    drawn = [
        run
        for groups in _groups(runs).values()
        for _, group in groups[:MOST_NAMED]
        for run in _drawn(group)
    ]
    return Table(
        name="training_losses",
        title="Training loss by step",
        columns=_COLUMNS,
        rows=tuple((run.name, *point) for run in drawn for point in run.losses),
    )


def _groups(runs: Sequence[Trial]) -> dict[str, list[tuple[str, list[Trial]]]]:
    groups: dict[str, list[tuple[str, list[Trial]]]] = {}
    for name, members in pooled([run for run in runs if run.losses]):
        groups.setdefault(members[0].experiment, []).append((name, members))
    return groups


def _drawn(group: Sequence[Trial]) -> Sequence[Trial]:
    return group[:MOST_STRANDS]


def _figure(number: int, experiment: str, groups: Sequence[tuple[str, list[Trial]]]) -> Figure:
    lines, sentences, left_out = [], [], []
    for name, group in groups[:MOST_NAMED]:
        curves = tuple(run.losses for run in _drawn(group))
        alone = len(curves) == 1
        label = name.removeprefix(experiment).strip() or experiment  # the title has its name
        label = re.sub(r"[\w.]+\.(?=\w+=)", "", label)
        lines.append(plots.Line(label, curves[0] if alone else (), () if alone else curves))
        firsts, lasts = [curve[0][1] for curve in curves], [curve[-1][1] for curve in curves]
        runs = "" if alone else f" in {len(curves)} runs"
        sentences.append(f"{name}: from {_range(firsts)} to {_range(lasts)}{runs}")
        if len(group) > len(curves):
            left_out.append((name, f"{len(group) - len(curves)} further runs"))
    left_out += [(name, "too many lines for one figure") for name, _ in groups[MOST_NAMED:]]
    return Figure(
        name=f"training_loss-{number}",
        title=f"{experiment}: training loss against the step",
        summary="; ".join(sentences) + ".",
        caption=(
            "The loss of each step before its update, averaged over a few steps. Runs of one "
            "experiment on one system share a colour."
        ),
        draw=lambda width: plots.draw_lines(lines, _X, _Y, width, is_named=len(lines) > 1),
        left_out=tuple(left_out),
        tables=("training_losses",),
    )


def _range(values: Sequence[float]) -> str:
    low, high = words.number(min(values)), words.number(max(values))
    return low if low == high else f"{low} to {high}"
