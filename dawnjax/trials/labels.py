"""Words for entries and what they reach: labels that tell them apart, hardware, qualities."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from dawnjax.page import words
from dawnjax.tasks.metric import KNOWN_METRICS
from dawnjax.trials.group import OTHER, Entry
from dawnjax.trials.target import Target, reaches


def key_of(entry: Entry) -> tuple[str, ...]:
    """Suite with its round, benchmark and source: unique among entries that are read together."""
    return f"{entry.suite} {entry.round}".strip(), entry.benchmark, entry.source


def label(entry: Entry, *, benchmark: bool = False) -> str:
    """Short name: an entry's file, its submitter and system, or our experiment and its changes."""
    if entry.suite in ("dawnbench", OTHER):
        name = entry.source.rsplit("/", 1)[-1] or entry.source
    elif entry.suite == "dawnjax":
        name = " ".join(filter(None, [entry.benchmark, entry.variant, f"on {entry.system}"]))
        return f"{name} ({entry.distinction})" if entry.distinction else name
    else:
        many = f" · {entry.num_accelerators} acc." if (entry.num_accelerators or 0) > 1 else ""
        name = f"{entry.submitter} {entry.system or entry.hardware}{many}".strip()
        name += f" ({entry.distinction})" if entry.distinction else ""
    return f"{entry.benchmark} · {name}" if benchmark else name


def labels_apart(entries: Sequence[Entry]) -> list[str]:
    """Names of entries that stand together: what all of ours share is omitted.

    Names that are still equal get the first detail that differs, such as options of the run, the
    framework or the day: a name alone never is one.
    """
    whole = [label(dataclasses.replace(entry, distinction="")) for entry in entries]
    parts = [_parts(entry) for entry in entries]
    ours = [set(of) for entry, of in zip(entries, parts, strict=True) if entry.suite == "dawnjax"]
    shared = set.intersection(*ours) if len(ours) > 1 else set()
    names = [
        " ".join(part for part in of if part not in shared) or entry.benchmark
        for entry, of in zip(entries, parts, strict=True)
    ]
    return names_apart(
        names if len(set(names)) == len(set(whole)) else whole, [_details(it) for it in entries]
    )


def labels_by_key(entries: Sequence[Entry]) -> dict[tuple[str, ...], str]:
    """Names by `key_of`, distinct within each benchmark."""
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.suite, entry.round, entry.benchmark), []).append(entry)
    return {
        key_of(entry): name
        for group in groups.values()
        for entry, name in zip(group, labels_apart(group), strict=True)
    }


def _details(entry: Entry) -> tuple[str, ...]:
    """Details that distinguish entries of one name, the best known first."""
    batch = f"batch {entry.global_batch_size}" if entry.global_batch_size else ""
    known = entry.distinction, entry.framework, batch, entry.date
    return (*known, entry.identity[:8], entry.source)


def names_apart(names: Sequence[str], details: Sequence[tuple[str, ...]]) -> list[str]:
    """Names, with details behind equal ones.

    Equal names get the first detail that alone tells them all apart; else the details that differ,
    as many as it takes; else a number.

    Args:
      details: Of each name, the best one first; an empty detail leaves the name as it is.
    """
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    apart = list(names)
    for name, alike in places.items():
        for place, words_of in zip(alike, _telling([details[it] for it in alike]), strict=True):
            apart[place] = f"{name} ({words_of})" if words_of else name
    return apart


def _telling(details: Sequence[tuple[str, ...]]) -> list[str]:
    """The first details that tell several things apart; none of one thing alone."""
    if len(details) == 1:
        return [""]
    columns = [of_all for of_all in zip(*details, strict=True) if len(set(of_all)) > 1]
    for column in columns:
        if len(set(column)) == len(details):
            return [*column]
    for count in range(2, len(columns) + 1):
        rows = [", ".join(filter(None, row)) for row in zip(*columns[:count], strict=True)]
        if len(set(rows)) == len(details):
            return rows
    return [str(number) for number in range(1, len(details) + 1)]


def _parts(entry: Entry) -> tuple[str, ...]:
    if entry.suite != "dawnjax":
        return (label(dataclasses.replace(entry, distinction="")),)
    changed = re.split(r", (?=[\w.]+=)", entry.variant)
    fields = (re.sub(r"^[\w.]*\.", "", field) for field in changed if field)
    return tuple(filter(None, [entry.benchmark, *fields, f"on {entry.system}"]))


def hardware(entry: Entry) -> str:
    """Hardware of an entry, with the number of devices where its own text lacks it."""
    if entry.suite == "dawnbench":
        return entry.hardware or entry.system
    many = f"{entry.num_accelerators} × " if entry.num_accelerators else ""
    hosts = f" on {entry.num_hosts} hosts" if (entry.num_hosts or 0) > 1 else ""
    if not entry.num_accelerators and entry.suite == "mlperf_training":
        return entry.system or entry.hardware
    return f"{many}{entry.hardware or entry.system}{hosts}"


def quality(value: float, target: Target) -> str:
    """A metric's value in words; fractions in percent, others with the unit that a run declares."""
    hides = target.value is not None and not reaches(value, target.value, target.direction)
    if hides and reaches(float(f"{value:.4g}"), target.value or 0.0, target.direction):
        # Four digits would show a target as reached that was not.
        return round_quality(value, target) + _unit_after(target)
    if target.unit == "fraction":
        return words.percent(value, 4)
    if target.unit == "percent":
        return f"{words.number(value, 4)}%"
    return words.number(value, 4) + _unit_after(target)


def round_quality(value: float, target: Target) -> str:
    """A round value of a metric in words, without the unit that a run declares."""
    if target.unit == "fraction":
        return f"{words.plain(100 * value)}%"
    return words.plain(value) + ("%" if target.unit == "percent" else "")


def _unit_after(target: Target) -> str:
    """Unit behind a value; empty for a sign, or where it is the metric's own name."""
    unit = _UNITS.get(target.unit, target.unit)
    return "" if unit in ("", "%", target.title) or not target.title else f" {unit}"


_UNITS = {"fraction": "%", "percent": "%", "bleu": "BLEU", "1": ""}
"""Units as a page writes them, where it does not write them as they are declared."""


def metric_name(target: Target) -> str:
    known = KNOWN_METRICS.get(target.metric)
    return target.title or (known.title if known else target.metric or "quality")


def metric_label(target: Target) -> str:
    """Label of a metric's axis: name, unit, and a note where lower is better."""
    name = metric_name(target)
    unit = _UNITS.get(target.unit, target.unit)
    shown = f"{name} ({unit})" if unit not in ("", name) else name
    return f"{shown}, lower is better" if target.direction == "at_most" else shown


def target_label(target: Target) -> str:
    """A target in words: its metric's value, and what else must hold at the same evaluation."""
    return " and ".join([level_label(target), *(other.words() for other in target.others)])


def level_label(target: Target) -> str:
    """The value that a target's first metric must reach, in words."""
    if target.value is None:
        return "no target known"
    word = "at most " if target.direction == "at_most" else ""
    return f"target {word}{round_quality(target.value, target)}{_unit_after(target)}"


def by_key(entries: Iterable[Entry]) -> dict[tuple[str, ...], Entry]:
    return {key_of(entry): entry for entry in entries}
