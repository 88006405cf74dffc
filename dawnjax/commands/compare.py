"""`dawnjax compare`: whether B is faster than A, by how much, and what changed."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from absl import flags

from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.page.table import of_words
from dawnjax.page.words import rounded

if TYPE_CHECKING:
    from dawnjax.study.sides import Side
    from dawnjax.study.verdict import Verdict

MOST_FIELDS = 20
"""Changed fields in the text; the JSON has all."""

USAGE = "dawnjax compare A B [--margin=0.05] [--json] [--fail_if_slower_by=FRACTION]"

DESCRIPTION = """
Compares the times to accuracy of A and B, and says what changed. Each is a run directory, a folder
of runs that differ in their seed, a .jsonl file of entries or official results; PATH#SOURCE chooses
one of several entries.

The verdict is one of four words, for B beside A:

  equivalent  the 90 % interval of the ratio of expected times lies within the margin
  faster      else: the 95 % interval lies below 1
  slower      else: the 95 % interval lies above 1
  undecided   else, and with fewer than 5 trials of each (20 where some did not reach the target)

With --fail_if_slower_by the exit status is 0 only where the 95 % interval excludes that B is slower
by that fraction or more, 6 where B is slower, and 7 where that is not decided.
"""


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    flag_values = flags.FlagValues()
    flags.DEFINE_float(
        "margin", 0.05, "Ratios from 1 / (1 + margin) to 1 + margin count as equal.",
        flag_values=flag_values,
    )  # fmt: skip
    flags.DEFINE_bool("json", False, "Print one JSON object instead.", flag_values=flag_values)
    flags.DEFINE_float(
        "fail_if_slower_by",
        None,
        "A gate for CI: the fraction by which B may not be slower. It is the margin too.",
        flag_values=flag_values,
    )
    paths = command_line.parse("compare", flag_values, argv, USAGE, DESCRIPTION)
    if len(paths) != 2:
        raise ConfigError(f"two things are compared, and {len(paths)} were given: {USAGE}")
    limit = flag_values["fail_if_slower_by"].value
    flag = "margin" if limit is None else "fail_if_slower_by"
    margin = float(flag_values[flag].value or 0)
    if not 0 < margin < 1:
        raise ConfigError(f"--{flag}={margin:g} must lie between 0 and 1, such as 0.05")
    # Imported here so that --help does without them.
    from dawnjax.study import changes, sides, verdict

    first, second = (sides.read_side(path) for path in paths)
    if first.entry.target != second.entry.target:
        names = [f"{s.entry.target.metric} {s.entry.target.value}" for s in (first, second)]
        raise ConfigError(
            f"A was trained to {names[0]} and B to {names[1]}: times to different targets are not "
            "compared"
        )
    judged = verdict.judge(first.rows, second.rows, margin)
    is_same, mathematics = changes.same_mathematics(first, second)
    told = {
        "a": _side_json(first),
        "b": _side_json(second),
        "verdict": judged.to_json(),
        "same_mathematics": is_same,
        "mathematics": mathematics,
        "changed_fields": changes.changed_fields(first, second),
        "changes": [dataclasses.asdict(row) for row in changes.changes(first, second)],
        "step_parts": [dataclasses.asdict(row) for row in changes.step_parts(first, second)],
        "ops": [dataclasses.asdict(row) for row in changes.op_changes(first, second)],
    }
    if flag_values["json"].value:
        print(json.dumps(told, indent=1))
    else:
        print(_text(first, second, judged, told))
    return ExitStatus.DONE if limit is None else _gate(judged)


def _gate(judged: "Verdict") -> ExitStatus:
    if judged.is_slower_excluded:
        return ExitStatus.DONE
    is_slower = judged.low is not None and judged.low > 1
    return ExitStatus.SLOWER if is_slower else ExitStatus.UNDECIDED


def _side_json(side: "Side") -> dict[str, Any]:
    from dawnjax.study.verdict import expected_seconds

    entry = side.entry
    return {
        "given": side.given,
        "source": entry.source,
        "benchmark": entry.benchmark,
        "system": entry.system,
        "trials": len(entry.trials),
        "reached": sum(trial.reached for trial in entry.trials),
        "expected_seconds": expected_seconds(side.rows),
        "warnings": list(entry.warnings),
    }


def _text(first: "Side", second: "Side", judged: "Verdict", told: dict[str, Any]) -> str:
    lines = []
    for name, side in (("A", told["a"]), ("B", told["b"])):
        expected = side["expected_seconds"]
        time = "none reached" if expected is None else f"expected time {rounded(expected)} s"
        lines.append(
            f"{name}  {side['source']} on {side['system']}: {side['reached']} of {side['trials']} "
            f"trials reached, {time}"
        )
        lines += [f"   warning: {warning}" for warning in side["warnings"]]
    lines += ["", f"mathematics: {told['mathematics']}"]
    fields = told["changed_fields"]
    lines += [f"  {line}" for line in fields[:MOST_FIELDS]]
    if len(fields) > MOST_FIELDS:
        lines.append(f"  and {len(fields) - MOST_FIELDS} more, which --json has")
    lines += ["", f"verdict: {_verdict_line(judged)}"]
    rows = [*told["changes"], *told["step_parts"]]
    if rows:
        table = of_words(["what changed", "A", "B", "B / A", "95 %"], map(_row, rows))
        lines += ["", table.to_text()]
    if told["ops"]:
        cells = []
        for op in told["ops"]:
            times = (op["first"], op["second"], op["second"] - op["first"])
            cells.append([op["name"], *(rounded(1e3 * seconds) for seconds in times)])
        table = of_words(["ops that changed most, ms a step", "A", "B", "B - A"], cells)
        lines += ["", table.to_text()]
    if not first.runs or not second.runs:
        lines += ["", "Only our run directories say where their time went."]
    elif not told["step_parts"]:
        lines += ["", "A side has no profile: what changed within a step is not known."]
    return "\n".join(lines)


def _verdict_line(judged: "Verdict") -> str:
    ends = "" if judged.low is None else f" (95 % {judged.low:.3f} to {judged.high:.3f})"
    ratio = "" if judged.ratio is None else f"; B takes {judged.ratio:.3f} of A's time{ends}"
    line = f"B is {judged.word}" if judged.word != "undecided" else "undecided"
    more = judged.more_trials
    wanted = f"; about {more} more trials each may decide" if more else ""
    return f"{line}: {judged.why}{ratio}{wanted}"


def _row(change: "dict[str, Any]") -> list[str]:
    figures = [change["first"], change["second"], change["ratio"]]
    cells = ["-" if figure is None else rounded(figure) for figure in figures]
    ends = "" if change["low"] is None else f"{change['low']:.3f} to {change['high']:.3f}"
    return [change["name"], *cells, ends]
