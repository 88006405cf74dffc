"""Images with objects in COCO's form, as `dawnjax prepare --dataset=coco` wrote them.

{train,eval}_images.bin        the image files as they came, one after another
{train,eval}_starts.npy        int64 [images], the first byte of each; images are sorted by id
{train,eval}_lengths.npy       int64 [images], bytes of each
{train,eval}_sizes.npy         int32 [images, 2], height and width
{train,eval}_ends.npy, boxes, areas, classes, crowd: as `Objects` has them
{train,eval}_masks.bin         packed run lengths of the masks, one after another
{train,eval}_mask_ends.npy     int64 [objects]
dataset.json                   the manifest, with the counts of `ObjectFacts`
"""

import dataclasses
import functools
import pathlib
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax.input_pipeline.datasets.published import NO_FINGERPRINT
from dawnjax.input_pipeline.reading import mask_crops
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.dataset import (
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_files import LARGEST_PIXELS, decode_image
from dawnjax.input_pipeline.reading.image_set import LARGEST_VERIFIED_BYTES
from dawnjax.input_pipeline.reading.manifest import Kind, Manifest
from dawnjax.input_pipeline.reading.objects import SIZES, Objects, ObjectsSpec, PackedMasks
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.limits import Limit, NonNegative, require

SPLITS: tuple[Split, ...] = ("train", "eval")
ARRAYS = (
    *("starts", "lengths", "sizes", "ends", "boxes", "areas", "classes", "crowd", "mask_ends"),
)
MOST_OBJECTS = 1000
"""In one image; COCO has 93 at most, and each takes a place in every image of a batch."""

Count = Literal["images", "empty", "objects", "crowd", "no_area", "over_border"]

COUNTS_IN_WORDS: dict[Count, str] = {
    "empty": "images without objects",
    "crowd": "crowd regions",
    "no_area": "objects without area, not trained on",
    "over_border": "boxes over the border, cut for training",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectFacts:
    """Counts of prepared images with objects.

    Attributes:
      classes: Name of each class; class 1 is the first.
      category_ids: Its number in the annotations, which may leave numbers out.
      counts: Of each split.
      most_objects: Objects of the image that has the most.
      has_masks: Whether each object has a mask.
      overlap: Images in both splits; None where they were not compared.
    """

    classes: tuple[str, ...]
    category_ids: tuple[int, ...]
    counts: dict[Split, dict[Count, int]]
    most_objects: dict[Split, int]
    has_masks: bool
    overlap: Overlap | None = None

    def summary(self) -> str:
        parts = []
        purposes: dict[Split, str] = {"train": "to train on", "eval": "to evaluate"}
        for split, purpose in purposes.items():
            counts = self.counts[split]
            text = f"{counts['images']:,} images with {counts['objects']:,} objects {purpose}"
            notes = [f"{counts[n]:,} {word}" for n, word in COUNTS_IN_WORDS.items() if counts[n]]
            parts.append(f"{text} ({', '.join(notes)})" if notes else text)
        masks = "with" if self.has_masks else "without"
        return f"{'; '.join(parts)}; {len(self.classes)} classes, {masks} masks"


KIND = Kind(
    name="coco",
    title="images with objects",
    facts=ObjectFacts,
    files=tuple(
        f"{split}_{name}"
        for split in SPLITS
        for name in ("images.bin", "masks.bin", *(f"{array}.npy" for array in ARRAYS))
    ),
    algorithm="crc32",
)

PUBLISHED: dict[str, dict[Split, dict[Count, int]]] = {
    "coco2017": {
        "train": {"images": 118_287, "objects": 860_001, "empty": 1_021},
        "eval": {"images": 5_000, "objects": 36_781, "empty": 48},
    }
}
"""Images, annotations and images without any. Source: `instances_train2017.json` and
`instances_val2017.json`."""

_MOST_OF_PUBLISHED = 96

_WITHOUT_CATEGORY = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
CATEGORIES_OF_COCO = tuple(number for number in range(1, 91) if number not in _WITHOUT_CATEGORY)
"""Numbers of COCO's 80 categories. Source: `instances_val2017.json`."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, which backbones are trained on. Source: torchvision's documentation."""

_Side = Annotated[int, Limit(lambda value: 16 <= value <= 4096, "lie in 16 to 4096")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coco:
    """Images with boxes around objects and perhaps masks, resized to one shape.

    Attributes:
      corpus: Name of the set; the directory that is looked for. `coco2017` must hold its counts.
      height: Of the images that the network sees, in pixels.
      width: Likewise.
      train_height: Of the images that training crops, larger to keep details; 0 for `height`.
      train_width: Likewise.
      short_side: Images keep their aspect: the shorter side gets so many pixels, fewer where the
        longer one would have more than `long_side`, and black pixels follow below and on the right.
        0 stretches images to `height` and `width`.
      long_side: The most pixels of the longer side; `height` and `width` hold as many or more.
      turns_tall: Whether tall images lie on their side, in batches of their own, so that both kinds
        have `height` x `width` pixels, with less padding.
      mask_side: Of the square that each mask is cut to, in its box; 0 reads no masks.
      trains_crowd: Whether crowd regions are trained on as objects.
      evaluates_empty: Whether images without objects are evaluated, where each detection is wrong.
        MLPerf's SSD leaves them out.
      data_dir: The prepared directory. Empty takes one named as the corpus in the directory that
        the environment variable DAWNJAX_DATA names, or in `./data` without it.
    """

    TAG: ClassVar[str] = "coco"
    corpus: str
    height: _Side = 300
    width: _Side = 300
    train_height: NonNegative[int] = 0
    train_width: NonNegative[int] = 0
    short_side: NonNegative[int] = 0
    long_side: NonNegative[int] = 0
    turns_tall: bool = False
    mask_side: Annotated[int, Limit(lambda value: 0 <= value <= 256, "lie in 0 to 256")] = 0
    trains_crowd: bool = True
    evaluates_empty: bool = True
    data_dir: str = ""

    def check_together(self, prefix: str) -> None:
        short, long = self.short_side, self.long_side
        if short:
            # Tasks that take no masks would take padding for a part of the image.
            name = f"{prefix}mask_side"
            require(bool(self.mask_side), name, 0, f"be above 0 with {prefix}short_side={short}")
            most = self.width if self.turns_tall else min(self.height, self.width)
            which = "width" if self.turns_tall else "smaller side"
            rule = f"lie between {prefix}short_side={short} and {most}, the image's {which}"
            require(short <= long <= most, f"{prefix}long_side", long, rule)
        if self.turns_tall:
            rule = f"lie from {prefix}short_side={short}, above 0, to {prefix}width with turns_tall"
            fits = 0 < short <= self.height <= self.width
            require(fits, f"{prefix}height", self.height, rule)
        for name in ("train_height", "train_width"):
            rule = f"be 0 with {prefix}short_side={short} or {prefix}mask_side={self.mask_side}"
            value = getattr(self, name)
            require(not value or not (short or self.mask_side), f"{prefix}{name}", value, rule)

    def spec(self) -> ObjectsSpec:
        _read.cache_clear()  # the next run of this process reads anew, on its own clock
        directory, manifest = self._manifest()
        facts, known = manifest.facts, PUBLISHED.get(self.corpus)
        if known is not None:
            for split, counts in known.items():
                there = {name: facts.counts[split][name] for name in counts}
                if there != counts:
                    raise ValueError(
                        f"data.corpus={self.corpus} has {counts} to {split}, and {directory} "
                        f"{there}; name another corpus or directory"
                    )
        if self.mask_side and not facts.has_masks:
            raise DataError(
                f"{directory} has no masks, and data.mask_side={self.mask_side} asks for them; "
                "prepare it anew with --masks=true"
            )
        kept = {split: len(self._rows(split)) for split in SPLITS}
        empty = next((split for split in SPLITS if not kept[split]), None)
        if empty:
            raise DataError(f"{directory}: no image to {empty} has an object")
        evaluated = self.evaluated_objects()
        areas = evaluated.areas[~evaluated.crowd]
        found = {n: (areas >= least) & (areas <= most) for n, (least, most) in SIZES.items()}
        spec = self._spec(
            kept["train"],
            kept["eval"],
            len(facts.classes),
            # A multiple of 8 leaves the same shapes to sets that differ little.
            -(-facts.most_objects["train"] // 8) * 8,
            manifest.fingerprint(),
            self._declare(facts),
        )
        sizes = tuple(name for name, are_there in found.items() if are_there.any())
        return dataclasses.replace(spec, sizes_to_find=sizes)

    def _declare(self, facts: ObjectFacts) -> Declaration:
        if self.corpus not in PUBLISHED:
            return Declaration(name=self.corpus, overlap=facts.overlap)
        if facts.category_ids != CATEGORIES_OF_COCO:
            evidence = "counts are those of COCO 2017, and numbers of categories are others"
            return Declaration(name=self.corpus, evidence=evidence, overlap=facts.overlap)
        return Declaration(
            name="COCO 2017",
            benchmark="COCO 2017",
            evidence="equal: images, objects and images without objects of both splits, numbers of "
            "the categories",
            overlap=facts.overlap,
        )

    def published_spec(self) -> ObjectsSpec:
        known = PUBLISHED.get(self.corpus)
        # No image of COCO has crowd regions alone, so they change none of the counts.
        if known is None:
            raise MissingDataError(
                f"what {self.corpus} holds is known of prepared data alone: give --data.data_dir"
            )
        train, evaluated = known["train"], known["eval"]
        empty = 0 if self.evaluates_empty else evaluated["empty"]
        return self._spec(
            train["images"] - train["empty"],
            evaluated["images"] - empty,
            len(CATEGORIES_OF_COCO),
            _MOST_OF_PUBLISHED,
            NO_FINGERPRINT,
            None,
        )

    def load(self, split: Split) -> dict[str, Any]:
        directory, manifest = self._manifest()
        spec, rows = self.spec(), self._rows(split)
        shape = spec.train_image_shape if split == "train" else spec.image_shape
        read = _read(directory)
        # To read the whole of COCO takes minutes of the clock; `dawnjax prepare`, done again,
        # compares all of it.
        name = f"{split}_images.bin"
        is_small = manifest.files[name].num_bytes <= LARGEST_VERIFIED_BYTES
        files = manifest.mapped(directory, name, verified=is_small)
        starts, lengths, sizes = (
            read[f"{split}_{part}"] for part in ("starts", "lengths", "sizes")
        )
        fitted, is_turned = self.fitted(sizes, shape), self.is_turned(sizes)

        def image(place: int) -> np.ndarray:
            row = rows[place]
            content = files[starts[row] : starts[row] + lengths[row]].tobytes()
            try:
                decoded = decode_image(content, *sizes[row].tolist())
                return placed(decoded, fitted[row].tolist(), shape, is_turned=bool(is_turned[row]))
            except DataError as error:
                raise DataError(f"{directory / name}: image {row} {error}") from None

        arrays: dict[str, Any] = {"image": RowsOnDemand(len(rows), shape, "uint8", image)}
        if self.mask_side:
            arrays["covered"] = covered(fitted[rows], shape, is_turned[rows])
        if self.turns_tall:
            arrays[APART] = is_turned[rows]
        if split == "eval":
            return arrays
        objects, most = self._trained().of_images(rows), spec.most_objects
        if self.mask_side:
            arrays["masks"] = mask_crops.crops(objects, most, self.mask_side)
        return {**arrays, **objects.padded(most)}

    def evaluated_objects(self) -> Objects:
        """Objects of the images to evaluate, as published."""
        directory, manifest = self._manifest()
        objects = _objects(directory, "eval", manifest.facts.classes)
        return objects.of_images(self._rows("eval"))

    def classes(self) -> tuple[str, ...]:
        return self._manifest()[1].facts.classes

    def fitted(self, sizes: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
        """Height and width to resize each image of `sizes` [images, 2] to: int64 [images, 2]."""
        if not self.short_side:
            return np.broadcast_to(np.array(shape[:2]), sizes.shape)
        factors = np.minimum(self.short_side / sizes.min(1), self.long_side / sizes.max(1))
        return np.maximum((sizes * factors[:, None] + 1e-6).astype(np.int64), 1)

    def is_turned(self, sizes: np.ndarray) -> np.ndarray:
        """Images of `sizes` [images, 2] that lie on their side: bool [images]."""
        return (sizes[:, 0] > sizes[:, 1]) & self.turns_tall

    def _spec(
        self,
        num_train: int,
        num_eval: int,
        num_classes: int,
        most_objects: int,
        fingerprint: str,
        declaration: Declaration | None,
    ) -> ObjectsSpec:
        train = (self.train_height or self.height, self.train_width or self.width, 3)
        return ObjectsSpec(
            num_train_examples=num_train,
            num_eval_examples=num_eval,
            image_shape=(self.height, self.width, 3),
            train_image_shape=train,
            num_classes=num_classes,
            most_objects=most_objects,
            mean=MEAN,
            std=STD,
            mask_side=self.mask_side,
            turns_tall=self.turns_tall,
            fingerprint=fingerprint,
            declaration=declaration,
        )

    def _manifest(self) -> tuple[pathlib.Path, Manifest[ObjectFacts]]:
        directory = directory_of(self.corpus, self.data_dir)
        return directory, KIND.read(directory, f"--dataset=coco --name={self.corpus}")

    def _rows(self, split: Split) -> np.ndarray:
        """Images of a split that are used."""
        directory, manifest = self._manifest()
        if split == "train":
            return np.flatnonzero(self._trained().counts > 0)
        objects = _objects(directory, "eval", manifest.facts.classes)
        return np.flatnonzero((objects.counts > 0) | self.evaluates_empty)

    def _trained(self) -> Objects:
        """Objects with an area inside of their image, and crowd regions where they count."""
        directory, manifest = self._manifest()
        objects = _objects(directory, "train", manifest.facts.classes)
        kept = objects.has_area & (self.trains_crowd | ~objects.crowd)
        return objects.chosen(kept)


def resized(image: np.ndarray, size: list[int]) -> np.ndarray:
    """Image uint8 [height, width, 3] of another size, averaged over areas where it shrinks."""
    import cv2

    height, width = size
    if image.shape[:2] == (height, width):
        return image
    shrinks = image.shape[0] >= height and image.shape[1] >= width
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=method)


def covered(fitted: np.ndarray, shape: tuple[int, int, int], is_turned: np.ndarray) -> np.ndarray:
    """Heights and widths [images, 2] as fractions of the array, of images as they stand."""
    wholes = np.where(is_turned[:, None], shape[1::-1], shape[:2])
    return (fitted / wholes).astype(np.float32)


def placed(
    image: np.ndarray, size: list[int], shape: tuple[int, int, int], *, is_turned: bool
) -> np.ndarray:
    """Image of another size, on its side or not, with black pixels below and on its right."""
    image = resized(image, size)
    image = image.swapaxes(0, 1) if is_turned else image
    missing = [(0, whole - part) for whole, part in zip(shape, image.shape, strict=True)]
    return np.pad(image, missing) if any(after for _, after in missing) else image


@functools.lru_cache(maxsize=2)
def _read(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """Arrays of both splits, verified."""
    manifest = KIND.read(directory)
    names = [f"{split}_{name}" for split in SPLITS for name in ARRAYS]
    arrays = {name: np.asarray(manifest.array(directory, f"{name}.npy")) for name in names}
    for split in SPLITS:
        _check(directory, split, arrays, manifest)
    return arrays


def _check(
    directory: pathlib.Path,
    split: Split,
    arrays: dict[str, np.ndarray],
    manifest: Manifest[ObjectFacts],
) -> None:
    """Refuse arrays that contradict each other: a manifest may come from a stranger."""
    part = {name: arrays[f"{split}_{name}"] for name in ARRAYS}
    images, objects = len(part["starts"]), len(part["boxes"])
    forms = {
        **dict.fromkeys(("starts", "lengths", "ends"), ((images,), "int64")),
        "sizes": ((images, 2), "int32"),
        "boxes": ((objects, 4), "float64"),
        "areas": ((objects,), "float64"),
        "classes": ((objects,), "int32"),
        "crowd": ((objects,), "bool"),
        "mask_ends": ((objects if manifest.facts.has_masks else 0,), "int64"),
    }
    most_bytes = manifest.files[f"{split}_images.bin"].num_bytes
    most_of_masks = manifest.files[f"{split}_masks.bin"].num_bytes

    def lies_in(name: str, least: int, most: int) -> bool:
        values = part[name]
        return bool(((values >= least) & (values <= most)).all())

    def ascends(name: str) -> bool:
        return bool((np.diff(part[name], prepend=0) >= 0).all())

    if not (
        {name: (array.shape, array.dtype.name) for name, array in part.items()} == forms
        and lies_in("starts", 0, most_bytes)
        and lies_in("lengths", 0, most_bytes)
        and bool((part["starts"] + part["lengths"] <= most_bytes).all())
        and ascends("ends")
        and part["ends"][-1:].sum() == objects
        and ascends("mask_ends")
        and lies_in("mask_ends", 0, most_of_masks)
        and lies_in("sizes", 1, LARGEST_PIXELS)
        and bool((part["sizes"].astype(np.int64).prod(axis=1) <= LARGEST_PIXELS).all())
        and lies_in("classes", 1, len(manifest.facts.classes))
        and bool(np.isfinite(part["boxes"]).all() and np.isfinite(part["areas"]).all())
    ):
        raise DataError(
            f"{directory}: the arrays of the {split} split contradict each other; run `dawnjax "
            "prepare` again"
        )


def _objects(directory: pathlib.Path, split: Split, names: tuple[str, ...]) -> Objects:
    arrays = _read(directory)
    fields = ("sizes", "ends", "boxes", "areas", "classes", "crowd")
    mask_ends = arrays[f"{split}_mask_ends"]
    masks = None
    if len(mask_ends):
        content = KIND.read(directory).mapped(directory, f"{split}_masks.bin")
        masks = PackedMasks(content, np.concatenate([[0], mask_ends[:-1]]), mask_ends)
    parts = {name: arrays[f"{split}_{name}"] for name in fields}
    return Objects(**parts, masks=masks, names=names)
