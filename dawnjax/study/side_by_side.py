"""Concurrent trials of a study on one machine, each in a process with its own devices.

Slots divide the machine: one GPU or TPU chip each, or equal parts of a CPU's cores. The study's
main process then finds all trials finished, and makes the result.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO

from dawnjax.cluster.children import Child, Children, last_line
from dawnjax.errors import ConfigError, ExitStatus
from dawnjax.page import words
from dawnjax.study import devices
from dawnjax.study.design import TrialPlan

STOP_SECONDS = 60.0
"""Time for the trials to save and end once the study is asked to stop."""

_Place = tuple[list[str], dict[str, str]]


def run(
    argv: Sequence[str], trials: Iterable[TrialPlan], slots: int, tell: Callable[[str], None]
) -> None:
    """Run trials, as many at once as there are slots.

    Args:
      argv: The study's command line after `dawnjax study`, without its flag for slots.
      trials: Unfinished trials.
      tell: Called with a line for each trial that ends.

    Raises:
      ConfigError: The machine has fewer devices or cores than slots.
      KeyboardInterrupt: The study was asked to stop; the trials are saved.
    """
    trials = list(trials)
    free, left, over, started = places(slots), iter(trials), 0, time.monotonic()
    running: dict[Child, tuple[TrialPlan, _Place, IO[bytes]]] = {}
    with contextlib.ExitStack() as opened, Children(STOP_SECONDS) as children:
        while True:
            while free and not children.asked and (trial := next(left, None)):
                place = prefix, environment = free.pop(0)
                command = [*prefix, sys.executable, "-m", "dawnjax", "study", *argv]
                # Progress of several trials at once would be unreadable; errors are kept.
                stderr = opened.enter_context(tempfile.TemporaryFile())
                child = children.start(
                    [*command, f"--trial={trial.number}"], stderr, env={**os.environ, **environment}
                )
                running[child] = trial, place, stderr
            if not running:
                break
            for child in children.wait_for_one():
                trial, place, stderr = running.pop(child)
                free.append(place)
                with stderr:
                    said = last_line(stderr) or f"status {child.returncode}"
                is_over = child.returncode == ExitStatus.DONE
                over += 1
                seconds = (time.monotonic() - started) / over * (len(trials) - over)
                in_time = f", about {words.about(round(seconds))} left" if seconds else ""
                said = "over" if is_over else said
                tell(f"{trial.arm.name}, seed {trial.seed}: {said}{in_time}")
        if children.asked:
            raise KeyboardInterrupt


def places(slots: int) -> list[_Place]:
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
    taskset = shutil.which("taskset")  # Linux has it where it has `sched_getaffinity`
    if taskset is None:
        raise ConfigError("--side_by_side needs taskset (util-linux) to divide the cores")
    cores = sorted(os.sched_getaffinity(0))
    _refuse_more(slots, len(cores), "cores")
    share = len(cores) // slots
    return [
        ([taskset, "-c", ",".join(map(str, cores[slot * share : (slot + 1) * share]))], {})
        for slot in range(slots)
    ]


def _refuse_more(slots: int, there: int, what: str) -> None:
    if slots > there:
        raise ConfigError(f"--side_by_side={slots}: this machine has {there} {what}")
