"""Weights of a race measured by the judge: `python -m dawnjax.checkpointed.judged_weights`.

The process has the project's code and data, and no code of the entry: of a run it reads arrays
alone, those that its model has. Optimizer and schedule are left out, for they may be the entry's.
What the device measures is measured again from logits of some examples, in float64 by NumPy.
"""

import dataclasses
import functools
import math
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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
from dawnjax.input_pipeline.reading.renamed import new_names, renamed
from dawnjax.programs import compile_evaluation, state_shapes
from dawnjax.session import alone
from dawnjax.stepper import calls_in_flight
from dawnjax.tasks.on_host import OnHost
from dawnjax.train_step import Recipe, TrainState, evaluated_params, make_recipe

NO_WEIGHTS = "no weights were saved"
"""Fault of a run that diverged, or ended without a save."""

_MOST_LOGITS = 2**24
"""Logits that are made at a time for the second measurement; all, where there are fewer."""

_TOLERANCE = 1e-3
"""Relative difference of the two measurements, beside one example or token. A float32 sum is off by
1e-5 or less; a metric that is wrong to a purpose gains more than this."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """Runs of one recipe whose weights are to be measured.

    Attributes:
      experiment: Plain JSON values of the experiment, the data where they lie.
      checkpoints: Folder of the saved states of each run.
      names: Seed of the names that each run learnt (`renamed.new_names`).
    """

    experiment: dict[str, Any]
    checkpoints: tuple[str, ...]
    names: tuple[int, ...]


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
    folders = [Path(path) for path in question.checkpoints]
    weights = measure(experiment, dict(zip(folders, question.names, strict=True)))
    measured = Measured(weights=tuple(weights), device=jax.devices()[0].device_kind)
    os.write(say, records.json_text(records.plain(measured)).encode() + b"\n")
    return 0


def measure(experiment: Experiment, names: dict[Path, int]) -> list[Weights]:
    """Measure the newest weights in each folder on the whole evaluation split.

    `names` has the seed of the names that the run in each folder learnt.
    """
    options = RunOptions(compile_cache_dir="none")
    spec = experiment.data.spec()
    session = alone(experiment, spec, options)
    recipe = make_recipe(experiment, spec, session.mesh)
    shapes = input_shapes(recipe.experiment, spec, options, session.mesh)
    programs = compile_evaluation(recipe, shapes, lambda *_: None)
    examples, answers = dict(experiment.data.load("eval")), []
    twice = jax.jit(functools.partial(_measured_twice, recipe))
    declared = {metric.name: metric for metric in experiment.task.metrics}
    for folder, seed in names.items():
        try:
            state = _weights(recipe, folder)
        except (CheckpointError, ConfigError) as error:
            answers.append(Weights(fault=str(error)))
            continue
        name, new = new_names(spec, seed)
        given = examples | {name: renamed(np.asarray(examples[name][:]), new)}
        if fault := _other_metric(recipe, state, given, twice):
            answers.append(Weights(fault=fault))
            continue
        feed = EvaluationFeed(shapes, session.mesh, given)
        metrics = evaluate(recipe, programs, state, feed, calls_in_flight(recipe, shapes, 1))
        metric = experiment.targets[0].metric
        value = metrics[metric]
        if isinstance(value, float) and math.isfinite(value) and declared[metric].allows(value):
            reached = reaches(experiment.targets, metrics)
            answers.append(Weights(reached=reached, quality=value))
        else:
            answers.append(Weights())
    return answers


def _other_metric(recipe: Recipe, state: TrainState, examples: dict[str, Any], twice: Any) -> str:
    """Fault of weights whose metric is another by float64; empty where both agree."""
    task, count = recipe.experiment.task, recipe.spec.num_eval_examples
    # Drawn: nobody can prepare these rows.
    order = np.random.default_rng(secrets.randbits(64)).permutation(count).astype(np.int32)

    def batch_of(rows: np.ndarray) -> dict[str, jax.Array]:
        arrays = {name: jnp.asarray(array[rows]) for name, array in examples.items()}
        return {**arrays, "index": jnp.asarray(rows), "mask": jnp.ones(len(rows), bool)}

    params = evaluated_params(recipe.experiment, state)
    one = jax.eval_shape(
        lambda batch: _measured_twice(recipe, params, state.batch_stats, batch)[1][0],
        batch_of(order[:1]),
    )
    rows = np.sort(order[: max(1, _MOST_LOGITS // one.size)])
    totals, (logits, targets, counts) = twice(params, state.batch_stats, batch_of(rows))
    counted, on_host = np.asarray(counts), OnHost()
    on_host.add(np.asarray(logits)[counted], np.asarray(targets)[counted])
    on_device = task.metrics_of(jax.device_get(totals), recipe.setting)
    for name, value in on_host.metrics().items():
        other = on_device.get(name, value)
        is_near = abs(other - value) <= _TOLERANCE * abs(value) + 1 / on_host.count
        if not is_near and (math.isfinite(value) or math.isfinite(other)):
            said = f"{other:.6g}, and {value:.6g} by float64"
            return f"the {name} of {len(rows)} examples is {said}"
    return ""


def _measured_twice(recipe: Recipe, params: Any, batch_stats: Any, batch: Any) -> tuple[Any, Any]:
    """Totals of a batch, and the logits from which they follow."""
    module = recipe.model.bind(params, batch_stats)
    totals = recipe.evaluation_step(params, batch_stats, batch, recipe.zero_totals())
    return totals, recipe.experiment.task.logits_and_targets(module, batch, recipe.setting)


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
