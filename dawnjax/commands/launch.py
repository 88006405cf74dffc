"""`dawnjax launch`: a command as several processes on this machine, each with its own devices."""

import dataclasses
import functools
import os
import shlex
import sys
from pathlib import Path

from absl import flags

from dawnjax.cluster import launcher, node_devices
from dawnjax.commands.answer import Answer
from dawnjax.config import command_line
from dawnjax.errors import ConfigError, ExitStatus


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What was started.

    Attributes:
      command: The command of each process, with its arguments.
    """

    command: tuple[str, ...]
    processes: int
    devices_per_process: int
    platform: str


RESULT = Result


def main(argv: list[str]) -> Answer:
    values = flags.FlagValues()
    count = functools.partial(flags.DEFINE_integer, lower_bound=1, flag_values=values)
    count("processes", 2, "Processes to start.")
    devices = "Devices of each process: simulated on cpu, consecutive GPUs on gpu."
    count("devices_per_process", 1, devices)
    flags.DEFINE_enum("platform", "cpu", ["cpu", "gpu"], "The kind of device.", flag_values=values)
    stop = "Time for the processes to save and end after a request to stop."
    flags.DEFINE_float("stop_seconds", 60.0, stop, 0.0, flag_values=values)
    end = argv.index("--") if "--" in argv else len(argv)
    options, command = argv[:end], argv[end + 1 :]
    positional = command_line.parse(
        "launch",
        values,
        options,
        "dawnjax launch --processes=N --devices_per_process=D -- COMMAND --flags",
        "Runs `dawnjax COMMAND` as N processes on this machine, as on N hosts. Process 0 has\n"
        "this terminal; the other processes print to standard error, each line with their\n"
        "number. If one dies, the others end within 30 seconds, and a line says which one died\n"
        "and how to resume. The status is 0 if all processes end with 0, otherwise the first of\n"
        "1, 2, 4, 5, 6, 7, 3 that a process ended with; death by a signal counts as 1. After\n"
        "SIGTERM, Ctrl-C, SIGHUP or SIGUSR1 it is 5 if a process ended with 5.",
    )
    if positional:
        raise ConfigError(f"{positional[0]!r} is not a flag; write the command after --")
    if not command:
        raise ConfigError("no command given: dawnjax launch --processes=2 -- train --flags")
    if command[0] == "launch":
        raise ConfigError("launch cannot launch itself")
    platform = str(values["platform"].value)
    if platform == "gpu" and not os.environ.get("JAX_PLATFORMS") and not node_devices.gpus():
        # JAX would take the CPU without a word.
        raise ConfigError(
            "--platform=gpu, but this machine shows no NVIDIA GPU (/dev/nvidia0); check its "
            "driver or container, or set JAX_PLATFORMS"
        )
    job = launcher.Launch(
        command=tuple(command),
        num_processes=int(values["processes"].value or 0),
        devices_per_process=int(values["devices_per_process"].value or 0),
        platform=platform,
        stop_seconds=float(values["stop_seconds"].value or 0.0),
        launch_command=shlex.join(["dawnjax", "launch", *options, "--"]),
        program=_program(),
    )
    status, line = launcher.launch(job)
    status = ExitStatus(status)
    return Answer(
        result=Result(
            command=job.command,
            processes=job.num_processes,
            devices_per_process=job.devices_per_process,
            platform=platform,
        ),
        status=status,
        reasons=() if status == ExitStatus.DONE else [line],
        next=[job.resume_command] if status == ExitStatus.INTERRUPTED else (),
    )


def _program() -> tuple[str, ...]:
    """Command line of the package that runs now.

    Python looks for the module of `-m` in the working directory first, which may be a checkout that
    is not the installed package; `-P` keeps it from that.
    """
    runs_from_here = Path(__file__).parents[2].samefile(".")
    return (sys.executable, *(() if runs_from_here else ("-P",)), "-m", "dawnjax")
