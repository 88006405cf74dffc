"""Images with objects in COCO's form, as `dawnjax prepare --dataset=coco` wrote them.

Shards have the image files as they came, with their objects: `image`, `image/id`, and of each
object its `bbox`, `label`, `area`, `is_crowd` and, packed as COCO packs run lengths, its `mask`.
Columns have the objects as a run needs them at its start, the images of a split by id:

{train,eval}_records.npy     int64 [images], the place of each in the shards
{train,eval}_sizes.npy       int32 [images, 2], height and width
{train,eval}_ends.npy, boxes, areas, classes, crowd: as `Objects` has them
{train,eval}_masks.bin       packed run lengths of the masks, one after another
{train,eval}_mask_ends.npy   int64 [objects]
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.reading import coco_source, columns, shards
from dawnjax.input_pipeline.reading.archives import Member
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.coco_source import Count, Source
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_files import decode_image, orientation_of
from dawnjax.input_pipeline.reading.image_set import SPLITS
from dawnjax.input_pipeline.reading.objects import SIZES, Objects, ObjectsSpec, PackedMasks, crops
from dawnjax.input_pipeline.reading.photographs import LARGEST_BYTES
from dawnjax.input_pipeline.reading.preparing import Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.limits import Limit, NonNegative, require

KIND = "objects"
FIELDS = ("sizes", "ends", "boxes", "areas", "classes", "crowd")
"""Fields of `Objects`, a column each."""

COUNTS_IN_WORDS: dict[Count, str] = {
    "empty": "images without objects",
    "crowd": "crowd regions",
    "no_area": "objects without area, not trained on",
    "over_border": "boxes over the border, clipped for training",
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

    def __str__(self) -> str:
        parts = []
        purposes: dict[Split, str] = {"train": "to train on", "eval": "to evaluate"}
        for split, purpose in purposes.items():
            counts = self.counts[split]
            text = f"{counts['images']:,} images with {counts['objects']:,} objects {purpose}"
            notes = [f"{counts[n]:,} {word}" for n, word in COUNTS_IN_WORDS.items() if counts[n]]
            parts.append(f"{text} ({', '.join(notes)})" if notes else text)
        masks = "with" if self.has_masks else "without"
        return f"{'; '.join(parts)}; {len(self.classes)} classes, {masks} masks"


PUBLISHED: dict[str, dict[Split, dict[Count, int]]] = {
    "coco2017": {
        "train": {"images": 118_287, "objects": 860_001, "empty": 1_021},
        "eval": {"images": 5_000, "objects": 36_781, "empty": 48},
    }
}
"""Images, annotations and images without any. Source: `instances_train2017.json` and
`instances_val2017.json`."""

_MOST_OF_PUBLISHED = 96

SMALL = {"blood_cells": (292, 72, 3, 32), "nuclei": (250, 84, 1, 104)}
"""Images of both splits, classes and room for objects of an image, as `cells_ssd_small` and
`nuclei_mask_rcnn_small` prepare them: BCCD, and a part of the Data Science Bowl 2018."""

_WITHOUT_CATEGORY = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
CATEGORIES_OF_COCO = tuple(number for number in range(1, 91) if number not in _WITHOUT_CATEGORY)
"""Numbers of COCO's 80 categories. Source: `instances_val2017.json`."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as backbones are trained on it. Source: torchvision's documentation."""

_Side = Annotated[int, Limit(lambda value: 16 <= value <= 4096, "lie in 16 to 4096")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coco:
    """Images with boxes around objects and perhaps masks, resized to one shape.

    Attributes:
      corpus: Name of the set and of its directory. `coco2017` must have COCO 2017's counts.
      height: Height of the images that the network sees, in pixels.
      width: Likewise.
      train_height: Height of the images that training crops, larger to keep details; 0 takes
        `height`.
      train_width: Likewise.
      short_side: Images keep their aspect ratio: the shorter side gets this many pixels, or fewer
        if the longer side would exceed `long_side`; black pixels fill the rest below and on the
        right. 0 stretches images to `height` and `width`.
      long_side: Most pixels of the longer side; `height` and `width` must be at least as large.
      turns_tall: Whether tall images are turned on their side, in separate batches, so that both
        kinds have `height` x `width` pixels, with less padding.
      mask_side: Side of the square that each mask is resampled to, within its box; 0 reads no
        masks.
      trains_crowd: Whether to train on crowd regions as objects.
      evaluates_empty: Whether to evaluate images without objects, where every detection is wrong.
        MLPerf's SSD leaves them out.
      data_dir: The prepared directory. Empty takes the corpus's folder in the directory of the
        environment variable DAWNJAX_DATA, or in `./data` without it.
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
        prepared = self._prepared()
        directory, facts, known = prepared.directory, prepared.facts, PUBLISHED.get(self.corpus)
        if known is not None:
            for split, counts in known.items():
                there = {name: facts.counts[split][name] for name in counts}
                if there != counts:
                    raise ValueError(
                        f"data.corpus={self.corpus} has {counts} for {split}, but {directory} has "
                        f"{there}; name another corpus or directory"
                    )
        if self.mask_side and not facts.has_masks:
            raise DataError(
                f"{directory} has no masks, but data.mask_side={self.mask_side} needs them; "
                "prepare it again with --masks=true"
            )
        kept = {split: len(self._rows(split)) for split in SPLITS}
        empty = next((split for split in SPLITS if not kept[split]), None)
        if empty:
            raise DataError(f"{directory}: no image for {empty} has an object")
        evaluated = self.evaluated_objects()
        areas = evaluated.areas[~evaluated.crowd]
        found = {n: (areas >= least) & (areas <= most) for n, (least, most) in SIZES.items()}
        spec = self._spec(
            kept["train"],
            kept["eval"],
            len(facts.classes),
            # A multiple of 8 leaves the same shapes to sets that differ little.
            -(-facts.most_objects["train"] // 8) * 8,
            prepared.fingerprint(),
            self._declare(facts),
        )
        sizes = tuple(name for name, are_there in found.items() if are_there.any())
        return dataclasses.replace(spec, sizes_to_find=sizes)

    def _declare(self, facts: ObjectFacts) -> Declaration:
        if self.corpus not in PUBLISHED:
            return Declaration(name=self.corpus, overlap=facts.overlap)
        if facts.category_ids != CATEGORIES_OF_COCO:
            evidence = "the counts are COCO 2017's, but the category numbers differ"
            return Declaration(name=self.corpus, evidence=evidence, overlap=facts.overlap)
        return Declaration(
            name="COCO 2017",
            benchmark="COCO 2017",
            evidence=(
                "equal: images, objects and images without objects of both splits, category numbers"
            ),
            overlap=facts.overlap,
        )

    def published_spec(self) -> ObjectsSpec:
        if self.corpus in SMALL:
            return self._spec(*SMALL[self.corpus], NO_FINGERPRINT, None)
        known = PUBLISHED.get(self.corpus)
        # No image of COCO has crowd regions alone, so they change none of the counts.
        if known is None:
            raise MissingDataError(
                f"the size of {self.corpus} is known only from prepared data: give --data.data_dir"
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
        prepared, spec, rows = self._prepared(), self.spec(), self._rows(split)
        shape = spec.train_image_shape if split == "train" else spec.image_shape
        read = _read(prepared.directory)
        places, sizes = read[f"{split}_records"], read[f"{split}_sizes"]
        content = shards.images_of(prepared.directory, split)
        fitted, is_turned = self.fitted(sizes, shape), self.is_turned(sizes)

        def image(place: int) -> np.ndarray:
            row, record = rows[place], int(places[rows[place]])
            try:
                decoded = decode_image(content(record), *sizes[row].tolist())
                return placed(decoded, fitted[row].tolist(), shape, is_turned=bool(is_turned[row]))
            except DataError as error:
                where = f"{prepared.directory}: {shards.SPLITS[split]} example {record}"
                raise DataError(f"{where} {error}") from None

        arrays: dict[str, Any] = {"image": RowsOnDemand(len(rows), shape, "uint8", image)}
        if self.mask_side:
            arrays["covered"] = covered(fitted[rows], shape, is_turned[rows])
        if self.turns_tall:
            arrays[APART] = is_turned[rows]
        if split == "eval":
            return arrays
        objects, most = self._trained().of_images(rows), spec.most_objects
        if self.mask_side:
            arrays["masks"] = crops(objects, most, self.mask_side)
        return {**arrays, **objects.padded(most)}

    def evaluated_objects(self) -> Objects:
        """Objects of the images to evaluate, as published."""
        return _objects(self._prepared(), "eval").of_images(self._rows("eval"))

    def classes(self) -> tuple[str, ...]:
        return self._prepared().facts.classes

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

    def _prepared(self) -> Columns[ObjectFacts]:
        return _columns(directory_of(self.corpus, self.data_dir), self.corpus)

    def _rows(self, split: Split) -> np.ndarray:
        """Images of a split that are used."""
        if split == "train":
            return np.flatnonzero(self._trained().counts > 0)
        objects = _objects(self._prepared(), "eval")
        return np.flatnonzero((objects.counts > 0) | self.evaluates_empty)

    def _trained(self) -> Objects:
        """Objects with an area inside of their image, and crowd regions where they count."""
        objects = _objects(self._prepared(), "train")
        return objects.chosen(objects.has_area & (self.trains_crowd | ~objects.crowd))


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


def _columns(directory: pathlib.Path, corpus: str = "NAME") -> Columns[ObjectFacts]:
    command = f"--dataset=coco --name={corpus} --from=PATH"
    return columns.read(directory, KIND, ObjectFacts, command)


@functools.lru_cache(maxsize=2)
def _read(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """Arrays of both splits, verified."""
    prepared = _columns(directory)
    parts = ("records", "mask_ends", *FIELDS)
    names = [f"{split}_{part}" for split in SPLITS for part in parts]
    return {name: np.asarray(prepared.array(f"{name}.npy")) for name in names}


def _objects(prepared: Columns[ObjectFacts], split: Split) -> Objects:
    arrays = _read(prepared.directory)
    ends, masks = arrays[f"{split}_mask_ends"], None
    if len(ends):
        content = prepared.array(f"{split}_masks.bin")
        masks = PackedMasks(content, np.concatenate([[0], ends[:-1]]), ends)
    parts = {name: arrays[f"{split}_{name}"] for name in FIELDS}
    return Objects(**parts, masks=masks, names=prepared.facts.classes)


DEFAULTS: dict[Split, str] = {"train": "instances_train2017.json", "eval": "instances_val2017.json"}


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Examples of a source; `turned` gets the files that an EXIF orientation turns."""

    source: Source
    turned: list[str]

    def features(self, tfds: Any) -> dict[str, Any]:
        """As those of `coco` in TensorFlow Datasets, and the masks."""
        names = [name for _, name in self.source.categories]
        mask = {"mask": tfds.features.Text()} if self._has_masks else {}
        return {
            "image": tfds.features.Image(),
            "image/id": np.int64,
            "objects": tfds.features.Sequence(
                {
                    "area": np.float32,
                    "bbox": tfds.features.BBoxFeature(),
                    "is_crowd": np.bool_,
                    "label": tfds.features.ClassLabel(names=names),
                    **mask,
                }
            ),
        }

    @property
    def _has_masks(self) -> bool:
        return self.source.splits["train"].objects.masks is not None

    def of(self, split: Split, start: int) -> Iterator[shards.Example]:
        """Yield a split's examples from a position on."""
        part = self.source.splits[split]
        objects, ends = part.objects, part.objects.ends
        corners, starts = objects.corners, ends - objects.counts

        def contents() -> Iterator[tuple[tuple[int, Member], bytes]]:
            for row, member in self.source.images(split, start):
                if member.size > LARGEST_BYTES:
                    raise DataError(f"{part.about[row]}: its file has {member.size:,} bytes")
                yield (row, member), member.read()

        def check(key: tuple[int, Member], content: bytes) -> None:
            row, member = key
            try:
                decode_image(content, *objects.sizes[row].tolist())
            except DataError as error:
                where = f"{member.source}: {member.name}"
                raise DataError(f"{where} {error} ({part.about[row]})") from None

        for (row, member), content in shards.checked(contents(), check):
            if orientation_of(content) > 1:
                self.turned.append(member.name)
            there = []
            for place in range(int(starts[row]), int(ends[row])):
                mask = {} if objects.masks is None else {"mask": objects.masks[place]}
                there.append(
                    {
                        "area": float(objects.areas[place]),
                        "bbox": corners[place, [1, 0, 3, 2]],  # y before x
                        "is_crowd": bool(objects.crowd[place]),
                        "label": int(objects.classes[place]) - 1,
                        **mask,
                    }
                )
            yield {"image": content, "image/id": part.ids[row], "objects": there}


def made(source: Source, name: str, out: pathlib.Path) -> Made[ObjectFacts]:
    """Images with objects to be written."""
    files: dict[str, Content] = {}
    for split, part in source.splits.items():
        files[f"{split}_records.npy"] = np.argsort(part.order)
        for field in FIELDS:
            files[f"{split}_{field}.npy"] = getattr(part.objects, field)
        masks = list(part.objects.masks or ())
        files[f"{split}_masks.bin"] = b"".join(masks)
        files[f"{split}_mask_ends.npy"] = np.cumsum([len(mask) for mask in masks], dtype=np.int64)
    examples = _Examples(source, [])
    made_from = f"listing {source.listing}"
    return Made(
        directory=out,
        kind=KIND,
        dataset=name,
        files=files,
        facts=functools.partial(_facts, source),
        form=ObjectFacts,
        source=made_from,
        summary=lambda there: "".join([str(there.facts), *_notes(source, examples.turned)]),
        shards=shards.ExampleShards(
            name="objects",
            description=made_from,
            features=examples.features,
            counts={split: len(part.files) for split, part in source.splits.items()},
            examples=examples.of,
        ),
    )


def _notes(source: Source, turned: list[str]) -> Iterator[str]:
    """Lines about what is taken as it is and may be meant otherwise."""
    if turned:
        yield (
            f"\nnote: an EXIF orientation turns {len(turned):,} images, such as {turned[0]}; boxes "
            "and masks must be of the upright image"
        )
    for split, part in source.splits.items():
        boxes, sizes = part.objects.boxes, part.objects.sizes
        if len(boxes) and boxes.max() <= 1 < sizes.min():
            yield (
                f"\nnote: the boxes for {split} look like fractions of the image; COCO's are "
                "left, top, width and height in pixels"
            )


def _facts(source: Source, written: Columns[None]) -> ObjectFacts:
    most: dict[Split, int] = {
        split: int(part.objects.counts.max()) for split, part in source.splits.items()
    }
    return ObjectFacts(
        classes=tuple(name for _, name in source.categories),
        category_ids=tuple(number for number, _ in source.categories),
        counts={split: part.counts for split, part in source.splits.items()},
        most_objects=most,
        has_masks=source.splits["train"].objects.masks is not None,
        overlap=shards.overlap_of(written, "images"),
    )


def _prepare(request: Request) -> Made[ObjectFacts]:
    source, flags = request.required_source(), request.flags
    name = flags["name"] or "coco2017"
    wrong = images.reason_against(name)
    if wrong:
        raise FlagError(f"--name={name} {wrong}")
    masks = flags["masks"] or "true"
    if masks not in ("true", "false"):
        raise FlagError(f"--masks={masks} must be true or false")
    annotated: dict[Split, Sequence[str]] = {
        split: _names(f"{split}_annotations", flags[f"{split}_annotations"] or DEFAULTS[split])
        for split in SPLITS
    }
    out = request.out_for(name)
    return made(coco_source.open_source(source, annotated, with_masks=masks == "true"), name, out)


def _names(flag: str, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise FlagError(f"--{flag}={value} must name one file or more, without repeats")
    return names


PREPARATION = Preparation(
    name="coco",
    usage=(
        "--from=FOLDER [--masks=false] [--out=DIR] [--overwrite]",
        "--name=NAME --from=PATH --train_annotations=FILE[,FILE]\n--eval_annotations=FILE "
        "[--masks=false] [--out=DIR] [--overwrite]",
    ),
    takes="""--from is COCO 2017 as published (train2017.zip, val2017.zip and
annotations_trainval2017.zip in one folder, packed or not), or a folder, .tar or .zip with other
images and annotations in COCO's form. Images stay as they are, in ArrayRecord shards that
TensorFlow Datasets and Grain open (pip install "dawnjax[detection]"); polygons become run
lengths.""",
    flags=(
        Flag("name", "The name of the images."),
        Flag("train_annotations", f"Files to train on (default: {DEFAULTS['train']})."),
        Flag("eval_annotations", f"Files to evaluate (default: {DEFAULTS['eval']})."),
        Flag("masks", "true keeps the objects' masks, false only the boxes."),
    ),
    run=_prepare,
)
