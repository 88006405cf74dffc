"""Annotations in COCO's form, read, checked and put in order.

    {"images": [{"id", "file_name", "height", "width"}],
     "categories": [{"id", "name"}],
     "annotations": [{"id", "image_id", "category_id", "bbox": [left, top, width, height],
                      "area", "iscrowd", "segmentation"}]}

A segmentation is a list of polygons or run lengths, packed or as a list.

Source: cocodataset.org, "Data format".
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import run_lengths, text_files
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.image_files import LARGEST_PIXELS
from dawnjax.input_pipeline.reading.objects import Objects, PackedMasks

MOST_OBJECTS = 1000
"""In one image; COCO has 93 at most, and each takes a place in every image of a batch."""

Count = Literal["images", "empty", "objects", "crowd", "no_area", "over_border"]

MOST_BYTES = 2**29
"""Of one file; `instances_train2017.json` has 448 MB."""

_MOST_MARKS = 100_000_000
"""More than a file of outlines of `MOST_BYTES` has; each costs at most 40 bytes of memory."""

_DEEPEST_NAME = 100
"""Parts of the path of an image's file."""

_MOST_MASK_BYTES = 2**24
"""Of the text of one annotation's segmentation, which takes up to 30 times as much in memory."""

_MERGED_AT_ONCE = 16
_MOST_SIDE = 2**16
_LARGEST = 1e6
"""Of a coordinate, in pixels."""

_LONGEST = 1e6
"""Of the outlines of an object, in pixels: filling them takes time and memory for each pixel."""

_PIXELS, _PIXELS_PER_BYTE = 2e7, 16
"""The outlines of a split have as many pixels at most, and so many more for each byte of its files:
boxes written as polygons with a perimeter of 3,200 pixels pass, in sets of any size."""


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
class Annotations:
    """Checked annotations of a split, images by id.

    Attributes:
      where: The file that each image is annotated in.
    """

    images: tuple[Image, ...]
    where: tuple[str, ...]
    categories: tuple[Category, ...]
    objects: Objects
    counts: dict[Count, int]


def read(files: Sequence[tuple[str, bytes]], *, with_masks: bool) -> Annotations:
    """Annotations of one split, of one file or several with the same categories.

    A DataError names file, image and annotation.
    """
    listed = [(name, _decoded(name, content)) for name, content in files]
    first_name, categories = listed[0][0], _categories(*listed[0])
    for name, file in listed[1:]:
        if _categories(name, file) != categories:
            raise DataError(f"{name}: its categories are not those of {first_name}")
    images: dict[int, tuple[Image, str]] = {}
    paths: dict[str, int] = {}
    for name, file in listed:
        for image in file.images:
            _check_image(name, image)
            for is_there in (image.id in images, image.file_name in paths):
                if is_there:
                    raise DataError(f"{_about(name, image)} is there twice")
            images[image.id], paths[image.file_name] = (image, name), image.id
    if not images:
        raise DataError(f"{first_name}: holds no images")
    objects: dict[int, list[tuple[Annotation, bytes]]] = {number: [] for number in images}
    numbers = {category.id: place for place, category in enumerate(categories, 1)}
    left = most = _PIXELS + _PIXELS_PER_BYTE * sum(len(content) for _, content in files)
    for name, file in listed:
        seen: set[int] = set()
        for annotation in file.annotations:
            where = f"{name}: annotation {annotation.id}"
            if annotation.id in seen:
                raise DataError(f"{where} is there twice")
            seen.add(annotation.id)
            if annotation.image_id not in images:
                raise DataError(f"{where} is of image {annotation.image_id}, which is not there")
            image, _ = images[annotation.image_id]
            where = f"{where} of image {image.id} ({short_name(image)})"
            if annotation.category_id not in numbers:
                raise DataError(f"{where} is of category {annotation.category_id}, which is none")
            _check_box(where, annotation, image)
            mask, outline = _mask(where, annotation, image) if with_masks else (b"", 0.0)
            left -= outline
            if left < 0:
                raise DataError(
                    f"{where}: the outlines up to here have more than {most:,.0f} pixels; shrink "
                    "images and annotations, or give --masks=false"
                )
            objects[image.id].append((annotation, mask))
            if len(objects[image.id]) > MOST_OBJECTS:  # of several files together
                raise DataError(f"{where}: the image has more than {MOST_OBJECTS:,} objects")
    in_order = [images[number] for number in sorted(images)]
    return _ordered(in_order, objects, categories, numbers, with_masks)


def _ordered(
    images: list[tuple[Image, str]],
    objects: dict[int, list[tuple[Annotation, bytes]]],
    categories: tuple[Category, ...],
    numbers: dict[int, int],
    with_masks: bool,
) -> Annotations:
    flat = [(image, *pair) for image, _ in images for pair in objects[image.id]]
    boxes = np.array([a.bbox for _, a, _ in flat], np.float64).reshape(-1, 4)
    areas = [_area(image, annotation, mask) for image, annotation, mask in flat]
    sizes = np.array([(image.height, image.width) for image, _ in images], np.int32)
    limits = np.array([(i.width, i.height) for i, _, _ in flat], np.float64).reshape(-1, 2)
    over = (boxes[:, :2] < 0) | (boxes[:, :2] + boxes[:, 2:] > limits)
    counts = [len(objects[image.id]) for image, _ in images]
    crowd = np.array([bool(a.iscrowd) for _, a, _ in flat], bool)
    ordered = Objects(
        sizes=sizes,
        ends=np.cumsum(counts, dtype=np.int64),
        boxes=boxes,
        areas=np.array(areas, np.float64),
        classes=np.array([numbers[a.category_id] for _, a, _ in flat], np.int32),
        crowd=crowd,
        masks=PackedMasks.of([mask for _, _, mask in flat]) if with_masks else None,
        names=tuple(category.name for category in categories),
    )
    return Annotations(
        images=tuple(image for image, _ in images),
        where=tuple(name for _, name in images),
        categories=categories,
        objects=ordered,
        counts={
            "images": len(images),
            "objects": len(flat),
            "empty": counts.count(0),
            "crowd": int(crowd.sum()),
            "no_area": int((~ordered.has_area).sum()),
            "over_border": int(over.any(axis=1).sum()),
        },
    )


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
    for start in range(0, len(content) - _MOST_MASK_BYTES, _MOST_MASK_BYTES):
        if content.find(b'"', start, start + _MOST_MASK_BYTES) < 0:
            raise DataError(
                f"{name}: one text or list in it has {_MOST_MASK_BYTES:,} bytes or more"
            )
    try:
        records.check_json(content, _MOST_MARKS)
        return msgspec.json.decode(content, type=_File)
    except records.BoundError as error:
        raise DataError(f"{name}: {error}") from None
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
            raise DataError(f"{name}: the category with {kind} {twice!r} is there twice")
    return categories


def _check_image(name: str, image: Image) -> None:
    sides = (image.height, image.width)
    fits = all(0 < side <= _MOST_SIDE for side in sides)
    if not fits or image.height * image.width > LARGEST_PIXELS:
        raise DataError(
            f"{_about(name, image)} has {image.width}x{image.height} pixels; "
            f"1 to {LARGEST_PIXELS:,} are read"
        )
    if not image.file_name:
        raise DataError(f"{name}: image {image.id} has no file name")
    if image.file_name.replace("\\", "/").count("/") >= _DEEPEST_NAME:
        raise DataError(
            f"{_about(name, image)}: its name leads through {_DEEPEST_NAME} folders or more"
        )


def _check_box(where: str, annotation: Annotation, image: Image) -> None:
    left, top, width, height = annotation.bbox
    values = [*annotation.bbox, 0.0 if annotation.area is None else annotation.area]
    shown = [float(f"{value:.6g}") for value in annotation.bbox]
    if max(map(abs, values)) >= _LARGEST**2:
        raise DataError(f"{where}: bbox {shown} or area {annotation.area} is too large")
    if width < 0 or height < 0 or values[4] < 0:
        raise DataError(f"{where}: bbox {shown} or its area is of negative size")
    outside = left > image.width or top > image.height or left + width < 0 or top + height < 0
    if outside or max(map(abs, shown)) > _LARGEST:
        size = f"{image.width}x{image.height}"
        raise DataError(f"{where}: bbox {shown} lies outside of the image of {size}")


def _mask(where: str, annotation: Annotation, image: Image) -> tuple[bytes, float]:
    """Packed run lengths of an annotation's mask, and the pixels of its outlines."""
    height, width, text = image.height, image.width, annotation.segmentation
    if len(text) > _MOST_MASK_BYTES:
        raise DataError(f"{where}: its segmentation has more than {_MOST_MASK_BYTES:,} bytes")
    try:
        given = msgspec.json.decode(text or b"null", type=list[list[float]] | _Runs | None)
    except msgspec.DecodeError as error:
        raise DataError(f"{where}: {records.in_words(error, 'segmentation')}") from None
    if isinstance(given, _Runs):
        if given.size != (height, width):
            raise DataError(
                f"{where}: the mask's size {list(given.size)} is not [{height}, {width}]"
            )
        runs = {"size": [height, width], "counts": given.counts}
        try:
            return run_lengths.masks().frPyObjects(runs, height, width)["counts"], 0.0
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
    if not given:
        raise DataError(f"{where}: has no segmentation; give --masks=false if no mask is wanted")
    outline = 0.0
    for polygon in given:
        if len(polygon) < 6 or len(polygon) % 2:
            raise DataError(f"{where}: a polygon has {len(polygon)} numbers; 3 points have 6")
        if max(map(abs, polygon)) >= _LARGEST:
            raise DataError(f"{where}: a polygon has a coordinate that is no number of pixels")
        outline += _outline(polygon)
        if outline > _LONGEST:
            raise DataError(f"{where}: its outlines are longer than {_LONGEST:,.0f} pixels")
    return _united(run_lengths.masks().frPyObjects(given, height, width))["counts"], outline


def _united(masks: list[Any]) -> Any:
    """Union of masks by halves: one after another would walk the first's runs for each."""
    if len(masks) == 1:
        return masks[0]
    if len(masks) <= _MERGED_AT_ONCE:
        return run_lengths.masks().merge(masks)
    half = len(masks) // 2
    return run_lengths.masks().merge([_united(masks[:half]), _united(masks[half:])])


def _outline(polygon: list[float]) -> float:
    """Pixels of a closed outline."""
    xs, ys = polygon[::2], polygon[1::2]
    steps = zip(xs, ys, [xs[-1], *xs[:-1]], [ys[-1], *ys[:-1]], strict=True)
    return sum(max(abs(x - last_x), abs(y - last_y), 1) for x, y, last_x, last_y in steps)


def _about(name: str, image: Image) -> str:
    return f"{name}: image {image.id} ({short_name(image)})"


def short_name(image: Image) -> str:
    """Name of an image in a message: one line."""
    name = " ".join(image.file_name.split())
    return name if len(name) <= 80 else f"...{name[-77:]}"
