"""One process of a small group, for the tests that kill and stop one.

`python group_worker.py SETTINGS`, as JSON. It joins, runs steps that sum over all processes, can be
told to misbehave, and appends what it does to the file EVENTS/PROCESS_ID.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("NPROC", "16")

from dawnjax.cluster import processes
from dawnjax.cluster.options import ProcessOptions
from dawnjax.errors import RunError
from dawnjax.machine import compilation


def main(settings: dict) -> int:
    events = Path(settings["events"]) / str(settings["options"]["process_id"])

    def tell(line: str) -> None:
        with events.open("a") as file:
            file.write(line + "\n")

    watchdog = processes.join(ProcessOptions(**settings["options"]))
    watchdog.resume_command = "dawnjax train --run_dir=there"
    watchdog.on_death = lambda line: tell(f"on_death {line}")
    watchdog.report("compile", 0)
    try:
        return work(settings, watchdog, tell)
    except RunError as error:
        print(f"dawnjax: {error}", file=sys.stderr)
    except Exception as error:  # as `train` does
        watchdog.explain(error)
        traceback.print_exc()
    return 1


def work(settings: dict, watchdog, tell) -> int:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    index = watchdog.process_index

    def misbehave(moment: str) -> None:
        fault = settings["faults"].get(f"{index} {moment}")
        if fault == "hang":
            time.sleep(1000.0)
        if fault == "run_error":
            raise RunError("the disk is full")
        if fault == "bug":
            raise KeyError("bug")

    def fails() -> None:
        raise RunError(f"on {index}")

    if settings["steps"]:
        tell(f"gathered {json.dumps(processes.gather({'process': index}))}")
        tell(f"same {processes.same_text(f'from {index}')}")
        tell(f"from first {processes.from_first(lambda: index)}")
        try:
            processes.from_first(fails)
        except RunError as error:
            tell(f"failed {error}")
        tell(f"machines {len(set(processes.machines()))}")
        line, warning = processes.devices_line()
        tell(f"devices {line}; warning {warning!r}")
        # Each keeps its own programs, as hosts do that share no disk.
        compilation.configure(f"{settings['events']}/{index}_compiled")
        compilation.share_between_processes()
        with compilation.watch_cache() as cache:
            jax.jit(jnp.sin).lower(1.0).compile()
        tell(f"cache {cache.state}")
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    rows = np.arange(float(jax.device_count()), dtype=np.float32)
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])
    whole_sum = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
    watchdog.report("train", 0)
    for step in range(1, settings["steps"] or 10**6):
        misbehave(f"step {step}")
        watchdog.step = step
        assert float(whole_sum(x)) == rows.sum()
        tell(f"step {step}")
        time.sleep(0.02)
    return 3


if __name__ == "__main__":
    sys.exit(processes.leave(main(json.loads(sys.argv[-1]))))
