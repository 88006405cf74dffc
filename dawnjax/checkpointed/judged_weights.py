"""Weights of a race measured by the judge: `python -m dawnjax.checkpointed.judged_weights`.

The process has the project's code and data, and no code of the entry: of a run it reads arrays
alone, those that its model has. Optimizer and schedule are left out, for they may be the entry's.
"""

import dataclasses
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax import records
from dawnjax.checkpoints.arrays import by_path, signature
from dawnjax.checkpoints.store import Checkpoints
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Constant, Experiment, Sgd
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import CheckpointError, ConfigError
from dawnjax.evaluation import EvaluationFeed, evaluate, reaches
from dawnjax.feed import input_shapes
from dawnjax.programs import compile_evaluation, state_shapes
from dawnjax.session import alone
from dawnjax.stepper import calls_in_flight
from dawnjax.train_step import Recipe, TrainState, make_recipe

NO_WEIGHTS = "no weights were saved"
"""Fault of a run that diverged, or ended without a save."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """Runs of one recipe whose weights are to be measured.

    Attributes:
      experiment: Plain JSON values of the experiment, the data where they lie.
      checkpoints: Folder of the saved states of each run.
      array: The array of examples that runs knew under other names.
      names: Those names for each run, by the data's own.
    """

    experiment: dict[str, Any]
    checkpoints: tuple[str, ...]
    array: str
    names: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """Whether weights reach the target, and the value of its metric; `fault` if they cannot."""

    reached: bool = False
    quality: float | None = None
    fault: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Weights of each run, and the kind of the device that measured them."""

    weights: tuple[Weights, ...]
    device: str


def main() -> int:
    say = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no word to the judge
    question = records.decode(sys.stdin.buffer.readline(), Question)
    fields = dict(question.experiment)
    fields["optimizer"] = to_json(Sgd(base_learning_rate=1.0))
    fields["schedule"] = to_json(Constant())
    fields["xla_options"] = []
    experiment: Experiment = from_json(Experiment, fields)
    runs = zip(map(Path, question.checkpoints), question.names, strict=True)
    weights = measure(experiment, question.array, list(runs))
    measured = Measured(weights=tuple(weights), device=jax.devices()[0].device_kind)
    os.write(say, records.json_text(records.plain(measured)).encode() + b"\n")
    return 0


def measure(
    experiment: Experiment, array: str, runs: Sequence[tuple[Path, Sequence[int]]]
) -> list[Weights]:
    """Measure the newest weights in each folder on the whole evaluation split.

    Args:
      array: The array whose values each run knew by the names beside its folder.
    """
    options = RunOptions(compile_cache_dir="none")
    spec = experiment.data.spec()
    session = alone(experiment, spec, options)
    recipe = make_recipe(experiment, spec, session.mesh)
    shapes = input_shapes(recipe.experiment, spec, options, session.mesh)
    programs = compile_evaluation(recipe, shapes, lambda *_: None)
    examples = dict(experiment.data.load("eval"))
    known = np.asarray(examples[array][np.arange(spec.num_eval_examples)])
    answers = []
    for folder, names in runs:
        try:
            state = _weights(recipe, folder)
        except (CheckpointError, ConfigError) as error:
            answers.append(Weights(fault=str(error)))
            continue
        examples[array] = np.array(names)[known].astype(known.dtype)
        feed = EvaluationFeed(shapes, session.mesh, examples)
        metrics = evaluate(recipe, programs, state, feed, calls_in_flight(recipe, shapes, 1))
        value = metrics[experiment.targets[0].metric]
        if not isinstance(value, float) or not math.isfinite(value):
            answers.append(Weights())
            continue
        reached = reaches(experiment.targets, metrics)
        answers.append(Weights(reached=reached, quality=value))
    return answers


def _weights(recipe: Recipe, folder: Path) -> TrainState:
    """State with the arrays that an evaluation reads, and nothing else."""
    shapes = state_shapes(recipe)
    trees = {"params": shapes.params, "batch_stats": shapes.batch_stats}
    trees |= {"ema_params": shapes.ema_params} if shapes.ema_params else {}
    wanted = by_path(trees)
    if not folder.is_dir() or folder.is_symlink():
        raise CheckpointError(NO_WEIGHTS)
    store = Checkpoints(str(folder), keep=1, warn=lambda _: None)
    try:
        read = store.read_newest(lambda name: wanted[name].sharding if name in wanted else None)
    finally:
        store.close()
    if read is None:
        raise CheckpointError(NO_WEIGHTS)
    for name, leaf in wanted.items():
        there = signature(read.state[name]) if name in read.state else "absent"
        if there != signature(leaf):
            raise CheckpointError(f"{name} is {there} in the weights, and {signature(leaf)} here")
    leaves = [read.state[name] for name in wanted]
    made = jax.tree.unflatten(jax.tree.structure(trees), leaves)
    return dataclasses.replace(shapes, **made)


if __name__ == "__main__":
    sys.exit(main())
