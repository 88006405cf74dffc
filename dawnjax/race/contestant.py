"""A run of an entry or of the baseline, inside the sandbox: `python -m dawnjax.race.contestant`.

It hears its task, asks for its data, hears that they are there, and says that its weights are
saved. All that happens here may be the work of a stranger: the judge believes the moments at which
it heard of it, and the weights.
"""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from dawnjax import records
from dawnjax.race import handover

READY, GO, DONE = b"ready", b"go", b"done"
"""Asks for the data; hands them over; the weights are saved."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What a run is asked for.

    Attributes:
      experiment: Plain JSON values of the experiment.
      source: File with its own classes; empty for none.
      data, run_dir: Folders of the data and for the run.
    """

    experiment: dict[str, Any]
    source: str
    seed: int
    data: str
    run_dir: str


def main() -> int:
    judge, say = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a recipe prints is no word to the judge
    task = records.decode(judge.readline(), Task)
    from dawnjax import api
    from dawnjax.config.config_json import from_json
    from dawnjax.config.experiment import Experiment
    from dawnjax.config.experiment_flags import Request
    from dawnjax.config.experiment_modules import classes_of_file
    from dawnjax.config.run_options import CheckpointOptions, ProfileOptions, RunOptions

    classes = classes_of_file(task.source) if task.source else {}
    experiment = from_json(Experiment, task.experiment, classes)

    def wait() -> None:
        os.write(say, READY + b"\n")
        if judge.readline() != GO + b"\n":
            raise SystemExit("the judge has ended")

    data = handover.withheld(experiment.data, Path(task.data), wait)
    options = RunOptions(
        run_dir=task.run_dir,
        tensorboard=False,
        compile_cache_dir="none",
        # One save, at the end: it is what the judge measures.
        checkpoint=CheckpointOptions(every_seconds=0.0, keep=1),
        profile=ProfileOptions(after_run=False),
    )
    request = Request(
        experiment=dataclasses.replace(experiment, data=data),
        overrides={},
        seed=task.seed,
        options=options,
        experiment_file=Path(task.source) if task.source else None,
    )
    status = api.train_in_process(request, [], shows=False)
    os.write(say, DONE + b"\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
