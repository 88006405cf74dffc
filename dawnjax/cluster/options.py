"""Flags that say where the other processes of a run are, and when one is given up."""

import dataclasses
from typing import Literal


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
        all others within this time; below 15 s, up to 5 s later. A host so busy that a thread of
        it gets no turn for seven tenths of this time is given up too.
      progress_deadline_seconds: No report of progress from any process for this long ends the
        run, also before the first step; 0 sets no deadline. It must exceed the longest
        compilation.
    """

    mode: Literal["auto", "on", "off"] = "auto"
    coordinator_address: str = ""
    num_processes: int = 0
    process_id: int = -1
    initialization_timeout_seconds: int = 300
    heartbeat_timeout_seconds: int = 20
    progress_deadline_seconds: float = 900.0
