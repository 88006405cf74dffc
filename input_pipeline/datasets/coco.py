"""Images with objects in COCO's form, as `dawnjax prepare --dataset=coco` wrote them.

{train,eval}_images.bin       the image files as they came, one after another
{train,eval}_starts.npy       int64 [images], the first byte of each; images are sorted by id
{train,eval}_lengths.npy      int64 [images], bytes of each
{train,eval}_sizes.npy        int32 [images, 2], height and width
{train,eval}_ends.npy, boxes, areas, classes, crowd: as `Objects` has them
{train,eval}_masks.bin        packed run lengths of the masks, one after another
{train,eval}_mask_ends.npy    int64 [objects]
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.reading import archives, coco_annotations, columns, overlap
from dawnjax.input_pipeline.reading.archives import Limits, Member
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.coco_annotations import Annotations, Count
from dawnjax.input_pipeline.reading.columns import Columns, Content
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
from dawnjax.input_pipeline.reading.image_set import LARGEST_VERIFIED_BYTES, SPLITS
from dawnjax.input_pipeline.reading.objects import SIZES, Objects, ObjectsSpec, PackedMasks, crops
from dawnjax.input_pipeline.reading.preparing import Flag, FlagError, Made, Preparation, Request
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand
from dawnjax.limits import Limit, NonNegative, require

KIND = "coco"
ARRAYS = (
    *("starts", "lengths", "sizes", "ends", "boxes", "areas", "classes", "crowd", "mask_ends"),
)

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
        prepared = self._prepared()
        directory, facts, known = prepared.directory, prepared.facts, PUBLISHED.get(self.corpus)
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
            prepared.fingerprint(),
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
        prepared, spec, rows = self._prepared(), self.spec(), self._rows(split)
        shape = spec.train_image_shape if split == "train" else spec.image_shape
        read = _read(prepared.directory)
        # To read the whole of COCO takes minutes of the clock; `dawnjax prepare`, done again,
        # compares all of it.
        name = f"{split}_images.bin"
        is_small = prepared.files[name].shape[0] <= LARGEST_VERIFIED_BYTES
        files = prepared.array(name, verified=is_small)
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
                raise DataError(f"{prepared.directory / name}: image {row} {error}") from None

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
    names = [f"{split}_{name}" for split in SPLITS for name in ARRAYS]
    return {name: np.asarray(prepared.array(f"{name}.npy")) for name in names}


def _objects(prepared: Columns[ObjectFacts], split: Split) -> Objects:
    arrays = _read(prepared.directory)
    fields = ("sizes", "ends", "boxes", "areas", "classes", "crowd")
    ends, masks = arrays[f"{split}_mask_ends"], None
    if len(ends):
        content = prepared.array(f"{split}_masks.bin")
        masks = PackedMasks(content, np.concatenate([[0], ends[:-1]]), ends)
    parts = {name: arrays[f"{split}_{name}"] for name in fields}
    return Objects(**parts, masks=masks, names=prepared.facts.classes)


_LIMITS = Limits(
    num_members=5 * archives.MOST_MEMBERS,
    name_bytes=2**26,
    member_bytes=coco_annotations.MOST_BYTES,
    total_bytes=2**37,
)
_MOST_ANNOTATION_BYTES = 2**30
"""Of all annotation files, which are held together."""

_MOST_IMAGE_BYTES = 2**26
_MOST_PIXEL_BYTES = 8
"""A pixel takes as many in a PNG of 16 bits and four channels that does not shrink."""

_BYTES_BESIDE = 2**22
"""Of an image file, for previews and other notes besides its pixels."""

_ARCHIVES = (".zip", ".tar")
BYTES_AT_ONCE = 2**26
"""Of image files and their pixels, which are in memory together; one image may have more."""

_BYTES_OF_AN_ENTRY = 2**12

DEFAULTS: dict[Split, str] = {"train": "instances_train2017.json", "eval": "instances_val2017.json"}


def members(path: pathlib.Path) -> Iterator[Member]:
    """Files of a folder or an archive, and of archives that lie in the folder."""
    is_folder = archives.kind_of(path) == "folder"
    for member in archives.members(path, _LIMITS):
        if is_folder and member.name.lower().endswith(_ARCHIVES):
            yield from archives.members(path / member.name, _LIMITS)
        else:
            yield member


Place = tuple[Split, int]
"""A split and the position of an image in it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Images with objects, before they are prepared.

    Attributes:
      name: Of the data set.
      annotations: Of each split.
      places: The images that a file of the source is, by its name there; all are in it.
      members: Yields the files in an order that does not change.
      listing: Hash of names, sizes and annotations.
    """

    name: str
    annotations: dict[Split, Annotations]
    places: dict[str, list[Place]]
    members: Callable[[], Iterator[Member]]
    listing: str


def open_source(
    path: pathlib.Path, name: str, annotated: dict[Split, Sequence[str]], *, with_masks: bool
) -> Source:
    """List a source and read its annotations; no image is read yet."""
    wanted = [file for files in annotated.values() for file in files]
    contents: dict[str, tuple[str, bytes]] = {}
    sizes: dict[str, int] = {}
    annotation_bytes = 0
    for member in members(path):
        where = f"{member.source}: {member.name}"
        if member.name in sizes:
            raise DataError(f"{where} is in {path} twice")
        sizes[member.name] = member.size
        for file in wanted:
            if f"/{member.name}".endswith(f"/{file}"):
                if file in contents:
                    raise DataError(f"{where} and {contents[file][0]} both end in {file}")
                annotation_bytes += member.size
                if annotation_bytes > _MOST_ANNOTATION_BYTES:
                    raise DataError(
                        f"{where}: the annotations have more than {_MOST_ANNOTATION_BYTES:,} bytes "
                        "together"
                    )
                contents[file] = where, member.read()
    absent = next((file for file in wanted if file not in contents), None)
    if absent is not None:
        there = [member for member in sizes if member.endswith(".json")][:5]
        raise DataError(f"{path}: no file {absent}; there are {', '.join(there) or 'no .json'}")
    annotations: dict[Split, Annotations] = {
        split: coco_annotations.read([contents[f] for f in files], with_masks=with_masks)
        for split, files in annotated.items()
    }
    first, second = (annotations[split] for split in SPLITS)
    if first.categories != second.categories:
        raise DataError(f"{path}: the categories to train on are not those to evaluate")
    places = places_of(path, annotations, sizes)
    listing = hashlib.sha256(json.dumps(sorted((n, sizes[n]) for n in places)).encode())
    listing.update(json.dumps([annotated, with_masks]).encode())
    for file in wanted:
        listing.update(contents[file][1])
    return Source(
        name=name,
        annotations=annotations,
        places=places,
        members=lambda: members(path),
        listing=listing.hexdigest()[:16],
    )


def places_of(
    path: pathlib.Path, annotations: dict[Split, Annotations], sizes: dict[str, int]
) -> dict[str, list[Place]]:
    """Images that each file is, by its name; every image has one."""
    listed = [image.file_name for part in annotations.values() for image in part.images]
    by_end = _by_end(sizes, {name for written in listed for name in _spellings(written)})
    places: dict[str, list[Place]] = defaultdict(list)
    for split, part in annotations.items():
        for row, (image, where) in enumerate(zip(part.images, part.where, strict=True)):
            about = f"{where}: image {image.id} ({coco_annotations.short_name(image)})"
            found: list[str] = []
            for name in _spellings(image.file_name):
                found = found or by_end.get(name, [])
            if not found:
                raise DataError(f"{about}: its file is missing in {path}")
            if len(found) > 1:
                raise DataError(f"{about}: may be {found[0]} or {found[1]} of {path}")
            most = _MOST_PIXEL_BYTES * image.height * image.width + _BYTES_BESIDE
            most = min(most, _MOST_IMAGE_BYTES)
            if sizes[found[0]] > most:
                raise DataError(
                    f"{about}: its file has {sizes[found[0]]:,} bytes; at most {most:,} are read "
                    f"for {image.width}x{image.height} pixels"
                )
            places[found[0]].append((split, row))
    return dict(places)


def _spellings(name: str) -> tuple[str, str]:
    """A name as it is written, and as other systems' tools may mean it."""
    return name, posixpath.normpath(name.replace("\\", "/"))


def _by_end(names: Iterable[str], wanted: set[str]) -> dict[str, list[str]]:
    """Names by those of their ends that are wanted, two of each at most.

    A file of the same name can be in each of many folders.
    """
    depths = sorted({end.count("/") + 1 for end in wanted})
    ends: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split("/")
        for depth in depths:
            if depth > len(parts):
                break
            end = "/".join(parts[-depth:])
            if end in wanted and len(ends[end]) < 2:
                ends[end].append(name)
    return ends


def made(source: Source, out: pathlib.Path, progress: Callable[[int], None]) -> Made:
    """Images with objects to be written."""
    files: dict[str, Content] = {}
    turned: list[str] = []
    for split in SPLITS:
        spans = np.zeros((len(source.annotations[split].images), 2), np.int64)
        files[f"{split}_images.bin"] = _images(source, split, spans, progress, turned)
        files[f"{split}_starts.npy"] = _once_known(spans, 0)
        files[f"{split}_lengths.npy"] = _once_known(spans, 1)
        objects = source.annotations[split].objects
        for name in ("sizes", "ends", "boxes", "areas", "classes", "crowd"):
            files[f"{split}_{name}.npy"] = getattr(objects, name)
        masks = list(objects.masks or ())
        files[f"{split}_masks.bin"] = b"".join(masks)
        files[f"{split}_mask_ends.npy"] = np.cumsum([len(mask) for mask in masks], dtype=np.int64)
    return Made(
        directory=out,
        kind=KIND,
        dataset=source.name,
        files=files,
        facts=functools.partial(_facts, source),
        form=ObjectFacts,
        summary=lambda written: "".join([str(written.facts), *_notes(source, turned)]),
        source=f"listing {source.listing}",
    )


def _once_known(spans: np.ndarray, column: int) -> Iterator[np.ndarray]:
    """A column of the places of images, which the writing of the images fills before."""
    yield spans[:, column]


def _images(
    source: Source,
    split: Split,
    spans: np.ndarray,
    progress: Callable[[int], None],
    turned: list[str],
) -> Iterator[np.ndarray]:
    """Files of a split's images, checked; the first byte and the length of each go to `spans`.

    `turned` gets the names of those that an EXIF orientation turns.
    """
    rows = {
        name: [row for of_split, row in places if of_split == split]
        for name, places in source.places.items()
    }
    wanted = (member for member in source.members() if rows.get(member.name))
    end = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        # A tar is read in its order; what is decoded at once was read before.
        while contents := _together(source, split, rows, wanted):
            jobs = [threads.submit(_check_image, source, member, data) for member, data in contents]
            for job in jobs:
                job.result()
            turned += [m.name for m, data in contents if orientation_of(data) > 1]
            progress(len(contents))
            contents.reverse()
            while contents:  # each is let go as it is written
                member, data = contents.pop()
                spans[rows[member.name]] = (end, len(data))
                end += len(data)
                yield np.frombuffer(data, np.uint8)


def _together(
    source: Source, split: Split, rows: dict[str, list[int]], wanted: Iterator[Member]
) -> list[tuple[Member, bytes]]:
    """The next image files, read: as many as `BYTES_AT_ONCE` holds with their pixels."""
    images, num_bytes = source.annotations[split].images, 0
    contents: list[tuple[Member, bytes]] = []
    while num_bytes < BYTES_AT_ONCE and (member := next(wanted, None)):
        image = images[rows[member.name][0]]
        contents.append((member, member.read()))
        num_bytes += _BYTES_OF_AN_ENTRY + member.size + 3 * image.height * image.width
    return contents


def _notes(source: Source, turned: list[str]) -> Iterator[str]:
    """Lines about what is taken as it is and may be meant otherwise."""
    if turned:
        yield (
            f"\nnote: an EXIF orientation turns {len(turned):,} images, such as {turned[0]}; boxes "
            "and masks must be of the upright image"
        )
    for split, part in source.annotations.items():
        boxes, sizes = part.objects.boxes, part.objects.sizes
        if len(boxes) and boxes.max() <= 1 < sizes.min():
            yield (
                f"\nnote: the boxes to {split} look like fractions of the image; COCO's are left, "
                "top, width and height in pixels"
            )


def _check_image(source: Source, member: Member, content: bytes) -> None:
    for split, row in source.places[member.name]:
        annotations = source.annotations[split]
        image = annotations.images[row]
        try:
            decode_image(content, image.height, image.width)
        except DataError as error:
            raise DataError(
                f"{member.source}: {member.name} {error} (image {image.id} of "
                f"{annotations.where[row]})"
            ) from None


def _facts(source: Source, written: Columns[None]) -> ObjectFacts:
    train, evaluated = (source.annotations[split] for split in SPLITS)
    arrays = {name: written.array(name, verified=False) for name in written.files}

    def reader(split: Split) -> Callable[[int], bytes]:
        starts, lengths = (arrays[f"{split}_{name}.npy"] for name in ("starts", "lengths"))
        content = arrays[f"{split}_images.bin"]
        return lambda row: content[starts[row] : starts[row] + lengths[row]].tobytes()

    sizes = (arrays["train_lengths.npy"], arrays["eval_lengths.npy"])
    return ObjectFacts(
        classes=train.objects.names,
        category_ids=tuple(category.id for category in train.categories),
        counts={"train": train.counts, "eval": evaluated.counts},
        most_objects={
            split: int(source.annotations[split].objects.counts.max()) for split in SPLITS
        },
        has_masks=train.objects.masks is not None,
        overlap=overlap.shared_files(sizes, (reader("train"), reader("eval")), "images"),
    )


def _prepare(request: Request) -> Made:
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
    opened = open_source(source, name, annotated, with_masks=masks == "true")
    return made(opened, out, request.progress.add)


def _names(flag: str, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise FlagError(f"--{flag}={value} must name one file or more, each once")
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
images and annotations in COCO's form. Images stay as they are; polygons become run lengths.
""",
    flags=(
        Flag("name", "What the images shall be called."),
        Flag("train_annotations", f"Files to train on; {DEFAULTS['train']} without."),
        Flag("eval_annotations", f"Files to evaluate; {DEFAULTS['eval']} without."),
        Flag("masks", "true keeps the objects' masks, and false the boxes alone."),
    ),
    run=_prepare,
)
