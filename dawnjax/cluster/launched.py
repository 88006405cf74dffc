"""What `dawnjax launch` and the processes that it starts tell each other.

Down by environment variables: where the others are; and by one small file, should one of them be
killed, which the launcher sees at once. Up by one small file a process: how far it is, which the
launcher needs for the line about a process that can no longer say so itself.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

SOURCE = "dawnjax launch"
"""What a process says it learnt of the others from."""

COORDINATOR_ADDRESS = "DAWNJAX_COORDINATOR_ADDRESS"
NUM_PROCESSES = "DAWNJAX_NUM_PROCESSES"
PROCESS_ID = "DAWNJAX_PROCESS_ID"
STATUS_DIR = "DAWNJAX_STATUS_DIR"
LAUNCH_COMMAND = "DAWNJAX_LAUNCH_COMMAND"

_KILLED = "killed.json"


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a process is.

    Attributes:
      step: Steps that it has handed to the devices; -1 before its first report.
      phase: What it was last seen doing.
      resume_command: The command line that goes on with its run; empty where it has none.
      verdict: The line about the host that ended the run; empty while nothing has.
    """

    step: int = -1
    phase: str = ""
    resume_command: str = ""
    verdict: str = ""


def write_status(status: Status, environment: Mapping[str, str] = os.environ) -> None:
    """Tells the launcher how far this process is; does nothing where there is no launcher."""
    directory = environment.get(STATUS_DIR)
    if not directory:
        return
    file = _status_file(Path(directory), int(environment[PROCESS_ID]))
    temporary = file.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(dataclasses.asdict(status)))
        temporary.replace(file)
    except OSError:
        # The launcher's line will say less; a full /tmp is no reason to end a run.
        return


def read_status(directory: Path, process_id: int) -> Status:
    """Gives what a process last told; a status without a step if it told nothing."""
    try:
        return Status(**json.loads(_status_file(directory, process_id).read_text()))
    except (OSError, ValueError, TypeError):
        return Status()


def tell_killed(directory: Path, process_id: int, how: str) -> None:
    """Tells the processes that one of them was killed.

    Args:
      directory: Where the processes tell how far they are.
      process_id: The one that was killed.
      how: The end of a sentence that begins with it.
    """
    file = directory / _KILLED
    temporary = file.with_suffix(".tmp")
    # Where it cannot be written they find out for themselves, later.
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps([process_id, how]))
        temporary.replace(file)


def read_killed(environment: Mapping[str, str] = os.environ) -> tuple[int, str] | None:
    """Gives the process that the launcher saw killed, and how; None while it saw none."""
    directory = environment.get(STATUS_DIR)
    if not directory:
        return None
    try:
        process_id, how = json.loads((Path(directory) / _KILLED).read_text())
    except (OSError, ValueError, TypeError):
        return None
    return int(process_id), str(how)


def resume_command(command: str, environment: Mapping[str, str] = os.environ) -> str:
    """Gives the command that resumes a run, with the launcher where there is one.

    Args:
      command: The command line as one process sees it, `dawnjax train ...`.
      environment: This process's environment.
    """
    launch = environment.get(LAUNCH_COMMAND)
    if launch and command.startswith("dawnjax "):
        return f"{launch} {command.removeprefix('dawnjax ')}"
    return command


def _status_file(directory: Path, process_id: int) -> Path:
    return directory / f"{process_id}.json"
