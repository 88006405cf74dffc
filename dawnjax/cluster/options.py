"""Flags that say where the other processes of a run are, and when one is given up."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How this process finds the others, and when it gives them up.

    Attributes:
      mode: `auto` joins other processes if the environment (TPU pod, Slurm, Kubernetes, Open MPI,
        `dawnjax launch`) or the fields below name any; `on` joins or fails; `off` runs alone.
      coordinator_address: Address `host:port` of process 0, reachable from every process; if
        empty, from the environment.
      num_processes: Processes of the run; if 0, from the environment.
      process_id: This process's number, counted from 0; if -1, from the environment.
      initialization_timeout_seconds: How long to wait for the others at the start.
      heartbeat_timeout_seconds: If a process shows no sign of life (killed, stopped, cut off), all
        others end within this time; below 15 s, up to 5 s later. This includes a host so busy that
        one of its threads gets no turn for seven tenths of this time.
      progress_deadline_seconds: The run ends if no process reports progress for this long, even
        before the first step; 0 sets no deadline. It must exceed the longest compilation.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    coordinator_address: str = ""
    num_processes: int = 0
    process_id: int = -1
    initialization_timeout_seconds: int = 300
    heartbeat_timeout_seconds: int = 20
    progress_deadline_seconds: float = 900.0
