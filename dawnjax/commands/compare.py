"""`dawnjax compare`: speed of B against A with its interval, and the fields that changed."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from absl import flags

from dawnjax import records
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.page.table import of_words
from dawnjax.page.words import rounded

if TYPE_CHECKING:
    from dawnjax.statistics.verdict import Verdict
    from dawnjax.study.sides import Side

MOST_FIELDS = 20
"""Changed fields in the text; the JSON has all."""

USAGE = "dawnjax compare A B|STUDY [--margin=0.05] [--json] [--fail_if_slower_by=FRACTION]"

DESCRIPTION = """
Compares the times to accuracy of A and B, and says what changed. Each is a run directory, a folder
of runs that differ in their seed, an arm of a study (STUDY/ARM), a .jsonl file of entries or
official results; PATH#SOURCE chooses one of several entries. STUDY alone compares the arms of a
study with its first.

The verdict is one word, for B beside A:

  equivalent            the 90 % interval of the ratio of expected times lies within the margin
  faster                else: the 95 % interval lies below 1, and misses that the trials may hide
                        cannot make up for it
  slower                else: the 95 % interval lies above 1, likewise
  faster_if_all_reach,  the same, but B (or A) may miss its target so often that its expected time
  slower_if_all_reach   is no shorter
  only_first_reached    B never reached its target and A did, by Fisher's test at 5 %
  only_second_reached   A never reached its target and B did
  undecided             else, or fewer than 5 trials of each (20 where some did not reach), or
                        where one trial decides

Trials of the same seeds with the same first losses are compared as pairs. A trial may be on one
side alone.

With --fail_if_slower_by the exit status is 0 only where the 95 % interval excludes that B is slower
by that fraction or more, 6 where B is slower or never reached, and 7 where that is not decided:
more trials are needed, or one stalled trial decides. Where no trial missed, status 0 supposes that
all trials reach, and a line says in how many runs B may miss its target all the same. To add
trials and compare again is a second look: the output says how many verdicts are false then.
"""


def main(argv: list[str]) -> int:
    flag_values = flags.FlagValues()
    number = functools.partial(flags.DEFINE_float, flag_values=flag_values)
    number("margin", 0.05, "Ratios from 1 / (1 + margin) to 1 + margin count as equal.")
    flags.DEFINE_bool("json", False, "Print one JSON object instead.", flag_values=flag_values)
    gate = "A gate for CI: the fraction by which B may not be slower. It is the margin too."
    number("fail_if_slower_by", None, gate)
    paths = command_line.parse("compare", flag_values, argv, USAGE, DESCRIPTION)
    if len(paths) not in (1, 2):
        raise ConfigError(f"two things are compared, and {len(paths)} were given: {USAGE}")
    limit = flag_values["fail_if_slower_by"].value
    flag = "margin" if limit is None else "fail_if_slower_by"
    margin = float(flag_values[flag].value or 0)
    if not 0 < margin < 1:
        raise ConfigError(f"--{flag}={margin:g} must lie between 0 and 1, such as 0.05")
    if len(paths) == 1:
        return _arms(paths[0], margin, limit is not None, bool(flag_values["json"].value))
    # Imported here so that --help does without them.
    from dawnjax.statistics import verdict
    from dawnjax.study import changes, sides

    first, second = (sides.read_side(path) for path in paths)
    if first.entry.target != second.entry.target:
        names = [side.entry.target.words() for side in (first, second)]
        raise ConfigError(
            f"A was trained to {names[0]} and B to {names[1]}: times to different targets are not "
            "compared"
        )
    sides.refuse_shared_trials(first, second)
    judged = verdict.judge(first.sample, second.sample, margin)
    is_same, mathematics = changes.same_mathematics(first, second)
    told = {
        "a": _side_json(first),
        "b": _side_json(second),
        "verdict": judged.to_json(),
        "same_mathematics": is_same,
        "mathematics": mathematics,
        "changed_fields": changes.changed_fields(first, second),
        "changes": [row.to_json() for row in changes.changes(first, second)],
        "step_parts": [row.to_json() for row in changes.step_parts(first, second)],
        "ops": [row.to_json() for row in changes.op_changes(first, second)],
    }
    if flag_values["json"].value:
        print(records.json_text(told, indent=1))
    else:
        print(_text(first, second, judged, told))
        _print_gate([("", judged)], limit is not None)
    return ExitStatus.DONE if limit is None else _gate(judged)


def _arms(path: str, margin: float, is_gate: bool, prints_json: bool) -> ExitStatus:
    """Print the verdicts of a study, which hold together; as a gate, return that of all arms."""
    from dawnjax.study.figures import read_figures
    from dawnjax.study.text import next_commands, text_of

    folder = records.path_of(path)
    found = read_figures(folder, margin)
    if found is None:
        raise ConfigError(f"two things are compared, and {path} alone is no study: {USAGE}")
    if len(found.own) < 2:
        raise ConfigError(f"{path} is a study of one arm; give the other side: {USAGE}")
    if prints_json:
        print(records.json_text(found.to_json(), indent=1))
    else:
        print(f"{text_of(found)}\n{next_commands(found, folder)}")
        _print_gate([(f"{arm.name}: ", arm.verdict) for arm in found.arms[1:]], is_gate)
    if not is_gate:
        return ExitStatus.DONE
    statuses = [_gate(arm.verdict) for arm in found.arms[1:]]
    worst = (ExitStatus.SLOWER, ExitStatus.UNDECIDED)
    return next((status for status in worst if status in statuses), ExitStatus.DONE)


def _print_gate(verdicts: "Iterable[tuple[str, Verdict | None]]", is_gate: bool) -> None:
    for name, judged in verdicts:
        if is_gate and judged is not None and judged.gate_words:
            print(f"gate: {name}{judged.gate_words}")


def _gate(judged: "Verdict | None") -> ExitStatus:
    if judged is not None and judged.is_slower_excluded:
        return ExitStatus.DONE
    # Undecided fails the gate too: too few trials must not pass as no slower.
    is_slower = judged is not None and judged.is_slower
    return ExitStatus.SLOWER if is_slower else ExitStatus.UNDECIDED


def _side_json(side: "Side") -> dict[str, Any]:
    from dawnjax.trials.labels import label

    entry = side.entry
    return {
        "given": side.given,
        "arm": side.arm,
        "label": label(entry),
        "source": entry.source,
        "benchmark": entry.benchmark,
        "system": entry.system,
        "trials": len(entry.trials),
        "reached": sum(trial.reached for trial in entry.trials),
        "expected_seconds": side.sample.expected,
        "warnings": list(entry.warnings),
    }


def _text(first: "Side", second: "Side", judged: "Verdict", told: dict[str, Any]) -> str:
    lines = []
    for name, side in (("A", told["a"]), ("B", told["b"])):
        expected = side["expected_seconds"]
        # The label of a grid's arm has its fields already.
        is_new = side["arm"] != "all" and any(w not in side["label"] for w in side["arm"].split())
        arm = f"{side['arm']}, " if is_new else ""
        time = "none reached" if expected is None else f"expected time {rounded(expected)} s"
        lines.append(
            f"{name}  {arm}{side['label']}: {side['reached']} of {side['trials']} trials reached, "
            f"{time}"
        )
        lines += [f"   warning: {warning}" for warning in side["warnings"]]
    lines += ["", f"mathematics: {told['mathematics']}"]
    fields = told["changed_fields"]
    lines += [f"  {line}" for line in fields[:MOST_FIELDS]]
    if len(fields) > MOST_FIELDS:
        lines.append(f"  and {len(fields) - MOST_FIELDS} more, which --json has")
    lines += ["", f"verdict: {_verdict_line(judged)}"]
    if told["same_mathematics"] and set(first.sample.seeds) != set(second.sample.seeds):
        lines.append(
            "  the same seeds on both sides, each once, would be pairs and need fewer trials"
        )
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
    ratio = ""
    if judged.ratio is not None:
        ends = judged.ratio.ends_text()
        kind = "95 % " if judged.ratio.level is not None else ""
        ratio = f"; B takes {judged.ratio.value:.3f} of A's time"
        ratio += f" ({kind}{ends})" if ends else ""
    word = judged.word.replace("_", " ")
    subject = "" if word.startswith(("only", "undecided")) else "B is "
    advice = judged.advice.text() if judged.advice else ""
    return f"{subject}{word}: {judged.why}{ratio}" + (f"; {advice}" if advice else "")


def _row(change: "dict[str, Any]") -> list[str]:
    figures = [change["first"], change["second"], change["ratio"]]
    cells = ["-" if figure is None else rounded(figure) for figure in figures]
    ends = "" if change["low"] is None else f"{change['low']:.3f} to {change['high']:.3f}"
    kind = "" if change["ends"] in ("", "95 %") else f"{change['ends']}: "
    return [change["name"], *cells, kind + ends]
