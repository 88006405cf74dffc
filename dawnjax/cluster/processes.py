"""Processes of one run: how they join, agree, and part.

JAX's multi-controller runtime is the engine: each host runs the same command, `join` makes them one
group, and then every process sees all devices. `leave` is a command's last act. In between, a
watchdog ends this process when another is gone or stuck.
"""

import json
import os
import socket
from collections.abc import Callable
from typing import Any

from dawnjax import errors, records
from dawnjax.cluster import node_devices
from dawnjax.cluster.key_value_store import KeyValueStore, store_of_this_process
from dawnjax.cluster.meeting import meet
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.runs.clock import boot_id

_watchdog: Watchdog | None = None
_num_agreements = 0


def join(options: ProcessOptions) -> Watchdog:
    """Join this process to its group, if there is one, and begin to watch it.

    Call it before anything that starts JAX's backend (devices, arrays, computations), and `leave`
    after it, whatever happens. The watchdog judges progress from the first `report` on.
    """
    global _watchdog
    if _watchdog is not None:
        raise RuntimeError("this process has joined before and has not left")
    has_met = meet(options)
    _watchdog = Watchdog(
        store_of_this_process(),
        heartbeat_timeout_seconds=options.heartbeat_timeout_seconds,
        progress_deadline_seconds=options.progress_deadline_seconds,
    )
    if has_met:
        _take_gpus(_watchdog)
    return _watchdog


def leave(exit_status: int) -> int:
    """Part from the others: the last act of this process, also after a failure; returns its status.

    With several processes, a failure of this one alone (1, 2) ends the process in here. An orderly
    end would wait for the others, and they for it.
    """
    global _watchdog
    watchdog, _watchdog = _watchdog, None
    return exit_status if watchdog is None else watchdog.leave(exit_status)


def is_first() -> bool:
    """True on the process that speaks for all: number 0, or one that has joined no others."""
    store = _watchdog and _watchdog.store
    return store is None or store.process_index == 0


def explain(error: BaseException) -> None:
    """End this process, naming the host at fault, if an error is the echo of that host's end."""
    if _watchdog is not None:
        _watchdog.explain(error)


_MOST_MARKS = 10**8
"""Bound of a message: the traces of a window hold some million moments."""


def gather(value: Any) -> list[Any]:
    """Values of every process, in their order, for all; all must call it alike."""
    store, folder = _next_agreement("gather")
    if store is None:
        return [value]
    store.put(f"{folder}/{store.process_index}", json.dumps(value))
    # A folder that is read before all have written lacks the slow processes.
    store.wait_for_all(folder)
    notes = store.read(folder)
    order = range(store.num_processes)
    return [records.load_json(notes[str(index)], _MOST_MARKS) for index in order]


def same_text(text: str) -> str:
    """The text of process 0 on all processes; all must call it alike."""
    return from_first(lambda: text)


def from_first(make: Callable[[], Any]) -> Any:
    """JSON result of `make` on process 0, for all; all must call it alike.

    Raises:
      ConfigError, RunError, CheckpointError: What `make` raised on process 0, on all processes.
    """
    store, key = _next_agreement("first")
    if store is None:
        return make()
    if store.process_index == 0:
        try:
            said = ["", make()]
        except errors.OneLineError as error:
            said = [type(error).__name__, *error.args]
        store.put(key, json.dumps(said))
    text = store.wait_for(key)
    kind, value = records.load_json(text, _MOST_MARKS, with_nan=True)  # a metric may be NaN
    if kind:
        raise getattr(errors, kind)(value)
    return value


def _next_agreement(kind: str) -> tuple[KeyValueStore | None, str]:
    # All processes call in the same order, so the same call has the same number.
    global _num_agreements
    _num_agreements += 1
    return _watchdog and _watchdog.store, f"dawnjax/{kind}/{_num_agreements}"


def machines() -> list[str]:
    """The machine of each process, by its boot: containers that share a name are no one machine."""
    return gather(_machine())


def _machine() -> str:
    return boot_id() or socket.gethostname()


def devices_line() -> tuple[str, str]:
    """How many of its devices this run's first host uses, and a warning about idle ones or ""."""
    import jax

    devices = jax.local_devices()
    kind, used, there = "GPUs", len(devices), len(node_devices.gpus())
    given = [] if _is_for_cpus() else node_devices.given_gpus(os.environ)
    if devices[0].platform == "tpu":
        kind, there = "TPU chips", node_devices.tpu_chips()
        used = len({tuple(device.coords) for device in devices})  # a chip may be two devices
        given = [str(chip) for chip in range(there)]
    elif devices[0].platform == "cpu":
        used = 0
    hosts: dict[str, list[Any]] = {}
    for row in gather([_machine(), socket.gethostname(), used, given, there, len(devices)]):
        hosts.setdefault(row[0], []).append(row)
    lines, idle = [], []
    for number, rows in enumerate(hosts.values()):
        _, names, counts, given, there, num_devices = zip(*rows, strict=True)
        used, num_given = sum(counts), len(set().union(*given))
        uses = f"{used} of {max(used, *there)} {kind}"
        uses = uses if used else f"{sum(num_devices)} CPU devices"
        lines.append(f"host {number} of {len(hosts)} uses {uses}")
        if used < num_given:
            idle.append(
                f"host {number} ({names[0]}) uses {used} of the {num_given} {kind} given to it"
            )
    advice = "start one process on each host, or one for each device"
    return lines[0], f"{'; '.join(idle[:3])}: {advice}" if idle else ""


def _is_for_cpus() -> bool:
    return os.environ.get("JAX_PLATFORMS") == "cpu"


def _take_gpus(watchdog: Watchdog) -> None:
    """Take every GPU that this process was given, before JAX's backend starts.

    JAX gives a task of Slurm or Open MPI one GPU, by the task's number on its node, also where the
    task is alone there. Source: jax/_src/clusters/cluster.py, `get_local_process_id`.
    """
    import jax

    if "JAX_LOCAL_DEVICE_IDS" in os.environ or _is_for_cpus():
        return
    places = gather([_machine(), node_devices.given_gpus(os.environ)])
    numbers = node_devices.shared_out(places, watchdog.process_index)
    of_machine = [place for place in places if place[0] == _machine()]
    if numbers is not None or len(of_machine) == 1 or of_machine[0][1]:
        chosen = "all" if numbers is None else ",".join(map(str, numbers))
        jax.config.update("jax_cuda_visible_devices", chosen)
        jax.config.update("jax_rocm_visible_devices", chosen)
