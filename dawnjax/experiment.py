"""What an experiment is: frozen, typed, validated before anything is compiled.

`Experiment` holds the mathematics, the data, the evaluation and the target: all that decides what
a run computes. `run_options.RunOptions` holds how this machine does it: mesh, intervals, deadlines.
A run may be resumed with other run options, never with another experiment; `Experiment.identity`
gives the hash that tells.
"""

import dataclasses
import math
from typing import Any, Literal

from dawnjax.config_json import identity_of, to_json
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.cifar10 import Cifar10
from dawnjax.input_pipeline.dataset import AnySpec, DatasetSpec, TextSpec
from dawnjax.input_pipeline.digits import Digits
from dawnjax.input_pipeline.image_augmentation import ImageAugmentation
from dawnjax.input_pipeline.imagenet import ImageNet
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.input_pipeline.synthetic import Synthetic
from dawnjax.limits import check_fields, require
from dawnjax.models.amoebanet import AmoebaNetD
from dawnjax.models.execution import ComputeDtype
from dawnjax.models.preactivation_resnet import PreactivationResNet
from dawnjax.models.record_net import RecordNet
from dawnjax.models.resnet import ResNet
from dawnjax.models.resnet9 import ResNet9
from dawnjax.models.transformer import Transformer
from dawnjax.models.wide_resnet import WideResNet
from dawnjax.stages import Span, Stages, examples_before, make_spans, step_of_epoch
from dawnjax.update_rules import (
    Adam,
    Constant,
    Cyclic,
    Exponential,
    InverseSquareRoot,
    Lamb,
    Lars,
    Muon,
    OneCycle,
    PiecewiseLinear,
    PiecewiseStep,
    Polynomial,
    RmsProp,
    Sgd,
    WarmupCosine,
    WarmupLinear,
)

DatasetConfig = Digits | Cifar10 | ImageNet | Synthetic | ParallelText
ModelConfig = (
    ResNet | PreactivationResNet | WideResNet | ResNet9 | RecordNet | AmoebaNetD | Transformer
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A quality that an evaluation must reach.

    Attributes:
      metric: A metric that the evaluation gives, such as `top_1_accuracy`.
      value: The bound, in the metric's own unit (accuracies are fractions from 0 to 1).
      direction: Whether the metric must be at least or at most the value; equal is reached. Both
        sides are compared as float32, the precision that a metric is computed in.
    """

    metric: str = "top_1_accuracy"
    value: float
    direction: Literal["at_least", "at_most"] = "at_least"


CLASSIFICATION_METRICS = ("top_1_accuracy", "top_5_accuracy", "loss")
"""The metrics that an evaluation of a classifier gives."""

TRANSLATION_METRICS = ("bleu", "loss")
"""The metrics that an evaluation of a translator gives; BLEU is 0 to 100."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How a translation is searched for.

    Attributes:
      num_beams: Hypotheses kept by the beam search; 1 is greedy search.
      length_penalty: The exponent alpha of the length penalty; no use to greedy search.
      max_extra_tokens: A translation ends this many tokens past its source's length at the latest
        (Vaswani et al. 2017, section 6.1, has 50).
    """

    num_beams: int = 1
    length_penalty: float = 0.6
    max_extra_tokens: int = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """When and how the evaluation split is measured; it always covers the whole split.

    Attributes:
      every_epochs: Epochs between evaluations; the end of training is always evaluated.
      first_epoch: No evaluation before this many epochs.
      weights: The raw parameters or their exponential moving average.
      test_time_augmentation: Views of an image whose logits are averaged: `none`, `flip` (the
        image and its mirror image) or `flip_and_translate` (both, untranslated with half the
        weight, and moved by one pixel along each diagonal with a quarter each).
      global_batch_size: Examples in one evaluation batch over all devices; the last is padded and
        the padding is masked out of every metric.
      stop_at_target: End the run at the first evaluation that reaches the target.
      decoding: How a translator's output is searched for.
    """

    every_epochs: float = 1.0
    first_epoch: float = 0.0
    weights: Literal["raw", "ema"] = "raw"
    test_time_augmentation: Literal["none", "flip", "flip_and_translate"] = "none"
    global_batch_size: int = 1000
    stop_at_target: bool = True
    decoding: Decoding = Decoding()


OptimizerConfig = Sgd | Muon | Adam | Lars | Lamb | RmsProp

ScheduleConfig = (
    WarmupCosine
    | WarmupLinear
    | Constant
    | InverseSquareRoot
    | Polynomial
    | Exponential
    | PiecewiseStep
    | PiecewiseLinear
    | OneCycle
    | Cyclic
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """What trials of an experiment gave somewhere: shown by `dawnjax list`, no part of identity.

    A recipe that is made from another, by flags or in a file, does not keep the other's.

    Attributes:
      hardware: The machine, as a person would name it.
      trials: How many trials were run; all of them count.
      reached: How many of them reached the target.
      mean_time_to_accuracy_seconds: Mean over those that reached; None where none did.
      quality: Mean of the target metric at the end, over all trials.
      date: Day of the measurement, ISO 8601.
    """

    hardware: str
    trials: int
    reached: int
    mean_time_to_accuracy_seconds: float | None
    quality: float
    date: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One recipe: what is trained, on what, how, and to which quality.

    Attributes:
      name: The name of the experiment's module.
      model: Architecture, one of `ModelConfig`.
      data: Dataset, one of `DatasetConfig`.
      augmentation: Random changes of the training images, made on the device.
      optimizer: Update rule, one of `OptimizerConfig`.
      schedule: Learning rate over the run relative to the peak, one of `ScheduleConfig`.
      num_epochs: Length of the run in epochs; the budget, should the target not be reached.
      global_batch_size: Examples a step, over all devices and hosts. Of packed text they are rows.
      batch_norm_group_size: Consecutive examples of the global batch that share normalization
        statistics. It is part of the mathematics, so the number of devices does not change the
        result; devices that hold whole groups need no communication inside layers. 0 says that
        the model has no such normalization.
      label_smoothing: Probability spread evenly over all classes.
      compute_dtype: Dtype of activations and products; all else is float32. float16 has dynamic
        loss scaling with it.
      stages: What changes in the course of the run, such as the images' size; the other fields are
        those of its first stage.
      accumulation_steps: Parts that a batch's gradient is computed in, one after the other, to
        need less memory for activations. The result is the same but for rounding: each part has
        whole normalization groups.
      ema_decay: Decay a step of the moving average of the parameters; 0 keeps none.
      ema_has_warmup: Whether the decay is no more than (1 + n) / (10 + n) after n steps, so that
        the average forgets its start.
      max_seconds: Time after `run_start` at which the run ends, found at the next end of an epoch
        or evaluation; 0 sets no limit.
      xla_options: Options of XLA's compiler as `name=value`, for the train and evaluation programs,
        such as `xla_tpu_enable_latency_hiding_scheduler=true`. Some change rounding. One that the
        platform does not know is an error.
      targets: All must hold at one evaluation.
      target_note: How the target was chosen, where that could flatter the result. A recipe made
        from another keeps it only with the other's targets and kind of data.
      evaluation: When and how the evaluation split is measured.
      mlperf_benchmark: The MLPerf benchmark that a run may be exported as, such as `resnet`; empty
        if it is none. No part of the mathematics, and no flag: it is a claim about the recipe.
      observations: What trials gave, and where.
    """

    name: str
    model: ModelConfig
    data: DatasetConfig
    augmentation: ImageAugmentation = ImageAugmentation()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    num_epochs: float
    global_batch_size: int
    batch_norm_group_size: int = 0
    label_smoothing: float = 0.0
    compute_dtype: ComputeDtype = "float32"
    stages: Stages = Stages()
    accumulation_steps: int = 1
    ema_decay: float = 0.0
    ema_has_warmup: bool = False
    max_seconds: float = 0.0
    xla_options: tuple[str, ...] = ()
    targets: tuple[Target, ...]
    target_note: str = ""
    evaluation: Evaluation = Evaluation()
    mlperf_benchmark: str = ""
    observations: tuple[Observation, ...] = ()

    def steps_per_epoch(self, spec: AnySpec) -> float:
        """Gives the first stage's steps in an epoch; a fraction where its batch does not divide."""
        return spec.num_train_examples / self.global_batch_size

    def spans(self, spec: AnySpec) -> tuple[Span, ...]:
        """Gives the steps of each stage; a run in which nothing changes has one."""
        boundaries = self.stages.boundary_epochs
        sizes = self.stages.global_batch_size or (self.global_batch_size,) * len(boundaries)
        batch_sizes = (self.global_batch_size, *sizes[: len(boundaries)])
        return make_spans(boundaries, batch_sizes, self.num_epochs, spec.num_train_examples)

    def in_stage(self, index: int) -> "Experiment":
        """Gives the experiment of one stage as one in which nothing changes."""
        if not self.stages.boundary_epochs:
            return self
        changes = {
            name: getattr(self.stages, name)[index - 1]
            for name in ("crop_pixels", "crop_min_area", "global_batch_size")
            if index and getattr(self.stages, name)
        }
        batch = changes.pop("global_batch_size", self.global_batch_size)
        augmentation = dataclasses.replace(self.augmentation, **changes)
        return dataclasses.replace(
            self, stages=Stages(), augmentation=augmentation, global_batch_size=batch
        )

    def num_steps(self, spec: AnySpec) -> int:
        """Gives the steps of the whole run; the last one may reach a little past `num_epochs`."""
        return self.spans(spec)[-1].last_step

    def epoch_of_step(self, step: int, spec: AnySpec) -> float:
        """Gives the epochs seen after `step` steps."""
        return examples_before(self.spans(spec), step) / spec.num_train_examples

    def step_of_epoch(self, epoch: float, spec: AnySpec) -> int:
        """Gives the first step after which `epoch` epochs were seen, at most the run's last."""
        return step_of_epoch(self.spans(spec), epoch, spec.num_train_examples)

    def evaluation_steps(self, spec: AnySpec) -> list[int]:
        """Gives the steps after which the evaluation split is measured, ascending."""
        steps = {self.num_steps(spec)}
        for count in range(
            1, math.floor(self.num_epochs / self.evaluation.every_epochs + 1e-9) + 1
        ):
            epoch = count * self.evaluation.every_epochs
            if epoch >= self.evaluation.first_epoch - 1e-9:
                steps.add(self.step_of_epoch(epoch, spec))
        return sorted(steps)

    def recipe_fields(self) -> dict[str, Any]:
        """Gives all that decides what a run computes but what is in the data, as JSON values."""
        fields = to_json(self)
        for name in ("name", "observations", "target_note", "mlperf_benchmark"):
            del fields[name]
        # What the data is, not where it lies.
        fields["data"].pop("data_dir", None)
        return fields

    def identity_fields(self, spec: AnySpec) -> dict[str, Any]:
        """Gives all that decides what a run computes, as plain JSON values."""
        fields = self.recipe_fields()
        fields["data"]["fingerprint"] = spec.fingerprint
        return fields

    def identity(self, spec: AnySpec) -> str:
        """Gives the hash of the mathematics, data, evaluation and target; 16 hex digits."""
        return identity_of(self.identity_fields(spec))

    def validate(self, spec: AnySpec) -> None:
        """Refuses impossible values and combinations.

        Args:
          spec: The dataset's shapes and counts.

        Raises:
          ConfigError: Names the field, its value, the limit and the way out.
        """
        require(self.num_epochs > 0, "num_epochs", self.num_epochs, "be above 0")
        require(
            self.global_batch_size >= 1, "global_batch_size", self.global_batch_size, "be 1 or more"
        )
        require(
            self.global_batch_size <= spec.num_train_examples,
            "global_batch_size",
            self.global_batch_size,
            f"not exceed the {spec.num_train_examples} training examples",
        )
        self._validate_task(spec)
        check_fields(self.model, "model.")
        group = self.batch_norm_group_size
        is_translation = isinstance(self.model, Transformer)
        require(
            (group == 0 and is_translation) or group >= 1 and self.global_batch_size % group == 0,
            "batch_norm_group_size",
            group,
            f"divide the global batch of {self.global_batch_size}",
        )
        require(
            0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "lie in [0, 1)"
        )
        parts, num_groups = self.accumulation_steps, self.global_batch_size // max(1, group)
        require(
            parts >= 1 and num_groups % parts == 0,
            "accumulation_steps",
            parts,
            f"divide the {num_groups} normalization groups of a batch",
        )
        require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "lie in [0, 1)")
        require(self.max_seconds >= 0, "max_seconds", self.max_seconds, "be 0 (no limit) or more")
        self._validate_xla_options()
        warmup = self.schedule.warmup_epochs
        require(
            0 <= warmup < self.num_epochs,
            "schedule.warmup_epochs",
            warmup,
            f"be shorter than the run of {self.num_epochs:g} epochs",
        )
        if not isinstance(spec, TextSpec):
            self._validate_augmentation(spec)
        check_fields(self.schedule, "schedule.")
        check_fields(self.optimizer, "optimizer.")
        self._validate_evaluation(spec)
        self._validate_stages(spec)

    def _validate_xla_options(self) -> None:
        names = []
        for option in self.xla_options:
            name, separator, value = option.partition("=")
            has_form = name.startswith("xla_") and name.isidentifier() and separator and value
            require(bool(has_form), "xla_options", option, "be written xla_NAME=VALUE")
            require(name not in names, "xla_options", option, "name each option once")
            names.append(name)

    def _validate_stages(self, spec: AnySpec) -> None:
        stages, boundaries = self.stages, self.stages.boundary_epochs
        if not boundaries:
            return
        is_ascending = list(boundaries) == sorted(set(boundaries))
        is_inside = boundaries[0] > 0 and boundaries[-1] < self.num_epochs
        require(
            is_ascending and is_inside,
            "stages.boundary_epochs",
            boundaries,
            f"ascend between 0 and the run's {self.num_epochs:g} epochs",
        )
        for name in ("crop_pixels", "crop_min_area", "global_batch_size"):
            values = getattr(stages, name)
            require(
                len(values) in (0, len(boundaries)),
                f"stages.{name}",
                values,
                f"be empty (nothing changes) or have {len(boundaries)} values, as many as "
                "stages.boundary_epochs",
            )
        if isinstance(self.optimizer, Muon) and stages.global_batch_size:
            raise ConfigError(
                "optimizer=muon cannot change its batch in a run: stages.global_batch_size must be "
                "empty"
            )
        for span in self.spans(spec):
            if span.last_step <= span.first_step:
                raise ConfigError(
                    f"stages.boundary_epochs={boundaries!r} leave no step to stage "
                    f"{span.index + 1} of {len(boundaries) + 1}"
                )
            try:
                if span.index:
                    self.in_stage(span.index).validate(spec)
            except (ConfigError, ValueError) as error:
                place = f"in the stage from epoch {boundaries[span.index - 1]:g} on"
                raise ConfigError(f"{place}: {error}") from None

    def _validate_augmentation(self, spec: DatasetSpec) -> None:
        config = self.augmentation
        side = min(spec.image_shape[:2])
        is_resized = config.center_fraction > 0
        require(
            0 <= config.crop_pixels <= (4 * side if is_resized else side),
            "augmentation.crop_pixels",
            config.crop_pixels,
            f"lie in 0 (no crop) to {4 * side}, four times the images' shorter side"
            if is_resized
            else f"lie in 0 (no crop) to {side}, the images' shorter side, unless "
            "augmentation.center_fraction says from which part of them to resize",
        )
        if is_resized and not config.crop_pixels:
            raise ConfigError("augmentation.center_fraction is for images with a crop_pixels")
        if config.crop_pixels and (config.max_translation_pixels or config.max_scale_fraction):
            raise ConfigError(
                f"augmentation.crop_pixels={config.crop_pixels} takes the place of "
                "max_translation_pixels and max_scale_fraction, which must be 0"
            )

    def _validate_task(self, spec: AnySpec) -> None:
        """Refuses a model for another kind of data, and settings that its task does not have."""
        is_translation = isinstance(self.model, Transformer)
        if is_translation != isinstance(spec, TextSpec):
            raise ConfigError(
                f"model={self.model.TAG} does not fit data={self.data.TAG}: the transformer "
                "translates parallel text, the other models classify images"
            )
        evaluation = self.evaluation
        if is_translation:
            if self.compute_dtype == "float16":
                raise ConfigError("compute_dtype=float16 is for images; take bfloat16 for text")
            if self.accumulation_steps != 1:
                raise ConfigError("accumulation_steps is for images, not text")
            if self.augmentation != ImageAugmentation():
                raise ConfigError("augmentation changes images, and this is parallel text")
            if evaluation.test_time_augmentation != "none":
                raise ConfigError("evaluation.test_time_augmentation is for images, not text")
        elif evaluation.decoding != Decoding():
            raise ConfigError("evaluation.decoding is for translation; an image has none")
        decoding = evaluation.decoding
        for name, low, high in (
            ("num_beams", 1, 64),
            ("length_penalty", 0, 10),
            ("max_extra_tokens", 0, 1000),
        ):
            value = getattr(decoding, name)
            text = f"lie in {low} to {high}"
            require(low <= value <= high, f"evaluation.decoding.{name}", value, text)
        if isinstance(self.schedule, InverseSquareRoot):
            warmup = self.schedule.warmup_epochs
            require(warmup > 0, "schedule.warmup_epochs", warmup, "be above 0 for this schedule")

    def _validate_evaluation(self, spec: AnySpec) -> None:
        evaluation = self.evaluation
        require(
            evaluation.every_epochs >= 0.001,
            "evaluation.every_epochs",
            evaluation.every_epochs,
            "be above 0",
        )
        require(
            evaluation.global_batch_size >= 1,
            "evaluation.global_batch_size",
            evaluation.global_batch_size,
            "be 1 or more",
        )
        require(
            0 <= evaluation.first_epoch <= self.num_epochs,
            "evaluation.first_epoch",
            evaluation.first_epoch,
            f"not lie after the run of {self.num_epochs:g} epochs",
        )
        if evaluation.weights == "ema" and self.ema_decay == 0:
            raise ConfigError("evaluation.weights=ema needs ema_decay above 0, such as 0.999")
        if not self.targets:
            raise ConfigError("targets is empty: a run needs at least one (metric, value) to reach")
        for index, target in enumerate(self.targets):
            is_text = isinstance(spec, TextSpec)
            metrics = TRANSLATION_METRICS if is_text else CLASSIFICATION_METRICS
            if target.metric not in metrics:
                raise ConfigError(
                    f"targets.{index}.metric={target.metric!r} is not measured; "
                    f"known metrics: {', '.join(metrics)}"
                )
            if target.metric == "bleu" and not 1 < target.value <= 100:
                raise ConfigError(
                    f"targets.{index}.value={target.value:g} must lie in 1 to 100: BLEU is no "
                    "fraction"
                )
            if (
                not isinstance(spec, TextSpec)
                and target.metric == "top_5_accuracy"
                and spec.num_classes <= 5
            ):
                raise ConfigError(
                    f"targets.{index}.metric=top_5_accuracy says nothing with "
                    f"{spec.num_classes} classes"
                )
            if target.metric.endswith("accuracy") and not 0 <= target.value <= 1:
                raise ConfigError(
                    f"targets.{index}.value={target.value:g} must lie in 0 to 1: accuracies are "
                    f"fractions (did you mean {target.value / 100:g}?)"
                )
