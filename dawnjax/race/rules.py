"""Rules of an entry that need no run.

They find faults early. They do not stop a cheat: for that the judge trusts no code (`judge`,
`sandbox`, `handover`).
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.config.choices import CHOICES
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment
from dawnjax.errors import ConfigError
from dawnjax.race.entry import MOST_BYTES, Entry
from dawnjax.race.tracks import FIXED, Track, baseline
from dawnjax.runs.stages import examples_before

MOST_PACKED_BYTES = 10_000
"""Limit of fields and executed source together, compressed, so that little of the data fits in."""


class RuleError(ConfigError):
    """A rule that an entry breaks, and how."""

    def __init__(self, rule: str, why: str):
        super().__init__(f"{rule}: {why}")
        self.rule, self.why = rule, why


def check(folder: Path, entry: Entry, track: Track) -> None:
    """Raise `RuleError` with the first rule that an entry breaks."""
    if track.counts_examples and entry.code != "none":
        raise RuleError(
            "track", f"{track.name} accepts no code of your own: only DawnJAX's can be counted"
        )
    if entry.code != "program":
        _check_recipe(entry, track)
    elif not track.takes_programs:
        raise RuleError("track", f"{track.name} accepts no program: its inputs contain the answers")
    executed = sorted(entry.files) if entry.source else []
    told = [records.read_plain(folder / name, MOST_BYTES) for name in executed]
    told.append(json.dumps([executed, entry.experiment]).encode())
    packed = len(zlib.compress(b"".join(told), 9))
    if packed > MOST_PACKED_BYTES:
        raise RuleError(
            "code",
            f"source and fields compress to {packed:,} bytes; at most {MOST_PACKED_BYTES:,} are "
            "allowed",
        )


def _check_recipe(entry: Entry, track: Track) -> None:
    own = own_choices(entry.experiment)
    if own:
        raise RuleError(
            "code",
            f"{', '.join(own)}: the weights are measured without any code of the entry, so task, "
            "model and data must be DawnJAX's; optimizer and schedule may be your own",
        )
    wanted = to_json(baseline(track))
    try:
        differences = track.differences(completed(entry.experiment, wanted), wanted)
    except ConfigError as error:
        raise RuleError("track", str(error)) from None
    if differences:
        raise RuleError(
            "track",
            f"{differences[0]}; begin with: dawnjax race new NAME --track={track.name}",
        )


def check_budget(entry: Entry, track: Track, spec: Any) -> None:
    """Raise `RuleError` if a recipe would train on more examples or tokens than the budget."""
    if track.budget is None or not track.counts_examples:
        return
    experiment, most = from_json(Experiment, entry.experiment), track.budget.amount
    used = examples_before(experiment.spans(spec), experiment.num_steps(spec))
    used *= spec.sequence_length if track.budget.unit == "tokens" else 1
    if used > most:
        raise RuleError(
            "budget", f"it trains on {used:,} {track.budget.unit}; at most {most:,} are allowed"
        )


def completed(fields: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment's fixed parts as a run takes them, with the baseline's free parts.

    An entry may be older than a field; it then has the field's default.
    """
    heads = {name.partition(".")[0] for name in FIXED}
    free = {name: value for name, value in baseline.items() if name not in heads}
    fixed = {name: value for name, value in fields.items() if name in heads}
    return to_json(from_json(Experiment, {**free, **fixed}))


def own_choices(fields: Mapping[str, Any]) -> list[str]:
    """Parts of an experiment that must be DawnJAX's, but are the entry's own classes.

    The judge measures the weights in a process without any code of the entry.
    """
    found = []
    for part, known in CHOICES.items():
        value = fields.get(part)
        tag = value.get("tag") if isinstance(value, dict) else None
        if tag not in known:
            found.append(f"{part}={tag}")
    return found


def without_place(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Experiment without the place of its data, and without claims about a recipe."""
    fields = {
        name: value
        for name, value in experiment.items()
        if name not in ("observations", "target_note", "mlperf_benchmark")
    }
    data = fields.get("data")
    if isinstance(data, dict) and "data_dir" in data:
        fields["data"] = {**data, "data_dir": ""}
    return fields
