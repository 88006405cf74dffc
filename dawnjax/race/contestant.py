"""A run of a recipe inside the sandbox: `python -m dawnjax.race.contestant DATA OUT SEED SOURCE`.

It receives its experiment, asks for its data, waits until they are there, and reports that its
weights are saved. SOURCE is a file with the entry's classes, or empty. Untrusted code may control
all of this process: the judge trusts only its own clock, and measures the weights itself.
"""

import dataclasses
import os
import sys
from pathlib import Path

from dawnjax import records
from dawnjax.race import handover

READY, GO, DONE = b"ready", b"go", b"done"
"""Asks for the data; hands them over; the weights are saved."""


def main() -> int:
    judge, say = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a recipe prints is no word to the judge
    folder, run_dir, seed, source = sys.argv[1:]
    fields = records.load_json(judge.readline())
    from dawnjax import api
    from dawnjax.config.config_json import from_json
    from dawnjax.config.experiment import Experiment
    from dawnjax.config.experiment_flags import Request
    from dawnjax.config.experiment_modules import classes_of_file
    from dawnjax.config.run_options import CheckpointOptions, ProfileOptions, RunOptions

    experiment = from_json(Experiment, fields, classes_of_file(source) if source else {})

    def wait() -> None:
        os.write(say, READY + b"\n")
        if judge.readline() != GO + b"\n":
            raise SystemExit("the judge has ended")

    data = handover.withheld(experiment.data, Path(folder), wait)
    options = RunOptions(
        run_dir=run_dir,
        tensorboard=False,
        compile_cache_dir="none",
        # One save, at the end: it is what the judge measures.
        checkpoint=CheckpointOptions(every_seconds=0.0, keep=1),
        profile=ProfileOptions(after_run=False),
    )
    request = Request(
        experiment=dataclasses.replace(experiment, data=data),
        overrides={},
        seed=int(seed),
        options=options,
        experiment_file=Path(source) if source else None,
    )
    status = api.train_in_process(request, [], shows=False)
    os.write(say, DONE + b"\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
