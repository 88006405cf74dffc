"""Tasks that find objects in images: the choice of detections, and their scores by COCO.

Source: Liu et al. 2016, "SSD" (arXiv 1512.02325), "Inference" in section 3; mlcommons/training
v0.5, `single_stage_detector/ssd/utils.py`, for the search.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from etils import epy

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets import coco
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.input_pipeline.reading import own_inputs
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.image_files import decode_upright
from dawnjax.input_pipeline.reading.objects import SIZES, Objects
from dawnjax.limits import FractionBelowOne, Limit, within
from dawnjax.tasks import coco_scores
from dawnjax.tasks.task import (
    Answering,
    Arrays,
    Compiled,
    LabelledSet,
    OwnInputs,
    Setting,
    Task,
    at_places,
)

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.machine import mesh as device_mesh
    from dawnjax.models import boxes as box_geometry
    from dawnjax.models import suppression

_Places = Annotated[int, within(1, 1000)]
Overlap = Annotated[float, Limit(lambda value: 0 < value <= 1, "lie in (0, 1]")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectionSearch:
    """Choice of detections among all boxes of a network.

    Attributes:
      least_score: Boxes below this probability are dropped.
      overlap: If two boxes of a class overlap this much or more, only the likelier one stays.
      most_a_class: Number of boxes considered for each class, most likely first.
      most: Detections per image, the most likely over all classes. COCO counts 100 per class.
    """

    least_score: FractionBelowOne = 0.05
    overlap: Overlap = 0.5
    most_a_class: _Places = 200
    most: _Places = 200


class _OtherSet(NamedTuple):
    objects: Objects

    def evaluated_objects(self) -> Objects:
        return self.objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detection(Task):
    """A task whose answer is `detections`, float32 [batch, most, 6], and perhaps more.

    A detection has corners as fractions of the image, score and class; score 0 is none.

    Attributes:
      search: Choice of detections in an evaluation.
    """

    example_unit: ClassVar[str] = "images"
    scored_on_host: ClassVar[str] = "the figures of COCO"
    evaluation_fields: ClassVar = ("search",)
    other_set_flags: ClassVar = {"data": "Another set that `dawnjax prepare --dataset=coco` wrote."}

    search: DetectionSearch = DetectionSearch()

    @abc.abstractmethod
    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> Arrays:
        """Detections of images, and what belongs to each."""

    @abc.abstractmethod
    def scores(self, truth: Objects, answers: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Metrics of the answers to all images of `truth`."""

    @abc.abstractmethod
    def shown(
        self, truth: Objects, answer: Mapping[str, np.ndarray], example: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Picture of the answer to one image; each array has one row."""

    @abc.abstractmethod
    def stated(
        self, sizes: np.ndarray, names: Sequence[str], answer: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """JSON values of the answer to one image of `sizes`, [1, 2], and the classes' `names`."""

    def validate(self, model: Any, spec: Any) -> None:
        coco_scores.require_hotcoco()

    def validate_target(self, name: str, target: Any, spec: Any) -> None:
        """Refuse a figure that no evaluation can give, for want of objects to find."""
        wanted = target.metric.rpartition("_")[2]
        kind = f"{wanted} object" if wanted in SIZES else "object"
        if not spec.sizes_to_find or (wanted in SIZES and wanted not in spec.sizes_to_find):
            raise ConfigError(
                f"{name}.metric={target.metric}: the images to evaluate have no {kind} but crowd "
                "regions, so there is nothing to find; take other images or another metric"
            )

    def model_arguments(self, spec: Any) -> dict[str, Any]:
        return {"image_shape": spec.image_shape, "num_classes": spec.num_classes}

    def zero_totals(self, setting: Setting) -> Arrays:
        shape = (setting.spec.num_eval_examples, self.search.most, 6)
        return {"detections": jnp.zeros(shape, jnp.float32)}

    def add_batch(self, module: Any, batch: Arrays, totals: Arrays, setting: Setting) -> Arrays:
        found = self.answer(module, batch, setting)
        return {name: at_places(totals[name], found[name], batch) for name in totals}

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """The figures of COCO, without those of sizes that no object has."""
        return {**self.scores(setting.data.evaluated_objects(), totals)}

    def answering(
        self, compiled: Compiled, examples: Mapping[str, Any], setting: Setting
    ) -> Answering:
        image = super().answering(compiled, examples, setting)

        def truth(positions: list[int]) -> Objects:
            return setting.data.evaluated_objects().of_images(np.array(positions))

        def quality(answers: list[Any], positions: list[int]) -> dict[str, Any]:
            joined = {n: np.concatenate([answer[n] for answer in answers]) for n in answers[0]}
            return {**self.scores(truth(positions), joined)}

        def shown(answer: Any, position: int) -> tuple[np.ndarray, Any]:
            one = truth([position])
            picture = self.shown(one, answer, image.example(position))
            return picture, self.stated(one.sizes, one.names, answer)

        height, width, _ = setting.spec.image_shape
        timed = f"from an image of {width}x{height} on the host to its detections on the host"
        return dataclasses.replace(image, quality=quality, timed=timed, shown=shown)

    def read_inputs(self, files: Sequence[Path], setting: Setting) -> OwnInputs:
        data, shape = setting.data, setting.spec.image_shape
        names = tuple(data.classes())
        fits_as = data if isinstance(data, Coco) else Coco(corpus="")
        sizes = np.array([own_inputs.of_file(f, decode_upright).shape[:2] for f in files])
        fitted, is_turned = fits_as.fitted(sizes, shape), fits_as.is_turned(sizes)

        def fit(content: bytes, at: int) -> np.ndarray:
            image, size = decode_upright(content), fitted[at].tolist()
            return coco.placed(image, size, shape, is_turned=bool(is_turned[at]))

        examples: dict[str, Any] = {"image": own_inputs.images(files, shape, fit)}
        if setting.spec.mask_side:
            examples["covered"] = coco.covered(fitted, shape, is_turned)
        if setting.spec.turns_tall:
            examples[APART] = is_turned
        return OwnInputs(
            spec=setting.spec,
            examples=examples,
            given=[{"file": str(file)} for file in files],
            stated=lambda answer, at: self.stated(sizes[at : at + 1], names, answer),
        )

    def read_other_set(self, paths: Mapping[str, str], setting: Setting) -> LabelledSet:
        path = records.path_of(paths["data"])
        height, width, _ = setting.spec.image_shape
        other = Coco(corpus=path.name, height=height, width=width, mask_side=setting.spec.mask_side)
        if isinstance(setting.data, Coco):
            other = setting.data
        other = dataclasses.replace(other, corpus=path.name, data_dir=str(path))
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


def on_each_device(
    function: Callable[..., Any], mesh: jax.sharding.Mesh | None
) -> Callable[..., Any]:
    """Function of arrays [batch, ...] that each device computes for its own examples alone."""
    if mesh is None or mesh.size == 1:
        return function
    rows = jax.sharding.PartitionSpec(device_mesh.BATCH_AXES)

    def split(*arrays: Any) -> Any:
        return jax.shard_map(
            function, mesh=mesh, in_specs=(rows,) * len(arrays), out_specs=rows, check_vma=False
        )(*arrays)

    return split


def detections(config: DetectionSearch, corners: jax.Array, scores: jax.Array) -> jax.Array:
    """Detections of one image, in falling order of score: float32 [most, 6].

    Args:
      corners: float32 [boxes, 4], or [boxes, classes, 4] where each class has its own.
      scores: Probability of each class, float32 [boxes, classes]; one that is not a number is none.
    """
    scores = jnp.where(scores > config.least_score, scores, 0.0).T
    # Of equal scores the first box is taken, so the order is that of the boxes.
    best, places = jax.lax.top_k(scores, min(config.most_a_class, len(corners)))
    if corners.ndim == 2:
        of_class = corners[places]
    else:
        of_class = jnp.take_along_axis(corners.swapaxes(0, 1), places[..., None], axis=1)
    is_rival = box_geometry.overlaps(of_class, of_class) >= config.overlap
    kept = jnp.where(suppression.greedy_choice(is_rival, best > 0), best, 0.0).reshape(-1)
    best, places = jax.lax.top_k(kept, min(config.most, len(kept)))
    classes = 1 + places // of_class.shape[1]
    columns = (of_class.reshape(-1, 4)[places], best[:, None], classes[:, None])
    found = jnp.where(best[:, None] > 0, jnp.concatenate(columns, axis=1), 0.0)
    return jnp.pad(found, ((0, config.most - len(found)), (0, 0)))
