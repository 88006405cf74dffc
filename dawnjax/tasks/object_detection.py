"""Object detection by a single-shot network: boxes and classes, scored by COCO's figures.

Source: Liu et al. 2016, "SSD" (arXiv 1512.02325), section 2.2, "Inference" in section 3;
mlcommons/training v0.5, `single_stage_detector/ssd/utils.py`, for the search.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets.coco import Coco, resized
from dawnjax.input_pipeline.reading import object_augmentation, own_inputs
from dawnjax.input_pipeline.reading.image_files import decode_upright
from dawnjax.input_pipeline.reading.object_augmentation import ObjectAugmentation
from dawnjax.input_pipeline.reading.objects import Objects
from dawnjax.limits import FractionBelowOne, Limit, NonNegative
from dawnjax.machine.mesh import BATCH_AXES
from dawnjax.models import boxes as box_geometry
from dawnjax.models.pure_model import mode_arguments
from dawnjax.models.suppression import greedy_choice
from dawnjax.profile.model_flops import TRAINING_FACTOR, product_flops
from dawnjax.tasks import coco_scores, multibox, pictures
from dawnjax.tasks.task import (
    AUGMENTATION,
    MODEL,
    Answering,
    Arrays,
    Compiled,
    LabelledSet,
    Moment,
    OwnInputs,
    Setting,
    Task,
    make_model,
)

_Places = Annotated[int, Limit(lambda value: 1 <= value <= 1000, "lie in 1 to 1000")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Choice of detections among all default boxes.

    Attributes:
      least_score: A box is none of a class below this probability.
      overlap: Of two boxes of a class that overlap as much or more, the likelier one stays.
      most_a_class: Boxes of each class that are looked at, the likeliest.
      most: Detections of an image, the likeliest of all classes. COCO counts 100 of each class.
    """

    least_score: FractionBelowOne = 0.05
    overlap: Annotated[float, Limit(lambda value: 0 < value <= 1, "lie in (0, 1]")] = 0.5
    most_a_class: _Places = 200
    most: _Places = 200


class _OtherSet(NamedTuple):
    objects: Objects

    def evaluated_objects(self) -> Objects:
        return self.objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectDetection(Task):
    """Boxes of objects in images, and their classes.

    Attributes:
      augmentation: Random changes of the training images, made on the device.
      least_overlap: A default box takes an object that it overlaps by more.
      negatives: Background boxes in the loss, for each box with an object.
      loss_divisor: Boxes with an object that the loss is divided by: those of each `image`, after
        which the mean over images is taken, as in MLPerf's reference, or all of the `batch`, as in
        the paper.
      search: Choice of detections in an evaluation.
    """

    TAG: ClassVar[str] = "object_detection"
    metrics: ClassVar = coco_scores.metrics_of_kind("box")
    arrays: ClassVar = ("image", "boxes", "classes")
    inputs: ClassVar = ("image",)
    example_unit: ClassVar[str] = "images"
    evaluation_fields: ClassVar = ("search",)
    other_set_flags: ClassVar = {"data": "Another set that `dawnjax prepare --dataset=coco` wrote."}

    augmentation: ObjectAugmentation = ObjectAugmentation()
    least_overlap: FractionBelowOne = 0.5
    negatives: NonNegative[int] = 3
    loss_divisor: Literal["image", "batch"] = "image"
    search: Search = Search()

    def validate(self, model: Any, spec: Any) -> None:
        coco_scores.require_hotcoco()
        if not hasattr(model, "default_boxes"):
            raise ConfigError(
                f"model={model.TAG} has no default boxes, which task={self.TAG} needs: choose ssd "
                "or small_ssd"
            )
        try:
            model.default_boxes(spec.image_shape)
        except ValueError as error:
            raise ConfigError(f"data.height and data.width: {error}") from None

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        """Refuse 0, which no detection at all reaches."""
        del spec
        if target.value == 0:
            raise ConfigError(f"{name}.value=0 must be above 0: every network reaches it")

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"image_shape": spec.image_shape, "num_classes": spec.num_classes}

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
        codes, logits = module(images, **mode_arguments(module, True))
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

    def zero_totals(self, setting: Setting) -> Arrays:
        """Places for each image's detections; one that no batch fills has none."""
        shape = (setting.spec.num_eval_examples, self.search.most, 6)
        return {"detections": jnp.zeros(shape, jnp.float32)}

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        """Each image's detections at its place in the split."""
        # Scatter padding to an out-of-range index, so that `mode='drop'` discards it.
        place = jnp.where(batch["mask"], batch["index"], setting.spec.num_eval_examples)
        found = self.answer(module, batch, setting)
        return {"detections": totals["detections"].at[place].set(found, mode="drop")}

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> jax.Array:
        """Corners as fractions, score and class: float32 [batch, most, 6]; score 0 is none."""
        spec = setting.spec
        images = object_augmentation.prepared(
            inputs["image"], spec.image_shape[:2], spec.mean, spec.std
        )
        codes, logits = module(images, **mode_arguments(module, False))
        centred = jnp.asarray(setting.model.default_boxes(spec.image_shape))

        def search(codes: jax.Array, logits: jax.Array) -> jax.Array:
            corners = box_geometry.decode(codes, centred, multibox.CODE_WEIGHTS)
            scores = jax.nn.softmax(logits)[..., 1:]
            return jax.vmap(lambda *image: detections(self.search, *image))(corners, scores)

        if setting.mesh is None or setting.mesh.size == 1:
            return search(codes, logits)
        rows = PartitionSpec(BATCH_AXES)
        # Each device searches its own images until the last of them is done.
        return jax.shard_map(
            search, mesh=setting.mesh, in_specs=(rows, rows), out_specs=rows, check_vma=False
        )(codes, logits)

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """The twelve figures, without those of sizes that no object has."""
        return {**coco_scores.scores(setting.data.evaluated_objects(), totals["detections"])}

    def answering(
        self, compiled: Compiled, examples: Mapping[str, Any], setting: Setting
    ) -> Answering:
        """Model that finds the objects of single images."""
        image = super().answering(compiled, examples, setting)

        def quality(answers: list[Any], positions: list[int]) -> dict[str, Any]:
            truth = setting.data.evaluated_objects().of_images(np.array(positions))
            return {**coco_scores.scores(truth, np.concatenate(answers))}

        def shown(answer: Any, position: int) -> tuple[np.ndarray, Any]:
            truth = setting.data.evaluated_objects().of_images(np.array([position]))
            true = truth.padded(len(truth.boxes))["boxes"][0]
            found = answer[0][answer[0][:, 4] > 0]
            names = truth.names
            picture = pictures.drawn(examples["image"][np.array([position])][0], found, true, names)
            return picture, coco_scores.stated(truth.sizes, names, answer)

        height, width, _ = setting.spec.image_shape
        timed = f"from an image of {width}x{height} on the host to its detections on the host"
        return dataclasses.replace(image, quality=quality, timed=timed, shown=shown)

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        """JPEG and PNG images of any size, resized as the run's are."""
        shape, names = setting.spec.image_shape, tuple(setting.data.classes())
        sizes: dict[int, tuple[int, ...]] = {}

        def fit(content: bytes, position: int) -> np.ndarray:
            image = decode_upright(content)
            sizes[position] = image.shape[:2]
            return resized(image, shape)

        def stated(answer: np.ndarray, position: int) -> list[dict[str, Any]]:
            return coco_scores.stated(np.array([sizes[position]]), names, answer)

        return OwnInputs(
            spec=setting.spec,
            examples={"image": own_inputs.images(files, shape, fit)},
            given=[{"file": str(file)} for file in files],
            stated=stated,
        )

    def read_other_set(self, paths: Mapping[str, str], setting: Setting) -> LabelledSet:
        """The evaluation split of another prepared set, its classes matched by name."""
        path = Path(paths["data"]).expanduser()
        height, width, _ = setting.spec.image_shape
        empty = getattr(setting.data, "evaluates_empty", True)
        other = Coco(
            corpus=path.name,
            height=height,
            width=width,
            evaluates_empty=empty,
            data_dir=str(path),
        )
        names = tuple(setting.data.classes())
        try:
            spec = other.spec()
            objects = other.evaluated_objects().in_classes(names)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        absent = len(names) - len(np.unique(objects.classes))
        note = f"{absent} of the run's {len(names)} classes do not occur in the set"
        return LabelledSet(
            kind="images with objects",
            spec=dataclasses.replace(setting.spec, num_eval_examples=spec.num_eval_examples),
            data=_OtherSet(objects),
            examples=other.load("eval"),
            fingerprint=spec.fingerprint,
            notes=(note,) if absent else (),
        )

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of one image in a train step, without those that make the image."""
        rows = max(1, setting.execution.batch_norm_group_size)
        model = make_model(self, setting)
        params, batch_stats = jax.eval_shape(model.init, jax.random.key(0))

        def forward(params: Any, batch_stats: Any, images: jax.Array) -> Any:
            module = model.bind(params, batch_stats, jax.random.key(MODEL))
            return module(images, **mode_arguments(module, True))

        images = jax.ShapeDtypeStruct((rows, *setting.spec.image_shape), jnp.float32)
        jaxpr = jax.make_jaxpr(forward)(params, batch_stats, images).jaxpr
        return TRAINING_FACTOR * product_flops(jaxpr) / rows


def detections(config: Search, corners: jax.Array, scores: jax.Array) -> jax.Array:
    """Detections of one image, in falling order of score: float32 [most, 6].

    Args:
      corners: float32 [boxes, 4].
      scores: Probability of each class, float32 [boxes, classes]; one that is no number is none.
    """
    scores = jnp.where(scores > config.least_score, scores, 0.0).T
    # Of equal scores the first box is taken, so the order is that of the default boxes.
    best, places = jax.lax.top_k(scores, min(config.most_a_class, len(corners)))
    of_class = corners[places]
    is_rival = box_geometry.overlaps(of_class, of_class) >= config.overlap
    kept = jnp.where(greedy_choice(is_rival, best > 0), best, 0.0).reshape(-1)
    best, places = jax.lax.top_k(kept, min(config.most, len(kept)))
    classes = 1 + places // of_class.shape[1]
    columns = (of_class.reshape(-1, 4)[places], best[:, None], classes[:, None])
    found = jnp.where(best[:, None] > 0, jnp.concatenate(columns, axis=1), 0.0)
    return jnp.pad(found, ((0, config.most - len(found)), (0, 0)))
