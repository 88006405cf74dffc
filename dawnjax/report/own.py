"""Sections on our own runs: time to accuracy beside compilation, phases, first losses, versions."""

import statistics
from collections.abc import Sequence

from dawnjax.analysis.our_entries import data_name, target_of
from dawnjax.analysis.our_run import OurRun
from dawnjax.page import svg, words
from dawnjax.page.rows import Row, bars_in_words, draw_bars
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Cell, Column, Table, row_of
from dawnjax.page.view import CellView, Naming, view
from dawnjax.report.curves import quality
from dawnjax.runs.clock import GENERATION_PHASES, PHASES
from dawnjax.runs.goodput import PARTS, share
from dawnjax.trials.origin import Made

MOST_BARS = 30

RUN_COLUMNS = (
    Column("experiment", "experiment"),
    Column("variant", "changed"),
    Column("run", "run"),
    Column("seed", "seed", kind="integer"),
)


def runs_section(runs: Sequence[OurRun]) -> Section | None:
    """Result of each run; None without runs."""
    if not runs:
        return None
    runs = _ordered(runs)
    results = _results_table(runs)
    phases, wall = _phases_table(runs), _wall_table(runs)
    names = ["data", "seed", "status", "time_to_accuracy_seconds", "epochs_to_target"]
    names += ["compile_seconds", "compile_cache"]
    if any(run.result.interruptions for run in runs):
        names.append("compile_seconds_in_time_to_accuracy")
    names += ["total_seconds_to_accuracy", "train_seconds", "epochs", "best"]
    names += ["examples_per_second", "goodput", "cost_usd"]
    # The change stands below the run's name, which saves a column.
    name = Naming(
        "run",
        ("variant", "run"),
        lambda row: CellView(row["run"], "" if row["variant"] == "nothing" else row["variant"]),
    )
    shown = view(results, names, naming=name, why=_why)
    return Section(
        name="runs",
        title="Our runs",
        lead=(
            "Time to accuracy begins when every program is compiled; compilation stands beside "
            "it. After a restart, compilation counts in the time to accuracy. The time from the "
            "start of the program includes both.",
        ),
        blocks=tuple(block for block in (shown, _wall_figure(runs)) if block is not None),
        folded=(view(wall), view(phases)),
        tables=(results, wall, phases),
    )


def mathematics_section(runs: Sequence[OurRun]) -> Section | None:
    """First losses and versions, by which a reader sees whether two runs trained the same."""
    if not runs:
        return None
    runs = _ordered(runs)
    losses, versions = _losses_table(runs), _versions_table(runs)
    return Section(
        name="losses",
        title="First losses and versions",
        lead=(
            "Two systems that run the same mathematics with one seed agree in the losses of "
            "the first steps, up to rounding.",
        ),
        blocks=(view(losses), view(versions, [column.name for column in versions.columns])),
        tables=(losses, versions),
    )


def _ordered(runs: Sequence[OurRun]) -> list[OurRun]:
    return sorted(runs, key=lambda r: (r.result.experiment, _variant(r), r.result.seed, r.name))


def _variant(run: OurRun) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(run.result.overrides.items()))


def named(run: OurRun) -> dict[str, Cell]:
    variant = _variant(run) or "nothing"
    names = (run.result.experiment, variant, run.name, run.result.seed)
    return dict(zip((column.name for column in RUN_COLUMNS), names, strict=True))


_RESULTS = (
    *RUN_COLUMNS,
    Column("data", "data"),
    Column("system", "system"),
    Column("status", "status"),
    Column("reached", "reached", kind="flag"),
    Column("time_to_accuracy_seconds", "time to accuracy", "s", "number"),
    Column("epochs_to_target", "epochs to the target", kind="number"),
    Column("compile_seconds", "compilation", "s", "number"),
    Column("compile_cache", "cache of programs"),
    Column(
        "compile_seconds_in_time_to_accuracy", "compilation in the time to accuracy", "s", "number"
    ),
    Column("total_seconds_to_accuracy", "from program start", "s", "number"),
    Column("total_seconds", "whole process", "s", "number"),
    Column("train_seconds", "train steps alone, whole run", "s", "number"),
    Column("epochs", "epochs, whole run", kind="number"),
    Column("best", "best quality"),
    Column("best_value", "best quality, value", kind="number"),
    Column("examples_per_second", "examples a second", kind="number"),
    Column("goodput", "goodput", kind="fraction"),
    Column("cost_usd", "cost", "USD", "number"),
    Column("allocated_cost_usd", "cost of the whole process", "USD", "number"),
    Column("interruptions", "interruptions", kind="integer"),
    Column("reasons", "why not known"),
)


def _results_table(runs: Sequence[OurRun]) -> Table:
    units = {(run.result.experiment, run.unit) for run in runs if run.unit != "examples"}
    return Table(
        name="runs",
        title="Runs",
        columns=_RESULTS,
        rows=tuple(map(_result_row, runs)),
        notes=(
            "Examples a second: of the train steps alone, without evaluation."
            + "".join(f" Examples of {name} are {unit}." for name, unit in sorted(units)),
            "Goodput: share of all wall time, gaps between attempts included, in which steps that "
            "count were made.",
            "Cost: time to accuracy at the price given; that of the whole process is in the file.",
            "Cache of programs: cold where at least one was compiled, warm where all were read "
            "back, tuned where a GPU's searches for kernels were. Whole run: what was trained "
            "after the target is in it.",
        ),
    )


def _result_row(run: OurRun) -> tuple[Cell, ...]:
    result = run.result
    target = target_of(result)
    best = result.best.get(target.metric)
    return row_of(
        _RESULTS,
        result,
        run,
        **named(run),
        data=data_name(result),
        time_to_accuracy_seconds=_to_accuracy(run, result.time_to_accuracy_seconds),
        epochs_to_target=_to_accuracy(run, result.epochs_to_target),
        compile_cache=result.compiled or "not known",
        total_seconds_to_accuracy=_to_accuracy(run, result.total_seconds_to_accuracy),
        system=str(run.system),
        epochs=float(result.epochs),
        best="none" if best is None else quality(best, target),
        best_value=best,
        reasons="; ".join(f"{name}: {why}" for name, why in sorted(result.reasons.items())),
    )


def _to_accuracy(run: OurRun, seconds: float | None) -> float | str | None:
    """Time to the target, `not reached`, or None if the run reached it at an unknown time."""
    return words.NOT_REACHED if seconds is None and not run.result.reached else seconds


def _used(names: Sequence[str], runs: Sequence[OurRun]) -> list[str]:
    """Phases without those that no run has, as those of generations."""
    absent = {n for n in GENERATION_PHASES if not any(n in run.result.phases for run in runs)}
    return [name for name in names if name not in absent]


def _phases_table(runs: Sequence[OurRun]) -> Table:
    phases = _used(PHASES, runs)
    return Table(
        name="phases",
        title="Seconds in each phase",
        columns=(
            *RUN_COLUMNS,
            *(Column(f"{name}_seconds", name, "s", "number") for name in phases),
            Column("total_seconds", "all", "s", "number"),
        ),
        rows=tuple(
            (
                *named(run).values(),
                *(float(run.result.phases.get(name, 0.0)) for name in phases),
                run.result.total_seconds,
            )
            for run in runs
        ),
        notes=("Every second of every attempt is in one phase; they sum to the whole.",),
    )


def _wall_table(runs: Sequence[OurRun]) -> Table:
    names = {name: name.replace("_", " ") for name in _used(PARTS, runs)}
    return Table(
        name="wall_time",
        title="Wall time since the first start",
        columns=(
            *RUN_COLUMNS,
            Column("goodput", "goodput", kind="fraction"),
            *(Column(f"{name}_seconds", label, "s", "number") for name, label in names.items()),
        ),
        rows=tuple(
            (
                *named(run).values(),
                run.result.goodput,
                *(run.result.wall_seconds.get(name) for name in names),
            )
            for run in runs
        ),
        notes=(
            "Lost steps: made, and made again because no save held them. Input wait: the devices "
            "had no work, because an input was not there. Gaps: no process ran.",
        ),
    )


def _losses_table(runs: Sequence[OurRun]) -> Table:
    steps = max((len(run.result.first_losses) for run in runs), default=0)
    rows = []
    for run in runs:
        losses = [loss if isinstance(loss, int | float) else str(loss) for loss in
                  run.result.first_losses]  # fmt: skip
        rows.append((*named(run).values(), *losses, *(["not made"] * (steps - len(losses)))))
    return Table(
        name="first_losses",
        title="Losses of the first steps",
        columns=(
            *RUN_COLUMNS,
            *(Column(f"step_{number}", f"step {number}", kind="number", digits=6)
              for number in range(1, steps + 1)),
        ),
        rows=tuple(rows),
        notes=("Six digits of each; the files have all.",),
    )  # fmt: skip


def _versions_table(runs: Sequence[OurRun]) -> Table:
    names = sorted({name for run in runs for name in run.result.versions})
    groups: dict[tuple[str, ...], list[OurRun]] = {}
    for run in runs:
        key = tuple(str(run.result.versions.get(name, "not recorded")) for name in names)
        groups.setdefault(key, []).append(run)
    return Table(
        name="versions",
        title="Versions",
        columns=(
            Column("runs", "runs"),
            *(Column(f"version_{number}", name) for number, name in enumerate(names)),
        ),
        rows=tuple((", ".join(run.name for run in group), *key) for key, group in groups.items()),
    )


def _changed(run: OurRun) -> str:
    return " ".join(filter(None, [run.result.experiment, _variant(run)]))


def pooled(runs: Sequence[OurRun]) -> list[tuple[str, list[OurRun]]]:
    """Runs of one origin on one system, by a name that has what sets them apart."""
    names: dict[str, dict[Made, list[OurRun]]] = {}
    for run in runs:
        names.setdefault(_changed(run), {}).setdefault(run.made, []).append(run)
    pooled = []
    for name, groups in names.items():
        common = set.intersection(*(set(made.words) for made in groups))
        for made, group in groups.items():
            differs = ", ".join(word for word in made.words if word not in common)
            pooled.append((f"{name} ({differs})" if differs else name, group))
    return pooled


def _wall_figure(runs: Sequence[OurRun]) -> Figure | None:
    """Parts of the wall time as bars; None where no run's are known."""
    each = len(runs) <= MOST_BARS
    bars, left_out = [], []
    groups = [(run.name, [run]) for run in runs] if each else pooled(runs)
    for label, members in groups:
        unknown = [run for run in members if not run.result.wall_seconds]
        if unknown:
            left_out.append((label, unknown[0].result.reasons.get("goodput", "not known")))
            continue
        parts = tuple(
            statistics.fmean(run.result.wall_seconds.get(part, 0.0) for run in members)
            for part in PARTS
        )
        goodput = words.percent(share(dict(zip(PARTS, parts, strict=True))))
        name = _changed(members[0]) if each else ""
        bars.append(Row(label, name, parts, f"{words.duration(sum(parts))}, {goodput}"))
    left_out += [(bar.label, "too many bars for one figure") for bar in bars[MOST_BARS:]]
    bars = bars[:MOST_BARS]
    if not bars:
        return None
    axis = svg.Axis("time", words.duration, svg.time_ticks, zero=True)
    return Figure(
        name="wall_time",
        title="Where the wall time of each run went",
        summary=bars_in_words(bars, _PART_NAMES, lambda _, value: words.duration(value)),
        caption=(
            "All seconds from the first start to the end, restarts and the gaps before them "
            "included; in percent the goodput."
            + ("" if each else " Means over the runs of one experiment on one system.")
        ),
        draw=lambda width: draw_bars(bars, _PART_NAMES, axis, width),
        left_out=tuple(left_out),
        tables=("wall_time",),
    )


_PART_NAMES = tuple(part.replace("_", " ") for part in PARTS)


def _why(name: str, row) -> str:
    if name == "epochs_to_target":  # known where the time to accuracy is
        name = "time_to_accuracy_seconds"
    for reason in str(row["reasons"]).split("; "):
        field, _, why = reason.partition(": ")
        if field == name:
            return why
    return ""
