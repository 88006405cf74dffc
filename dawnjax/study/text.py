"""Result of a study in words, for a terminal."""

import shlex
from pathlib import Path
from typing import Any

from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.statistics.verdict import FASTER, SLOWER, Verdict
from dawnjax.study.design import TrialPlan
from dawnjax.study.figures import ArmFigures, StudyFigures
from dawnjax.study.search import SearchFigures

MOST_RECIPES = 10
"""Recipes of a search in the text; `result.json` has all."""


def text_of(found: StudyFigures) -> str:
    """Table of the arms, with remarks."""
    rows, search = found.arms, found.search
    # Where every trial reached, the mean is the expected time.
    has_misses = any(row.figures.reached < len(row.trials) for row in rows)
    head = ["arm", "reached", *["mean s"] * has_misses, "CV", "expected s", "95 %"]
    head += ["epochs", "examples/s"]
    compares = found.study.kind not in ("seeds", "threshold", "search", "ladder")
    has_wire = any(row.exposed_communication is not None for row in rows)
    head += ["exposed"] if has_wire else []
    head += ["/ first", "95 %", "verdict"] if compares else []
    lines = []
    for row in rows:
        of, interval = row.figures, row.interval
        ends = interval.ends_text(text=words.rounded) if interval else ""
        cells = [row.name, row.reached, *[_number(of.mean_seconds)] * has_misses]
        cells += [_number(of.cv, 2)]
        cells += [_number(of.expected_seconds), ends]
        cells += [_number(of.epochs_mean), _number(row.examples_per_second)]
        exposed = row.exposed_communication
        cells += ["-" if exposed is None else f"{100 * exposed:.1f} %"] if has_wire else []
        cells += _verdict_cells(row.verdict) if compares else []
        lines.append(cells)
    machines = sorted({machine for row in rows for machine in row.machines})
    parts = _search_parts(search) if search else []
    if rows:
        parts += [of_words(head, lines).to_text(), "", f"on {'; '.join(machines) or 'nothing yet'}"]
    whys = (
        (row.name, "; ".join(filter(None, [row.verdict.why, row.advice])))
        for row in rows
        if row.verdict and row.verdict.word not in (FASTER, SLOWER)
    )
    for names, why in words.shared(whys):
        parts.append(f"{', '.join(names)} (B) beside {rows[0].name} (A): {why}")
    parts += ["", *found.ladder.lines()] if found.ladder else []
    return "\n".join([*parts, *found.remarks])


def next_commands(found: StudyFigures, out: Path) -> list[str]:
    """Next commands for a study: a page, and a comparison of two arms."""
    commands = [["report", str(out), f"--out={out / 'page'}"]]
    compared = [row for row in found.arms if row.verdict]
    if compared:
        best = found.best if found.best in compared else compared[0]
        arms = (found.arms[0].arm, best.arm)
        commands.append(["compare", *(str(out / arm.folder) for arm in arms)])
    return [shlex.join(["dawnjax", *command]) for command in commands]


def _search_parts(search: SearchFigures) -> list[str]:
    lines = [
        [
            recipe["arm"],
            f"{recipe['reached']} of {recipe['trials']}",
            _number(recipe["choosing_seconds"]),
        ]
        for recipe in search.recipes[:MOST_RECIPES]
    ]
    left = len(search.recipes) - len(lines)
    parts = [of_words(["recipe", "reached", "s when choosing"], lines).to_text()]
    parts += [f"and {left} more in result.json"] if left > 0 else []
    return [*parts, "", f"{search.sentence()}", ""]


def line_of(total: int, done: int, trial: TrialPlan, run: Any, why: str) -> str:
    """A finished trial, as the progress shows it."""
    said = f"failed: {why}"
    if run is not None and not why:
        seconds = run.time_to_accuracy_seconds
        time_text = "" if seconds is None else f" in {words.rounded(seconds)} s"
        said = words.of_name(run.status) + time_text
    return f"{done:{len(str(total))}}/{total}  {trial.arm.name}, seed {trial.seed}: {said}"


def estimate_of(row: ArmFigures) -> str:
    """Expected time of an arm so far, for the progress line; empty without one."""
    known = row.figures.expected_seconds is not None
    return f", {row.reached} reached, {row.time_text}" if known else ""


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else words.rounded(value, digits)


def _verdict_cells(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return ["", "", ""]
    ratio, word = verdict.ratio, words.of_name(verdict.word)
    return [_number(ratio and ratio.value), ratio.ends_text() if ratio else "", word]
