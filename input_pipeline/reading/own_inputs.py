"""Inputs of a person's own for a trained model: images of any size, and lines of text."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import text_files
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.image_files import (
    decode_image,
    decode_square,
    image_size,
)
from dawnjax.input_pipeline.reading.photographs import LARGEST_BYTES
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

MOST_BYTES = 2**26
"""Limit of all texts together."""

MOST_LINES = 100_000


def images(
    files: Sequence[pathlib.Path],
    shape: tuple[int, int, int],
    fit: Callable[[bytes, int], np.ndarray],
) -> RowsOnDemand:
    """Images uint8 [files, *shape], made by `fit` of a file's content and its position.

    All files are looked at before one is decoded: a DataError names the one that is not an image.
    """
    for file in files:
        of_file(file, image_size)

    def row(position: int) -> np.ndarray:
        return of_file(files[position], lambda content: fit(content, position))

    return RowsOnDemand(len(files), shape, "uint8", row, num_threads=1)


def of_file(file: pathlib.Path, read: Callable[[bytes], Any]) -> Any:
    """What `read` makes of an image's file; its DataError names the file."""
    with text_files.named_errors(file):
        content = records.read_plain(file, LARGEST_BYTES)
    try:
        return read(content)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def fitted(content: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """Image of a shape: as it is, or else its middle square resized; grey for one channel."""
    height, width, channels = shape
    if channels not in (1, 3):
        raise DataError(f"cannot become an image with the run's {channels} channels")
    size = image_size(content)
    if size == (height, width):
        image = decode_image(content, height, width)
    elif height == width:
        image = decode_square(content, height)
    else:
        raise DataError(f"is {size[1]}x{size[0]} pixels; the run's images are {width}x{height}")
    if channels == 3:
        return image
    import cv2  # loaded by whoever decodes

    return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)[..., None]


class Line(NamedTuple):
    """Line of a text, and where it stands."""

    file: pathlib.Path
    number: int
    text: str

    def refuse(self, reason: str) -> DataError:
        return DataError(f"{self.file}:{self.number}: {reason}")

    def given(self, name: str, value: Any) -> dict[str, Any]:
        """JSON values that name the input in the output."""
        return {"file": str(self.file), "line": self.number, name: value}


def lines(files: Sequence[pathlib.Path], most_line_bytes: int) -> list[Line]:
    """Lines of texts in UTF-8, plain or packed, without blank ones; one or more."""
    found: list[Line] = []
    num_bytes = 0
    for file in files:
        text = text_files.read(file, MOST_BYTES)
        num_bytes += len(text.encode())
        if num_bytes > MOST_BYTES:
            raise DataError(
                f"{file}: more than {MOST_BYTES:,} bytes in all; answer fewer files at once"
            )
        if "\0" in text:
            raise DataError(f"{file}: is not text: it holds a zero byte")
        for number, line in enumerate(text_files.lines_of(text), 1):
            if line.strip():
                found.append(Line(file, number, line))
        if len(found) > MOST_LINES:
            raise DataError(
                f"{file}: more than {MOST_LINES:,} lines in all; answer fewer files at once"
            )
    for line in found:
        size = len(line.text.encode())
        if size > most_line_bytes:
            raise line.refuse(f"has {size:,} bytes, and a line at most {most_line_bytes:,}")
    if not found:
        raise DataError(f"{files[0]}: has no line of text")
    return found
