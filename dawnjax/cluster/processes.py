"""The processes of one run: how they find each other, agree, and part.

JAX's own multi-controller runtime is the engine: each host runs the same command, `join` makes
them one group, and from then on every process sees the devices of all. `leave` is the last thing
that a command does. In between, a watchdog ends this process when another is gone or stuck.
"""

import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from dawnjax.cluster import launched
from dawnjax.cluster.board import board_of_this_process
from dawnjax.cluster.watchdog import Watchdog
from dawnjax.errors import ConfigError, ExitStatus, RunError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How this process finds the others, and when it gives them up.

    Attributes:
      mode: `auto` joins others where the environment says that there are more processes than this
        one (TPU pod, Slurm, Kubernetes, Open MPI, `dawnjax launch`) or the fields below do; `on`
        joins or fails; `off` runs alone.
      coordinator_address: Address `host:port` of process 0, which every process can reach; empty
        takes what the environment says.
      num_processes: Processes of the run; 0 takes what the environment says.
      process_id: This process's number, counted from 0; -1 takes what the environment says.
      initialization_timeout_seconds: How long to wait for the others at the start.
      heartbeat_timeout_seconds: A process without a sign of life (killed, stopped, cut off) ends
        all others within this time; below 13 s, up to 5 s later.
      progress_deadline_seconds: No report of progress from any process for this long ends the
        run, also before the first step; 0 sets no deadline. It must exceed the longest
        compilation.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    coordinator_address: str = ""
    num_processes: int = 0
    process_id: int = -1
    initialization_timeout_seconds: int = 300
    heartbeat_timeout_seconds: int = 100
    progress_deadline_seconds: float = 900.0


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where and as whom this process meets the others; a field that is None is left to JAX.

    Attributes:
      source: What said so, for messages.
      coordinator_address: `host:port` of process 0.
      num_processes: Processes of the run.
      process_id: This process's number.
      cluster: JAX's name of the cluster to ask; None to let it look.
    """

    source: str
    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    cluster: str | None = None


_JAX_HEARTBEAT_MARGIN_SECONDS = 5
"""How much later than ours JAX's own heartbeat acts: it names no host and no step."""

_JAX_SHUTDOWN_SECONDS = 15
"""How long JAX waits for all processes at its end; `leave` has waited for them by then."""

_AGREEMENT_SECONDS = 86_400.0
"""How long processes wait for each other's word. A dead or stuck one is the watchdog's matter."""

_NEEDED_PACKAGES = {"Kubernetes": "kubernetes", "mpi4py": "mpi4py"}
"""What JAX needs to ask a cluster, by the cluster or by JAX's name of it."""

_OTHER_WAYS = (
    "give --processes.coordinator_address, --processes.num_processes and --processes.process_id, "
    "or run alone with --processes.mode=off"
)

_watchdog: Watchdog | None = None
_num_agreements = 0


def join(options: ProcessOptions) -> Watchdog:
    """Makes this process one of its group, if there is one, and begins to watch it.

    Must come before anything that starts JAX's backend (devices, arrays, computations), and be
    followed by `leave` whatever happens.

    Args:
      options: How to find the others.

    Returns:
      The watchdog. It judges progress from the first `report` on.

    Raises:
      ConfigError: The options contradict themselves or name no group.
      RunError: The others cannot be found.
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
            "processes.mode=on, but nothing says where the other processes are; give "
            "--processes.coordinator_address, --processes.num_processes and --processes.process_id"
        )
    if meeting is not None:
        _meet(meeting, options)
    board = board_of_this_process()
    _watchdog = Watchdog(
        board if board is not None and board.num_processes > 1 else None,
        heartbeat_timeout_seconds=options.heartbeat_timeout_seconds,
        progress_deadline_seconds=options.progress_deadline_seconds,
    )
    _watchdog.start()
    return _watchdog


def leave(exit_status: int) -> int:
    """Parts from the others: the last thing before this process ends, also after a failure.

    Args:
      exit_status: What this process is about to end with. After a failure of its own (1, 2) a
        process of several ends in here, since an orderly end would wait for the others, and they
        for it.

    Returns:
      The exit status.
    """
    global _watchdog
    watchdog, _watchdog = _watchdog, None
    return exit_status if watchdog is None else watchdog.leave(exit_status)


def gather(own: Any) -> list[Any]:
    """Gives what every process gives, in their order, to all of them; all must call it alike.

    Args:
      own: A JSON value.
    """
    if _watchdog is None or _watchdog.board is None:
        return [own]
    board, folder = _watchdog.board, _agreement_name("gather")
    board.put(f"{folder}/{board.process_index}", json.dumps(own))
    board.wait_for_all(folder, _AGREEMENT_SECONDS)
    told = board.read(folder)
    return [json.loads(told[str(index)]) for index in range(board.num_processes)]


def same_text(text: str) -> str:
    """Gives the text that process 0 gives, to all processes; all must call it alike."""
    if _watchdog is None or _watchdog.board is None:
        return text
    board, key = _watchdog.board, _agreement_name("same_text")
    if board.process_index == 0:
        board.put(key, text)
        return text
    return board.wait_for(key, _AGREEMENT_SECONDS)


@contextlib.contextmanager
def first_goes_first(waits: bool) -> Iterator[None]:
    """Lets process 0 go through a block before others do; all must call it alike.

    Args:
      waits: Whether this process waits for process 0, which never waits.
    """
    if _watchdog is None or _watchdog.board is None:
        yield
        return
    board, key = _watchdog.board, _agreement_name("first")
    if board.process_index > 0:
        if waits:
            board.wait_for(key, _AGREEMENT_SECONDS)
        yield
        return
    try:
        yield
    finally:  # after a failure too, which may be the same for all
        board.put(key, "through")


def _agreement_name(kind: str) -> str:
    # All processes call in the same order, so the same call has the same number.
    global _num_agreements
    _num_agreements += 1
    return f"dawnjax/{kind}/{_num_agreements}"


def find_meeting(options: ProcessOptions, environment: Mapping[str, str]) -> Meeting | None:
    """Gives where the other processes are, or None where nothing says that there are any.

    Only what a launcher sets for the processes that it starts counts: a shell on a login node, in a
    batch allocation or in a notebook's container has some of these variables and no companions.

    Args:
      options: The flags, which win over the environment.
      environment: The environment variables.

    Raises:
      ConfigError: The flags are incomplete.

    Source: the variables are those of the launchers' manuals: srun(1), "Output environment
    variables"; mpirun(1), "Environment variables"; Kubernetes, "Indexed Job for parallel
    processing"; Cloud TPU on GKE, "TPU_WORKER_HOSTNAMES".
    """
    if options.mode == "off":
        return None
    cluster = _find_cluster(environment)
    given = (options.coordinator_address, options.num_processes, options.process_id)
    if given != ("", 0, -1):
        missing = [
            name
            for name, is_missing in (
                ("coordinator_address", not options.coordinator_address),
                ("num_processes", options.num_processes == 0),
                ("process_id", options.process_id < 0),
            )
            if is_missing
        ]
        if missing and cluster is None:
            flags = " and ".join(f"--processes.{name}" for name in missing)
            raise ConfigError(
                f"{flags} must be given too: no cluster is recognised here that says it"
            )
        return Meeting(
            "flags",
            options.coordinator_address or None,
            options.num_processes or None,
            options.process_id if options.process_id >= 0 else None,
            cluster=None if missing else "deactivate",
        )
    return cluster


def _find_cluster(environment: Mapping[str, str]) -> Meeting | None:
    if launched.PROCESS_ID in environment:
        return Meeting(
            launched.SOURCE,
            environment[launched.COORDINATOR_ADDRESS],
            int(environment[launched.NUM_PROCESSES]),
            int(environment[launched.PROCESS_ID]),
            cluster="deactivate",
        )
    # Set by srun for each task; the batch script itself has no SLURM_STEP_NODELIST.
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
    if all(name in environment for name in slurm):
        tasks = environment.get("SLURM_STEP_NUM_TASKS") or environment["SLURM_NTASKS"]
        if _number(tasks) > 1:
            return Meeting("Slurm", cluster="slurm")
    if _number(environment.get("OMPI_COMM_WORLD_SIZE")) > 1:
        # Open MPI 5 no longer gives the address of its launcher, so the processes must agree on
        # one by a message.
        has_address = "OMPI_MCA_orte_hnp_uri" in environment
        return Meeting("Open MPI", cluster="ompi" if has_address else "mpi4py")
    if "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment:
        return Meeting("Kubernetes")
    if _may_use_tpu(environment):
        hosts = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
        if "MEGASCALE_COORDINATOR_ADDRESS" in environment or (hosts and "," in hosts):
            return Meeting("TPU pod")
    return None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _may_use_tpu(environment: Mapping[str, str]) -> bool:
    platforms = environment.get("JAX_PLATFORMS", "")
    return not platforms or "tpu" in platforms.split(",")


def _is_cloud_tpu_vm(environment: Mapping[str, str]) -> bool:
    """Tells whether this machine has TPU chips; its metadata then names the other hosts."""
    if not _may_use_tpu(environment) or importlib.util.find_spec("libtpu") is None:
        return False
    import jax  # noqa: F401  Importing it looks for the chips.
    from jax._src import cloud_tpu_init

    return bool(getattr(cloud_tpu_init, "running_in_cloud_tpu_vm", False))


def _check(options: ProcessOptions) -> None:
    for name in ("heartbeat_timeout_seconds", "initialization_timeout_seconds"):
        value = getattr(options, name)
        if value < 2:
            raise ConfigError(f"processes.{name}={value} must be 2 or more")
    if options.progress_deadline_seconds < 0:
        raise ConfigError(
            f"processes.progress_deadline_seconds={options.progress_deadline_seconds:g} must be 0 "
            "(no deadline) or more"
        )
    if options.num_processes < 0:
        raise ConfigError(f"processes.num_processes={options.num_processes} must be 0 or more")
    if options.num_processes and options.process_id >= options.num_processes:
        raise ConfigError(
            f"processes.process_id={options.process_id} must be below "
            f"processes.num_processes={options.num_processes}"
        )
    if options.coordinator_address:
        _split_address(options.coordinator_address)


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not 0 < _number(port) < 65536:
        raise ConfigError(f"processes.coordinator_address={address!r} must be HOST:PORT")
    return host.strip("[]"), int(port)


def _meet(meeting: Meeting, options: ProcessOptions) -> None:
    package = _NEEDED_PACKAGES.get(meeting.source if meeting.cluster is None else meeting.cluster)
    if package is not None and importlib.util.find_spec(package) is None:
        raise RunError(
            f"to join the other processes ({meeting.source}) JAX needs the package {package}: "
            f"install it, or {_OTHER_WAYS}"
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
    patience = threading.Timer(seconds, _give_up, [meeting, seconds])
    patience.daemon = True
    patience.start()
    try:
        with _ended_by_signals(f"while it waited for the other processes ({meeting.source})"):
            jax.distributed.initialize(
                coordinator_address=meeting.coordinator_address,
                num_processes=meeting.num_processes,
                process_id=meeting.process_id,
                cluster_detection_method=meeting.cluster,
                # When this one passes JAX aborts with a page of C++; the timer above speaks first.
                initialization_timeout=seconds + 30,
                heartbeat_timeout_seconds=options.heartbeat_timeout_seconds
                + _JAX_HEARTBEAT_MARGIN_SECONDS,
                shutdown_timeout_seconds=_JAX_SHUTDOWN_SECONDS,
            )
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(
            f"cannot join the other processes ({meeting.source}): {lines[0]}; {_OTHER_WAYS}"
        ) from None
    finally:
        patience.cancel()
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        _take_greetings_out_of_standard_output()


def _take_greetings_out_of_standard_output() -> None:
    """Keeps standard output for results: Gloo greets there, once for each group of devices.

    Gloo writes to the file itself. Python gets a copy of it, and what others write to it comes
    through a pipe, without the greetings.
    """
    try:
        if sys.stdout.fileno() != 1:
            return
    except (AttributeError, OSError, ValueError):
        return  # No file: closed, or captured by a test.
    sys.stdout.flush()
    target = os.dup(1)
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(writer)
    sys.stdout = io.TextIOWrapper(
        os.fdopen(target, "wb", closefd=False),
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
        line_buffering=os.isatty(target) or bool(getattr(sys.stdout, "write_through", False)),
    )

    def copy() -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                if not line.startswith(b"[Gloo] Rank"):
                    os.write(target, line)

    threading.Thread(target=copy, daemon=True).start()


@contextlib.contextmanager
def _ended_by_signals(when: str) -> Iterator[None]:
    """Lets SIGINT and SIGTERM end this process at once with one line, inside a block.

    The main thread stands in JAX's runtime there and would come to no handler of its own for as
    long as it waits; a thread reads what the interpreter notes of a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        received = reader.recv(1)
        if received:
            name = signal.Signals(received[0]).name
            os.write(2, f"dawnjax: ended by {name} {when}\n".encode())
            os._exit(ExitStatus.INTERRUPTED)

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        writer.close()
        thread.join(timeout=5.0)
        reader.close()


def _give_up(meeting: Meeting, seconds: int) -> None:
    address = meeting.coordinator_address
    reason = "not all of them came"
    if address:
        host, port = _split_address(address)
        try:
            socket.create_connection((host, port), timeout=5.0).close()
        except OSError as error:
            reason = f"process 0 does not answer at {address} ({error.strerror or error})"
    expected = f"{meeting.num_processes} processes" if meeting.num_processes else "the others"
    message = (
        f"dawnjax: waited {seconds} s for {expected} ({meeting.source}), but {reason}; start the "
        "same command on every host, or run alone with --processes.mode=off\n"
    )
    os.write(2, message.encode())
    # The main thread stands in JAX's runtime and cannot be called back.
    os._exit(1)


def _check_port_is_free(address: str) -> None:
    """Refuses a port that is taken: JAX's service crashes the process on one, or shares it."""
    host, port = _split_address(address)
    bind_address = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", f"[::]:{port}")
    bind_host, bind_port = bind_address.rpartition(":")[::2]
    advice = "another run may use it: choose another port"
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        raise RunError(f"process 0 cannot serve at {address}: something answers there; {advice}")
    family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return  # no IPv6 here; JAX finds its own way
    with probe:
        # As the service does, so that a port which `dawnjax launch` holds for it is free.
        if hasattr(socket, "SO_REUSEPORT"):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((bind_host.strip("[]"), int(bind_port)))
        except OSError as error:
            raise RunError(
                f"process 0 cannot serve at {address}: {error.strerror}; {advice}"
            ) from None
