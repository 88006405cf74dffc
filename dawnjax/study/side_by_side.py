"""Trials of a study at the same time on one machine, each in a process with its own devices.

Slots divide the machine: one GPU or TPU chip each, or equal parts of a CPU's cores. The study's
main process then finds every trial over, and makes the result.
"""

import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.study import devices
from dawnjax.study.design import PlannedTrial

_OVER = (ExitStatus.DONE, ExitStatus.BUDGET_SPENT, ExitStatus.DIVERGED)


def run(
    argv: Sequence[str], trials: Iterable[PlannedTrial], slots: int, tell: Callable[[str], None]
) -> None:
    """Run trials, as many at once as there are slots.

    Args:
      argv: The study's command line after `dawnjax study`, without its flag for slots.
      trials: Trials that are not over.
      tell: Called with a line for each trial that ends.

    Raises:
      ConfigError: The machine has fewer devices or cores than slots.
      KeyboardInterrupt: The study was asked to stop; the trials are saved.
    """
    free: queue.Queue[tuple[list[str], dict[str, str]]] = queue.Queue()
    for place in places(slots):
        free.put(place)
    running: set[subprocess.Popen[str]] = set()

    def one(trial: PlannedTrial) -> None:
        prefix, environment = free.get()
        try:
            command = [*prefix, sys.executable, "-m", "dawnjax", "study", *argv]
            with subprocess.Popen(
                [*command, f"--trial={trial.number}"],
                env={**os.environ, **environment},
                # Progress of several trials at once would be unreadable; errors are kept.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                running.add(process)
                said = process.communicate()[1]
            running.discard(process)
        finally:
            free.put((prefix, environment))
        name = f"{trial.arm.name}, seed {trial.seed}"
        if process.returncode in _OVER:
            tell(f"{name}: over")
        else:
            lines = [line for line in said.splitlines() if line.strip()]
            tell(f"{name}: {lines[-1] if lines else f'status {process.returncode}'}")

    with concurrent.futures.ThreadPoolExecutor(slots) as pool:
        futures = [pool.submit(one, trial) for trial in trials]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            for process in list(running):
                process.terminate()  # a trial saves, and ends
            raise


def places(slots: int) -> list[tuple[list[str], dict[str, str]]]:
    """Command prefix and environment variables of each slot."""
    gpus = devices.gpus()
    if gpus:
        _refuse_more(slots, len(gpus), "GPUs")
        return [([], {"CUDA_VISIBLE_DEVICES": gpu}) for gpu in gpus[:slots]]
    chips = devices.tpu_chips()
    if chips:
        _refuse_more(slots, chips, "TPU chips")
        one_chip = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
        return [([], {"TPU_VISIBLE_CHIPS": str(chip), **one_chip}) for chip in range(slots)]
    cores = sorted(os.sched_getaffinity(0))
    _refuse_more(slots, len(cores), "cores")
    share = len(cores) // slots
    taskset = shutil.which("taskset")
    if taskset is None:
        raise ConfigError("--side_by_side needs taskset (util-linux) to share the cores out")
    return [
        ([taskset, "-c", ",".join(map(str, cores[slot * share : (slot + 1) * share]))], {})
        for slot in range(slots)
    ]


def _refuse_more(slots: int, there: int, what: str) -> None:
    if slots > there:
        raise ConfigError(f"--side_by_side={slots}: this machine has {there} {what}")
