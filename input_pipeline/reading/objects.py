"""Images with objects: the objects of a split on the host, and padded for a batch."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading import run_lengths
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.dataset import Shapes, Spec, Split
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

SIZES = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Areas of objects, both bounds included. Source: cocodataset/cocoapi, `cocoeval.py`, `Params`."""

BACKGROUND = 0
"""Class of padding; the classes of objects begin at 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectsSpec(Spec):
    """Counts and shapes of images with objects.

        train: {"image": uint8 [num_train_examples, height, width, 3] of `train_image_shape`,
                "boxes": float32 [num_train_examples, most_objects, 4],
                "classes": int32 and "crowd": bool [num_train_examples, most_objects]}
        eval:  {"image": uint8 [num_eval_examples, height, width, 3] of `image_shape`}

    Boxes are (left, top, right, bottom) as fractions of the image. Padding has class 0. With masks
    each split also has `covered`, float32 [.., 2]: height and width of the image as fractions of
    the array, whose rest, below and on the right, is padding. To train on, `masks` are uint8
    [.., most_objects, mask_side, mask_side], the coverage of each object from 0 to 255 in its box.
    With `turns_tall` each split also has `is_turned`, bool [..]: a tall image lies on its side, its
    rows and columns exchanged; boxes, masks and `covered` are of the image as it stands.

    Attributes:
      image_shape: Height, width and channels that a network sees.
      train_image_shape: Those of the images that are cropped, larger to keep details.
      num_classes: Classes of objects, without the background.
      most_objects: Places for the objects of an image.
      mean: Per channel, of pixel / 255; `std` likewise.
      mask_side: Of the squares of masks; 0 for data without masks.
      turns_tall: Whether tall images lie on their side, in batches of their own.
      sizes_to_find: Sizes that objects to evaluate have, crowd regions apart: of `SIZES`.
    """

    image_shape: tuple[int, int, int]
    train_image_shape: tuple[int, int, int]
    num_classes: int
    most_objects: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mask_side: int = 0
    turns_tall: bool = False
    sizes_to_find: tuple[str, ...] = ("small", "medium", "large")

    def example_shapes(self, split: Split) -> Shapes:
        covered: Shapes = {"covered": ((2,), "float32")} if self.mask_side else {}
        covered |= {APART: ((), "bool")} if self.turns_tall else {}
        if split == "eval":
            return {"image": (self.image_shape, "uint8"), **covered}
        places, side = (self.most_objects,), self.mask_side
        masks: Shapes = {"masks": ((*places, side, side), "uint8")} if side else {}
        return {
            "image": (self.train_image_shape, "uint8"),
            "boxes": ((*places, 4), "float32"),
            "classes": (places, "int32"),
            "crowd": (places, "bool"),
            **masks,
            **covered,
        }

    @property
    def upright(self) -> "ObjectsSpec":
        """Spec of the tall images as they stand."""
        height, width, channels = self.image_shape
        tall = (width, height, channels)
        return dataclasses.replace(self, image_shape=tall, train_image_shape=tall)

    def batch_elements(self, batch_size: int) -> int:
        largest = max(math.prod(self.image_shape), math.prod(self.train_image_shape))
        return batch_size * max(largest, self.most_objects * self.mask_side**2)


class PackedMasks:
    """Masks as run lengths that COCO packs into text, one after another in an array of bytes."""

    def __init__(self, content: np.ndarray, starts: np.ndarray, ends: np.ndarray):
        self._content, self._starts, self._ends = content, starts, ends

    @classmethod
    def of(cls, masks: list[bytes]) -> "PackedMasks":
        lengths = np.array([len(mask) for mask in masks], np.int64)
        ends = np.cumsum(lengths)
        return cls(np.frombuffer(b"".join(masks), np.uint8), ends - lengths, ends)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: int) -> bytes:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._content[self._starts[place] : self._ends[place]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[place] for place in range(len(self)))

    def at(self, places: np.ndarray) -> "PackedMasks":
        return PackedMasks(self._content, self._starts[places], self._ends[places])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objects:
    """Objects of all images of a split, one image after another.

    Attributes:
      sizes: int32 [images, 2], height and width in pixels, of the image as published.
      ends: int64 [images], the first object behind each image's.
      boxes: float64 [objects, 4]: left, top, width and height in pixels.
      areas: float64 [objects], in square pixels; of the mask where there is one.
      classes: int32 [objects], from 1.
      crowd: bool [objects], whether it is a region of many objects that are not told one by one.
      masks: Of each object; None where there are none.
      names: Name of each class.
    """

    sizes: np.ndarray
    ends: np.ndarray
    boxes: np.ndarray
    areas: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray
    masks: PackedMasks | None = None
    names: tuple[str, ...]

    @property
    def counts(self) -> np.ndarray:
        """Objects of each image: int64 [images]."""
        return np.diff(self.ends, prepend=0)

    @property
    def rows(self) -> np.ndarray:
        """Image of each object, from 0: int64 [objects]."""
        return np.repeat(np.arange(len(self.ends)), self.counts)

    @property
    def corners(self) -> np.ndarray:
        """Corners inside of the image, as fractions of it: float32 [objects, 4]."""
        height, width = self.sizes[self.rows].T
        corners = np.concatenate([self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]], axis=1)
        fractions = corners / np.stack([width, height, width, height], axis=1)
        return np.clip(fractions.astype(np.float32), 0, 1)

    @property
    def has_area(self) -> np.ndarray:
        """Where a box has an area inside of its image, as training sees it: bool [objects]."""
        corners = self.corners
        return np.asarray((corners[:, 2:] > corners[:, :2]).all(axis=1))

    def chosen(self, kept: np.ndarray) -> "Objects":
        """Objects where `kept`, bool [objects], of the same images."""
        places = np.flatnonzero(kept)
        return dataclasses.replace(
            self,
            ends=np.cumsum(np.bincount(self.rows[places], minlength=len(self.ends))),
            **self._at(places),
        )

    def of_images(self, images: np.ndarray) -> "Objects":
        """Objects of some images, in the given order."""
        starts = self.ends - self.counts
        spans = [np.arange(int(starts[row]), int(self.ends[row])) for row in images]
        places = np.concatenate([np.empty(0, np.int64), *spans]).astype(np.int64)
        return dataclasses.replace(
            self,
            sizes=self.sizes[images],
            ends=np.cumsum(self.counts[images]),
            **self._at(places),
        )

    def in_classes(self, names: tuple[str, ...]) -> "Objects":
        """Objects with the numbers that their classes have among `names`.

        ValueError: An object's class is none of them.
        """
        numbers = {name: number for number, name in enumerate(names, 1)}
        used = [self.names[number - 1] for number in np.unique(self.classes)]
        absent = next((name for name in used if name not in numbers), None)
        if absent is not None:
            raise ValueError(f"class {absent!r} is none of {', '.join(names[:10])}")
        table = np.array([0, *(numbers.get(name, 0) for name in self.names)], np.int32)
        return dataclasses.replace(self, classes=table[self.classes], names=names)

    def _at(self, places: np.ndarray) -> dict[str, Any]:
        names = ("boxes", "areas", "classes", "crowd")
        masks = None if self.masks is None else self.masks.at(places)
        return {**{name: getattr(self, name)[places] for name in names}, "masks": masks}

    def padded(self, most: int) -> dict[str, np.ndarray]:
        """`boxes`, `classes` and `crowd` as `ObjectsSpec` has them, without objects past `most`."""
        rows = self.rows
        places = np.arange(len(rows)) - (self.ends - self.counts)[rows]
        kept = places < most
        rows, places, images = rows[kept], places[kept], len(self.ends)
        boxes = np.zeros((images, most, 4), np.float32)
        boxes[rows, places] = self.corners[kept]
        classes = np.zeros((images, most), np.int32)
        classes[rows, places] = self.classes[kept]
        crowd = np.zeros((images, most), bool)
        crowd[rows, places] = self.crowd[kept]
        return {"boxes": boxes, "classes": classes, "crowd": crowd}


def crop(mask: np.ndarray, corners: np.ndarray, side: int) -> np.ndarray:
    """Mask bool [height, width] in a box, as coverage from 0 to 255: uint8 [side, side].

    A mask of an object is read from its square wherever it is asked for, so a batch needs no masks
    of whole images. Source: MLPerf training v0.6, Google's Mask R-CNN submission, `coco_utils` and
    `dataloader.py`.

    `corners` are fractions of the image. Position i of the square is the mask at i + 1/2 of `side`
    parts of the box, interpolated between pixels.
    """
    import cv2

    height, width = mask.shape
    left, top, right, bottom = corners * np.array([width, height, width, height], np.float64)
    scale_x, scale_y = (right - left) / side, (bottom - top) / side
    # Pixel centres lie at whole numbers for OpenCV, and at halves here.
    move = np.array([[scale_x, 0, left + scale_x / 2 - 0.5], [0, scale_y, top + scale_y / 2 - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    pixels = mask.astype(np.uint8) * 255
    # Beyond the image a mask goes on as at its border, so that an object there has no soft edge.
    return cv2.warpAffine(pixels, move, (side, side), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def crops(objects: Objects, most: int, side: int) -> RowsOnDemand:
    """Squares of the masks of each image's objects: uint8 [images, most, side, side].

    `objects` have masks; the squares of padding are 0.
    """
    masks, corners, starts = objects.masks, objects.corners, objects.ends - objects.counts

    def of_image(image: int) -> np.ndarray:
        squares = np.zeros((most, side, side), np.uint8)
        first, size = int(starts[image]), objects.sizes[image].tolist()
        for place in range(min(int(objects.counts[image]), most)):
            assert masks is not None
            mask = run_lengths.unpack(masks[first + place], *size)
            squares[place] = crop(mask, corners[first + place], side)
        return squares

    return RowsOnDemand(len(objects.ends), (most, side, side), "uint8", of_image)
