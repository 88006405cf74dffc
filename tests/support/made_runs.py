"""Run directories for tests, without training: an experiment.json and a log."""

import json
from pathlib import Path
from typing import Any

from made_logs import EXPERIMENT, Log

from dawnjax.runs.log import SCHEMA_VERSION, encode_line, log_path


def write_run(
    path: Path,
    *,
    seed: int = 0,
    seconds: float | None = 10.0,
    status: str | None = "not_reached",
    identity: str = "identity",
    source: str = "",
    run_id: str = "",
    price: float | None = None,
    num_devices: int = 8,
    device_kind: str = "tpu v4",
    platform: str = "tpu",
    mesh: dict[str, int] | None = None,
    versions: dict[str, str] | None = None,
    interrupted: bool = False,
    data: str = "",
    options: dict[str, Any] | None = None,
    cores: int | None = None,
    cache: str = "",
    declared: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    overrides: dict[str, Any] | None = None,
    losses: tuple[float | str, ...] = (),
) -> Path:
    """Write a run that is evaluated each 5 s, after ten steps, from its start at 8 s.

    Args:
      seconds: When it reaches 0.95, a multiple of 5; None if it does not in 40 s.
      status: How it ends if it does not reach; None if its log has no end.
      source: The text of a user's file with the experiment; empty for none.
      run_id: The path if empty.
      price: Of one of two hosts, an hour.
      num_devices: Of both hosts.
      mesh: One axis if None.
      versions: jax alone if None.
      interrupted: Whether an attempt of 12 s on the clock was killed 1,000 s before.
      data: The tag of its dataset; empty for none.
      cores: Of process 0, in its log; none if None.
      cache: `cold` or `warm` for a program that took 5 s before the start; empty for none.
      declared: The log's facts on its data; those of made data if None.
      settings: Of JAX and XLA, that can change numbers; none if None.
      overrides: Fields that flags changed; none if None.
      losses: Of its first steps; not recorded if empty.
    """
    log = Log().begin(0.0, price)
    step = 0
    if cache:
        log.add("phase", 1.0, name="compile")
        log.add("compiled", 5.0, program="train", seconds=4.0, cache=cache)
        log.add("phase", 6.0, name="setup")
    if interrupted:
        log.add("run_start", 8.0).add("host_sample", 20.0, cpu_seconds=0.0, memory_bytes=0)
        log.begin(1020.0, price).add("restored", 0.6, step=0)
    else:
        log.add("run_start", 8.0)
    start = 0.0 if interrupted else 8.0
    if losses:
        steps = list(range(1, len(losses) + 1))
        log.add("losses", start + 1.0, at_steps=steps, losses=list(losses))
    for number in range(1, int((seconds or 40.0) // 5) + 1):
        step += 10
        moment = start + 5.0 * number
        accuracy = 0.95 if 5.0 * number == seconds else 0.5
        log.train(moment, step, 10).evaluate(moment, step, accuracy)
    ending = "reached" if seconds is not None else status
    end = start + (seconds or 40.0)
    if cores is not None:
        log.add("host_sample", end, cpu_seconds=0.0, memory_bytes=0, cores=cores)
    if ending is not None:
        log.add("attempt_end", end, status=ending, step=step)
    own: dict[str, dict[str, Any]] = {
        "attempt_start": {
            "run_id": run_id or str(path),
            "versions": versions or {"jax": "0.10.2"},
        },
        "experiment": {"seed": seed, "identity": identity, "overrides": overrides or {}}
        | ({"run_options": {"price_per_hour_usd": price, **options}} if options else {})
        | ({"experiment": {**EXPERIMENT, "data": {"tag": data}}} if data else {})
        | ({"data": declared} if declared else {}),
        "devices": {
            "num_devices": num_devices,
            "device_kind": device_kind,
            "platform": platform,
            "mesh": mesh or {"data": num_devices},
            "settings": {"numbers": settings or {}, "others": {}},
        },
    }
    path.mkdir(parents=True, exist_ok=True)
    lines = [encode_line({**event, **own.get(event["event"], {})}) for event in log.events]
    log_path(path).write_bytes(b"".join(lines))
    record = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id or str(path),
        "seed": seed,
        "identity": identity,
        "identity_fields": {},
        "source": {"name": "mine.py", "sha256": source, "text": source} if source else None,
        "experiment": {**EXPERIMENT, "data": {"tag": data}} if data else EXPERIMENT,
    }
    (path / "experiment.json").write_text(json.dumps(record))
    return path


LOAD = {"others_fraction": 0.09, "stolen_fraction": 0.03, "limit_fraction": 0.05}


def disturb(run: Path, **changes: float) -> None:
    """Record other work on the machine of a run: as much as disturbs it, unless changed."""
    [log] = run.glob("*.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    host = {"process_index": 0, "seconds": 10.0}
    summary = {"event": "host_summary", "hosts": [host], "load": LOAD | changes}
    events.insert(-1, {**events[-2], **summary})
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
