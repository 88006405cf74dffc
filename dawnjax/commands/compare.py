"""`dawnjax compare`: speed or quality of B against A with its interval, and what changed."""

import dataclasses
import functools
from collections.abc import Sequence

from absl import flags

from dawnjax import records
from dawnjax.commands.answer import Answer
from dawnjax.commands.told_comparison import ArmQualities, Quality, Side, ToldComparison
from dawnjax.commands.told_study import Disturbed, Ladder, Verdict, told_study
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.other_logs import flags as column_flags
from dawnjax.page.table import of_words
from dawnjax.page.words import count, counted, of_name, rounded
from dawnjax.statistics.budget import QualityVerdict
from dawnjax.statistics.verdict import Verdict as JudgedTimes
from dawnjax.statistics.verdict import judge
from dawnjax.study import at_budget, changes
from dawnjax.study.changes import Change
from dawnjax.study.disturbed import Disturbed as DisturbedTrials
from dawnjax.study.disturbed import disturbed
from dawnjax.study.figures import StudyFigures, read_figures
from dawnjax.study.ladder import ladder
from dawnjax.study.sides import Side as ReadSide
from dawnjax.study.sides import apart, place_of, read_side, refuse_shared_trials
from dawnjax.study.text import next_commands, text_of
from dawnjax.text import ends_text
from dawnjax.trials.group import OTHER
from dawnjax.trials.labels import label

Asked = tuple[Sequence[at_budget.Budget], str, float | None]
"""Budgets, metric and margin of a comparison of qualities."""

MOST_FIELDS = 20
"""Changed fields in the text; the JSON has all."""

_SHORT_USAGE = "dawnjax compare A B, or one STUDY; --help lists the flags"

USAGE = """dawnjax compare A B|STUDY [--margin=0.05] [--fail_if_slower_by=FRACTION]
       dawnjax compare A B --at=seconds=300 [--margin=DIFFERENCE] [--fail_if_worse_by=DIFFERENCE]
       dawnjax compare --ladder A1 B1 A2 B2 A3 B3... [--sizes=N,N,N]"""

DESCRIPTION = """
Compares the times to accuracy of A and B, or their qualities at a budget, and shows what changed.
A and B are run directories, folders of runs that differ in their seed, arms of a study (STUDY/ARM),
.jsonl files of entries, official results, or logs of other programs: a file or a folder of JSON
lines, CSV, TSV, TensorBoard's event files, MLflow's runs or printed text, a trial each.
PATH#SOURCE chooses one of several entries. With STUDY alone, its arms are compared with its first.

The verdict on times is one word about B:

  equivalent            the 90 % interval of the ratio of expected times lies within the margin
  faster                else: the 95 % interval lies below 1, even counting misses that B's
                        trials cannot rule out
  slower                else: the 95 % interval lies above 1, even counting such misses of A
  faster_if_all_reach,  the same, but such misses could cancel the difference
  slower_if_all_reach
  only_first_reached    A reached its target and B never did, by Fisher's test at 5 %
  only_second_reached   B reached its target and A never did
  undecided             else, or fewer than 5 trials of each (20 if some missed), or if one trial
                        decides

With --at, such as --at=steps=1000, the verdict is on the quality at that budget of seconds, steps,
tokens, flops, usd or end (repeat the flag for several), interpolated between evaluations but not
beyond the last. Other programs' logs without --target are compared at the end:

  equivalent            --margin is given, in the metric's unit, and the 90 % interval of the
                        difference of the means lies within it
  better, worse         else: the 95 % interval excludes 0 (several budgets hold together)
  undecided             else, or fewer than 5 trials of each, or a trial has no value there

--ladder takes A and B at three sizes or more, with the same change at each. It prints the speedup
to equal quality at each size, and whether the gain grows, holds or fades with size. A line fitted
to the logarithms decides: the change from the smallest to the largest size differs from 1 (95 %),
or lies within --margin (90 %). A study of --kind=ladder prints the same. Beyond the largest size
the gain is unknown.

Trials with the same seeds and first losses are compared as pairs. No trial may be on both sides.

With --fail_if_slower_by the exit status is 0 if the 95 % interval excludes a slowdown of that
fraction or more, 6 if B is slower or never reached, and 7 if undecided: more trials are needed, one
stalled trial decides, or other work on the machine disturbed every trial of a side. If no trial
missed, status 0 assumes that all trials reach, and a line says how often B may still miss its
target. --fail_if_worse_by is the same gate for the quality, in the metric's unit. Adding trials and
comparing again is a second look: the output says how many verdicts are then false.
"""


RESULT = ToldComparison


def main(argv: list[str]) -> Answer:
    flag_values = flags.FlagValues()
    number = functools.partial(flags.DEFINE_float, flag_values=flag_values)
    margins = "Ratios from 1 / (1 + margin) to 1 + margin count as equal (default: 0.05); with "
    margins += "--at differences of the metric up to the margin (default: none)."
    number("margin", None, margins)
    gate = "A gate for CI: fail if B is slower by this fraction; also the margin."
    number("fail_if_slower_by", None, gate)
    gate = "A gate for CI: fail if B is worse by this difference; also the margin."
    number("fail_if_worse_by", None, gate)
    budget = "Compare the quality at this budget, such as seconds=300"
    flags.DEFINE_multi_string("at", [], budget, flag_values=flag_values)
    several = "Compare A and B at several sizes: A1 B1 A2 B2 A3 B3."
    flags.DEFINE_bool("ladder", False, several, flag_values=flag_values)
    sizes = "Sizes of a ladder, such as 1e6,4e6,16e6 (default: the parameters of DawnJAX's runs)."
    flags.DEFINE_list("sizes", [], sizes, flag_values=flag_values)
    column_flags.define(flag_values)
    paths = command_line.parse("compare", flag_values, argv, USAGE, DESCRIPTION)
    given = column_flags.columns(flag_values)
    column_flags.refuse_unused(given, [place_of(path) for path in paths])
    if flag_values["ladder"].value:
        return _ladder(paths, flag_values)
    if flag_values["sizes"].value:
        raise ConfigError("--sizes needs --ladder")
    if len(paths) not in (1, 2):
        raise ConfigError(f"give two sides, or one study; {len(paths)} were given: {_SHORT_USAGE}")
    limit, worst = (flag_values[f"fail_if_{what}_by"].value for what in ("slower", "worse"))
    if limit is not None and (worst is not None or flag_values["at"].value):
        raise ConfigError(
            "--fail_if_slower_by judges times; --at and --fail_if_worse_by judge quality: choose "
            "one kind"
        )
    budgets = at_budget.parse(flag_values["at"].value or ())
    if len(paths) == 1:
        if _study(paths[0], 0.05).study.kind == "ladder":
            return _ladder(paths, flag_values)
        if budgets or worst is not None:
            margin = _quality_margin(flag_values)
            asked = (budgets, given.metric, margin)
            return _arms_at(paths[0], asked, worst is not None)
        return _arms(paths[0], _margin(flag_values), limit is not None)
    first, second = (read_side(path, given) for path in paths)
    has_target = any(side.entry.target.value is not None for side in (first, second))
    if budgets or worst is not None or not has_target:
        if limit is not None:
            raise ConfigError("--fail_if_slower_by judges times to a target: give --target")
        margin = _quality_margin(flag_values)
        refuse_shared_trials(first, second)
        asked = (budgets, given.metric, margin)
        return _qualities(first, second, asked, worst is not None, argv)
    return _times(first, second, _margin(flag_values), limit is not None, argv)


def _ladder(paths: list[str], flag_values: flags.FlagValues) -> Answer:
    """The gains of a change over several sizes, and their trend."""
    if any(flag_values[f"fail_if_{what}_by"].value is not None for what in ("slower", "worse")):
        raise ConfigError("a ladder cannot be a gate: compare the arms of one size")
    budgets = at_budget.parse(flag_values["at"].value or ())
    if len(budgets) > 1:
        raise ConfigError("a ladder is judged at one budget: give one --at")
    given = column_flags.columns(flag_values)
    sizes = [_size(text) for text in flag_values["sizes"].value or ()]
    if len(paths) == 1:
        study = _study(paths[0], 0.05)
        if study.study.kind != "ladder":
            raise ConfigError(f"{paths[0]} is a study of kind {study.study.kind}, no ladder")
        pairs = study.pairs
    else:
        if len(paths) % 2 or len(paths) < 6:
            raise ConfigError(f"--ladder takes A1 B1 A2 B2 A3 B3 or more; {len(paths)} were given")
        read = [read_side(path, given) for path in paths]
        pairs = list(zip(read[::2], read[1::2], strict=True))
    found = ladder(
        pairs,
        sizes=sizes,
        budget=budgets[0] if budgets else None,
        metric=given.metric,
        margin=_quality_margin(flag_values),
    )
    told = ToldComparison(ladder=records.convert(found.to_json(), Ladder))
    return Answer(result=told, text="\n".join(found.lines()))


def _size(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--sizes={text} is not a number") from None


def _margin(flag_values: flags.FlagValues) -> float:
    is_gate = flag_values["fail_if_slower_by"].value is not None
    flag = "fail_if_slower_by" if is_gate else "margin"
    value = flag_values[flag].value
    margin = 0.05 if value is None else float(value)
    if not 0 < margin < 1:
        raise ConfigError(f"--{flag}={margin:g} must lie between 0 and 1, such as 0.05")
    return margin


def _quality_margin(flag_values: flags.FlagValues) -> float | None:
    flag = "margin" if flag_values["fail_if_worse_by"].value is None else "fail_if_worse_by"
    margin = flag_values[flag].value
    if margin is not None and not 0 < margin < 1e300:
        raise ConfigError(f"--{flag}={margin:g} must be above 0, in the metric's unit")
    return margin


def _times(
    first: ReadSide, second: ReadSide, margin: float, is_gate: bool, argv: Sequence[str]
) -> Answer:
    if first.entry.target != second.entry.target:
        names = [side.entry.target.words() for side in (first, second)]
        raise ConfigError(
            f"A was trained to {names[0]} and B to {names[1]}: times to different targets are not "
            "compared"
        )
    refuse_shared_trials(first, second)
    judged = judge(first.sample, second.sample, margin)
    calm = disturbed(first.entry.trials, second.entry.trials)
    without = calm and calm.verdict(margin)
    is_same, mathematics = changes.same_mathematics(first, second)
    iso = at_budget.iso(first.entry, second.entry)
    entries = first.entry, second.entry
    nothing = calm.gate_words if calm else ""
    decision = at_budget.decided(
        [at_budget.UNDECIDED if nothing else judged.word],
        effect="ratio of expected times, B over A",
        found=judged.ratio,
        advice=None if nothing else judged.advice,
    )
    result = ToldComparison(
        a=_told_side(first),
        b=_told_side(second),
        verdict=records.convert(judged.to_json(), Verdict, others=True),
        disturbed=_told_disturbed(calm, without),
        same_mathematics=is_same,
        mathematics=mathematics,
        changed_fields=tuple(changes.changed_fields(first, second)),
        changes=tuple(changes.changes(first, second)),
        step_parts=tuple(changes.step_parts(first, second)),
        ops=tuple(changes.op_changes(first, second)),
        cautions=(*at_budget.other_clocks(*entries), *apart(*entries)),
        iso_quality=iso,
        decision=decision,
    )
    lines = [_text(first, second, judged, _without_line(calm, without), result)]
    if iso is not None and (sentence := iso.sentence(first.entry.target.metric)):
        lines += ["", sentence]
    lines.append(decision.line(nothing))
    gate = _gate_words("", judged, calm) if is_gate else []
    status = _gate(judged, calm) if is_gate else ExitStatus.DONE
    return _answer(result, [*lines, *gate], status, nothing or judged.why, argv)


def _qualities(
    first: ReadSide,
    second: ReadSide,
    asked: Asked,
    is_gate: bool,
    argv: Sequence[str],
) -> Answer:
    """Verdicts on qualities at budgets; a gate's status covers all budgets."""
    [found] = at_budget.qualities(first, [second], *asked)
    verdicts = found.verdicts
    calm, without = _calm_at(found, first, second), None
    if calm is not None and not calm.alone:
        left = calm.entries_left([first.entry, second.entry])
        sides = [dataclasses.replace(first, entry=left[0])]
        sides += [dataclasses.replace(second, entry=left[1])]
        [without] = at_budget.qualities(sides[0], sides[1:], *asked)
    iso = at_budget.iso(first.entry, second.entry, found.metric, found.budgets[0].unit)
    # The decision's figures are those of one budget: the first that decided it.
    words = [verdict.word for verdict in verdicts]
    ranked = (at_budget.WORSE, at_budget.UNDECIDED, at_budget.BETTER)
    place = next((words.index(word) for word in ranked if word in words), 0)
    shown, budget = verdicts[place], found.budgets[place]
    nothing = calm.gate_words if calm else ""
    decision = at_budget.decided(
        [at_budget.UNDECIDED] if nothing else words,
        effect=f"difference of {found.metric} {budget}, B less A",
        found=shown.difference,
        advice=None if nothing else shown.advice,
    )
    result = ToldComparison(
        a=_told_side(first),
        b=_told_side(second),
        qualities=_told_qualities(found),
        disturbed=_told_disturbed(calm, None),
        undisturbed_qualities=_told_qualities(without) if without else (),
        cautions=tuple(found.cautions),
        iso_quality=iso,
        decision=decision,
    )
    lines = [*_side_lines(result), "", *found.lines()]
    if calm is not None:
        lines.append(_without_line(calm, None))
        lines += (f"  without: {line}" for line in (without.lines() if without else ()))
        lines += _gate_words("", None, calm) if is_gate else []
    if iso is not None and (sentence := iso.sentence(found.metric)):
        lines.append(sentence)
    lines.append(decision.line(nothing))
    status = _gate_of_qualities(verdicts, calm) if is_gate else ExitStatus.DONE
    return _answer(result, lines, status, nothing or shown.why, argv)


def _calm_at(
    found: at_budget.Qualities, first: ReadSide, second: ReadSide
) -> DisturbedTrials | None:
    # Load of the machine moves no quality at an equal number of steps.
    if not any(budget.unit in ("seconds", "usd") for budget in found.budgets):
        return None
    return disturbed(first.entry.trials, second.entry.trials)


def _answer(
    result: ToldComparison, lines: list[str], status: ExitStatus, why: str, argv: Sequence[str]
) -> Answer:
    assert result.a and result.b and result.decision
    return Answer(
        result=result,
        text="\n".join(lines),
        status=status,
        reasons=[why] if status else (),
        next=result.decision.following((result.a.given, result.b.given), argv),
    )


def _gate_of_qualities(
    verdicts: Sequence[QualityVerdict], calm: DisturbedTrials | None
) -> ExitStatus:
    if calm is not None and calm.alone:
        return ExitStatus.UNDECIDED
    if all(verdict.is_worse_excluded for verdict in verdicts):
        return ExitStatus.DONE
    is_worse = any(verdict.word == at_budget.WORSE for verdict in verdicts)
    return ExitStatus.SLOWER if is_worse else ExitStatus.UNDECIDED


def _arms_at(path: str, asked: Asked, is_gate: bool) -> Answer:
    """Verdicts on a study's arms at budgets; a gate's status covers all arms."""
    arms = _study(path, 0.05).sides
    found = at_budget.qualities(arms[0], arms[1:], *asked)
    pairs = [*zip(arms[1:], found, strict=True)]
    lines = [f"A  {arms[0].arm}: {count(len(arms[0].entry.trials), 'trial')}"]
    statuses, reasons = [], []
    for arm, it in pairs:
        lines.append(f"B  {arm.arm}: {count(len(arm.entry.trials), 'trial')}")
        lines += (f"   {line}" for line in it.lines())
        calm = _calm_at(it, arms[0], arm)
        if calm is not None:
            lines.append(f"   {_without_line(calm, None)}")
        if not is_gate:
            continue
        lines += _gate_words(f"{arm.arm}: ", None, calm)
        statuses.append(_gate_of_qualities(it.verdicts, calm))
        if calm is not None and calm.alone:
            reasons.append(f"{arm.arm}: {calm.gate_words}")
        elif statuses[-1]:
            reasons += (
                f"{arm.arm}: {verdict.word} {budget}: {verdict.why}"
                for budget, verdict in zip(it.budgets, it.verdicts, strict=True)
                if not verdict.is_worse_excluded
            )
    result = ToldComparison(
        a=_told_side(arms[0]),
        arms=tuple(
            ArmQualities(arm=arm.arm, qualities=_told_qualities(it), cautions=tuple(it.cautions))
            for arm, it in pairs
        ),
    )
    return Answer(result=result, text="\n".join(lines), status=_of_all(statuses), reasons=reasons)


def _study(path: str, margin: float) -> StudyFigures:
    found = read_figures(records.path_of(path), margin)
    if found is None:
        raise ConfigError(f"give two sides, or one study; {path} is not a study: {_SHORT_USAGE}")
    if len(found.own) < 2:
        raise ConfigError(f"{path} is a study with one arm; give the other side: {_SHORT_USAGE}")
    return found


def _arms(path: str, margin: float, is_gate: bool) -> Answer:
    """Joint verdicts of a study; a gate's status covers all arms."""
    folder, found = records.path_of(path), _study(path, margin)
    following = next_commands(found, folder)
    lines = [text_of(found), *(f"next: {command}" for command in following)]
    statuses, reasons = [], []
    for arm in found.arms[1:] if is_gate else ():
        lines += _gate_words(f"{arm.name}: ", arm.verdict, arm.disturbed)
        statuses.append(_gate(arm.verdict, arm.disturbed))
        if statuses[-1]:
            nothing = arm.disturbed.gate_words if arm.disturbed else ""
            why = arm.verdict.why if arm.verdict else "it has no verdict"
            reasons.append(f"{arm.name}: {nothing or why}")
    return Answer(
        result=ToldComparison(study=told_study(found, folder)),
        text="\n".join(lines),
        status=_of_all(statuses),
        reasons=reasons,
        next=following,
    )


def _of_all(statuses: Sequence[ExitStatus]) -> ExitStatus:
    """Status of the gate of a study's arms."""
    worst = (ExitStatus.SLOWER, ExitStatus.UNDECIDED)
    return next((status for status in worst if status in statuses), ExitStatus.DONE)


def _gate_words(name: str, judged: JudgedTimes | None, calm: DisturbedTrials | None) -> list[str]:
    said = (calm.gate_words if calm else "") or (judged.gate_words if judged else "")
    return [f"gate: {name}{said}"] if said else []


def _gate(judged: JudgedTimes | None, calm: DisturbedTrials | None) -> ExitStatus:
    if calm is not None and calm.alone:
        return ExitStatus.UNDECIDED
    if judged is not None and judged.is_slower_excluded:
        return ExitStatus.DONE
    # Undecided fails the gate too: too few trials must not pass as no slower.
    is_slower = judged is not None and judged.is_slower
    return ExitStatus.SLOWER if is_slower else ExitStatus.UNDECIDED


def _told_side(side: ReadSide) -> Side:
    entry = side.entry
    sample = entry.figures.sample
    return Side(
        given=side.given,
        arm=side.arm,
        label=label(entry),
        source=entry.source,
        suite=entry.suite,
        benchmark=entry.benchmark,
        system=entry.system,
        trials=len(entry.trials),
        reached=entry.figures.reached,
        expected_seconds=None if sample is None else sample.expected,
        warnings=tuple(entry.warnings),
    )


def _told_qualities(found: at_budget.Qualities) -> tuple[Quality, ...]:
    return records.convert(found.to_json(), tuple[Quality, ...], others=True)


def _told_disturbed(calm: DisturbedTrials | None, without: JudgedTimes | None) -> Disturbed | None:
    if calm is None:
        return None
    plain = calm.to_json(without and without.to_json())
    return records.convert(plain, Disturbed, others=True)


def _side_lines(told: ToldComparison) -> list[str]:
    lines = []
    for name, side in (("A", told.a), ("B", told.b)):
        assert side is not None and told.a is not None
        # The label of a grid's arm has its fields already.
        is_new = side.arm != "all" and any(word not in side.label for word in side.arm.split())
        arm = f"{side.arm}, " if is_new else ""
        time = "none reached"
        if side.expected_seconds is not None:
            time = f"expected time {rounded(side.expected_seconds)} s"
        reached = f"{side.reached} of {side.trials} trials reached, {time}"
        if told.qualities:
            reached = count(side.trials, "trial")
        lines.append(f"{name}  {arm}{side.label}: {reached}")
        kind = "read" if side.suite == OTHER else "warning"
        said = [f"   {kind}: {warning}" for warning in counted(side.warnings)]
        is_as_a = name == "B" and said and side.warnings == told.a.warnings
        lines += [f"   {kind}: as A"] if is_as_a else said
    return lines


def _text(
    first: ReadSide,
    second: ReadSide,
    judged: JudgedTimes,
    without: str,
    told: ToldComparison,
) -> str:
    lines = _side_lines(told)
    lines += ["", f"mathematics: {told.mathematics}"]
    fields = told.changed_fields
    lines += [f"  {line}" for line in fields[:MOST_FIELDS]]
    if len(fields) > MOST_FIELDS:
        lines.append(f"  and {len(fields) - MOST_FIELDS} more, which --json has")
    lines += ["", f"verdict: {_verdict_line(judged)}"]
    if told.same_mathematics and set(first.sample.seeds) != set(second.sample.seeds):
        lines.append(
            "  the same seeds on both sides, each once, form pairs, which need fewer trials"
        )
    lines += [f"  {without}"] if without else []
    lines += [f"  caution: {said}" for said in counted(told.cautions)]
    rows = [*told.changes, *told.step_parts]
    rows = [row for row in rows if (row.first, row.second) != (None, None)]
    if rows:
        table = of_words(["what changed", "A", "B", "B / A", "95 %"], map(_row, rows))
        lines += ["", table.to_text()]
    if told.ops:
        cells = []
        for op in told.ops:
            assert op.first is not None and op.second is not None
            times = (op.first, op.second, op.second - op.first)
            cells.append([op.name, *(rounded(1e3 * seconds) for seconds in times)])
        table = of_words(["ops that changed most, ms a step", "A", "B", "B - A"], cells)
        lines += ["", table.to_text()]
    if not first.runs or not second.runs:
        lines += ["", "Only DawnJAX's run directories record where their time went."]
    elif not told.step_parts:
        lines += ["", "A side has no profile: changes within a step are not known."]
    return "\n".join(lines)


def _without_line(calm: DisturbedTrials | None, without: JudgedTimes | None) -> str:
    if calm is None:
        return ""
    judged = "" if without is None else f"; without: {_verdict_line(without)}"
    return f"disturbed: {calm.sentence()}{judged}"


def _verdict_line(judged: JudgedTimes) -> str:
    ratio = ""
    if judged.ratio is not None:
        ends = judged.ratio.ends_text()
        kind = "95 % " if judged.ratio.level is not None else ""
        ratio = f"; B takes {judged.ratio.value:.3f} of A's time"
        ratio += f" ({kind}{ends})" if ends else ""
    word = of_name(judged.word)
    subject = "" if word.startswith(("only", "undecided")) else "B is "
    advice = judged.advice.text() if judged.advice else ""
    return f"{subject}{word}: {judged.why}{ratio}" + (f"; {advice}" if advice else "")


def _row(change: Change) -> list[str]:
    figures = [change.first, change.second, change.ratio]
    cells = ["-" if figure is None else rounded(figure) for figure in figures]
    kind = "95 %" if change.level is not None else f"range of {change.trials}"
    name = f"{change.name}, {change.unit}" if change.unit else change.name
    return [name, *cells, ends_text(change.low, change.high, kind, "{:.3f}".format)]
