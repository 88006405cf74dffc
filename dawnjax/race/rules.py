"""Rules of an entry that need no run.

They say early what is wrong. They are not what stops a cheat: the judge believes no code (`judge`,
`sandbox`, `handover`).
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dawnjax import records
from dawnjax.config.choices import CHOICES
from dawnjax.race.entry import MOST_BYTES, Entry
from dawnjax.race.tracks import Track, baseline_fields

MOST_PACKED_BYTES = 10_000
"""Of source and fields together, compressed: trained weights must not hide in them."""


class Fault(NamedTuple):
    """A rule that an entry breaks, and how."""

    rule: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.why}"


def first_fault(folder: Path, entry: Entry, track: Track) -> Fault | None:
    """First rule that an entry breaks; None where it breaks none."""
    if track.lacks:
        return Fault("data", f"no entry of {track.name} can be judged: {track.lacks}")
    differences = track.differences(entry.experiment, baseline_fields(track))
    if differences:
        return Fault(
            "track",
            f"{differences[0]}; begin with: dawnjax race new NAME --track={track.name}",
        )
    own = own_choices(entry.experiment)
    if own:
        return Fault(
            "code",
            f"{', '.join(own)}: the weights are measured without any code of the entry, so task, "
            "model and data must be the project's; optimizer and schedule may be its own",
        )
    told = [records.read_plain(folder / name, MOST_BYTES) for name in sorted(entry.files)]
    told.append(json.dumps([sorted(entry.files), entry.experiment]).encode())
    packed = len(zlib.compress(b"".join(told), 9))
    if packed > MOST_PACKED_BYTES:
        return Fault(
            "code",
            f"source and fields pack to {packed:,} bytes; at most {MOST_PACKED_BYTES:,} may race: "
            "data and weights must not hide in them",
        )
    return None


def own_choices(fields: Mapping[str, Any]) -> list[str]:
    """Parts of an experiment that must be the project's, and are classes of the entry's own.

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
