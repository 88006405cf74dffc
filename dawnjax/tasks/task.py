"""Definition of a task: the loss it trains, the totals it evaluates, and its metrics.

The loop, the step and the evaluation call a task and know none by name. `docs/extending.md` shows
one from a user's file.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from etils import epy

from dawnjax.errors import GUIDE, ConfigError
from dawnjax.models.execution import Execution
from dawnjax.tasks.metric import Metric

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import pure_model
    from dawnjax.profile import model_flops

Arrays = dict[str, "jax.Array"]

RESERVED_METRICS = ("step", "epoch", "seconds_since_run_start", "tokens", "flops")
RESERVED_ARRAYS = ("index", "epoch", "mask")
"""Names that a run gives to rows of a result, and to arrays of a batch."""

# Purposes of random numbers: key = fold_in(root, purpose, step, global example index).
INITIALIZATION, AUGMENTATION, EXAMPLE, MODEL = range(4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Model and data that a task works on in a stage; no `mesh` if it is only traced."""

    model: Any
    data: Any
    spec: Any
    execution: Execution
    mesh: jax.sharding.Mesh | None = None


class Moment(NamedTuple):
    """When in a run a batch is trained, and the random numbers of that step.

    Attributes:
      step: int32, the steps done before.
      progress: float32, the steps done as a fraction of the run's, from 0 to 1.
      part: int32, which part of the batch this is; None where the batch is computed at once.
    """

    root_key: jax.Array
    step: jax.Array
    progress: jax.Array
    part: jax.Array | None = None

    def key(self, purpose: int) -> jax.Array:
        """A key for all of this step, or for this part of it."""
        key = jax.random.fold_in(jax.random.fold_in(self.root_key, purpose), self.step)
        return key if self.part is None else jax.random.fold_in(key, self.part)

    def keys(self, purpose: int, index: jax.Array) -> jax.Array:
        """Keys [batch] of the examples `index` of the training split at this step."""
        key = jax.random.fold_in(jax.random.fold_in(self.root_key, purpose), self.step)
        # By the example, not its row: the draws do not depend on the number of devices.
        return _fold_in_each(key, index)

    def lasting_keys(self, index: jax.Array) -> jax.Array:
        """Keys [batch] of examples that are the same at every step of the run."""
        return _fold_in_each(jax.random.fold_in(self.root_key, EXAMPLE), index)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledSet:
    """Another labelled set than the run's own, for `dawnjax evaluate`.

    Attributes:
      kind: What it was read from, in words.
      spec: The run's specification with this set as the split to evaluate.
      data: Source of texts and names for `Task.metrics_of`; None for the run's own data.
      examples: Its arrays.
      fingerprint: Hash of its content.
      notes: What a reader of the numbers should know.
    """

    kind: str
    spec: Any
    examples: dict[str, Any]
    fingerprint: str
    data: Any = None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answering:
    """A model that answers one example at a time, for `dawnjax infer`.

    Attributes:
      example: Gives the example at a position of the split, on the host; not timed.
      answer: Gives the answer to an example, on the host; timed.
      quality: Gives metrics of answers and the positions of their examples, which show that the
        timed model is the evaluated model. Empty if the task measures none.
      timed: What is timed, in words.
      shown: Gives a picture of an answer and the position of its example, uint8 [height, width, 3],
        and JSON values of the answer; None if the task draws no answers.
    """

    example: Callable[[int], Any]
    answer: Callable[[Any], Any]
    quality: Callable[[list[Any], list[int]], dict[str, Any]]
    timed: str
    shown: Callable[[Any, int], tuple[np.ndarray, Any]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnInputs:
    """A user's own inputs in the form of a split to evaluate, for `dawnjax predict`.

    Attributes:
      spec: The run's specification with these inputs as the split to evaluate.
      examples: Arrays of that split, without the answers.
      given: JSON values that name each input in the output, such as its file.
      stated: Gives JSON values of an answer and the position of its input.
    """

    spec: Any
    examples: dict[str, Any]
    given: Sequence[dict[str, Any]]
    stated: Callable[[Any, int], Any]


Compiled = Callable[
    [Callable[[Any, Arrays], Any], Mapping[str, np.ndarray]],
    Callable[[Mapping[str, np.ndarray]], Any],
]
"""Compiles a function of the trained module and arrays, for arrays of the given shapes. The result
takes the arrays alone, from the host, and returns what the function returns, on the host."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """A kind of work: what is learnt, and how that is scored.

    Its fields are the experiment's fields that only this task understands. Each array of a batch
    is [batch, ...], under its name in the dataset. Every batch has `index` int32, the examples'
    positions in their split; a training batch also has `epoch` int32, and an evaluation batch
    `mask` bool, False for padding.

    Attributes:
      TAG: The name of the choice, as `--task=TAG`.
      metrics: What `metrics_of` measures.
      arrays: Names of the arrays that a training example must have.
      inputs: Names of the arrays from which an answer is computed; the others are the answers.
      example_unit: Name of an example, in the plural.
      evaluation_fields: Fields that `dawnjax evaluate` may change, because training ignores them.
      other_set_flags: Flags of `dawnjax evaluate` that name another labelled set, each with its
        help; the first is the set's own path.
      makes_examples: Whether its training examples come from the parameters (`GeneratingTask`).
      scored_on_host: Work of an evaluation on the host that takes seconds or minutes; empty for
        none.
    """

    TAG: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    arrays: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[tuple[str, ...]] = ()
    example_unit: ClassVar[str] = "examples"
    evaluation_fields: ClassVar[tuple[str, ...]] = ()
    other_set_flags: ClassVar[Mapping[str, str]] = {}
    makes_examples: ClassVar[bool] = False
    scored_on_host: ClassVar[str] = ""

    @abc.abstractmethod
    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, jax.Array | int]:
        """Loss of a training batch, or of a part of one, not yet divided; `module` is in training
        mode.

        Returns:
          The loss as a sum, float32 [], or as each example's, float32 [batch]; and the count by
          which the sum is divided, as a number if it does not depend on the batch. Sums and counts
          are first added over parts and devices, so the mean is right for any number of them.
        """

    def measure(self, module: Any, batch: Arrays, setting: Setting) -> Arrays:
        """Values [batch] whose means are the metrics, by name.

        A task whose metrics are not means over examples defines `zero_totals`, `add_batch` and
        `metrics_of` instead.
        """
        raise ConfigError(f"task={self.TAG} defines neither measure() nor add_batch(); {GUIDE}")

    def zero_totals(self, setting: Setting) -> Arrays:
        """Totals of no examples: arrays that `add_batch` adds to."""
        return {metric.name: jnp.zeros(()) for metric in self.metrics}

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        """Totals with an evaluation batch added; rows with a False `mask` do not count."""
        values = self.measure(module, batch, setting)
        for name in totals:
            shape = getattr(values.get(name), "shape", None)
            if shape != batch["mask"].shape:
                raise ConfigError(
                    f"task={self.TAG}: measure() must return {name} as an array of one value an "
                    f"example; its shape is {shape}"
                )
        return {
            name: total + jnp.where(batch["mask"], values[name], 0.0).sum()
            for name, total in totals.items()
        }

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """Metrics of an evaluation, and texts that say how they were computed, on the host.

        `totals` also has `examples`, the number of evaluated examples.
        """
        return {m.name: totals[m.name].item() / totals["examples"].item() for m in self.metrics}

    def validate(self, model: Any, spec: Any) -> None:
        """Refuse fields that do not fit the model or the data, by a ConfigError."""
        del model, spec

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        """Refuse a target that means nothing on this data; its range is already checked.

        `name` is the target's field, such as `targets.0`.
        """
        del name, target, spec

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        """Arguments of the model's `build`, besides `rngs` and, if it takes it, `execution`."""
        return {"spec": spec}

    def initialize_from_data(self, params: Any, examples: Arrays, setting: Setting) -> Any:
        """Parameters, those set that look at training examples.

        It is called where the model has `initialize_from_data` and `num_initialization_examples`.
        """
        return setting.model.initialize_from_data(params, examples)

    def refuse_setting(self, experiment: Any, setting: Setting) -> None:
        """Refuse fields that do not fit the batch or the devices, by a ConfigError."""
        del experiment, setting

    def nothing_made(self, params: Any, batch_stats: Any, setting: Setting) -> dict[str, Any]:
        """`TrainState.made` at the start, for a task that makes its examples."""
        return {}

    def drawn(self, made: Any, batch: Arrays, root_key: jax.Array, setting: Setting) -> Arrays:
        """Training batch, with what is drawn from `made` by its `index` and `epoch`."""
        return batch

    def in_stage(self, index: int) -> Task:
        """Task of a stage of the run, from 0, in which nothing changes."""
        return self

    def stage_values(self) -> dict[str, Any]:
        """Fields that can differ from stage to stage, for the result's rows."""
        return {}

    def parts_of_examples(self, spec: Any) -> dict[str, float]:
        """Mean counts of the parts of an example, such as sentence pairs, by name."""
        return {}

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of one example in a train step: three times the loss's.

        Every matrix product and convolution of `loss` counts. A task overrides this if its loss has
        others than the model's. A loop of unknown length is a ValueError.
        """
        batch = dict(setting.spec.example_shapes("train"))
        batch |= dict.fromkeys(("index", "epoch"), ((), np.int32))

        def forward(module: Any, batch: Arrays) -> Any:
            moment = Moment(jax.random.key(0), jnp.int32(0), jnp.float32(0))
            return self.loss(module, batch, moment, setting)[0]

        flops = model_flops.TRAINING_FACTOR * forward_flops(self, setting, batch, forward)
        if not hasattr(setting.model, "flops_without_gradients"):
            return flops
        # Frozen weights have no gradient, so a step makes two products of theirs and not three.
        return flops - setting.model.flops_without_gradients(**self.model_arguments(setting.spec))

    def logits_and_targets(
        self, module: Any, batch: Arrays, setting: Setting
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Logits [..., classes] of an evaluation batch, true classes, and which count (bool).

        A race computes its metric again from them, in another arithmetic.
        """
        raise ConfigError(f"task={self.TAG} defines no logits_and_targets(), so nothing can race")

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> Any:
        """Model's answers to the arrays named by `inputs`, for `dawnjax infer`."""
        raise ConfigError(f"task={self.TAG} defines no answer(), so nothing can infer; {GUIDE}")

    def quality(
        self, answers: list[Any], examples: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, Any]:
        """Metrics of answers beside the arrays of their examples; none unless a task defines it."""
        return {}

    def answering(
        self, compiled: Compiled, examples: Mapping[str, Any], setting: Setting
    ) -> Answering:
        """Model that answers single examples of the evaluation split, for `dawnjax infer`.

        `dawnjax predict` passes the user's own inputs, as `read_inputs` returned them.
        """
        names = self.inputs or tuple(examples)

        def example(index: int) -> dict[str, np.ndarray]:
            row = np.array([index])
            return {name: np.ascontiguousarray(examples[name][row]) for name in names}

        program = compiled(lambda module, arrays: self.answer(module, arrays, setting), example(0))

        def quality(answers: list[Any], positions: list[int]) -> dict[str, Any]:
            rows = {
                name: np.asarray(array[np.array(positions)]) for name, array in examples.items()
            }
            return self.quality(answers, rows, setting)

        timed = f"from {', '.join(names)} on the host to the answer on the host"
        return Answering(example=example, answer=program, quality=quality, timed=timed)

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        """A user's own inputs, which have no labels.

        Raises:
          ConfigError, DataError: A file is of another kind, or does not fit the model.
        """
        raise ConfigError(f"task={self.TAG} reads no inputs of one's own, so nothing can predict")

    def read_other_set(self, paths: Mapping[str, str], setting: Setting) -> LabelledSet:
        """Another labelled set, from the flags that `other_set_flags` names.

        Raises:
          ConfigError, DataError: It cannot be read, or does not fit the run's.
        """
        raise ConfigError(f"task={self.TAG} reads no other set")


def find_metric(task: Task, name: str) -> Metric | None:
    """Declaration of a metric by its name; None if the task does not measure it."""
    return next((metric for metric in task.metrics if metric.name == name), None)


def check_task(task: Any, model: Any, spec: Any) -> None:
    """Refuse, by a ConfigError, what is no task, and a model or data that it cannot work on."""
    kind = type(task).__name__
    if not isinstance(task, Task):
        raise ConfigError(f"task is a {kind}, which is not a dawnjax.tasks.task.Task; {GUIDE}")
    metrics = getattr(task, "metrics", ())
    if not metrics or not all(isinstance(metric, Metric) for metric in metrics):
        raise ConfigError(f"task={task.TAG}: {kind} declares no metrics; {GUIDE}")
    measures, adds = (_place_of(task, name) for name in ("measure", "add_batch"))
    if measures < adds < type(task).__mro__.index(Task):
        raise ConfigError(
            f"task={task.TAG}: {kind}.measure() is never called, for "
            f"{type(task).__mro__[adds].__name__} defines add_batch(); define add_batch(); {GUIDE}"
        )
    reserved = {metric.name for metric in metrics} & {*RESERVED_METRICS}
    names = spec.example_shapes("train")
    reserved |= names.keys() & {*RESERVED_ARRAYS}
    if reserved:
        raise ConfigError(
            f"{min(reserved)!r} names a metric or array that every run has; rename it"
        )
    if any(name not in names for name in (*task.arrays, *task.inputs)):
        raise ConfigError(
            f"task={task.TAG} needs arrays {', '.join(task.arrays)}, but the data give "
            f"{', '.join(names)}; choose another task or data"
        )
    takes = inspect.signature(model.build)
    given = task.model_arguments(spec) | {"rngs": None}
    given |= {"execution": None} if "execution" in takes.parameters else {}
    try:
        takes.bind(**given)
    except TypeError as error:
        tag = getattr(model, "TAG", type(model).__name__)
        raise ConfigError(
            f"model={tag} does not fit task={task.TAG}: its build, {error}; {GUIDE}"
        ) from None
    task.validate(model, spec)


def _place_of(task: Task, method: str) -> int:
    """Place of the class that defines a method, from the task's own class on."""
    return next(n for n, kind in enumerate(type(task).__mro__) if method in vars(kind))


def at_places(totals: jax.Array, values: jax.Array, batch: Arrays) -> jax.Array:
    """Totals [split, ...] with each example's value at its place; rows of padding are dropped."""
    # Behind the last place, so that `mode="drop"` discards it.
    place = jnp.where(batch["mask"], batch["index"], len(totals))
    return totals.at[place].set(values, mode="drop")


def forward_flops(
    task: Task,
    setting: Setting,
    shapes: Mapping[str, tuple[Any, Any]],
    forward: Callable[[Any, Arrays], Any],
) -> float:
    """Model FLOPs that `forward(module, arrays)` takes an example of these shapes and dtypes."""
    # BatchNorm takes whole groups only.
    rows = max(1, setting.execution.batch_norm_group_size)
    model = make_model(task, setting)
    params, batch_stats = jax.eval_shape(model.init, jax.random.key(0))

    def bound(params: Any, batch_stats: Any, arrays: Arrays) -> Any:
        return forward(model.bind(params, batch_stats, jax.random.key(MODEL)), arrays)

    arrays = {n: jax.ShapeDtypeStruct((rows, *s), dtype) for n, (s, dtype) in shapes.items()}
    return (
        model_flops.product_flops(jax.make_jaxpr(bound)(params, batch_stats, arrays).jaxpr) / rows
    )


def make_model(task: Task, setting: Setting) -> pure_model.PureModel:
    """Pure functions of a model, built as the task asks.

    Raises:
      TypeError: The module holds variables that a step cannot carry.
      ValueError: The model's fields do not fit together.
    """
    build, arguments = setting.model.build, task.model_arguments(setting.spec)
    if "execution" in inspect.signature(build).parameters:
        arguments["execution"] = setting.execution
    return pure_model.pure_model(lambda rngs: build(rngs=rngs, **arguments))


def _fold_in_each(key: jax.Array, values: jax.Array) -> jax.Array:
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, values)
