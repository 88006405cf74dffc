"""A section for each study: its arms' trials as a figure, and its figures as a table."""

import math
from collections.abc import Iterable, Sequence

from dawnjax.page import plots, svg, words
from dawnjax.page.rows import Row, draw_strips
from dawnjax.page.section import Figure, Section
from dawnjax.page.table import Column, Missing, Table, with_fields
from dawnjax.study.figures import ArmFigures, StudyFigures
from dawnjax.study.ladder import Ladder
from dawnjax.study.search import SearchFigures
from dawnjax.trials.trial import Scalar

_QUESTIONS = {
    "seeds": "How much trials differ only by their seed",
    "grid": "What each combination of values gives",
    "scaling": "What more devices give",
    "lesion": "What is lost without each technique",
    "factor": "What each technique gives alone, and with the techniques before it",
    "threshold": "How long it takes to each target",
    "search": "Which recipe is fast, on seeds that did not choose it",
    "ladder": "What one change gives at each size",
}


def studies_sections(studies: Sequence[StudyFigures]) -> list[Section]:
    """One section for each study that has a trial."""
    return [
        _section(study, number)
        for number, study in enumerate(studies, 1)
        if any(arm.trials for arm in study.arms) or (study.search and study.search.trials)
    ]


def _section(read: StudyFigures, number: int) -> Section:
    study, tables = read.study, [_table(read, number)] if read.arms else []
    machines = sorted({machine for arm in read.arms for machine in arm.machines})
    trials = sum(len(arm.trials) for arm in read.own)
    planned = sum(arm.planned for arm in read.own)
    over = f"{trials} of {planned} planned trials of {study.experiment} have ended"
    lead = [f"{_QUESTIONS[study.kind]}: {over}, on {'; '.join(machines)}."]
    if read.search is not None:
        lead = [f"{_QUESTIONS[study.kind]}, for {study.experiment}: {read.search.sentence()}."]
        tables.append(_recipes_table(read.search, number, read.name))
    if study.kind not in ("seeds", "threshold", "search", "ladder"):
        lead.append(
            "Each arm is compared with the first: the ratio of expected times, and a verdict. The "
            "verdicts of a study hold together, so the level of an interval rises with the number "
            "of arms."
        )
    lead += [f"{line[:1].upper()}{line[1:]}." for line in read.remarks]
    figures = [_figure(read, number, machines)]
    if read.ladder is not None:
        sentence = read.ladder.sentence()
        lead.append(f"{sentence[:1].upper()}{sentence[1:]}.")
        figures.insert(0, _ladder_figure(read.ladder, number, read.name))
        tables.append(_ladder_table(read.ladder, number, read.name))
    return Section(
        name=f"study_{number}",
        title=f"Study {read.name}",
        lead=tuple(lead),
        blocks=(*filter(None, figures), *tables),
    )


def _ladder_figure(read: Ladder, number: int, name: str) -> Figure | None:
    """Gain by size with its interval, and the fitted line."""
    found = [
        (size, read.shown(gain.interval)) for size, gain in zip(read.sizes, read.gains, strict=True)
    ]
    points = tuple(
        (size, it.value, it.low, it.high)
        for size, it in found
        if it is not None and it.low is not None and it.high is not None
    )
    if len(points) < 2:
        return None
    lines = [plots.Line("measured", points, band="95 %")]
    if read.fitted:
        fitted = tuple(zip(read.sizes, read.fitted, strict=True))
        lines.append(plots.Line("the line", fitted, marked=False))
    what = f"speedup in {read.unit}" if read.unit else f"better by, {read.metric}"
    x = svg.Axis(read.size_name or "size", words.plain, log=True)
    y = svg.Axis(what, words.times if read.unit else words.plain)
    equal = (1.0, "equally fast") if read.unit else (0.0, "equally good")
    return Figure(
        name=f"study_{number}_ladder",
        title=f"Gain of the change by size, {name}",
        summary=f"{read.sentence()}.",
        caption=(
            "The band has the 95 % interval of each single size. The trend ends with the largest "
            "size."
        ),
        draw=lambda width: plots.draw_lines(lines, x, y, width, reference=equal),
        tables=(f"study_{number}_ladder",),
    )


def _ladder_table(read: Ladder, number: int, name: str) -> Table:
    rows = []
    for row in read.to_json()["sizes"]:
        difference, gain = row["difference"] or {}, row["gain"] or {}
        rows.append(
            (
                *(row["size"], row["a"], row["b"], *row["trials"], *row["means"]),
                *(difference.get(end) for end in ("value", "low", "high")),
                *(gain.get(end) for end in ("value", "low", "high")),
                *(row["line"], row["lacks"]),
            )
        )
    gain = "speedup" if read.unit else "better by"
    return Table(
        name=f"study_{number}_ladder",
        title=f"Gain by size, {name}",
        columns=(
            Column("size", read.size_name or "size", kind="number"),
            Column("first", "A"),
            Column("second", "B"),
            Column("trials_first", "trials of A", kind="integer"),
            Column("trials_second", "of B", kind="integer"),
            Column("mean_first", f"{read.metric} of A", kind="number"),
            Column("mean_second", "of B", kind="number"),
            Column("difference", "B - A", kind="number"),
            Column("difference_low", "from", kind="number"),
            Column("difference_high", "to", kind="number"),
            Column("gain", gain, kind="number"),
            Column("gain_low", "from", kind="number"),
            Column("gain_high", "to", kind="number"),
            Column("line", "the line", kind="number"),
            Column("lacks", "why there is none"),
        ),
        rows=tuple(rows),
    )


def _recipes_table(search: SearchFigures, number: int, name: str) -> Table:
    columns = (
        Column("arm", "recipe"),
        Column("trials", "trials", kind="integer"),
        Column("reached", "reached", kind="integer"),
        Column("choosing_seconds", "time when choosing", "s", "number"),
    )
    return with_fields(
        Table(
            name=f"study_{number}_recipes",
            title=f"Recipes of {name}",
            columns=columns,
            rows=tuple(tuple(recipe[c.name] for c in columns) for recipe in search.recipes),
            notes=(
                "These trials chose the recipe: their times flatter the fastest recipe and are "
                "not results.",
            ),
        ),
        [_fields_of(recipe["flags"]) for recipe in search.recipes],
    )


def _figure(read: StudyFigures, number: int, machines: list[str]) -> Figure | None:
    rows = [_strip(arm) for arm in read.arms if arm.figures.expected_seconds is not None]
    if not rows:
        return None
    axis = svg.Axis("time to accuracy", words.duration)
    left_out = tuple(
        (arm.name, arm.why_no_time) for arm in read.arms if arm.figures.expected_seconds is None
    )
    return Figure(
        name=f"study_{number}_times",
        title=f"Time to accuracy of each trial, {read.name}",
        summary="; ".join(f"{row.label}: {row.note} reached" for row in rows) + ".",
        caption=(
            "A dot is a trial that reached its target. The line across is the expected time: the "
            "time of all trials divided by the number that reached. The bar is its 95 % "
            "interval, from 5 trials on, or from 20 if a trial did not reach. On "
            f"{'; '.join(machines)}."
        ),
        draw=lambda width: draw_strips(rows, axis, width),
        left_out=left_out,
        tables=(f"study_{number}",),
    )


def _strip(arm: ArmFigures) -> Row:
    found, interval = arm.figures, arm.interval
    bar = interval if interval and interval.level else None  # A range of few trials has none.
    timed = [(s, seed) for s, seed in zip(found.seconds, arm.trials, strict=True) if s is not None]
    return Row(
        label=arm.name,
        group="",
        values=tuple(seconds for seconds, _ in timed),
        note=f"{words.duration(found.expected_seconds or 0.0)}, {arm.reached}",
        low=bar and bar.low,
        high=bar and bar.high,
        mean=found.expected_seconds,
        titles=tuple(f"seed {seed}: {words.duration(seconds)}" for seconds, seed in timed),
    )


def _table(read: StudyFigures, number: int) -> Table:
    first = read.arms[0]
    rows = []
    for arm in read.arms:
        record, of = arm.to_json(), arm.figures
        verdict = record["verdict"] or {}
        speedup = None
        if first.examples_per_second and arm.examples_per_second and arm is not first:
            speedup = arm.examples_per_second / first.examples_per_second
        expected, none = of.expected_seconds, Missing("", "the first") if arm is first else None
        rows.append(
            (
                *(arm.name, arm.planned, of.trials, of.reached),
                Missing(arm.why_no_time) if expected is None else expected,
                *(record["low_seconds"], record["high_seconds"], record["ends"] or None),
                *(of.mean_seconds, of.cv),
                *(of.epochs_mean, arm.examples_per_second, speedup or none),
                arm.exposed_communication,
                *(verdict.get("ratio") or none, verdict.get("low"), verdict.get("high")),
                *(verdict.get("ends") or None, verdict.get("word", ""), verdict.get("why", "")),
                *(verdict.get("advice_text", ""), "; ".join(arm.machines)),
            )
        )
    table = Table(
        name=f"study_{number}",
        title=f"Arms of {read.name}",
        columns=(
            Column("arm", "arm"),
            Column("planned", "planned", kind="integer", filed=True),
            Column("trials", "trials", kind="integer"),
            Column("reached", "reached", kind="integer"),
            Column("expected_seconds", "expected", "s", "number"),
            Column("expected_seconds_low", "from", "s", "number"),
            Column("expected_seconds_high", "to", "s", "number"),
            Column("expected_seconds_ends", "the ends are"),
            Column("mean_seconds", "mean", "s", "number"),
            Column("cv", "CV", kind="number"),
            Column("epochs_mean", "epochs", kind="number"),
            Column("examples_per_second", "examples", "1/s", "number"),
            Column("throughput_speedup", "throughput / first", "x", "number"),
            Column("exposed_communication", "exposed communication", kind="fraction"),
            Column("ratio", "time / first", "x", "number"),
            Column("ratio_low", "from", "x", "number"),
            Column("ratio_high", "to", "x", "number"),
            Column("ratio_ends", "the ends are"),
            Column("verdict", "verdict", kind="word"),
            Column("why", "why", under="verdict"),
            Column("advice", "further trials"),
            Column("machine", "machine", filed=True),
        ),
        rows=tuple(rows),
        notes=(
            "Unfinished trials are left out.",
            "If all trials reached, the expected time has the interval of the mean.",
        ),
    )
    return with_fields(table, [_fields_of(arm.arm.flags) for arm in read.arms])


def _fields_of(flags: Iterable[str]) -> dict[str, Scalar]:
    """Fields that an arm's flags set, as `--num_epochs=12` does."""
    settings = (flag.lstrip("-").partition("=") for flag in flags)
    return {name: _value(text) for name, _, text in settings}


def _value(text: str) -> Scalar:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text
