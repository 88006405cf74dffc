"""Record mode: the whole training of a seed as one compiled program, its evaluation included.

It computes the same as the ordinary loop, in the same order. A run has a fixed length and one
evaluation at its end, so its time is a training time and no time to accuracy.

Source: `main` in `airbench94_muon.py` of https://github.com/KellerJordan/cifar10-airbench (between
`start_timer` and `stop_timer`), and `cifar10_speedrun.py` of
https://github.com/hiverge/cifar10-speedrun, which times the same.
"""

import dataclasses
import datetime
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax import records
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import Request
from dawnjax.errors import ConfigError, RunError
from dawnjax.evaluation import EvaluationFeed, reaches
from dawnjax.feed import Arrays, InputShapes, input_shapes
from dawnjax.input_pipeline.reading.batches import APART, ExampleOrder
from dawnjax.input_pipeline.reading.dataset import declared
from dawnjax.machine.mesh import batch_sharding, place, replicated
from dawnjax.programs import batch_of, batches, compile_program, placed, xla_options
from dawnjax.runs import versions
from dawnjax.runs.directory import RECORD_TYPE
from dawnjax.session import Session, alone, checked
from dawnjax.train_step import Recipe, evaluated_params, key_shape
from dawnjax.trials.figures import deviation
from dawnjax.trials.from_log import FIRST_LOSSES

SCHEMA_VERSION = 2
"""Version 2: `first_nonfinite_step` is null, not 0, where every loss was finite."""

MEANING = (
    "Training time of runs of a fixed length, each one compiled program with one evaluation at its "
    "end. It is not a time to accuracy."
)
TIMED = (
    "From data on the device as uint8 to the final evaluation's result on the host: order of "
    "examples, initial parameters, whitening, augmentation, every step, every view. Not timed: "
    "compilation, upload of the data, one execution on zeros."
)


@dataclasses.dataclass(frozen=True)
class SeedResult:
    """Result of one seed; written to the record.

    Attributes:
      time_seconds: Time of what `TIMED` says.
      order_seconds: The part of it that makes and uploads the order of examples.
      reached: True if the metrics reach every target.
      first_losses: Losses of the first ten steps.
      first_nonfinite_step: The first step with a NaN or infinite loss, from 1; None if none.
    """

    seed: int
    time_seconds: float
    order_seconds: float
    metrics: dict[str, Any]
    reached: bool
    first_losses: list[float]
    last_loss: float
    first_nonfinite_step: int | None


def whole_run(recipe: Recipe, shapes: InputShapes) -> Callable:
    """Uncompiled function of a seed's whole run.

    It returns the evaluation's totals, the losses float32 [steps], and the first non-finite step.
    `order` has int32 [steps, batch] arrays `index` and `epoch`, `evaluation_order` arrays `index`
    and `mask` [batches, rows].
    """
    experiment = recipe.experiment

    def run(
        root_key: jax.Array,
        train: Arrays,
        evaluation: Arrays,
        order: Arrays,
        evaluation_order: Arrays,
    ) -> tuple[Arrays, jax.Array, jax.Array]:
        state = recipe.initial_state(root_key)
        if hasattr(experiment.model, "initialize_from_data"):
            rows = shapes.initialization_rows
            state = recipe.state_from_data(state, {name: train[name][rows] for name in train})
        state, losses = jax.lax.scan(
            lambda state, row: recipe.train_step(state, batch_of(train, row), root_key),
            state,
            order,
        )
        params = evaluated_params(experiment, state)

        def add(totals: Arrays, row: Arrays) -> tuple[Arrays, None]:
            batch = batch_of(evaluation, row)
            return recipe.evaluation_step(params, state.batch_stats, batch, totals), None

        totals, _ = jax.lax.scan(add, recipe.zero_totals(), evaluation_order)
        return totals, losses, state.first_nonfinite_step

    return run


class RecordRuns:
    """A compiled run and the data on the devices: one seed after another.

    `setup_seconds` holds reading, uploading, compiling and one execution on zeros.
    """

    def __init__(self, session: Session, shapes: InputShapes):
        """Compile, upload, and execute once on zeros."""
        started = time.perf_counter()
        (recipe,) = session.recipes
        self._session, self._recipe = session, recipe
        experiment, spec = recipe.experiment, recipe.spec
        self._num_steps = experiment.num_steps(spec)
        mesh, whole = recipe.mesh, replicated(recipe.mesh)
        self._sharding = batch_sharding(mesh, 1)
        rows = -(-spec.num_eval_examples // shapes.eval_batch_size)
        stacked = {
            name: jax.ShapeDtypeStruct((rows, *row.shape), row.dtype)
            for name, row in shapes.eval_inputs.items()
        }
        arguments = (
            placed(key_shape(), whole),
            placed(shapes.train_resident, whole),
            placed(shapes.eval_resident, whole),
            batches(shapes.train_inputs(self._num_steps), mesh, 1),
            batches(stacked, mesh, 1),
        )
        self.compile_seconds, self.cache = 0.0, "off"

        def record(_: str, seconds: float, cache: str) -> None:
            self.compile_seconds, self.cache = seconds, cache

        self._program = compile_program(
            "record", whole_run(recipe, shapes), arguments, whole, (), record, xla_options(recipe)
        )
        examples = experiment.data.load("train").items()
        self._train = place({name: np.asarray(array) for name, array in examples}, whole)
        feed = EvaluationFeed(shapes, mesh, experiment.data.load("eval"))
        self._evaluation = feed.resident
        each = [{name: np.asarray(value) for name, value in row.items()} for row in feed]
        self._evaluation_order = place(
            {name: np.stack([row[name] for row in each]) for name in each[0]}, self._sharding
        )
        zeros = [
            jax.tree.map(lambda a: place(np.zeros(a.shape, a.dtype), a.sharding), argument)
            for argument in arguments[1:]
        ]
        # A program's first execution loads it and sizes its memory, which no seed should pay for.
        jax.block_until_ready(self._program(session.root_key(0), *zeros))
        jax.block_until_ready((self._train, self._evaluation, self._evaluation_order))
        self.setup_seconds = time.perf_counter() - started

    def run(self, seed: int) -> SeedResult:
        recipe, spec = self._recipe, self._recipe.spec
        started = time.perf_counter()
        batch_size = recipe.experiment.global_batch_size
        # On the clock: the holders of the records time the shuffling too.
        order = ExampleOrder(seed=seed, num_train_examples=spec.num_train_examples)
        order = order.steps(0, self._num_steps, batch_size)
        inputs = place({"index": order.index, "epoch": order.epoch}, self._sharding)
        order_seconds = time.perf_counter() - started
        outputs = self._program(
            self._session.root_key(seed),
            self._train,
            self._evaluation,
            inputs,
            self._evaluation_order,
        )
        # Waits for the devices: the result counts once it is on the host.
        totals, losses, first_nonfinite = jax.device_get(outputs)
        seconds = time.perf_counter() - started
        if totals["examples"] != spec.num_eval_examples:
            raise RunError(
                f"the evaluation counted {totals['examples']} of {spec.num_eval_examples} examples"
            )
        metrics = recipe.metrics_of(totals)
        return SeedResult(
            seed=seed,
            time_seconds=seconds,
            order_seconds=order_seconds,
            metrics=metrics,
            reached=reaches(recipe.experiment.targets, metrics),
            first_losses=[float(loss) for loss in losses[:FIRST_LOSSES]],
            last_loss=float(losses[-1]),
            first_nonfinite_step=int(first_nonfinite) or None,
        )


def prepare(request: Request) -> tuple[RecordRuns, dict[str, Any]]:
    """Compile an experiment's run; returns it with the record's fields before the first seed.

    Raises:
      ConfigError: The experiment does not fit the data, the devices or this mode.
    """
    experiment, options = request.experiment, request.options
    spec = checked(experiment, options)
    refused = {
        f"task={experiment.task.TAG}, which has no dataset": experiment.task.makes_examples,
        f"max_seconds={experiment.max_seconds:g}": experiment.max_seconds,
        "stages.boundary_epochs: a run has one stage": experiment.stages.boundary_epochs,
        f"data whose batches are kept apart by {APART}": APART in spec.example_shapes("train"),
        "initialize_from: it times a run from scratch": experiment.initialize_from,
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise ConfigError(f"record mode does not take {what}")
    # Alone also where there are other processes: each would write the same file.
    session = alone(experiment, spec, options)
    (recipe,) = session.recipes
    mesh = session.mesh
    shapes = input_shapes(experiment, spec, options, mesh)
    if shapes.placement != "device":
        raise ConfigError("record mode keeps the data on the device; this dataset is too large")
    runs = RecordRuns(session, shapes)
    return runs, {
        "record_type": RECORD_TYPE,
        "schema_version": SCHEMA_VERSION,
        "meaning": MEANING,
        "timed": TIMED,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "experiment": to_json(experiment),
        "identity": experiment.identity(spec),
        "metric": experiment.targets[0].metric,
        "overrides": request.overrides,
        "num_train_examples": spec.num_train_examples,
        "data": declared(experiment.data, spec),
        "num_steps": experiment.num_steps(spec),
        "device_kind": mesh.devices.flat[0].device_kind,
        "num_devices": mesh.devices.size,
        "versions": versions.installed(),
        "compile_seconds": runs.compile_seconds,
        "compile_cache": runs.cache,
        "setup_seconds": runs.setup_seconds,
    }


def summary(results: list[SeedResult], metric: str, compile_seconds: float) -> dict[str, Any]:
    """Means, population standard deviations (None of one seed), extremes and counts."""
    times = np.array([result.time_seconds for result in results])
    values = np.array([result.metrics[metric] for result in results])
    count = len(results)
    error = float(values.std(ddof=1) / math.sqrt(count)) if count > 1 else None
    return {
        "num_seeds": count,
        "num_reached": sum(result.reached for result in results),
        "num_diverged": sum(result.first_nonfinite_step is not None for result in results),
        "time_mean_seconds": float(times.mean()),
        "time_std_seconds": deviation(times.tolist()),
        "time_median_seconds": float(np.median(times)),
        "time_min_seconds": float(times.min()),
        "time_max_seconds": float(times.max()),
        "time_with_compilation_seconds": float(times.mean()) + compile_seconds,
        f"{metric}_mean": float(values.mean()),
        f"{metric}_std": deviation(values.tolist()),
        f"{metric}_standard_error": error,
    }


def write(path: Path, facts: dict[str, Any], results: list[SeedResult]) -> None:
    """Write a record; called after every seed, so that a crash loses only the seed that runs."""
    record = {
        **facts,
        "summary": summary(results, facts["metric"], facts["compile_seconds"]),
        "seeds": [dataclasses.asdict(result) for result in results],
    }
    records.write_json(path, record, indent=1)
