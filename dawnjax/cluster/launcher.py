"""Run a command as several processes on this machine, each with its own devices, to their end."""

import contextlib
import dataclasses
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO, NamedTuple

from dawnjax.cluster import launched
from dawnjax.cluster.children import Child, Children
from dawnjax.errors import ExitStatus

_HEAR_SECONDS = 3.0
"""Time for the others to hear by themselves that one has failed. Then they are asked to end, which
ends those that never met it."""

_SURVIVE_SECONDS = 12.0
"""Time for the watchdog of those that wait for a dead process in a collective to end them: with the
time to hear more than its silence."""

_END_SECONDS = 5.0
"""Time to end after a process whose watchdog told the others; who is left is stopped or stuck."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """A command and the processes that run it.

    Attributes:
      stop_seconds: Time for the processes to end after a signal to the launcher.
      launch_command: The launcher's part of the command line, for the line that says how to resume.
    """

    command: tuple[str, ...]
    num_processes: int
    devices_per_process: int
    platform: str
    stop_seconds: float
    launch_command: str
    program: tuple[str, ...]

    @property
    def resume_command(self) -> str:
        return f"{self.launch_command} {shlex.join(self.command)}"


class Ended(NamedTuple):
    """`joint_status`, or 5 after a signal, and a line about the first process that failed."""

    status: int
    line: str


def launch(job: Launch) -> Ended:
    """Run the processes to their end, leaving none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    statuses, failed, line, ask_at = [], 0, "", float("inf")
    hosts: dict[Child, int] = {}
    printers = []
    with Children(job.stop_seconds) as group:
        for number in range(job.num_processes):
            # The others write through a pipe: their number stands before each of their lines.
            out, err = (subprocess.PIPE, subprocess.STDOUT) if number else (None, None)
            command, environment = [*job.program, *job.command], _environment(job, number, port)
            child = group.start(command, err, stdout=out, env=environment)
            hosts[child] = number
            if child.stdout is not None:
                printers.append(_print_with_number(child.stdout, number))
        while group.running:
            for child in group.wait_for_one(seconds=1.0):
                status = child.returncode
                statuses.append(status)
                if status and not failed and not group.asked:
                    failed, ask_at = status, time.monotonic() + _HEAR_SECONDS
                    line = _line_about(job, hosts[child], child)
                    if status < 0 or status == ExitStatus.FAILED:
                        print(f"dawnjax launch: {line}", file=sys.stderr, flush=True)
            if time.monotonic() > ask_at:
                group.ask(_END_SECONDS if failed == ExitStatus.FAILED else _SURVIVE_SECONDS)
                ask_at = float("inf")
    for printer in printers:
        printer.join(timeout=2.0)
    # One that was asked to stop before it could listen has stopped as asked.
    asked = {int(ExitStatus.INTERRUPTED), -signal.SIGTERM}
    asked |= {-signal.SIGKILL} if group.asked.count(signal.SIGINT) > 1 else set()
    if group.asked and not asked.isdisjoint(statuses):
        return Ended(ExitStatus.INTERRUPTED, "the processes were asked to stop")
    # Those that end by a signal after the first failure are its echo.
    status = joint_status([failed, *(s for s in statuses if s >= 0)] if failed else statuses)
    return Ended(status, line)


def joint_status(statuses: list[int]) -> int:
    """The most serious status: the first of 1, 2, 4, 5, 6, 7, 3, 0; a signal's -N counts as 1."""
    # Most serious first: failure, wrong use, divergence, interruption, gates, spent budget.
    order = (1, 2, 4, 5, 6, 7, 3, 0)
    return min((status if status in order else 1 for status in statuses), key=order.index)


def _line_about(job: Launch, number: int, child: Child) -> str:
    how = "failed" if child.returncode == ExitStatus.FAILED else "ended"
    how += f" with exit status {child.returncode}"
    if child.returncode < 0:
        how = f"was killed by {signal.Signals(-child.returncode).name}"
    line = f"host {number} (pid {child.pid}) {how}"
    if any(flag.startswith("--run_dir=") for flag in job.command):
        line += f"; resume with: {job.resume_command}"
    return line


def _environment(job: Launch, number: int, port: int) -> dict[str, str]:
    address = f"127.0.0.1:{port}"
    environment = dict(os.environ) | {
        launched.COORDINATOR_ADDRESS: address,
        launched.NUM_PROCESSES: str(job.num_processes),
        launched.PROCESS_ID: str(number),
        launched.LAUNCH_COMMAND: job.launch_command,
        # This machine alone is served.
        "JAX_COORDINATOR_BIND_ADDRESS": address,
    }
    if any("_proxy" in name.lower() for name in os.environ):
        environment["no_grpc_proxy"] = "127.0.0.1"
    count = job.devices_per_process
    if job.platform == "cpu":
        name, given = "--xla_force_host_platform_device_count", environment.get("XLA_FLAGS", "")
        xla_flags = [flag for flag in given.split() if not flag.startswith(name)]
        xla_flags.append(f"{name}={count}")
        environment |= {"XLA_FLAGS": " ".join(xla_flags), "JAX_PLATFORMS": "cpu"}
        # With fewer threads than devices a collective waits for a device that cannot run.
        environment.setdefault("NPROC", str(max(16, 2 * count)))
    else:
        if environment.get("JAX_PLATFORMS", "cpu") in ("", "cpu"):
            environment["JAX_PLATFORMS"] = "cuda,cpu"  # the CPU last: arrays can stay on the host
        numbers = range(number * count, (number + 1) * count)
        environment["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, numbers))
    return environment


def _print_with_number(stream: IO[bytes], number: int) -> threading.Thread:
    def copy() -> None:
        for line in stream:
            with contextlib.suppress(OSError):
                os.write(2, f"[{number}] ".encode() + line.rstrip(b"\n") + b"\n")

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread
