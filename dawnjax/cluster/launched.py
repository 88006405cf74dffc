"""Messages between `dawnjax launch` and the processes that it starts.

Environment variables say where the processes meet, and a file says that one was killed. Each
process writes its progress to a file, for the launcher's line about its end.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.errors import RunError

SOURCE = "dawnjax launch"
"""The launcher's name in messages about how the processes found each other."""

COORDINATOR_ADDRESS = "DAWNJAX_COORDINATOR_ADDRESS"
NUM_PROCESSES = "DAWNJAX_NUM_PROCESSES"
PROCESS_ID = "DAWNJAX_PROCESS_ID"
STATUS_DIR = "DAWNJAX_STATUS_DIR"
LAUNCH_COMMAND = "DAWNJAX_LAUNCH_COMMAND"

_KILLED = "killed.json"


@dataclasses.dataclass(frozen=True)
class Status:
    """Progress of a process, as it writes it for the launcher.

    Attributes:
      step: Steps that it has handed to the devices; -1 before its first report.
      resume_command: Command line that resumes its run; empty where it has none.
      fault: Line about the host that ended the run; empty while nothing has.
    """

    step: int = -1
    phase: str = ""
    resume_command: str = ""
    fault: str = ""


def write_status(status: Status, environment: Mapping[str, str] = os.environ) -> None:
    """Write this process's progress for the launcher, if there is one."""
    directory, process_id = environment.get(STATUS_DIR), environment.get(PROCESS_ID)
    if directory and process_id:
        _write(Path(directory) / f"{process_id}.json", dataclasses.asdict(status))


def read_status(directory: Path, process_id: int) -> Status:
    """Last status of a process; one without a step before its first."""
    try:
        return records.read_json(directory / f"{process_id}.json", Status)
    except (OSError, ValueError):
        return Status()


def has_joined(directory: Path, process_id: int) -> bool:
    """True once a process has met the others, and so hears of their end."""
    return (directory / f"{process_id}.json").exists()


def tell_killed(directory: Path, process_id: int, how: str) -> None:
    """Tell the processes that one was killed; `how` ends a sentence that begins with it."""
    _write(directory / _KILLED, [process_id, how])


def read_killed(environment: Mapping[str, str] = os.environ) -> tuple[int, str] | None:
    """The process that the launcher saw killed, and how; None while it saw none."""
    try:
        return records.read_json(Path(environment[STATUS_DIR]) / _KILLED, tuple[int, str])
    except (KeyError, OSError, ValueError):
        return None


def resume_command(command: str, environment: Mapping[str, str] = os.environ) -> str:
    """Command that resumes a run, with the launcher where there is one."""
    launch = environment.get(LAUNCH_COMMAND)
    if launch and command.startswith("dawnjax "):
        return f"{launch} {command.removeprefix('dawnjax ')}"
    return command


def _write(file: Path, value: Any) -> None:
    # A full /tmp is no reason to end a run: the launcher's line says less, or comes later. A folder
    # that is gone is not made again: the launcher has ended and removed it.
    if file.parent.is_dir():
        with contextlib.suppress(RunError):
            records.write_json(file, value, indent=None)
