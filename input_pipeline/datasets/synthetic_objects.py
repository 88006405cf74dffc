"""Images with coloured rectangles made from a seed, which a network can learn to find."""

import dataclasses
import functools
import hashlib
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.dataset import Declaration, Split
from dawnjax.input_pipeline.reading.objects import Objects, ObjectsSpec, PackedMasks, crops
from dawnjax.limits import Limit, OneOrMore

_COLOURS = np.array([(220, 40, 40), (40, 200, 60), (50, 80, 230)])
_PUBLISHED_PIXELS = 8
"""Pixels of an image as published for each one drawn, so that all of COCO's sizes occur."""

Side = Annotated[int, Limit(lambda value: 16 <= value <= 1024, "lie in 16 to 1024")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticObjects:
    """Rectangles of three colours, their classes, on noise.

    Attributes:
      num_train_examples: Images to train on.
      num_eval_examples: Images to evaluate.
      height: Of the images, in pixels.
      width: Likewise.
      objects_an_image: The most; each image has one or more.
      mask_side: Of the square that each mask is cut to, in its box; 0 gives no masks.
      seed: Seed of what is drawn.
    """

    TAG: ClassVar[str] = "synthetic_objects"
    num_train_examples: OneOrMore[int] = 256
    num_eval_examples: OneOrMore[int] = 64
    height: Side = 64
    width: Side = 64
    objects_an_image: Annotated[int, Limit(lambda value: 1 <= value <= 20, "lie in 1 to 20")] = 3
    mask_side: Annotated[int, Limit(lambda value: 0 <= value <= 256, "lie in 0 to 256")] = 0
    seed: Annotated[int, Limit(lambda value: 0 <= value < 2**62, "lie in 0 to 2**62 - 1")] = 0

    def spec(self) -> ObjectsSpec:
        shape = (self.height, self.width, 3)
        return ObjectsSpec(
            num_train_examples=self.num_train_examples,
            num_eval_examples=self.num_eval_examples,
            image_shape=shape,
            train_image_shape=shape,
            num_classes=len(_COLOURS),
            most_objects=self.objects_an_image,
            mean=(0.5,) * 3,
            std=(0.25,) * 3,
            mask_side=self.mask_side,
            fingerprint=hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            declaration=Declaration(name="rectangles made from a seed"),
        )

    def load(self, split: Split) -> dict[str, Any]:
        images, objects = _drawn(self, split)
        arrays: dict[str, Any] = {"image": images}
        if self.mask_side:
            arrays["covered"] = np.ones((len(images), 2), np.float32)
        if split == "eval":
            return arrays
        most = self.objects_an_image
        if self.mask_side:
            arrays["masks"] = crops(objects, most, self.mask_side)
        return {**arrays, **objects.padded(most)}

    def evaluated_objects(self) -> Objects:
        return _drawn(self, "eval")[1]

    def classes(self) -> tuple[str, ...]:
        return ("red", "green", "blue")


@functools.lru_cache(maxsize=4)
def _drawn(config: SyntheticObjects, split: Split) -> tuple[np.ndarray, Objects]:
    random = np.random.default_rng(2 * config.seed + (split == "eval"))
    is_train = split == "train"
    count = config.num_train_examples if is_train else config.num_eval_examples
    height, width = config.height, config.width
    images = random.integers(90, 130, (count, height, width, 3)).astype(np.uint8)
    boxes, classes, masks, numbers = [], [], [], []
    for image in images:
        number = int(random.integers(1, config.objects_an_image + 1))
        numbers.append(number)
        for place in range(number):
            # Small, medium and large ones in turn, in pixels of the image as published.
            least, most = ((2, 4), (5, 11), (13, 16))[place % 3]
            w, h = random.integers(least, most, 2)
            x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
            kind = int(random.integers(len(_COLOURS)))
            image[y : y + h, x : x + w] = _COLOURS[kind]
            boxes.append((x, y, w, h))
            classes.append(kind + 1)
            mask = np.zeros((height, width), bool)
            mask[y : y + h, x : x + w] = True
            masks.append(
                run_lengths.pack(mask.repeat(_PUBLISHED_PIXELS, 0).repeat(_PUBLISHED_PIXELS, 1))
            )
    boxes = np.array(boxes, np.float64) * _PUBLISHED_PIXELS
    objects = Objects(
        sizes=np.full((count, 2), (height, width), np.int32) * _PUBLISHED_PIXELS,
        ends=np.cumsum(numbers),
        boxes=boxes,
        areas=boxes[:, 2] * boxes[:, 3],
        classes=np.array(classes, np.int32),
        crowd=np.zeros(len(boxes), bool),
        masks=PackedMasks.of(masks),
        names=config.classes(),
    )
    images.setflags(write=False)
    return images, objects
