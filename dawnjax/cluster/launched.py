"""What `dawnjax launch` tells the processes that it starts, by variables of their environment."""

import os
from collections.abc import Mapping

SOURCE = "dawnjax launch"
"""The launcher's name in messages about how the processes found each other."""

COORDINATOR_ADDRESS = "DAWNJAX_COORDINATOR_ADDRESS"
NUM_PROCESSES = "DAWNJAX_NUM_PROCESSES"
PROCESS_ID = "DAWNJAX_PROCESS_ID"
LAUNCH_COMMAND = "DAWNJAX_LAUNCH_COMMAND"


def resume_command(command: str, environment: Mapping[str, str] = os.environ) -> str:
    """Command that resumes a run, with the launcher where there is one."""
    launch = environment.get(LAUNCH_COMMAND)
    if launch and command.startswith("dawnjax "):
        return f"{launch} {command.removeprefix('dawnjax ')}"
    return command
