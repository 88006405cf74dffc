"""Run a command as several processes on this machine, each with its own devices, to their end."""

import contextlib
import dataclasses
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from dawnjax.cluster import children, launched, stop_signals
from dawnjax.cluster.children import Child
from dawnjax.cluster.jax_platforms import NVIDIA_FILES
from dawnjax.errors import ConfigError, ExitStatus

_POLL_SECONDS = 0.05

_UNMET_SURVIVE_SECONDS = 2.0
"""`survive_seconds` of a process that has not met the others, and so never hears of a failure."""

_SIMULATED_DEVICES_FLAG = "--xla_force_host_platform_device_count"


@dataclasses.dataclass(frozen=True)
class Launch:
    """A command and the processes that run it.

    Attributes:
      stop_seconds: Time for the processes to end after a signal to the launcher.
      launch_command: The launcher's part of the command line, for the line that says how to resume.
      survive_seconds: Time for the others to end after one has failed. Most hear of it in seconds.
    """

    command: tuple[str, ...]
    num_processes: int
    devices_per_process: int
    platform: str
    stop_seconds: float
    launch_command: str
    program: tuple[str, ...]
    survive_seconds: float = 30.0


def launch(job: Launch) -> int:
    """Run the processes to their end, leaving none; returns `joint_status`, or 5 after a signal."""
    scratch = tempfile.TemporaryDirectory(prefix="dawnjax_launch_", ignore_cleanup_errors=True)
    with scratch as directory, _held_port() as port:
        hosts: list[Child] = []
        received: list[signal.Signals] = []
        printers: list[threading.Thread] = []
        try:
            with stop_signals.heard_by(received.append):
                for process_id in range(job.num_processes):
                    child = _start(job, process_id, port, directory)
                    hosts.append(child)
                    if child.stdout is not None:
                        printers.append(_print_with_number(child.stdout, process_id))
                return _wait(job, hosts, Path(directory), received)
        finally:
            for child in hosts:
                # Also what a process has started and left: the group outlives its leader.
                children.send(child, signal.SIGKILL)
                child.wait()
            for printer in printers:
                printer.join(timeout=2.0)


def _wait(job: Launch, hosts: list[Child], directory: Path, received: list[signal.Signals]) -> int:
    running = dict(enumerate(hosts))
    stop_at = failed_at = float("inf")
    num_forwarded = 0
    outlived: set[int] = set()  # killed here since another had failed
    has_blamed = False
    while running:
        time.sleep(_POLL_SECONDS)
        now = time.monotonic()
        for number in received[num_forwarded:]:
            num_forwarded += 1
            for child in running.values():
                children.send(child, children.request_to(number))
            # A second Ctrl-C ends them at once; should one not hear it, it is made to.
            is_second = received[:num_forwarded].count(signal.SIGINT) > 1
            stop_at = min(stop_at, now + (1.0 if is_second else job.stop_seconds))
        for process_id, child in list(running.items()):
            status = child.poll()
            if status is None:
                has_met = launched.has_joined(directory, process_id)
                patience = job.survive_seconds if has_met else _UNMET_SURVIVE_SECONDS
                if now >= failed_at + patience:
                    outlived.add(process_id)
                if now >= stop_at or process_id in outlived:
                    children.send(child, signal.SIGKILL)
                continue
            del running[process_id]
            if status == 0 or process_id in outlived:
                continue
            if not received and not has_blamed and (status < 0 or status == ExitStatus.FAILED):
                line = _line_about(job, process_id, child, directory)
                print(f"dawnjax launch: {line}", file=sys.stderr, flush=True)
                has_blamed = True
                if status < 0:
                    launched.tell_killed(directory, process_id, _how_it_died(status))
            failed_at = min(failed_at, now)
        if len(running) < len(hosts) and all(map(_is_stopped, running.values())):
            stop_at = now
    statuses = [child.returncode for child in hosts]
    if not received:
        return joint_status([status for i, status in enumerate(statuses) if i not in outlived])
    # One that was asked to stop before it could listen, or a second time, has stopped as asked.
    asked = {-number for number in stop_signals.NUMBERS}
    asked |= {-signal.SIGKILL} if received.count(signal.SIGINT) > 1 else set()
    if not asked.isdisjoint(statuses) or ExitStatus.INTERRUPTED in statuses:
        # All stop together: what else one says is the echo of the end of the first.
        return ExitStatus.INTERRUPTED
    return joint_status(statuses)


def _is_stopped(child: Child) -> bool:
    """Process held by SIGSTOP, in which it can neither end nor save."""
    try:
        # The state is the first field after the name, which may hold blanks and brackets.
        stat = Path(f"/proc/{child.pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def joint_status(statuses: list[int]) -> int:
    """The most serious exit status: the first of 1, 2, 4, 5, 3, 0; a signal's -N counts as 1."""
    # Most serious first: failure, wrong use, divergence, interruption, spent budget.
    order = (1, 2, 4, 5, 3, 0)
    return min((status if status in order else 1 for status in statuses), key=order.index)


def _line_about(job: Launch, process_id: int, child: Child, directory: Path) -> str:
    status = launched.read_status(directory, process_id)
    if status.fault:
        return status.fault
    at = f"step {status.step} ({status.phase})" if status.step >= 0 else "the start"
    resume = status.resume_command or f"{job.launch_command} {shlex.join(job.command)}"
    how = _how_it_died(child.returncode)
    return f"host {process_id} (pid {child.pid}) {how} at {at}; resume with: {resume}"


def _how_it_died(status: int) -> str:
    if status > 0:
        return f"failed with exit status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-status, f'signal {-status}')}"


def _start(job: Launch, process_id: int, port: int, directory: str) -> Child:
    # The others write through a pipe: their number stands before each of their lines.
    is_first = process_id == 0
    return children.start(
        [*job.program, *job.command],
        env=_environment(job, process_id, port, directory),
        stdin=subprocess.DEVNULL,
        stdout=None if is_first else subprocess.PIPE,
        stderr=None if is_first else subprocess.STDOUT,
    )


def _environment(job: Launch, process_id: int, port: int, directory: str) -> dict[str, str]:
    address = f"127.0.0.1:{port}"
    environment = dict(os.environ) | {
        launched.COORDINATOR_ADDRESS: address,
        launched.NUM_PROCESSES: str(job.num_processes),
        launched.PROCESS_ID: str(process_id),
        launched.STATUS_DIR: directory,
        launched.LAUNCH_COMMAND: job.launch_command,
        # This machine alone is served.
        "JAX_COORDINATOR_BIND_ADDRESS": address,
    }
    if any("_proxy" in name.lower() for name in os.environ):
        environment["no_grpc_proxy"] = "127.0.0.1"
    if job.platform == "cpu":
        given = environment.get("XLA_FLAGS", "").split()
        xla_flags = [flag for flag in given if not flag.startswith(_SIMULATED_DEVICES_FLAG)]
        xla_flags.append(f"{_SIMULATED_DEVICES_FLAG}={job.devices_per_process}")
        environment |= {"XLA_FLAGS": " ".join(xla_flags), "JAX_PLATFORMS": "cpu"}
        # With fewer threads than devices a collective waits for a device that cannot run.
        environment.setdefault("NPROC", str(max(16, 2 * job.devices_per_process)))
    else:
        environment["JAX_PLATFORMS"] = _platforms(job.platform, environment)
    if job.platform == "gpu":
        first = process_id * job.devices_per_process
        devices = range(first, first + job.devices_per_process)
        environment["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, devices))
    return environment


def _platforms(platform: str, environment: Mapping[str, str]) -> str:
    """JAX's platforms, with the CPU last, so that arrays can stay on the host."""
    given = environment.get("JAX_PLATFORMS", "")
    if given not in ("", "cpu"):
        return given
    return "cuda,cpu" if platform == "gpu" else "tpu,cpu"


def refuse_missing_gpu(platform: str) -> None:
    """Refuse the platform `gpu` without an NVIDIA GPU, where JAX would silently take the CPU.

    JAX itself refuses a missing TPU.
    """
    if platform != "gpu" or "cuda" not in _platforms(platform, os.environ).split(","):
        return
    if not any(map(os.path.exists, NVIDIA_FILES)):
        raise ConfigError(
            f"--platform=gpu, but this machine shows no NVIDIA GPU: no {', '.join(NVIDIA_FILES)}; "
            "look at its driver or container, or take --platform=cpu"
        )


def _print_with_number(stream: IO[bytes], process_id: int) -> threading.Thread:
    def copy() -> None:
        for line in stream:
            with contextlib.suppress(OSError):
                os.write(2, f"[{process_id}] ".encode() + line.rstrip(b"\n") + b"\n")

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def _held_port() -> Iterator[int]:
    """Hold a port of the loopback interface, so that no other program is given it.

    The service of process 0 shares ports (SO_REUSEPORT), as this socket does. So it can listen
    there while this socket, which does not listen, keeps everyone else away.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        if hasattr(socket, "SO_REUSEPORT"):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
