"""How the processes of a run find each other: where a launcher says that there are others."""

import dataclasses
import importlib.util
import os
import re
import threading
from collections.abc import Mapping

from dawnjax.cluster import launched
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.watchdog import first_line
from dawnjax.errors import ConfigError, ExitStatus, RunError


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


_WAY_OUT = (
    "give --processes.coordinator_address, --processes.num_processes and --processes.process_id, "
    "or run alone with --processes.mode=off"
)


def meet(options: ProcessOptions) -> bool:
    """Meet the other processes; False where there are none.

    Raises:
      ConfigError: The options say too little.
      RunError: The others could not be joined.
    """
    _check(options)
    meeting = find_meeting(options, os.environ)
    if meeting is not None:
        _initialize(meeting, options)
    elif options.mode == "on":
        raise ConfigError(
            f"processes.mode=on, but nothing says where the other processes are; {_WAY_OUT}"
        )
    return meeting is not None


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
    given = {
        "coordinator_address": options.coordinator_address or None,
        "num_processes": options.num_processes or None,
        "process_id": options.process_id if options.process_id >= 0 else None,
    }
    num_given = sum(value is not None for value in given.values())
    if not num_given:
        return _find_cluster(environment)
    return Meeting("flags", **given, cluster="deactivate" if num_given == len(given) else None)


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


def _initialize(meeting: Meeting, options: ProcessOptions) -> None:
    # Imported here: a process alone needs JAX later.
    import jax

    def cannot(reason: str) -> str:
        return f"cannot join the other processes ({meeting.source}): {reason}; {_WAY_OUT}"

    def give_up() -> None:
        line = cannot(f"not all of them came within {seconds} s")
        os.write(2, f"dawnjax: {line}\n".encode())
        os._exit(ExitStatus.FAILED)

    # Its handler would take SIGTERM away from this process's own.
    jax.config.update("jax_enable_preemption_service", False)
    seconds = options.initialization_timeout_seconds
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
