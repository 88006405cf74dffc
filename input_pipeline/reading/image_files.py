"""JPEG and PNG files as arrays, refused before decoding where they are damaged or too large.

OpenCV fills the rest of a truncated file with grey, and allocates an image of whatever size a
header states. So the file's structure is checked first.
"""

import re
import struct
import zlib

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.jpeg_verdict import VERDICTS

_PNG_START = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""In compressed data 0 follows a byte 255, or a restart mark, which is part of the data."""

_JPEG_END = 0xD9
_JPEG_WITHOUT_LENGTH = (0x01, 0xD8)

# Frame headers, which hold the size: SOF0 to SOF15; three codes among them mean other things.
# Source: ITU-T T.81, table B.1.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

LARGEST_PIXELS = 2**26
"""The most pixels that are decoded: 200 MB as RGB."""

_MOST_MARKERS = 100_000
"""Segments of a JPEG, each scan being one."""


def decode_image(content: bytes, height: int, width: int) -> np.ndarray:
    """Decode a JPEG or PNG file of a known size to 8-bit RGB, uint8 [height, width, 3]."""
    size = image_size(content)
    if size in ((height, width), (width, height)):
        image = _decode(content, size)[:, :, ::-1]
        size = image.shape[:2]  # it may have been turned
        if size == (height, width):
            return image
    raise DataError(f"is {size[1]}x{size[0]} pixels, but should be {width}x{height}")


def decode_upright(content: bytes) -> np.ndarray:
    """Decode an image of any size to 8-bit RGB, turned as its mark of orientation says."""
    return _decode(content, _bounded_size(content))[:, :, ::-1]


def decode_square(content: bytes, side: int) -> np.ndarray:
    """Decode the middle square of an image of any size, resized: uint8 [side, side, 3].

    Grey, CMYK and 16-bit images become 8-bit RGB; transparency is dropped, and an orientation mark
    turns the image. A DataError names no file.
    """
    import cv2

    size = _bounded_size(content)
    image = _decode(content, size, _reduction(content, min(size), side))
    least = min(image.shape[:2])
    top, left = ((length - least) // 2 for length in image.shape[:2])
    square = image[top : top + least, left : left + least]
    if least > side:
        # OpenCV averages over areas fast where they are whole pixels, and slowly elsewhere. So a
        # whole multiple of the side is interpolated first, no smaller than the image.
        larger = -(-least // side) * side
        square = cv2.resize(square, (larger, larger), interpolation=cv2.INTER_LINEAR)
        square = cv2.resize(square, (side, side), interpolation=cv2.INTER_AREA)
    elif least < side:
        square = cv2.resize(square, (side, side), interpolation=cv2.INTER_LINEAR)
    return cv2.cvtColor(square, cv2.COLOR_BGR2RGB)


def _reduction(content: bytes, least: int, side: int) -> int:
    """Factor by which a JPEG's own transform may shrink it, to twice the side at least."""
    if not content.startswith(_JPEG_START):
        return 1
    # Shrunk to less, photographs are sharper than averages over areas: by up to six of 255 levels
    # in the mean over one image of 300.
    return max(factor for factor in (1, 2, 4, 8) if factor == 1 or least >= 2 * side * factor)


def _bounded_size(content: bytes) -> tuple[int, int]:
    height, width = image_size(content)
    if not 0 < height * width <= LARGEST_PIXELS:
        raise DataError(f"is {width}x{height} pixels; {LARGEST_PIXELS:,} pixels are the limit")
    return height, width


def image_size(content: bytes) -> tuple[int, int]:
    """(height, width) of a JPEG or PNG file, whatever its name; it must have its end."""
    if content.startswith(_PNG_START):
        return _png_size(content)
    if content.startswith(_JPEG_START):
        return _jpeg_size(content)
    raise DataError("is neither JPEG nor PNG")


def _decode(content: bytes, size: tuple[int, int], reduction: int = 1) -> np.ndarray:
    """Image as OpenCV has it: blue, green, red; sides over `reduction`, rounded up; upright."""
    import cv2  # here because every command would pay for the import, and few decode

    reduced = {
        1: cv2.IMREAD_COLOR,
        2: cv2.IMREAD_REDUCED_COLOR_2,
        4: cv2.IMREAD_REDUCED_COLOR_4,
        8: cv2.IMREAD_REDUCED_COLOR_8,
    }
    data = np.frombuffer(content, np.uint8)
    image, complaint = VERDICTS.decode(lambda: cv2.imdecode(data, reduced[reduction]))
    if complaint:
        raise DataError(f"is cut short or damaged (the decoder: {complaint})")
    wanted = sorted(-(-length // reduction) for length in size)
    if image is None or sorted(image.shape[:2]) != wanted or image.shape[2:] != (3,):
        raise DataError("cannot be decoded")
    return image


def _png_size(content: bytes) -> tuple[int, int]:
    """(height, width), after every chunk's checksum up to the end mark."""
    size = None
    position = len(_PNG_START)
    while position + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        end = position + 8 + length
        if end + 4 > len(content):
            break
        (stated,) = struct.unpack_from(">I", content, end)
        if zlib.crc32(content[position + 4 : end]) != stated:
            raise DataError("is damaged: the checksum of a PNG chunk does not fit")
        if kind == b"IHDR" and length >= 8:
            width, height = struct.unpack_from(">II", content, position + 8)
            size = height, width
        if kind == b"IEND" and size is not None:
            return size
        position = end + 4
    raise DataError("is cut short")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """(height, width) from the frame header; the end mark of the image must be there.

    Bytes after the end mark do not count: telephones put a film there.
    """
    size, position = None, 2
    for _ in range(_MOST_MARKERS):
        marker = _JPEG_MARKER.search(content, position)
        kind = _JPEG_END if marker is None else content[marker.end() - 1]
        if marker is None or kind == _JPEG_END or marker.end() + 2 > len(content):
            break
        position = marker.end()
        if kind in _JPEG_WITHOUT_LENGTH:
            continue
        if kind in _JPEG_FRAMES and size is None and position + 7 <= len(content):
            height, width = struct.unpack_from(">HH", content, position + 3)
            size = height, width
        position += struct.unpack_from(">H", content, position)[0]
    marker = _JPEG_MARKER.search(content, position)
    if marker is None or content[marker.end() - 1] != _JPEG_END:
        raise DataError("is cut short")
    if size is None:
        raise DataError("is damaged: no frame header")
    return size
