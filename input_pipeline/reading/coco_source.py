"""A source in COCO's form: annotations, read, checked and put in order, and the image files.

    {"images": [{"id", "file_name", "height", "width"}],
     "categories": [{"id", "name"}],
     "annotations": [{"id", "image_id", "category_id", "bbox": [left, top, width, height],
                      "area", "iscrowd", "segmentation"}]}

A segmentation is a list of polygons or run lengths, packed or as a list. A few bytes of it can
stand for billions of pixels, so annotations are read in a process of bounded memory and time.

Source: cocodataset.org, "Data format".
"""

import dataclasses
import hashlib
import json
import pathlib
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import archives, run_lengths, text_files
from dawnjax.input_pipeline.reading.archives import Limits, Member
from dawnjax.input_pipeline.reading.bounded import Bounded, BoundedError
from dawnjax.input_pipeline.reading.dataset import DataError, Split
from dawnjax.input_pipeline.reading.image_files import LARGEST_PIXELS
from dawnjax.input_pipeline.reading.objects import Objects, PackedMasks

MOST_OBJECTS = 1000
"""In one image; COCO has 93 at most, and each takes a place in every image of a batch."""

Count = Literal["images", "empty", "objects", "crowd", "no_area", "over_border"]

LIMITS = Limits(
    num_members=5 * archives.MOST_MEMBERS,
    name_bytes=2**26,
    member_bytes=2**29,  # `instances_train2017.json` has 448 MB
    total_bytes=2**37,
)
_ARCHIVES = (".zip", ".tar")
_MOST_COUNTED, _MEMORY_A_BYTE, _BYTES_A_SECOND = 2**29, 16, 2**21
"""Memory and time are given for the source's archives and annotations, up to so many bytes of them.
By estimate, not measured: COCO's own annotations take 2 GB and a minute or two."""


class Image(msgspec.Struct):
    id: int
    file_name: str
    height: int
    width: int


class Category(msgspec.Struct):
    id: int
    name: str


class Annotation(msgspec.Struct):
    """An annotated object; its segmentation stays text until its mask is wanted."""

    id: int
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: int = 0
    segmentation: msgspec.Raw = msgspec.Raw()


class _Runs(msgspec.Struct):
    size: tuple[int, int]
    counts: str | list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]


class _File(msgspec.Struct):
    images: list[Image]
    categories: list[Category]
    annotations: list[Annotation] = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitOfSource:
    """Checked annotations of a split, images by id.

    Attributes:
      ids: Of each image.
      about: Each image in words: the file that annotates it, its id and name.
      files: Each image's file, by its name in the source.
      order: Images in the order in which the source yields their files.
    """

    ids: list[int]
    about: list[str]
    files: list[str]
    order: list[int]
    objects: Objects
    counts: dict[Count, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Images with objects, before they are prepared; `listing` hashes names, sizes, annotations."""

    path: pathlib.Path
    categories: tuple[tuple[int, str], ...]
    splits: dict[Split, SplitOfSource]
    listing: str

    def images(self, split: Split, start: int) -> Iterator[tuple[int, Member]]:
        """Yield a split's images from a position of its order on, each with its file."""
        rows = defaultdict(list)
        for row in self.splits[split].order:
            rows[self.splits[split].files[row]].append(row)
        position = 0
        for member in members(self.path):
            for row in rows.get(member.name, ()):
                if position >= start:
                    yield row, member
                position += 1


def open_source(
    path: pathlib.Path, annotated: Mapping[Split, Sequence[str]], *, with_masks: bool
) -> Source:
    """List a source and read its annotations, the files of each split; no image is read yet."""
    kinds = (".json", *_ARCHIVES)
    if archives.kind_of(path) == "folder":
        files = archives.members(path, LIMITS)
        num_bytes = sum(file.size for file in files if file.name.lower().endswith(kinds))
    else:
        num_bytes = path.stat().st_size
    try:
        reader = Bounded(
            Reader,
            num_bytes=min(num_bytes, _MOST_COUNTED),
            memory_a_byte=_MEMORY_A_BYTE,
            bytes_a_second=_BYTES_A_SECOND,
        )
        read = reader.ask("read", str(path), dict(annotated), with_masks)
    except BoundedError as error:
        words = str(error)
        raise DataError(words if str(path) in words else f"{path}: {words}") from None
    categories = tuple((number, name) for number, name in read["categories"])
    splits: dict[Split, SplitOfSource] = {}
    for split in annotated:
        fields = read["splits"][split]
        objects, masks = fields.pop("objects"), fields.pop("masks")
        packed = PackedMasks.of(masks) if with_masks else None
        class_names = tuple(name for _, name in categories)
        made = Objects(**objects, masks=packed, names=class_names)
        splits[split] = SplitOfSource(**fields, objects=made)
    return Source(path=path, categories=categories, splits=splits, listing=read["listing"])


def members(path: pathlib.Path) -> Iterator[Member]:
    """Files of a folder or an archive, and of archives that lie in the folder."""
    is_folder = archives.kind_of(path) == "folder"
    for member in archives.members(path, LIMITS):
        if is_folder and member.name.lower().endswith(_ARCHIVES):
            yield from archives.members(path / member.name, LIMITS)
        else:
            yield member


class Reader:
    """Reads annotations, in a process of its own."""

    def read(
        self, path: str, annotated: dict[Split, list[str]], with_masks: bool
    ) -> dict[str, Any]:
        """Content of a `Source` in plain values; a DataError names file, image and annotation."""
        place = pathlib.Path(path)
        wanted = [file for files in annotated.values() for file in files]
        contents: dict[str, tuple[str, bytes]] = {}
        sizes: dict[str, int] = {}
        for member in members(place):
            where = f"{member.source}: {member.name}"
            if member.name in sizes:
                raise DataError(f"{where} is in {path} twice")
            sizes[member.name] = member.size
            for file in wanted:
                if f"/{member.name}".endswith(f"/{file}"):
                    if file in contents:
                        raise DataError(f"{where} and {contents[file][0]} both end in {file}")
                    contents[file] = where, member.read()
        absent = next((file for file in wanted if file not in contents), None)
        if absent is not None:
            there = [member for member in sizes if member.endswith(".json")][:5]
            raise DataError(f"{path}: no file {absent}; there are {', '.join(there) or 'no .json'}")
        listing = hashlib.sha256(json.dumps([annotated, with_masks]).encode())
        found: dict[Split, Listed] = {}
        for split, files in annotated.items():
            found[split] = listed([contents[file] for file in files], with_masks=with_masks)
            for file in files:
                listing.update(contents.pop(file)[1])
        first, *others = (part.categories for part in found.values())
        if any(other != first for other in others):
            raise DataError(f"{path}: the training and evaluation categories differ")
        splits = {split: _found(path, part, sizes) for split, part in found.items()}
        used = sorted({file for part in splits.values() for file in part["files"]})
        listing.update(json.dumps([(name, sizes[name]) for name in used]).encode())
        return {
            "categories": [(category.id, category.name) for category in first],
            "splits": splits,
            "listing": listing.hexdigest()[:16],
        }


@dataclasses.dataclass(frozen=True)
class Listed:
    """Annotations of a split: its images by id with the file of each, and their objects."""

    images: list[tuple[Image, str]]
    categories: tuple[Category, ...]
    objects: dict[int, list[tuple[Annotation, bytes]]]


def listed(files: Sequence[tuple[str, bytes]], *, with_masks: bool) -> Listed:
    """Annotations of one file, or of several with the same categories."""
    decoded = [(name, _decoded(name, content)) for name, content in files]
    first_name, categories = decoded[0][0], _categories(*decoded[0])
    for name, file in decoded[1:]:
        if _categories(name, file) != categories:
            raise DataError(f"{name}: its categories differ from those of {first_name}")
    images: dict[int, tuple[Image, str]] = {}
    names: set[str] = set()
    for name, file in decoded:
        for image in file.images:
            _check_image(name, image)
            if image.id in images or image.file_name in names:
                raise DataError(f"{_about(name, image)} appears twice")
            images[image.id] = (image, name)
            names.add(image.file_name)
    if not images:
        raise DataError(f"{first_name}: holds no images")
    objects: dict[int, list[tuple[Annotation, bytes]]] = {number: [] for number in images}
    numbers = {category.id for category in categories}
    for name, file in decoded:
        seen: set[int] = set()
        for annotation in file.annotations:
            where = f"{name}: annotation {annotation.id}"
            if annotation.id in seen:
                raise DataError(f"{where} appears twice")
            seen.add(annotation.id)
            if annotation.image_id not in images:
                raise DataError(f"{where} belongs to image {annotation.image_id}, which is missing")
            image, _ = images[annotation.image_id]
            where = f"{where} of image {image.id} ({_short(image)})"
            if annotation.category_id not in numbers:
                raise DataError(
                    f"{where} belongs to category {annotation.category_id}, which does not exist"
                )
            _check_box(where, annotation, image)
            mask = _mask(where, annotation, image) if with_masks else b""
            objects[image.id].append((annotation, mask))
            if len(objects[image.id]) > MOST_OBJECTS:  # of several files together
                raise DataError(f"{where}: the image has more than {MOST_OBJECTS:,} objects")
    return Listed([images[number] for number in sorted(images)], categories, objects)


def _found(path: str, listed: Listed, sizes: Mapping[str, int]) -> dict[str, Any]:
    """A split as plain values, each image with its file of the source."""
    files = files_of(path, listed.images, sizes)
    rows = defaultdict(list)
    for row, file in enumerate(files):
        rows[file].append(row)
    numbers = {category.id: place for place, category in enumerate(listed.categories, 1)}
    flat = [(image, *pair) for image, _ in listed.images for pair in listed.objects[image.id]]
    boxes = np.array([a.bbox for _, a, _ in flat], np.float64).reshape(-1, 4)
    limits = np.array([(i.width, i.height) for i, _, _ in flat], np.float64).reshape(-1, 2)
    over = (boxes[:, :2] < 0) | (boxes[:, :2] + boxes[:, 2:] > limits)
    counts = [len(listed.objects[image.id]) for image, _ in listed.images]
    crowd = np.array([bool(a.iscrowd) for _, a, _ in flat], bool)
    objects = {
        "sizes": np.array([(image.height, image.width) for image, _ in listed.images], np.int32),
        "ends": np.cumsum(counts, dtype=np.int64),
        "boxes": boxes,
        "areas": np.array([_area(*each) for each in flat], np.float64),
        "classes": np.array([numbers[a.category_id] for _, a, _ in flat], np.int32),
        "crowd": crowd,
    }
    has_area = Objects(**objects, names=()).has_area
    return {
        "ids": [image.id for image, _ in listed.images],
        "about": [_about(name, image) for image, name in listed.images],
        "files": files,
        "order": [row for name in sizes for row in rows.get(name, ())],
        "objects": objects,
        "masks": [mask for _, _, mask in flat],
        "counts": {
            "images": len(files),
            "objects": len(flat),
            "empty": counts.count(0),
            "crowd": int(crowd.sum()),
            "no_area": int((~has_area).sum()),
            "over_border": int(over.any(axis=1).sum()),
        },
    }


def files_of(path: str, images: Sequence[tuple[Image, str]], sizes: Mapping[str, int]) -> list[str]:
    """Name of each image's file in the source."""
    by_end = _by_end(sizes, {name for image, _ in images for name in _spellings(image.file_name)})
    files = []
    for image, where in images:
        found = next((by_end[n] for n in _spellings(image.file_name) if n in by_end), [])
        if not found:
            raise DataError(f"{_about(where, image)}: its file is missing in {path}")
        if len(found) > 1:
            raise DataError(f"{_about(where, image)}: may be {found[0]} or {found[1]} of {path}")
        files.append(found[0])
    return files


def _spellings(name: str) -> tuple[str, str]:
    """A name as it is written, and as other systems' tools may mean it."""
    return name, posixpath.normpath(name.replace("\\", "/"))


def _by_end(names: Iterable[str], wanted: set[str]) -> dict[str, list[str]]:
    """Names by those of their ends that are wanted, two of each at most.

    A file of the same name can be in each of many folders.
    """
    depths = sorted({end.count("/") + 1 for end in wanted})
    ends: dict[str, list[str]] = {}
    for name in names:
        parts = name.split("/")
        for depth in depths:
            end = "/".join(parts[-depth:])
            if depth <= len(parts) and end in wanted and len(ends.setdefault(end, [])) < 2:
                ends[end].append(name)
    return ends


def _area(image: Image, annotation: Annotation, mask: bytes) -> float:
    """Area as annotated, else of the mask, else of the box."""
    if annotation.area is not None:
        return annotation.area
    if mask:
        runs = {"size": [image.height, image.width], "counts": mask}
        return float(run_lengths.masks().area(runs))
    return annotation.bbox[2] * annotation.bbox[3]


def _decoded(name: str, content: bytes) -> _File:
    content = text_files.unmarked(name, content)
    if not content or content.isspace():
        raise DataError(f"{name}: is empty")
    try:
        return msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"{name}: {records.in_words(error)}") from None


def _categories(name: str, file: _File) -> tuple[Category, ...]:
    """Categories of a file by number, checked."""
    categories = tuple(sorted(file.categories, key=lambda category: category.id))
    if not 0 < len(categories) <= 10_000:
        raise DataError(f"{name}: has {len(categories):,} categories; 1 to 10,000 are read")
    for kind in ("id", "name"):
        values = Counter(getattr(category, kind) for category in categories)
        twice = next((value for value, times in values.items() if times > 1), None)
        if twice is not None:
            raise DataError(f"{name}: the category with {kind} {twice!r} appears twice")
    return categories


def _check_image(name: str, image: Image) -> None:
    if min(image.height, image.width) < 1 or image.height * image.width > LARGEST_PIXELS:
        raise DataError(
            f"{_about(name, image)} has {image.width}x{image.height} pixels; "
            f"1 to {LARGEST_PIXELS:,} are read"
        )
    if not image.file_name:
        raise DataError(f"{name}: image {image.id} has no file name")


def _check_box(where: str, annotation: Annotation, image: Image) -> None:
    left, top, width, height = annotation.bbox
    shown = [float(f"{value:.6g}") for value in annotation.bbox]
    if width < 0 or height < 0 or (annotation.area or 0.0) < 0:
        raise DataError(f"{where}: bbox {shown} or its area is negative")
    if left > image.width or top > image.height or left + width < 0 or top + height < 0:
        size = f"{image.width}x{image.height}"
        raise DataError(f"{where}: bbox {shown} lies outside the image of {size}")


def _mask(where: str, annotation: Annotation, image: Image) -> bytes:
    """Packed run lengths of an annotation's mask."""
    height, width, text = image.height, image.width, annotation.segmentation
    try:
        given = msgspec.json.decode(text or b"null", type=list[list[float]] | _Runs | None)
    except msgspec.DecodeError as error:
        raise DataError(f"{where}: {records.in_words(error, 'segmentation')}") from None
    if isinstance(given, _Runs):
        if given.size != (height, width):
            raise DataError(
                f"{where}: the mask's size {list(given.size)} is not [{height}, {width}]"
            )
        given = {"size": [height, width], "counts": given.counts}
    elif not given:
        raise DataError(f"{where}: has no segmentation; give --masks=false to leave out masks")
    else:
        short = next((len(p) for p in given if len(p) < 6 or len(p) % 2), None)
        if short is not None:
            raise DataError(f"{where}: a polygon has {short} numbers; 3 points need 6")
    try:
        masks = run_lengths.masks()
        packed = masks.frPyObjects(given, height, width)
        return (masks.merge(packed) if isinstance(packed, list) else packed)["counts"]
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _about(name: str, image: Image) -> str:
    return f"{name}: image {image.id} ({_short(image)})"


def _short(image: Image) -> str:
    """Name of an image in a message: one line."""
    name = " ".join(image.file_name.split())
    return name if len(name) <= 80 else f"...{name[-77:]}"
