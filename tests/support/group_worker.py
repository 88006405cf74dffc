"""One process of a small group, for the tests that kill, stop and interrupt one.

It joins, runs steps that sum over all processes, and can be told to misbehave. Run it as
`python group_worker.py '{"process_id": 0, ...}'`, or let `dawnjax launch` run it with the same
argument. It appends what it does to `EVENTS/PROCESS_ID`, one line each.
"""

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("NPROC", "16")

from dawnjax.call_queue import CallMetrics
from dawnjax.cluster import launched, processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.errors import ConfigError, RunError
from dawnjax.machine import compilation
from dawnjax.stops import Stops


LISTENING = contextlib.ExitStack()
"""Signals are requests as long as this process lives."""


def main(settings: dict) -> int:
    process_id = int(os.environ.get(launched.PROCESS_ID, max(0, settings.get("process_id", 0))))
    events = Path(settings["events"]) / str(process_id)

    def tell(line: str) -> None:
        with events.open("a") as file:
            file.write(line + "\n")

    tell(f"pid {os.getpid()}")
    watchdog = processes.join(
        ProcessOptions(
            coordinator_address=settings.get("coordinator_address", ""),
            num_processes=settings.get("num_processes", 0),
            process_id=settings.get("process_id", -1),
            initialization_timeout_seconds=settings.get("initialization_timeout_seconds", 200),
            heartbeat_timeout_seconds=settings.get("heartbeat_timeout_seconds", 100),
            progress_deadline_seconds=settings.get("progress_deadline_seconds", 0.0),
        )
    )
    watchdog.resume_command = "dawnjax train --run_dir=there"
    watchdog.on_death = lambda line: tell(f"on_death {line}")
    watchdog.report("compile", 0)
    try:
        return work(settings, process_id, watchdog, tell)
    except (ConfigError, RunError):
        raise
    except Exception as error:  # as `train` does
        watchdog.explain(error)
        traceback.print_exc()
        return 1


def work(settings: dict, process_id: int, watchdog: Watchdog, tell: Callable[[str], object]) -> int:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    def misbehave(moment: str) -> None:
        fault = settings.get("faults", {}).get(f"{process_id} {moment}")
        if fault == "hang":
            time.sleep(1000.0)
        if fault == "run_error":
            raise RunError("the disk is full")
        if fault == "bug":
            raise KeyError("bug")

    def fails() -> None:
        raise RunError(f"on {process_id}")

    if settings.get("gathers"):
        tell(f"gathered {json.dumps(processes.gather({'process': process_id}))}")
        tell(f"same {processes.same_text(f'from {process_id}')}")
        tell(f"from first {processes.from_first(lambda: process_id)}")
        try:
            processes.from_first(fails)
        except RunError as error:
            tell(f"failed {error}")
        tell(f"machines {len(set(processes.machines()))}")
        line, warning = processes.devices_line()
        tell(f"devices {line}; warning {warning!r}")
        # Each keeps its own programs, as hosts do that share no disk.
        compilation.configure(f"{settings['events']}/{process_id}_compiled")
        compilation.share_between_processes()
        with compilation.watch_cache() as cache:
            jax.jit(jnp.sin).lower(1.0).compile()
        tell(f"cache {cache.state}")
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    rows = np.arange(float(jax.device_count()), dtype=np.float32)
    x = jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])
    whole = NamedSharding(mesh, PartitionSpec())
    sums = jax.jit(
        lambda rows, *wishes: (rows.sum(), *(each.sum(axis=0) for each in wishes)),
        out_shardings=whole,
    )
    stops = Stops(mesh)
    tell("ready")
    misbehave("before step 1")
    watchdog.report("train", 0)
    LISTENING.enter_context(stops.listening())
    for step in range(1, settings.get("steps", 10**6) + 1):
        misbehave(f"step {step}")
        watchdog.step = step
        total, *asked = sums(x, *stops.row())
        if float(total) != rows.sum():
            raise RunError("the sum is wrong")
        tell(f"step {step}")
        if stops.after_call(CallMetrics(total, total, *asked)):
            tell(f"stopped {step}")
            return 5
        time.sleep(0.02)
    return settings.get("exit_status", 0)


def run(settings: dict) -> int:
    try:
        status = main(settings)
    except ConfigError as error:
        print(f"dawnjax: {error}", file=sys.stderr)
        status = 2
    except RunError as error:
        print(f"dawnjax: {error}", file=sys.stderr)
        status = 1
    return processes.leave(status)


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[-1])))
