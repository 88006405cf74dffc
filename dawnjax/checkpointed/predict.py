"""Answers of a run's model to inputs of one's own, one at a time as `dawnjax infer` asks it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dawnjax import records
from dawnjax.checkpointed import latency
from dawnjax.checkpointed.earlier_run import EarlierRun, restore
from dawnjax.config.own_files import own_code
from dawnjax.config.run_options import RunOptions
from dawnjax.session import alone


def predict_run(run: EarlierRun, files: Sequence[Path], options: RunOptions) -> None:
    """Answer the inputs in files with the newest checkpoint; print a line of JSON for each."""
    with own_code("the task's inputs"):
        # Before the checkpoint: files of another kind are answered at once.
        inputs = run.experiment.task.read_inputs(files, run.setting)
    mesh = alone(run.experiment, run.spec, options, num_devices=1).mesh
    recipe, restored = restore(run, mesh, options, "predict")
    data = inputs.data or recipe.setting.data
    setting = dataclasses.replace(recipe.setting, spec=inputs.spec, data=data)
    asked = dataclasses.replace(recipe, setting=setting)
    answering = latency.make_answering(asked, restored.state, inputs.examples)
    for position, given in enumerate(inputs.given):
        answer = answering.answer(answering.example(position))
        with own_code("the task's inputs"):
            stated = inputs.stated(answer, position)
        print(records.json_text({**given, "answer": stated}), flush=True)
