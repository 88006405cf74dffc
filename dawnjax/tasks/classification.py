"""Image classification: the loss of training, and the counts of an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from etils import epy

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.augmentation import image_augmentation
from dawnjax.input_pipeline.augmentation.image_augmentation import ImageAugmentation, Views
from dawnjax.input_pipeline.reading.dataset import class_names
from dawnjax.limits import FractionBelowOne, require
from dawnjax.models.execution import TrainingMoment
from dawnjax.tasks.metric import TOP_1_ACCURACY, TOP_5_ACCURACY, loss_metric
from dawnjax.tasks.task import (
    AUGMENTATION,
    MODEL,
    Arrays,
    LabelledSet,
    Moment,
    OwnInputs,
    Setting,
    Task,
    forward_flops,
)

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import pure_model
    from dawnjax.profile import model_flops


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageStages:
    """Changes of the images at each of an experiment's `stages.boundary_epochs`.

    Attributes:
      crop_pixels: `augmentation.crop_pixels` from each boundary on; empty if it stays.
      crop_min_area: `augmentation.crop_min_area` from each boundary on; empty if it stays.

    Source: images that grow: fast.ai's entries to DAWNBench of 2018, see
    `imagenet_resnet50_progressive`.
    """

    crop_pixels: tuple[int, ...] = ()
    crop_min_area: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """Which of several classes an image shows.

    Attributes:
      augmentation: Random changes of the training images, made on the device.
      stages: How they change in the course of the run.
      label_smoothing: Probability spread evenly over all classes.
      test_time_augmentation: Views of an image whose logits are averaged: `none`, `flip` (the
        image and its mirror image) or `flip_and_translate` (both, untranslated with half the
        weight, and moved by one pixel along each diagonal with a quarter each).
    """

    TAG: ClassVar[str] = "classification"
    metrics: ClassVar = (TOP_1_ACCURACY, TOP_5_ACCURACY, loss_metric("nats an example"))
    arrays: ClassVar = ("image", "label")
    inputs: ClassVar = ("image",)
    evaluation_fields: ClassVar = ("test_time_augmentation",)
    other_set_flags: ClassVar = {"data": "Another labelled set of images."}

    augmentation: ImageAugmentation = ImageAugmentation()
    stages: ImageStages = ImageStages()
    label_smoothing: FractionBelowOne = 0.0
    test_time_augmentation: Views = "none"

    def validate(self, model: Any, spec: Any) -> None:
        config, side = self.augmentation, min(spec.image_shape[:2])
        is_resized, crop = config.center_fraction > 0, "task.augmentation.crop_pixels"
        if not config.crop_pixels <= (4 * side if is_resized else side):
            limit = (
                f"{4 * side}, four times the images' shorter side"
                if is_resized
                else f"{side}, the images' shorter side, unless task.augmentation.center_fraction "
                "says from which part of them to resize"
            )
            raise ConfigError(f"{crop}={config.crop_pixels} must lie in 0 (no crop) to {limit}")
        if config.crop_pixels and getattr(spec, "is_drawn", False):
            raise ConfigError(
                f"{crop}={config.crop_pixels} must be 0: with data.form=photographs the images are "
                "random parts already, of data.image_side pixels"
            )
        for field, most in (("max_translation_pixels", side - 1), ("cutout_pixels", side)):
            name, value = f"task.augmentation.{field}", getattr(config, field)
            require(value <= most, name, value, f"be at most {most}: the images have {side} pixels")
        if is_resized and not config.crop_pixels:
            raise ConfigError("task.augmentation.center_fraction is for images with a crop_pixels")
        if config.crop_pixels and (config.max_translation_pixels or config.max_scale_fraction):
            raise ConfigError(
                f"{crop}={config.crop_pixels} takes the place of max_translation_pixels and "
                "max_scale_fraction, which must be 0"
            )

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        if target.metric == "top_5_accuracy" and spec.num_classes <= 5:
            raise ConfigError(
                f"{name}.metric=top_5_accuracy says nothing with {spec.num_classes} classes"
            )

    def in_stage(self, index: int) -> Classification:
        values = {
            name: values[index - 1]
            for name, values in vars(self.stages).items()
            if index and values
        }
        augmentation = dataclasses.replace(self.augmentation, **values)
        return dataclasses.replace(self, augmentation=augmentation, stages=ImageStages())

    def stage_values(self) -> dict[str, Any]:
        return {name: getattr(self.augmentation, name) for name in vars(self.stages)}

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        shape = image_augmentation.model_image_shape(self.augmentation, spec.image_shape)
        return {"image_shape": shape, "num_classes": spec.num_classes}

    def initialize_from_data(self, params: Any, examples: Arrays, setting: Setting) -> Any:
        return setting.model.initialize_from_data(params, self._normalized(examples, setting))

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, int]:
        """Cross entropy of each image, an auxiliary head's included, and their number."""
        index = batch["index"]
        images = image_augmentation.augment(
            self.augmentation,
            self._normalized(batch, setting),
            step_keys=moment.keys(AUGMENTATION, index),
            example_keys=moment.lasting_keys(index),
            epochs=batch["epoch"],
        )
        heads = self._heads(module, images, moment, index, setting)
        logits, *auxiliary = heads if isinstance(heads, tuple) else (heads,)
        losses = smoothed_cross_entropy(logits, batch["label"], self.label_smoothing)
        for other_logits in auxiliary:
            other_losses = smoothed_cross_entropy(
                other_logits, batch["label"], self.label_smoothing
            )
            losses += setting.model.auxiliary_loss_weight * other_losses
        return losses, len(losses)

    def zero_totals(self, setting: Setting) -> Arrays:
        counts = {name: jnp.zeros((), jnp.int32) for name in ("top_1", "top_5")}
        return {**counts, "loss": jnp.zeros((), jnp.float32)}

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        logits, labels = self._evaluated_logits(module, batch, setting), batch["label"]
        mask = batch["mask"]
        label_logits = jnp.take_along_axis(logits, labels[:, None], axis=1)
        # Equal scores (or NaN) never count in an example's favour, hence no `>=`.
        rank = (~(logits < label_logits)).sum(axis=1) - 1
        losses = smoothed_cross_entropy(logits, labels, 0.0)
        return {
            "top_1": totals["top_1"] + (mask & (rank < 1)).sum(dtype=jnp.int32),
            "top_5": totals["top_5"] + (mask & (rank < 5)).sum(dtype=jnp.int32),
            "loss": totals["loss"] + jnp.where(mask, losses, 0.0).sum(),
        }

    def logits_and_targets(
        self, module: Any, batch: Arrays, setting: Setting
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return self._evaluated_logits(module, batch, setting), batch["label"], batch["mask"]

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """Accuracies from 0 to 1 and the mean loss; no top-5 accuracy of five or fewer classes."""
        shares = {name: totals[name].item() / totals["examples"].item() for name in totals}
        metrics: dict[str, float | str] = {
            "top_1_accuracy": shares["top_1"],
            "loss": shares["loss"],
        }
        if setting.spec.num_classes > 5:
            metrics["top_5_accuracy"] = shares["top_5"]
        return metrics

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of one image in a train step, without those that make the image."""
        shape = self.model_arguments(setting.spec)["image_shape"]
        shapes = {"image": (shape, jnp.float32), "index": ((), jnp.int32)}

        def forward(module: Any, arrays: Arrays) -> Any:
            moment = Moment(jax.random.key(0), jnp.int32(0), jnp.float32(0))
            return self._heads(module, arrays["image"], moment, arrays["index"], setting)

        return model_flops.TRAINING_FACTOR * forward_flops(self, setting, shapes, forward)

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Probability and number of the likeliest classes: float32 [batch, answers, 2].

        They are five at most. A float32 holds class numbers up to 2**24.
        """
        logits = self._evaluated_logits(module, inputs, setting)
        best, classes = jax.lax.top_k(logits, min(5, setting.spec.num_classes))
        total = jnp.exp(logits - best[:, :1]).sum(axis=1, keepdims=True)
        probabilities = jnp.exp(best - best[:, :1]) / total
        return jnp.stack([probabilities, classes.astype(jnp.float32)], axis=-1)

    def quality(
        self, answers: list[Any], examples: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, Any]:
        hits = np.concatenate(answers)[..., 1] == examples["label"][:, None]
        accuracies = {"top_1_accuracy": float(hits[:, 0].mean())}
        if setting.spec.num_classes > 5:
            accuracies["top_5_accuracy"] = float(hits.any(axis=1).mean())
        return accuracies

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        from dawnjax.input_pipeline.reading import own_inputs  # needs OpenCV

        shape, names = setting.spec.image_shape, class_names(setting.data, setting.spec)

        def stated(answer: np.ndarray, position: int) -> list[dict[str, Any]]:
            return [
                {"class": names[int(label)], "probability": round(probability, 6)}
                for probability, label in answer[0].tolist()
            ]

        images = own_inputs.images(files, shape, lambda it, _: own_inputs.fitted(it, shape))
        return OwnInputs(
            spec=setting.spec,
            examples={"image": images},
            given=[{"file": str(file)} for file in files],
            stated=stated,
        )

    def read_other_set(self, paths: Mapping[str, str], setting: Setting) -> LabelledSet:
        from dawnjax.input_pipeline.reading import labelled_images  # needs OpenCV

        spec, data, path = setting.spec, setting.data, records.path_of(paths["data"])
        images = labelled_images.read(
            path, spec.image_shape, resized=getattr(data, "RESIZES", False)
        )
        classes = class_names(data, spec)
        labels = labelled_images.labels_of_run(path, images, classes)
        notes = []
        if images.classes is None:
            notes.append("the set has no names of classes: its labels are taken to be the run's")
        absent = len(classes) - len(set(labels.tolist()))
        if absent:
            notes.append(f"{absent} of the run's {len(classes)} classes do not occur in the set")
        return LabelledSet(
            kind=images.kind,
            spec=dataclasses.replace(spec, num_eval_examples=len(labels)),
            examples={"image": images.images, "label": labels},
            fingerprint=images.fingerprint,
            notes=tuple(notes),
        )

    def _normalized(self, batch: Arrays, setting: Setting) -> jax.Array:
        return image_augmentation.normalize(batch["image"], setting.spec.mean, setting.spec.std)

    def _heads(
        self, module: Any, images: jax.Array, moment: Moment, index: jax.Array, setting: Setting
    ) -> Any:
        if not getattr(setting.model, "takes_moment", False):
            return module(images, **pure_model.mode_arguments(module, True))
        model_moment = TrainingMoment(keys=moment.keys(MODEL, index), progress=moment.progress)
        return module(images, train=True, moment=model_moment)

    def _evaluated_logits(self, module: Any, batch: Arrays, setting: Setting) -> jax.Array:
        images = image_augmentation.center_crop(self.augmentation, batch["image"])
        logits = jnp.zeros((), jnp.float32)
        views = image_augmentation.views(
            self.test_time_augmentation, self._normalized({"image": images}, setting)
        )
        for weight, view in views:
            logits += weight * module(view, **pure_model.mode_arguments(module, False))
        return logits


def smoothed_cross_entropy(
    logits: jax.Array, labels: jax.Array, label_smoothing: float
) -> jax.Array:
    """Cross entropy of each example against smoothed one-hot labels: float32 [batch], in nats.

    Logits are float32 [batch, classes]. `label_smoothing` is spread evenly over all classes, the
    true one too.

    Source: Szegedy et al. 2016 (arXiv 1512.00567), section 7.
    """
    log_probabilities = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]
    if label_smoothing == 0:
        return -picked
    return -(1 - label_smoothing) * picked - label_smoothing * log_probabilities.mean(axis=1)
