"""Processes of one run: how they find each other, agree, and part.

JAX's multi-controller runtime is the engine: each host runs the same command, `join` makes them one
group, and then every process sees all devices. `leave` is a command's last act. In between, a
watchdog ends this process when another is gone or stuck.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dawnjax import records
from dawnjax.cluster import launched, stop_signals
from dawnjax.cluster.key_value_store import KeyValueStore, store_of_this_process
from dawnjax.cluster.options import ProcessOptions
from dawnjax.cluster.watchdog import Watchdog, first_line
from dawnjax.errors import CheckpointError, ConfigError, ExitStatus, RunError


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where and as which process this one meets the others; JAX finds a field that is None.

    Attributes:
      source: Who said so, for messages.
      coordinator_address: `host:port` of process 0.
    """

    source: str
    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    cluster: str | None = None


_AGREEMENT_SECONDS = 86_400.0
"""Longest wait for another process's note. A dead or stuck process is the watchdog's matter."""

_NEEDED_PACKAGES = {"Kubernetes": "kubernetes", "mpi4py": "mpi4py"}
"""Packages that JAX needs to ask a cluster, by the cluster or by JAX's name of it."""

_ALL_FLAGS = (
    "give --processes.coordinator_address, --processes.num_processes and --processes.process_id"
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
    if meeting is None and options.mode != "off" and _is_cloud_tpu_vm(os.environ):
        meeting = Meeting("Cloud TPU VM")
    if meeting is None and options.mode == "on":
        raise ConfigError(
            f"processes.mode=on, but nothing says where the other processes are; {_ALL_FLAGS}"
        )
    if meeting is not None:
        _meet(meeting, options)
    store = store_of_this_process()
    _watchdog = Watchdog(
        store if store is not None and store.num_processes > 1 else None,
        heartbeat_timeout_seconds=options.heartbeat_timeout_seconds,
        progress_deadline_seconds=options.progress_deadline_seconds,
    )
    _watchdog.start()
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
    # Read only after all have written: a folder read earlier lacks the slow processes.
    store.wait_for_all(folder, _AGREEMENT_SECONDS)
    values = store.read(folder)
    return [
        records.load_json(values[str(index)], _MOST_MARKS) for index in range(store.num_processes)
    ]


def same_text(text: str) -> str:
    """The text of process 0 on all processes; all must call it alike."""
    return gather(text)[0]


def from_first(make: Callable[[], Any]) -> Any:
    """JSON result of `make` on process 0, for all; its error is raised on all."""
    result: Any = None
    kind, message = "", ""
    store = store_of_this_process()
    if store is None or store.process_index == 0:
        try:
            result = make()
        except (ConfigError, RunError, CheckpointError) as error:
            kind, message = type(error).__name__, str(error)
    result, kind, message = gather([result, kind, message])[0]
    for error_type in (ConfigError, RunError, CheckpointError):
        if kind == error_type.__name__:
            raise error_type(message)
    return result


@contextlib.contextmanager
def first_goes_first(waits: bool) -> Iterator[None]:
    """Let process 0 go through a block before those that wait; all must call it alike."""
    store, key = _next_agreement("first")
    if store is not None and store.process_index > 0 and waits:
        store.wait_for(key, _AGREEMENT_SECONDS)
    try:
        yield
    finally:  # after a failure too, which may be the same for all
        if store is not None and store.process_index == 0:
            store.put(key, "through")


def _next_agreement(kind: str) -> tuple[KeyValueStore | None, str]:
    # All processes call in the same order, so the same call has the same number.
    global _num_agreements
    _num_agreements += 1
    return _watchdog and _watchdog.store, f"dawnjax/{kind}/{_num_agreements}"


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
    if launched.PROCESS_ID in environment:
        return _launched_meeting(environment)
    # Set by srun for each task; the batch script itself has no SLURM_STEP_NODELIST.
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
    tasks = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS")
    if environment.keys() >= set(slurm) and _number(tasks) > 1:
        return Meeting("Slurm", cluster="slurm")
    if _number(environment.get("OMPI_COMM_WORLD_SIZE")) > 1:
        # Open MPI 5 no longer gives the address of its launcher, so the processes must agree on
        # one by a message.
        has_address = "OMPI_MCA_orte_hnp_uri" in environment
        return Meeting("Open MPI", cluster="ompi" if has_address else "mpi4py")
    hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES", "")
    if _may_use_tpu(environment) and (
        "MEGASCALE_COORDINATOR_ADDRESS" in environment or "," in hosts
    ):
        return Meeting("TPU pod")
    # After the TPUs of GKE, whose pods know their slice: JAX need not ask Kubernetes there.
    if environment.keys() >= {"JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"}:
        return Meeting("Kubernetes")
    return None


def _launched_meeting(environment: Mapping[str, str]) -> Meeting:
    address = environment.get(launched.COORDINATOR_ADDRESS, "")
    count, number = (
        environment.get(name, "") for name in (launched.NUM_PROCESSES, launched.PROCESS_ID)
    )
    for name, value, is_right, rule in (
        (launched.NUM_PROCESSES, count, _number(count) > 0, "a count of processes"),
        (
            launched.PROCESS_ID,
            number,
            number == "0" or 0 < _number(number) < _number(count),
            f"a number below {launched.NUM_PROCESSES}={count[:80]}",
        ),
        (launched.COORDINATOR_ADDRESS, address, _is_address(address), "HOST:PORT"),
    ):
        if not is_right:
            raise ConfigError(
                f"the environment has {name}={value[:80]!r}, which must be {rule}; "
                "`dawnjax launch` sets it: unset it, or run alone with --processes.mode=off"
            )
    return Meeting(launched.SOURCE, address, int(count), int(number), cluster="deactivate")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 19 else 0


def _may_use_tpu(environment: Mapping[str, str]) -> bool:
    platforms = environment.get("JAX_PLATFORMS", "")
    return not platforms or "tpu" in platforms.split(",")


def _is_cloud_tpu_vm(environment: Mapping[str, str]) -> bool:
    if not _may_use_tpu(environment) or importlib.util.find_spec("libtpu") is None:
        return False
    import jax  # noqa: F401  Importing it looks for the chips.
    from jax._src import cloud_tpu_init

    return bool(getattr(cloud_tpu_init, "running_in_cloud_tpu_vm", False))


def _check(options: ProcessOptions) -> None:
    deadline, num_processes = options.progress_deadline_seconds, options.num_processes
    heartbeat, start = options.heartbeat_timeout_seconds, options.initialization_timeout_seconds
    for name, is_wrong, value, rule in (
        ("heartbeat_timeout_seconds", heartbeat < 2, heartbeat, "2 or more"),
        ("initialization_timeout_seconds", start < 2, start, "2 or more"),
        ("progress_deadline_seconds", deadline < 0, f"{deadline:g}", "0 (no deadline) or more"),
        ("num_processes", num_processes < 0, num_processes, "0 or more"),
        (
            "process_id",
            0 < num_processes <= options.process_id,
            options.process_id,
            f"below processes.num_processes={num_processes}",
        ),
    ):
        if is_wrong:
            raise ConfigError(f"processes.{name}={value} must be {rule}")
    if options.coordinator_address:
        _split_address(options.coordinator_address)


def _split_address(address: str) -> tuple[str, int]:
    if not _is_address(address):
        raise ConfigError(f"processes.coordinator_address={address!r} must be HOST:PORT")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and 0 < _number(port) < 65536


def _meet(meeting: Meeting, options: ProcessOptions) -> None:
    other_ways = f"{_ALL_FLAGS}, or run alone with --processes.mode=off"
    package = _NEEDED_PACKAGES.get(meeting.source if meeting.cluster is None else meeting.cluster)
    if package is not None and importlib.util.find_spec(package) is None:
        raise RunError(
            f"to join the other processes ({meeting.source}) JAX needs the package {package}: "
            f"install it, or {other_ways}"
        )
    if meeting.process_id == 0 and meeting.coordinator_address:
        _check_port_is_free(meeting.coordinator_address)
    # Imported here: a process alone needs JAX later, and `dawnjax launch` not at all.
    import jax

    # JAX's own notice of preemption takes SIGTERM away from this process and asks once a second
    # whether it came; `preemption` does this work here, for SIGINT too.
    jax.config.update("jax_enable_preemption_service", False)
    if meeting.source == launched.SOURCE:
        # The way to this machine itself leads through no proxy.
        jax.config.update("jax_check_proxy_envs", False)
    seconds = options.initialization_timeout_seconds
    errors: list[Exception] = []

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                coordinator_address=meeting.coordinator_address,
                num_processes=meeting.num_processes,
                process_id=meeting.process_id,
                cluster_detection_method=meeting.cluster,
                # When this one passes JAX aborts with a page of C++; this process speaks first.
                initialization_timeout=seconds + 30,
                # After the watchdog's, since JAX names no host and no step.
                heartbeat_timeout_seconds=options.heartbeat_timeout_seconds + 5,
                shutdown_timeout_seconds=15,  # `leave` has waited for all by then
            )
        except Exception as error:
            errors.append(error)

    # A thread that waits in JAX's runtime hears no signal and no clock; the main thread does.
    thread = threading.Thread(target=initialize, daemon=True)
    ended = stop_signals.end_at_once(
        "dawnjax", f"while it waited for the other processes ({meeting.source})"
    )
    with stop_signals.heard_by(ended):
        thread.start()
        thread.join(seconds)
    if thread.is_alive():
        what = (
            f"waited {seconds} s for {_why_nobody_came(meeting)}; start the same command on every "
            "host, or run alone with --processes.mode=off"
        )
        os.write(2, f"dawnjax: {what}\n".encode())
        # An orderly end would wait for the thread that waits in JAX's runtime.
        os._exit(ExitStatus.FAILED)
    for error in errors:
        raise RunError(
            f"cannot join the other processes ({meeting.source}): {first_line(error)}; {other_ways}"
        ) from None
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _take_greetings_out_of_standard_output()


def _take_greetings_out_of_standard_output() -> None:
    """Keep standard output for results: Gloo greets there, once for each group of devices.

    Gloo writes to file 1 itself and has no switch. Python writes to a copy of that file instead; a
    pipe copies what libraries write to file 1, without the greetings.
    """
    out = sys.stdout
    try:
        if out.fileno() != 1:
            return
    except (AttributeError, OSError, ValueError):
        return  # No file: closed, or captured by a test.
    out.flush()
    target = os.dup(1)
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(writer)
    by_line = os.isatty(target) or bool(getattr(out, "write_through", False))
    sys.stdout = open(  # noqa: SIM115  It is open for as long as this process lives.
        target, "w", 1 if by_line else -1, out.encoding, out.errors, closefd=False
    )

    def copy() -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                if not line.startswith(b"[Gloo] Rank"):
                    os.write(target, line)

    threading.Thread(target=copy, daemon=True).start()


def _why_nobody_came(meeting: Meeting) -> str:
    reason = "not all of them came"
    if meeting.coordinator_address:
        try:
            address = _split_address(meeting.coordinator_address)
            socket.create_connection(address, timeout=5.0).close()
        except OSError as error:
            why = error.strerror or error
            reason = f"process 0 does not answer at {meeting.coordinator_address} ({why})"
    expected = f"{meeting.num_processes} processes" if meeting.num_processes else "the others"
    return f"{expected} ({meeting.source}), but {reason}"


def _check_port_is_free(address: str) -> None:
    """Refuse a port that is taken: JAX's service crashes the process on one, or shares it."""
    host, port = _split_address(address)
    advice = "another run may use it: choose another port"
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        raise RunError(f"process 0 cannot serve at {address}: something answers there; {advice}")
    bind_address = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", f"[::]:{port}")
    if not _is_address(bind_address):
        raise ConfigError(
            f"the environment has JAX_COORDINATOR_BIND_ADDRESS={bind_address[:80]!r}, which must "
            "be HOST:PORT; unset it"
        )
    bind_host, _, bind_port = bind_address.rpartition(":")
    family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
    both = family == socket.AF_INET6
    if both and not socket.has_dualstack_ipv6():
        return  # JAX finds its own way
    # As the service does, so that a port which `dawnjax launch` holds for it is free.
    shares = hasattr(socket, "SO_REUSEPORT")
    try:
        where = (bind_host.strip("[]"), int(bind_port))
        with socket.create_server(where, family=family, reuse_port=shares, dualstack_ipv6=both):
            pass
    except OSError as error:
        raise RunError(f"process 0 cannot serve at {address}: {error.strerror}; {advice}") from None
