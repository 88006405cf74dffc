"""Entries of a race for tests, without training: run directories of a track, and their folder."""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from made_logs import Log

from dawnjax.config.config_json import identity_of
from dawnjax.race import submit, tracks
from dawnjax.race.entry import Entry
from dawnjax.runs.log import SCHEMA_VERSION, encode_line, log_path

RECIPE = '''"""A recipe of one's own."""

from dawnjax.experiments.digits import EXPERIMENT as DIGITS

EXPERIMENT = DIGITS
'''


@functools.cache
def baseline() -> dict[str, Any]:
    return tracks.baseline_fields(tracks.read_track("digits"))


def trial_log(seconds: float, *, looks: int = 1, reached: bool = True) -> Log:
    """Log of a trial on one CPU that ends so long after its run_start at 8 s."""
    log = Log().begin(0.0)
    log.add("run_start", 8.0)
    for look in range(1, looks + 1):
        moment = 8.0 + seconds * look / looks
        log.train(moment, 10 * look, 10)
        is_last = look == looks
        log.add(
            "evaluation",
            moment,
            step=10 * look,
            epoch=1.0 * look,
            metrics={"top_1_accuracy": 0.995 if reached and is_last else 0.9},
            reached=reached and is_last,
        )
    status = "reached" if reached else "not_reached"
    return log.add("attempt_end", 8.0 + seconds, status=status, step=10 * looks)


def write_trial(
    path: Path,
    *,
    seed: int,
    seconds: float,
    looks: int = 1,
    reached: bool = True,
    changes: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    source: str = "",
    fingerprint: str = "",
    devices: dict[str, Any] | None = None,
) -> Path:
    """Write the run directory of one trial of `digits` as the track asks.

    Args:
      changes: Fields of the experiment that are other than the baseline's.
      options: Run options that are not the default.
      source: Text of `mine.py`; empty for none.
    """
    experiment = {**baseline(), **(changes or {})}
    log = trial_log(seconds, looks=looks, reached=reached)
    digest = hashlib.sha256(source.encode()).hexdigest()
    code = {"mine.py": digest} if source else None
    data = {"fingerprint": fingerprint or tracks.read_track("digits").data_fingerprint}
    fields: dict[str, Any] = {"data": data, "changes": sorted(changes or {})}
    fields |= {"code": code} if code else {}
    record = {
        "schema_version": SCHEMA_VERSION,
        "run_id": f"digits-s{seed}-{path.parent.name}",
        "seed": seed,
        "identity": identity_of(fields),
        "identity_fields": fields,
        "overrides": {},
        "source": {"name": "mine.py", "sha256": digest, "text": source} if source else None,
        "experiment": experiment,
    }
    own = {
        "attempt_start": {
            "run_id": record["run_id"],
            "versions": {"jax": "0.10.2"},
        },
        "experiment": {
            "seed": seed,
            "identity": record["identity"],
            "experiment": experiment,
            "run_options": {"price_per_hour_usd": None, **(options or {})},
        },
        "devices": {
            "num_devices": 1,
            "num_processes": 1,
            "num_hosts": 1,
            "mesh": {"data": 1},
            "settings": {"numbers": {}, "others": {}},
            **(devices or {}),
        },
    }
    path.mkdir(parents=True)
    lines = [encode_line({**event, **own.get(event["event"], {})}) for event in log.events]
    log_path(path).write_bytes(b"".join(lines))
    (path / "experiment.json").write_text(json.dumps(record))
    return path


def write_side(folder: Path, mean: float, seeds: int = 6, **fields: Any) -> Path:
    """Write trials of a side, whose times spread by a hundredth around a mean."""
    for seed in range(seeds):
        seconds = mean * (1 + 0.01 * ((seed * 7) % 3 - 1))
        write_trial(folder / f"seed_{seed}", seed=seed, seconds=seconds, **fields)
    return folder


def write_entry(
    folder: Path, name: str = "mine", *, mean: float = 6.0, against: float = 10.0, **fields: Any
) -> tuple[Path, Entry]:
    """Submit an entry of made runs to `folder/NAME`; its own runs and the rival's stay beside."""
    runs = write_side(folder / "trained" / name / "own", mean, **fields)
    rival = write_side(folder / "trained" / name / "rival", against)
    out = folder / "entries" / name
    entry = submit.submit([runs], rival, track="digits", name=name, out=out)
    return out, entry
