"""Result of a study in words, for a terminal."""

from collections.abc import Sequence
from typing import Any

from dawnjax.page import words
from dawnjax.page.table import of_words
from dawnjax.study.design import PlannedTrial, Study
from dawnjax.study.figures import ArmFigures, best_of, best_sentence
from dawnjax.study.looks import words_of_cost
from dawnjax.study.search import SearchFigures

MOST_RECIPES = 10
"""Recipes of a search on the screen; `result.json` has all."""


def text_of(
    study: Study,
    rows: Sequence[ArmFigures],
    cost: dict[str, Any] | None,
    search: SearchFigures | None,
) -> str:
    """Table of the arms, and what a reader must know beside it."""
    head = ["arm", "reached", "mean s", "CV", "expected s", "95 %", "epochs", "examples/s"]
    compares = study.kind not in ("seeds", "threshold", "search")
    has_wire = any(row.exposed_communication is not None for row in rows)
    head += ["exposed"] if has_wire else []
    head += ["/ first", "interval", "verdict"] if compares else []
    lines = []
    for row in rows:
        cells = [row.arm, f"{row.reached} of {row.trials}", _number(row.mean_seconds)]
        cells += [_number(row.cv, 2), _number(row.expected_seconds), _ends(row, 4)]
        cells += [_number(row.epochs_mean), _number(row.examples_per_second)]
        exposed = row.exposed_communication
        cells += ["-" if exposed is None else f"{100 * exposed:.1f} %"] if has_wire else []
        cells += _verdict_cells(row.verdict) if compares else []
        lines.append(cells)
    machines = sorted({machine for row in rows for machine in row.machines})
    parts = _search_parts(search) if search else []
    if rows:
        parts += [of_words(head, lines).to_text(), "", f"on {'; '.join(machines) or 'nothing yet'}"]
    parts += [
        f"{row.arm}: {row.verdict['why']}"
        + (f"; {row.verdict['advice_text']}" if row.verdict["advice_text"] else "")
        for row in rows
        if row.verdict and row.verdict["word"] == "undecided"
    ]
    best = best_of(study, rows)
    parts += [best_sentence(best, len(rows))] if best else []
    parts += [row.caution for row in rows if row.caution]
    parts += words_of_cost(cost) if cost else []
    if study.kind == "scaling" and any("cpu" in machine for machine in machines):
        parts.append("simulated devices share this machine's cores: no speed-up is to be expected")
    return "\n".join(parts)


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


def line_of(total: int, done: int, trial: PlannedTrial, run: Any, why: str) -> str:
    """A trial that is over, as the progress shows it."""
    said = f"failed: {why}"
    if run is not None and not why:
        seconds = run.time_to_accuracy_seconds
        time_text = "" if seconds is None else f" in {words.rounded(seconds)} s"
        said = run.status.replace("_", " ") + time_text
    return f"{done:{len(str(total))}}/{total}  {trial.arm.name}, seed {trial.seed}: {said}"


def estimate_of(row: ArmFigures) -> str:
    """Expected time of an arm so far, for the line of the progress; empty without one."""
    if row.expected_seconds is None:
        return ""
    ends = f" ({_ends(row, 3)})" if row.low is not None else ""
    return (
        f", {row.reached} of {row.trials} reached, {words.rounded(row.expected_seconds, 3)} s{ends}"
    )


def _ends(row: ArmFigures, digits: int) -> str:
    """Ends of the expected time, labelled unless they are a 95 % interval."""
    if row.low is None or row.high is None:
        return ""
    kind = "" if row.ends == "95 %" else f"{row.ends}: "
    return f"{kind}{words.rounded(row.low, digits)} to {words.rounded(row.high, digits)}"


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else words.rounded(value, digits)


def _verdict_cells(verdict: dict[str, Any] | None) -> list[str]:
    if verdict is None:
        return ["", "", ""]
    ends = ""
    if verdict["low"] is not None:
        ends = f"{verdict['ends']}: {verdict['low']:.3f} to {verdict['high']:.3f}"
    return [_number(verdict["ratio"]), ends, verdict["word"].replace("_", " ")]
