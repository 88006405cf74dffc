"""Processes of one run: how they find each other, agree, and part.

JAX's multi-controller runtime is the engine: each host runs the same command, `join` makes them one
group, and then every process sees all devices. `leave` is a command's last act. In between, a
watchdog ends this process when another is gone or stuck.
"""

import dataclasses
import importlib.util
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dawnjax import errors, records
from dawnjax.cluster import launched, node_devices
from dawnjax.cluster.key_value_store import KeyValueStore, store_of_this_process
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.watchdog import Watchdog, first_line
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.runs.clock import boot_id


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where and as which process this one meets the others; JAX finds a field that is None.

    Attributes:
      source: Who said so, for messages.
      coordinator_address: `host:port` of process 0.
      cluster: JAX's way to find the rest: one by its name, any that fits, or `deactivate`.
    """

    source: str
    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    cluster: str | None = None


_AGREEMENT_SECONDS = 86_400.0
"""Longest wait for another process's note. A dead or stuck process is the watchdog's matter."""

_NEEDED_PACKAGES = {"Kubernetes": "kubernetes", "Open MPI 5": "mpi4py"}
"""Packages by which JAX asks a cluster."""

_WAY_OUT = (
    "give --processes.coordinator_address, --processes.num_processes and --processes.process_id, "
    "or run alone with --processes.mode=off"
)

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
    _check(options)
    meeting = find_meeting(options, os.environ)
    if meeting is None and options.mode == "on":
        raise ConfigError(
            f"processes.mode=on, but nothing says where the other processes are; {_WAY_OUT}"
        )
    if meeting is not None:
        _meet(meeting, options)
    _watchdog = Watchdog(
        store_of_this_process(),
        heartbeat_timeout_seconds=options.heartbeat_timeout_seconds,
        progress_deadline_seconds=options.progress_deadline_seconds,
    )
    if meeting is not None:
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
    store.wait_for_all(folder, _AGREEMENT_SECONDS)
    values = store.read(folder)
    return [
        records.load_json(values[str(index)], _MOST_MARKS) for index in range(store.num_processes)
    ]


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
    text = store.wait_for(key, _AGREEMENT_SECONDS)
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
    rows = gather([_machine(), socket.gethostname(), used, given, there, len(devices)])
    hosts: dict[str, list[Any]] = {}
    for row in rows:
        hosts.setdefault(row[0], []).append(row)
    first, idle = "", []
    for number, rows in enumerate(hosts.values()):
        used, num_given = sum(row[2] for row in rows), len(set().union(*(row[3] for row in rows)))
        uses = f"{used} of {max(used, *(row[4] for row in rows))} {kind}"
        if not used:
            uses = f"{sum(row[5] for row in rows)} CPU devices"
        first = first or f"host {number} of {len(hosts)} uses {uses}"
        if used < num_given:
            name = f"host {number} ({rows[0][1]})"
            idle.append(f"{name} uses {used} of the {num_given} {kind} given to it")
    advice = "start one process on each host, or one for each device"
    return first, f"{'; '.join(idle[:3])}: {advice}" if idle else ""


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


def find_meeting(options: ProcessOptions, environment: Mapping[str, str]) -> Meeting | None:
    """Place where the other processes are; None where nothing says that there are any.

    Only variables that a launcher sets for its processes count. A shell on a login node, in a batch
    allocation or in a notebook's container has some of the others and no companions.

    Source: the launchers' manuals: srun(1), "Output environment variables"; mpirun(1), "Environment
    variables"; Kubernetes, "Indexed Job for parallel processing"; Cloud TPU on GKE,
    "TPU_WORKER_HOSTNAMES".
    """
    if options.mode == "off":
        return None
    cluster = _find_cluster(environment)
    given = {
        "coordinator_address": options.coordinator_address or None,
        "num_processes": options.num_processes or None,
        "process_id": options.process_id if options.process_id >= 0 else None,
    }
    missing = [f"--processes.{name}" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return cluster
    if missing and cluster is None:
        raise ConfigError(
            f"{' and '.join(missing)} must be given too: no cluster is recognised here that says it"
        )
    return Meeting("flags", **given, cluster=None if missing else "deactivate")


def _find_cluster(environment: Mapping[str, str]) -> Meeting | None:
    def number(name: str) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() else 0

    if launched.PROCESS_ID in environment:
        address = environment.get(launched.COORDINATOR_ADDRESS, "")
        count, index = number(launched.NUM_PROCESSES), number(launched.PROCESS_ID)
        return Meeting(launched.SOURCE, address, count, index, "deactivate")
    # srun sets them for each task; the batch script itself has no SLURM_STEP_NODELIST.
    slurm = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"}
    tasks = number("SLURM_STEP_NUM_TASKS") or number("SLURM_NTASKS")
    if environment.keys() >= slurm and tasks > 1:
        return Meeting("Slurm", cluster="slurm")
    if number("OMPI_COMM_WORLD_SIZE") > 1:
        # Open MPI 5 no longer gives its launcher's address: the processes agree on one by MPI.
        if "OMPI_MCA_orte_hnp_uri" in environment:
            return Meeting("Open MPI", cluster="ompi")
        return Meeting("Open MPI 5", cluster="mpi4py")
    # Before Kubernetes: pods of TPUs know their slice, and JAX need not ask for it.
    if "tpu" in (environment.get("JAX_PLATFORMS") or "tpu"):
        names = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
        hosts = next((environment[name] for name in names if name in environment), "")
        more = {"MEGASCALE_COORDINATOR_ADDRESS", "TPU_PROCESS_ADDRESSES_PATH"}
        if "," in hosts or more & environment.keys():
            return Meeting("TPU pod")
        if hosts:
            return None  # a slice of one host, which GKE calls localhost
        if is_cloud_tpu_vm():
            return Meeting("Cloud TPU VM")
    if environment.keys() >= {"JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"}:
        return Meeting("Kubernetes")
    return None


def is_cloud_tpu_vm() -> bool:
    """True on a host of Cloud TPUs that JAX can drive."""
    if importlib.util.find_spec("libtpu") is None:
        return False
    import jax  # noqa: F401  Importing it looks for the chips.
    from jax._src import cloud_tpu_init

    return bool(getattr(cloud_tpu_init, "running_in_cloud_tpu_vm", False))


def _check(options: ProcessOptions) -> None:
    if options.heartbeat_timeout_seconds < 2:
        raise ConfigError(
            f"processes.heartbeat_timeout_seconds={options.heartbeat_timeout_seconds} must be 2 or "
            "more"
        )
    if not re.fullmatch(r"(.+:\d{1,5})?", options.coordinator_address):
        raise ConfigError(
            f"processes.coordinator_address={options.coordinator_address!r} must be HOST:PORT"
        )


def _meet(meeting: Meeting, options: ProcessOptions) -> None:
    def cannot(reason: str) -> str:
        return f"cannot join the other processes ({meeting.source}): {reason}; {_WAY_OUT}"

    package = _NEEDED_PACKAGES.get(meeting.source)
    if package is not None and importlib.util.find_spec(package) is None:
        raise RunError(cannot(f"JAX needs the package {package}"))
    # Imported here: a process alone needs JAX later.
    import jax

    # Its handler would take SIGTERM away from this process's own.
    jax.config.update("jax_enable_preemption_service", False)
    seconds = options.initialization_timeout_seconds

    def give_up() -> None:
        line = cannot(f"not all of them came within {seconds} s")
        os.write(2, f"dawnjax: {line}\n".encode())
        os._exit(ExitStatus.FAILED)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            coordinator_address=meeting.coordinator_address,
            num_processes=meeting.num_processes,
            process_id=meeting.process_id,
            cluster_detection_method=meeting.cluster,
            # JAX aborts with a page of C++ after this time; this process speaks first.
            initialization_timeout=seconds + 30,
            # After the watchdog's, since JAX names no host and no step.
            heartbeat_timeout_seconds=options.heartbeat_timeout_seconds + 5,
            shutdown_timeout_seconds=15,  # `leave` has waited for all by then
        )
    except Exception as error:
        raise RunError(cannot(first_line(error))) from None
    finally:
        timer.cancel()
