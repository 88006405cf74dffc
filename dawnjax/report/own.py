"""Section on our own runs: time to accuracy beside compilation, and the parts of the wall time."""

import statistics
from collections.abc import Sequence

from dawnjax.page import svg, words
from dawnjax.page.rows import Row, bars_in_words, draw_bars
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Missing, Table, row_of
from dawnjax.report.losses import losses_table
from dawnjax.report.pooled import pooled, variant
from dawnjax.runs.clock import PHASES
from dawnjax.runs.goodput import PARTS, share
from dawnjax.trials import load
from dawnjax.trials.labels import quality
from dawnjax.trials.ours import data_name
from dawnjax.trials.trial import Trial

MOST_BARS = 30

MOST_NAMED = 12
"""Disturbed runs that the table's note names."""

RUN_COLUMNS = (
    Column("run", "run"),
    Column("experiment", "experiment", under="run"),
    Column("variant", "changed", under="run"),
    Column("seed", "seed", kind="integer"),
)


def runs_section(runs: Sequence[Trial]) -> Section | None:
    """Result of each run; None without runs."""
    if not runs:
        return None
    runs = _ordered(runs)
    return Section(
        name="runs",
        title="Your runs" if len(runs) > 1 else "Your run",
        lead=(
            "The time to accuracy begins when every program is compiled; compilation is shown "
            "beside it. After a restart, the time to accuracy includes compilation. The time from "
            "the start of the program includes both.",
        ),
        blocks=(*_wall_figure(runs), _results_table(runs)),
        tables=(losses_table(runs),),
    )


def _ordered(runs: Sequence[Trial]) -> list[Trial]:
    return sorted(runs, key=lambda r: (r.experiment, variant(r), r.seed, r.name))


def named(run: Trial) -> dict[str, Cell]:
    names = (run.name, run.experiment, variant(run), run.seed)
    return dict(zip((column.name for column in RUN_COLUMNS), names, strict=True))


_RESULTS = (
    *RUN_COLUMNS,
    Column("data", "data"),
    Column("system", "system", filed=True),
    Column("status", "status", kind="word"),
    Column("reached", "reached", kind="flag", filed=True),
    Column("time_to_accuracy_seconds", "time to accuracy", "s", "number"),
    Column("epochs_to_target", "epochs to the target", kind="number"),
    Column("compile_seconds", "compilation", "s", "number"),
    Column("compile_cache", "cache of programs", under="compile_seconds"),
    Column(
        "compile_seconds_in_time_to_accuracy", "compilation in the time to accuracy", "s", "number"
    ),
    Column("total_seconds_to_accuracy", "from program start", "s", "number"),
    Column("total_seconds", "whole process", "s", "number", filed=True),
    Column("train_seconds", "train steps alone, whole run", "s", "number"),
    Column("epochs", "epochs, whole run", kind="number", filed=True),
    Column("best", "best quality"),
    Column("best_value", "best quality, value", kind="number", filed=True),
    Column("examples_per_second", "examples a second", kind="number"),
    Column("goodput", "goodput", kind="fraction"),
    Column("cost_usd", "cost", "USD", "number"),
    Column("allocated_cost_usd", "cost of the whole process", "USD", "number", filed=True),
    Column("interruptions", "interruptions", kind="integer", filed=True),
    Column("other_work", "processor time of other work", kind="fraction", filed=True),
    Column("reasons", "why not known", filed=True),
    # Every second of every attempt is in one phase, and every second of wall time in one part.
    *(Column(f"phase_{name}_seconds", name, "s", "number", filed=True) for name in PHASES),
    *(Column(f"wall_{name}_seconds", name, "s", "number", filed=True) for name in PARTS),
)


def _results_table(runs: Sequence[Trial]) -> Table:
    units = {(run.experiment, run.example_unit) for run in runs if run.example_unit != "examples"}
    return Table(
        name="runs",
        title="Runs" if len(runs) > 1 else "Run",
        columns=_RESULTS,
        rows=tuple(map(_result_row, runs)),
        notes=(
            "Examples a second: train steps only, without evaluation."
            + "".join(f" Examples of {name} are {unit}." for name, unit in sorted(units)),
            "Goodput: fraction of wall time, including gaps between attempts, spent on steps that "
            "were kept.",
            "Cache of programs: cold if at least one was compiled, warm if all were read back, "
            "tuned if only a GPU's kernel searches were read back. Whole run: includes training "
            "after the target.",
            *_disturbed(runs),
        ),
    )


def _disturbed(runs: Sequence[Trial]) -> list[str]:
    names = [run.name for run in runs if load.is_disturbed(run)]
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [
        "Disturbed, because other work took much of the machine's processor time while they "
        f"trained: {', '.join(names[:MOST_NAMED])}{more}."
    ]


def _result_row(run: Trial) -> tuple[Cell, ...]:
    target = run.target
    best = run.best.get(target.metric)
    recompiled = run.compile_seconds_in_time_to_accuracy if run.interruptions else None
    row = row_of(
        _RESULTS,
        run,
        **named(run),
        data=data_name(run),
        time_to_accuracy_seconds=_to_accuracy(run, run.time_to_accuracy_seconds),
        epochs_to_target=_to_accuracy(run, run.epochs_to_target),
        compile_cache=run.compiled or "cache not known",
        compile_seconds_in_time_to_accuracy=recompiled,
        total_seconds_to_accuracy=_to_accuracy(run, run.total_seconds_to_accuracy),
        system=str(run.system),
        other_work=load.taken(run),
        epochs=run.epochs,
        best="none" if best is None else quality(best, target),
        best_value=best,
        reasons="; ".join(f"{name}: {why}" for name, why in sorted(run.reasons.items())),
        **{f"phase_{name}_seconds": float(run.phases.get(name, 0.0)) for name in PHASES},
        **{f"wall_{name}_seconds": run.wall_seconds.get(name) for name in PARTS},
    )
    whys = dict(run.reasons)
    # The epochs to the target are known where the time to accuracy is.
    whys.setdefault("epochs_to_target", whys.get("time_to_accuracy_seconds", ""))
    if not run.interruptions:
        whys.pop("compile_seconds_in_time_to_accuracy", None)
    return tuple(
        Missing(whys.get(column.name, "")) if cell is None else cell
        for column, cell in zip(_RESULTS, row, strict=True)
    )


def _to_accuracy(run: Trial, seconds: float | None) -> float | str | None:
    """Time to the target, `not reached`, or None if the run reached it at an unknown time."""
    return words.NOT_REACHED if seconds is None and not run.reached else seconds


def _wall_figure(runs: Sequence[Trial]) -> tuple[Figure, ...]:
    """Parts of the wall time as bars, a mean for each origin; empty where none are known."""
    bars, left_out = [], []
    for label, members in pooled(runs):
        unknown = [run for run in members if not run.wall_seconds]
        if unknown:
            left_out.append((label, unknown[0].reasons.get("goodput", "not known")))
            continue
        parts = tuple(
            statistics.fmean(run.wall_seconds.get(part, 0.0) for run in members) for part in PARTS
        )
        goodput = words.percent(share(dict(zip(PARTS, parts, strict=True))))
        bars.append(Row(label, "", parts, f"{words.duration(sum(parts))}, {goodput}"))
    left_out += [(bar.label, "too many bars for one figure") for bar in bars[MOST_BARS:]]
    bars = bars[:MOST_BARS]
    if not bars:
        return ()
    axis = svg.Axis("time", words.duration, svg.time_ticks, zero=True)
    figure = Figure(
        name="wall_time",
        title="Where the wall time went",
        summary=bars_in_words(bars, _PART_NAMES, lambda _, value: words.duration(value)),
        caption=(
            "All seconds from the first start to the end, including restarts and the gaps before "
            "them; the percentage is the goodput. Means over the runs of one experiment on one "
            "system."
        ),
        draw=lambda width: draw_bars(bars, _PART_NAMES, axis, width),
        left_out=tuple(left_out),
        tables=("runs",),
    )
    return (figure,)


_PART_NAMES = tuple(map(words.of_name, PARTS))
