"""Definition of an experiment: frozen, typed, validated before anything is compiled.

`Experiment` holds all that decides what a run computes. `run_options.RunOptions` holds how this
machine does it. A run may be resumed with other run options, never with another experiment;
`Experiment.identity` is the hash that is compared.
"""

import dataclasses
import inspect
import math
from typing import Annotated, Any, Literal

from dawnjax.config.choices import AnyData, AnyModel, AnyTask, Choice
from dawnjax.config.config_json import identity_of, to_json
from dawnjax.config.own_files import file_of, own_code
from dawnjax.errors import GUIDE, ConfigError
from dawnjax.input_pipeline.reading.dataset import AnySpec
from dawnjax.limits import FractionBelowOne, Limit, NonNegative, OneOrMore, check_fields, require
from dawnjax.models.configs.types import ComputeDtype
from dawnjax.optim.update_rules import (
    Adam,
    Constant,
    Exponential,
    InverseSquareRoot,
    Lars,
    Muon,
    MuonAdam,
    PiecewiseLinear,
    PiecewiseStep,
    Polynomial,
    RmsProp,
    Sgd,
    WarmupCosine,
    WarmupLinear,
    builds_itself,
)
from dawnjax.runs.stages import Span, Stages, examples_before, make_spans, step_of_epoch

MOST_EPOCHS = 10_000.0
"""Bound of a run whose length `max_seconds` alone gives."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A quality that an evaluation must reach.

    Attributes:
      metric: A metric that the evaluation gives, such as `top_1_accuracy`.
      value: The bound, in the metric's own unit (accuracies are fractions from 0 to 1).
      direction: Whether the metric must be at least or at most the value; an equal value reaches
        it. Both are compared as float32, in which metrics are computed.
    """

    metric: str = "top_1_accuracy"
    value: float
    direction: Literal["at_least", "at_most"] = "at_least"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When and how the evaluation split is measured; it always covers the whole split.

    Attributes:
      every_epochs: Epochs between evaluations; the end of training is always evaluated.
      every_steps: Steps between evaluations, instead of epochs; 0 counts epochs.
      first_epoch: Number of epochs before the first evaluation.
      weights: The raw parameters or their exponential moving average.
      global_batch_size: Examples in one evaluation batch over all devices. The last batch is
        padded, and every metric masks the padding.
      stop_at_target: End the run at the first evaluation that reaches the target.
    """

    every_epochs: Annotated[float, Limit(lambda value: value >= 0.001, "be above 0")] = 1.0
    every_steps: NonNegative[int] = 0
    first_epoch: float = 0.0
    weights: Literal["raw", "ema"] = "raw"
    global_batch_size: OneOrMore[int] = 1000
    stop_at_target: bool = True

    def epochs_between(self, steps_per_epoch: float) -> float:
        return self.every_steps / steps_per_epoch or self.every_epochs


OptimizerConfig = Sgd | Muon | MuonAdam | Adam | Lars | RmsProp

ScheduleConfig = (
    WarmupCosine
    | WarmupLinear
    | Constant
    | InverseSquareRoot
    | Polynomial
    | Exponential
    | PiecewiseStep
    | PiecewiseLinear
)


_NEED_LENGTH = (WarmupCosine, WarmupLinear, Polynomial)
"""Schedules that end where the run does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """Results of an experiment's trials somewhere: shown by `dawnjax list`, no part of identity.

    Attributes:
      hardware: The machine, in words.
      trials: How many trials were run; all of them count.
      reached: How many of them reached the target.
      mean_time_to_accuracy_seconds: Mean over the trials that reached; None if none did.
      quality: Mean of the target metric at the end, over all trials.
      date: Day of the measurement, ISO 8601.
      epochs_to_target: Epochs of each trial that reached the target; empty where none were kept.
    """

    hardware: str
    trials: int
    reached: int
    mean_time_to_accuracy_seconds: float | None
    quality: float
    date: str
    epochs_to_target: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One recipe: what is trained, on what, how, and to which quality.

    Attributes:
      name: The name of the experiment's module.
      task: What is learnt and how that is scored, one of `choices.CHOICES`.
      model: Architecture, likewise.
      data: Dataset, likewise.
      optimizer: Update rule, one of `OptimizerConfig`.
      schedule: Learning rate over the run relative to the peak, one of `ScheduleConfig`.
      num_epochs: Length of the run in epochs: the budget if the target is not reached. 0 if
        `max_steps`, `max_examples` or `max_seconds` gives the length.
      max_steps: Length of the run in steps; 0 if another field gives it.
      max_examples: Length of the run in examples; 0 if another field gives it.
      global_batch_size: Examples per step, over all devices and hosts; rows for packed text.
      batch_norm_group_size: Consecutive examples of the global batch that share normalization
        statistics. It is part of the mathematics, so the number of devices does not change the
        result; devices that hold whole groups need no communication inside layers. 0 means that
        the model has no such normalization.
      compute_dtype: Dtype of activations and products; everything else is float32. float16 comes
        with dynamic loss scaling.
      stages: When the run changes its batch, or what its task changes; the other fields describe
        the first stage.
      accumulation_steps: Number of parts in which a batch's gradient is computed, one after
        another, to save memory for activations. The result is the same up to rounding, because
        each part has whole normalization groups, with three exceptions: each part has its own
        dropout, its own `nnx.BatchNorm` statistics, and its own balance of experts.
      ema_decay: Decay per step of the moving average of the parameters; 0 keeps no average.
      ema_has_warmup: Whether the decay is at most (1 + n) / (10 + n) after n steps, so that the
        average forgets its start.
      max_seconds: Time after `run_start` at which training ends, within one call of the train
        program; one more evaluation follows, and a profile only if time is left. 0 sets no limit.
        As the only length, it needs a schedule that does not end with the run.
      xla_options: Options of XLA's compiler as `name=value`, for the train and evaluation programs,
        such as `xla_tpu_enable_latency_hiding_scheduler=true`. Some change rounding. Options
        unknown to the platform are errors.
      initialize_from: A run directory whose parameters this run starts with, or published weights
        in a file or folder of safetensors; empty starts from scratch. The optimizer always starts
        from scratch, and so does the head if the data differ.
      initial_state: Content of that directory when the run began, which stands for it in the
        identity. A run fills it in.
      targets: All must hold at one evaluation.
      target_note: How the target was chosen, if that could flatter the result. A recipe made from
        another keeps the note only with the same targets, kind of data and classes.
      evaluation: When and how the evaluation split is measured.
      mlperf_benchmark: The MLPerf benchmark that a run may be exported as, such as `resnet`, or
        empty. Neither part of the mathematics nor a flag: it is a claim about the recipe.
      observations: Results of trials of an experiment in a user's file, with the hardware;
        `observations.json` has the built-in experiments'.
    """

    name: str
    task: AnyTask = dataclasses.field(
        default_factory=lambda: Choice("task").load("classification")()
    )
    model: AnyModel
    data: AnyData
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    num_epochs: NonNegative[float] = 0.0
    max_steps: NonNegative[int] = 0
    max_examples: NonNegative[int] = 0
    global_batch_size: OneOrMore[int]
    batch_norm_group_size: int = 0
    compute_dtype: ComputeDtype = "float32"
    stages: Stages = Stages()
    accumulation_steps: OneOrMore[int] = 1
    ema_decay: FractionBelowOne = 0.0
    ema_has_warmup: bool = False
    max_seconds: NonNegative[float] = 0.0
    xla_options: tuple[str, ...] = ()
    initialize_from: str = ""
    initial_state: str = ""
    targets: tuple[Target, ...]
    target_note: str = ""
    evaluation: Evaluation = Evaluation()
    mlperf_benchmark: str = ""
    observations: tuple[Observation, ...] = ()

    def steps_per_epoch(self, spec: AnySpec) -> float:
        """Steps of the first stage in an epoch; a fraction where its batch does not divide."""
        return spec.num_train_examples / self.global_batch_size

    @property
    def has_length(self) -> bool:
        """True if a field but `max_seconds` gives the run's length."""
        return bool(self.num_epochs or self.max_steps or self.max_examples)

    def length_in_epochs(self, spec: AnySpec) -> float:
        if self.max_steps:
            return self.max_steps * self.global_batch_size / spec.num_train_examples
        if self.max_examples:
            return self.max_examples / spec.num_train_examples
        return self.num_epochs or MOST_EPOCHS

    def spans(self, spec: AnySpec) -> tuple[Span, ...]:
        """Steps of each stage; a run in which nothing changes has one."""
        boundaries = self.stages.boundary_epochs
        sizes = self.stages.global_batch_size or (self.global_batch_size,) * len(boundaries)
        batch_sizes = (self.global_batch_size, *sizes[: len(boundaries)])
        length = self.length_in_epochs(spec)
        return make_spans(boundaries, batch_sizes, length, spec.num_train_examples)

    def spans_to_json(self, spec: AnySpec) -> list[dict[str, Any]]:
        """Stages for the log: their steps, and what the task changes from one to the next."""
        return [
            {**dataclasses.asdict(span), "values": self.in_stage(span.index).task.stage_values()}
            for span in self.spans(spec)
        ]

    def in_stage(self, index: int) -> "Experiment":
        """Experiment of one stage, from 0, as one in which nothing changes."""
        if not self.stages.boundary_epochs:
            return self
        sizes, batch = self.stages.global_batch_size, self.global_batch_size
        return dataclasses.replace(
            self,
            stages=Stages(),
            task=self.task.in_stage(index),
            global_batch_size=sizes[index - 1] if index and sizes else batch,
        )

    def num_steps(self, spec: AnySpec) -> int:
        """Steps of the whole run; the last one may reach a little past `num_epochs`."""
        return self.spans(spec)[-1].last_step

    def epoch_of_step(self, step: int, spec: AnySpec) -> float:
        return examples_before(self.spans(spec), step) / spec.num_train_examples

    def step_of_epoch(self, epoch: float, spec: AnySpec) -> int:
        """The first step after which `epoch` epochs were seen, at most the run's last."""
        return step_of_epoch(self.spans(spec), epoch, spec.num_train_examples)

    def evaluation_steps(self, spec: AnySpec) -> list[int]:
        """Steps after which the evaluation split is measured, ascending."""
        evaluation, last = self.evaluation, self.num_steps(spec)
        first = self.step_of_epoch(evaluation.first_epoch, spec)
        if evaluation.every_steps:
            steps = set(range(evaluation.every_steps, last, evaluation.every_steps))
        else:
            length, every = self.length_in_epochs(spec), evaluation.every_epochs
            # The offset guards against a quotient rounded just below an integer: the last
            # evaluation would be lost.
            counts = range(1, math.floor(length / every + 1e-9) + 1)
            steps = {self.step_of_epoch(count * every, spec) for count in counts}
        return sorted({step for step in steps if step >= first} | {last})

    def recipe_fields(self) -> dict[str, Any]:
        """All that decides what a run computes, but for the content of the data, as JSON values."""
        fields = to_json(self)
        # Claims about a recipe: a better sentence must not make it another experiment.
        for name in ("name", "observations", "target_note", "mlperf_benchmark"):
            del fields[name]
        # The data count, and not the place where they lie.
        for name in ("data_dir", "word_vectors"):
            fields["data"].pop(name, None)
        del fields["initialize_from"]
        for part, name in ((fields, "initial_state"), (fields["data"], "kept_classes")):
            if not part.get(name):  # identities from before these fields stay
                part.pop(name, None)
        return fields

    def identity_fields(self, spec: AnySpec) -> dict[str, Any]:
        """`recipe_fields` with the fingerprint of the data, and the code of a user's classes."""
        fields = self.recipe_fields()
        fields["data"]["fingerprint"] = spec.fingerprint
        own = file_of(self)
        return fields if own is None else {**fields, "code": own.code()}

    def identity(self, spec: AnySpec) -> str:
        """Hash of the mathematics, data, evaluation and target; 16 hex digits."""
        return identity_of(self.identity_fields(spec))

    def validate(self, spec: AnySpec) -> None:
        """Refuse impossible values and combinations, naming the field, its value and the limit."""
        from dawnjax.tasks.task import check_task  # loads JAX, which reading flags does without

        check_fields(self)
        self._refuse_unused_arrays()
        self._validate_length(spec)
        batch = self.global_batch_size
        require(
            batch <= spec.num_train_examples,
            "global_batch_size",
            batch,
            f"not exceed the {spec.num_train_examples} training examples",
        )
        with own_code("the task"):
            check_task(self.task, self.model, spec)
        # Without `execution`, a user's own model would ignore the dtype in silence.
        takes_execution = "execution" in inspect.signature(self.model.build).parameters
        if self.compute_dtype != "float32" and not takes_execution:
            raise ConfigError(
                f"compute_dtype={self.compute_dtype}: model={self.model.TAG} computes in float32; "
                "let its build take `execution` and use its compute_dtype"
            )
        self._validate_groups()
        warmup, length = self.schedule.warmup_epochs, self.length_in_epochs(spec)
        require(
            0 <= warmup < length,
            "schedule.warmup_epochs",
            warmup,
            f"be shorter than the run of {length:g} epochs",
        )
        self._validate_evaluation(spec)
        self._validate_stages(spec)

    def _refuse_unused_arrays(self) -> None:
        """Refuse data that extend a class which never calls the `arrays` that they define."""
        kinds = type(self.data).__mro__
        arrays, load = (
            next((n for n, kind in enumerate(kinds) if name in vars(kind)), len(kinds))
            for name in ("arrays", "load")
        )
        is_read = any("arrays" in vars(kind) for kind in kinds[arrays + 1 :])
        if arrays < load < len(kinds) and not is_read:
            raise ConfigError(
                f"data={self.data.TAG}: {kinds[arrays].__name__}.arrays() is never called, for "
                f"{kinds[load].__name__} defines load(); extend Arrays or define load(); {GUIDE}"
            )

    def _validate_length(self, spec: AnySpec) -> None:
        given = [
            f"{name}={value:g}"
            for name in ("num_epochs", "max_steps", "max_examples")
            if (value := getattr(self, name))
        ]
        if len(given) > 1:
            raise ConfigError(
                f"{' and '.join(given)} both set the run's length; set only one of them"
            )
        ends = isinstance(self.schedule, _NEED_LENGTH) and not builds_itself(self.schedule)
        if not given and (not self.max_seconds or ends):
            raise ConfigError(
                "num_epochs=0 leaves the run without a length; set num_epochs, max_steps or "
                "max_examples, or max_seconds with --schedule=constant"
            )
        if self.max_steps and self.stages.boundary_epochs:
            raise ConfigError("max_steps needs a run of one stage; set the length with num_epochs")
        # A step is int32 on the devices.
        if self.length_in_epochs(spec) * spec.num_train_examples / self.global_batch_size >= 2**31:
            raise ConfigError("the run would have more than 2**31 - 1 steps")

    def _validate_groups(self) -> None:
        group, batch = self.batch_norm_group_size, self.global_batch_size
        # A model with groups says itself that it needs their size.
        rule = f"be 0 (the model has none) or divide the global batch of {batch}"
        is_whole = group >= 0 and batch % max(1, group) == 0
        require(is_whole, "batch_norm_group_size", group, rule)
        parts, num_groups = self.accumulation_steps, batch // max(1, group)
        what = "normalization groups of a batch" if group else "examples of a batch"
        rule = f"divide the {num_groups} {what}"
        require(num_groups % parts == 0, "accumulation_steps", parts, rule)

    def _validate_stages(self, spec: AnySpec) -> None:
        stages, boundaries = self.stages, self.stages.boundary_epochs
        if not boundaries:
            return
        is_ascending = list(boundaries) == sorted(set(boundaries))
        length = self.length_in_epochs(spec)
        is_inside = boundaries[0] > 0 and boundaries[-1] < length
        require(
            is_ascending and is_inside,
            "stages.boundary_epochs",
            boundaries,
            f"ascend between 0 and the run's {length:g} epochs",
        )
        task_stages = vars(getattr(self.task, "stages", Stages()))
        changes = {f"task.stages.{name}": value for name, value in task_stages.items()}
        changes["stages.global_batch_size"] = stages.global_batch_size
        for name, values in changes.items():
            count = len(boundaries)
            rule = f"be empty (nothing changes) or have {count} values, one for each boundary"
            require(len(values) in (0, count), name, values, rule)
        is_muon = isinstance(self.optimizer, Muon) and not builds_itself(self.optimizer)
        if is_muon and stages.global_batch_size:
            raise ConfigError(
                "optimizer=muon cannot change its batch during a run: leave "
                "stages.global_batch_size empty"
            )
        for span in self.spans(spec):
            if span.last_step <= span.first_step:
                raise ConfigError(
                    f"stages.boundary_epochs={boundaries!r} leave no step for stage "
                    f"{span.index + 1} of {len(boundaries) + 1}"
                )
            try:
                if span.index:
                    self.in_stage(span.index).validate(spec)
            except (ConfigError, ValueError) as error:
                place = f"in the stage from epoch {boundaries[span.index - 1]:g} on"
                raise ConfigError(f"{place}: {error}") from None

    def _validate_evaluation(self, spec: AnySpec) -> None:
        evaluation, length = self.evaluation, self.length_in_epochs(spec)
        require(
            0 <= evaluation.first_epoch <= length,
            "evaluation.first_epoch",
            evaluation.first_epoch,
            f"not lie after the run of {length:g} epochs",
        )
        if evaluation.weights == "ema" and self.ema_decay == 0:
            raise ConfigError("evaluation.weights=ema needs ema_decay above 0, such as 0.999")
        if not self.targets:
            raise ConfigError("targets is empty: a run needs at least one (metric, value) to reach")
        for index, target in enumerate(self.targets):
            self._validate_target(f"targets.{index}", target, spec)

    def _validate_target(self, name: str, target: Target, spec: AnySpec) -> None:
        metrics = {metric.name: metric for metric in self.task.metrics}
        metric = metrics.get(target.metric)
        if metric is None:
            known = ", ".join(metrics)
            raise ConfigError(
                f"{name}.metric={target.metric!r} is not measured by task={self.task.TAG}; "
                f"known metrics: {known}"
            )
        if target.direction != metric.direction:
            better = "higher" if metric.direction == "at_least" else "lower"
            raise ConfigError(
                f"{name}.direction={target.direction}: {better} {metric.title} is better; use "
                f"{metric.direction}"
            )
        if not metric.least <= target.value <= metric.most:
            hint = f" (did you mean {target.value / 100:g}?)" if metric.is_proportion else ""
            raise ConfigError(
                f"{name}.value={target.value:g} must lie in {metric.least:g} to {metric.most:g}, "
                f"the range of {metric.title}{hint}"
            )
        self.task.validate_target(name, target, spec)
