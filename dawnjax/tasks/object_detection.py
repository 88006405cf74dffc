"""Object detection by a single-shot network: boxes and classes, scored by COCO's figures.

Source: Liu et al. 2016, "SSD" (arXiv 1512.02325), section 2.2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.augmentation import object_augmentation
from dawnjax.input_pipeline.augmentation.object_augmentation import ObjectAugmentation
from dawnjax.input_pipeline.reading.objects import Objects
from dawnjax.limits import FractionBelowOne, NonNegative
from dawnjax.tasks import coco_scores, multibox, pictures
from dawnjax.tasks.detection import Detection, detections, on_each_device
from dawnjax.tasks.task import AUGMENTATION, Arrays, Moment, Setting, forward_flops

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import boxes as box_geometry
    from dawnjax.models import pure_model
    from dawnjax.profile import model_flops


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectDetection(Detection):
    """Boxes of objects in images, and their classes.

    Attributes:
      augmentation: Random changes of the training images, made on the device.
      least_overlap: A default box takes an object if they overlap by more.
      negatives: Background boxes in the loss, for each box with an object.
      loss_divisor: The loss is divided by the number of boxes with an object: in each `image`,
        before the mean over images, as in MLPerf's reference, or in the `batch`, as in the paper.
    """

    TAG: ClassVar[str] = "object_detection"
    metrics: ClassVar = coco_scores.metrics_of_kind("box")
    arrays: ClassVar = ("image", "boxes", "classes")
    inputs: ClassVar = ("image",)

    augmentation: ObjectAugmentation = ObjectAugmentation()
    least_overlap: FractionBelowOne = 0.5
    negatives: NonNegative[int] = 3
    loss_divisor: Literal["image", "batch"] = "image"

    def validate(self, model: Any, spec: Any) -> None:
        super().validate(model, spec)
        if not hasattr(model, "default_boxes"):
            raise ConfigError(
                f"model={model.TAG} has no default boxes, which task={self.TAG} needs: choose ssd "
                "or small_ssd"
            )
        if spec.mask_side:
            raise ConfigError(
                f"data.mask_side={spec.mask_side}: task={self.TAG} takes no masks; give 0"
            )
        try:
            model.default_boxes(spec.image_shape)
        except ValueError as error:
            raise ConfigError(f"data.height and data.width: {error}") from None

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, jax.Array | int]:
        """Loss of each image, or the batch's sum and its boxes with an object."""
        spec = setting.spec
        images, corners, classes = object_augmentation.augmented(
            self.augmentation,
            batch["image"],
            batch["boxes"],
            batch["classes"],
            keys=moment.keys(AUGMENTATION, batch["index"]),
            size=spec.image_shape[:2],
            mean=spec.mean,
            std=spec.std,
        )
        codes, logits = module(images, **pure_model.mode_arguments(module, True))
        centred = jnp.asarray(setting.model.default_boxes(spec.image_shape))
        defaults = box_geometry.to_corners(centred)
        matched = jax.vmap(
            lambda corners, classes: multibox.match(defaults, corners, classes, self.least_overlap)
        )(corners, classes)
        targets = box_geometry.encode(matched.corners, centred, multibox.CODE_WEIGHTS)
        sums, positives = multibox.image_losses(
            codes, logits, targets, matched.classes, self.negatives
        )
        if self.loss_divisor == "batch":
            return sums.sum(), jnp.maximum(positives.sum(), 1)
        # An image without any object counts 0, and still as an image.
        return sums / jnp.maximum(positives, 1), len(sums)

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> Arrays:
        spec = setting.spec
        images = object_augmentation.prepared(
            inputs["image"], spec.image_shape[:2], spec.mean, spec.std
        )
        codes, logits = module(images, **pure_model.mode_arguments(module, False))
        centred = jnp.asarray(setting.model.default_boxes(spec.image_shape))

        def search(codes: jax.Array, logits: jax.Array) -> jax.Array:
            corners = box_geometry.decode(codes, centred, multibox.CODE_WEIGHTS)
            scores = jax.nn.softmax(logits)[..., 1:]
            return jax.vmap(lambda *image: detections(self.search, *image))(corners, scores)

        # Each device searches its own images until the last of them is done.
        return {"detections": on_each_device(search, setting.mesh)(codes, logits)}

    def scores(self, truth: Objects, answers: Mapping[str, np.ndarray]) -> dict[str, float]:
        return coco_scores.scores(truth, answers["detections"])

    def shown(
        self, truth: Objects, answer: Mapping[str, np.ndarray], example: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        true = truth.padded(len(truth.boxes))["boxes"][0]
        return pictures.drawn(example["image"][0], answer["detections"][0], true, truth.names)

    def stated(
        self, sizes: np.ndarray, names: Sequence[str], answer: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        return coco_scores.stated(sizes, names, answer["detections"])

    def train_flops_per_example(self, setting: Setting) -> float:

        def forward(module: Any, arrays: Arrays) -> Any:
            return module(arrays["image"], **pure_model.mode_arguments(module, True))

        shapes = {"image": (setting.spec.image_shape, jnp.float32)}
        return model_flops.TRAINING_FACTOR * forward_flops(self, setting, shapes, forward)
