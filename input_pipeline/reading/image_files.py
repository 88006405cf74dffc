"""JPEG and PNG files as arrays, refused where they are damaged or too large.

A header may state any size, so it is read before an image is decoded. Decoders fill the rest of a
cut file with grey: a JPEG's complaints are errors here, and a PNG's structure is checked.
"""

import re
import struct
import zlib
from collections.abc import Callable

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DataError

_PNG_START = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"

_HARMLESS = re.compile(r"extraneous bytes|unknown JFIF|Unknown Adobe|Application transferred")
"""Warnings of libjpeg-turbo about bytes that the image does not need; after all others pixels are
made up. Source: libjpeg-turbo, `src/jerror.h`."""

LARGEST_PIXELS = 2**26
"""The most pixels that are decoded: 200 MB as RGB."""


def decode_image(content: bytes, height: int, width: int) -> np.ndarray:
    """Decode a JPEG or PNG file of a known size to 8-bit RGB, uint8 [height, width, 3]."""
    size, turned = image_size(content), ""
    if size in ((height, width), (width, height)):
        image = _decode(content, size)
        if image.shape[:2] == (height, width):
            return image
        if image.shape[:2] != size:
            size, turned = image.shape[:2], ", turned upright by its EXIF orientation"
    raise DataError(f"is {size[1]}x{size[0]} pixels{turned}, but should be {width}x{height}")


def decode_upright(content: bytes) -> np.ndarray:
    """Decode an image of any size to 8-bit RGB, turned as its mark of orientation says."""
    return _decode(content, _bounded_size(content))


def decode_square(content: bytes, side: int) -> np.ndarray:
    """Decode the middle square of an image of any size, resized: uint8 [side, side, 3].

    Grey, CMYK and 16-bit images become 8-bit RGB; transparency is dropped, and an orientation mark
    turns the image. A DataError names no file.
    """
    size = _bounded_size(content)
    image = _decode(content, size, _reduction(content, min(size), side))
    least = min(image.shape[:2])
    top, left = ((length - least) // 2 for length in image.shape[:2])
    return resized(image[top : top + least, left : left + least], side)


def decode_part(
    content: bytes, side: int, choose: Callable[[int, int], tuple[int, int, int, int]]
) -> np.ndarray:
    """Decode a part of an image of any size, resized: uint8 [side, side, 3].

    `choose` takes height and width of the upright image; it returns top, left, height and width of
    the part. Otherwise as `decode_square`.
    """
    size = _bounded_size(content)
    is_turned = orientation_of(content) >= 5
    top, left, height, width = choose(*(size[::-1] if is_turned else size))
    factor = _reduction(content, min(height, width), side)
    image = _decode(content, size, factor)
    rows = slice(top // factor, -(-(top + height) // factor))
    return resized(image[rows, left // factor : -(-(left + width) // factor)], side)


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """Square image uint8 [n, n, 3], or a part of one, averaged over areas where it shrinks."""
    import cv2  # here because every command would pay for the import, and few decode

    shortest, longest = min(image.shape[:2]), max(image.shape[:2])
    if longest > side:
        # OpenCV averages over areas fast where they are whole pixels, and slowly elsewhere. So a
        # whole multiple of the side is interpolated first, no smaller than the image.
        height, width = (-(-length // side) * side for length in image.shape[:2])
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        return cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    if shortest < side:
        return cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(image)


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
    """(height, width) of a JPEG or PNG file, whatever its name."""
    if content.startswith(_PNG_START):
        return _png_size(content)
    if not content.startswith(_JPEG_START):
        raise DataError("is neither JPEG nor PNG")
    import simplejpeg

    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(content, strict=False)
    except (ValueError, KeyError) as error:  # KeyError: an unknown colour space or subsampling
        raise _damaged(error) from None
    return int(height), int(width)


def _decode(content: bytes, size: tuple[int, int], reduction: int = 1) -> np.ndarray:
    """RGB image, uint8 [height, width, 3]; sides over `reduction`, rounded up; upright."""
    if content.startswith(_JPEG_START):
        return _upright(_decode_jpeg(content, size, reduction), orientation_of(content))
    import cv2

    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    if image is None or sorted(image.shape[:2]) != sorted(size) or image.shape[2:] != (3,):
        raise DataError("cannot be decoded")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def _decode_jpeg(content: bytes, size: tuple[int, int], reduction: int) -> np.ndarray:
    import simplejpeg

    height, width = (-(-length // reduction) for length in size)
    space = simplejpeg.decode_jpeg_header(content, strict=False)[2]
    is_ink = space in ("CMYK", "YCCK")

    def decoded(strict: bool) -> np.ndarray:
        wanted = "CMYK" if is_ink else "RGB"
        return simplejpeg.decode_jpeg(
            content, wanted, min_height=height, min_width=width, strict=strict
        )

    try:
        try:
            image = decoded(True)
        except ValueError as error:
            if not _HARMLESS.search(str(error)):
                raise
            image = decoded(False)
    except ValueError as error:
        raise _damaged(error) from None
    if not is_ink:
        return image
    # Adobe's files hold 255 minus each ink.
    inks, black = image[..., :3].astype(np.int32), image[..., 3:].astype(np.int32)
    return (black - ((255 - inks) * black >> 8)).astype(np.uint8)


def _damaged(error: Exception) -> DataError:
    return DataError(f"is cut short or damaged (the decoder: {' '.join(str(error).split())[:200]})")


def orientation_of(content: bytes) -> int:
    """Mark of orientation of a JPEG, 1 to 8; 1 for none, and for other files.

    Source: CIPA DC-008 (Exif 2.32), 4.5.4 and tag 274; TIFF 6.0 for the directory.
    """
    start = content.find(b"Exif\0\0", 0, 2**16) + 6
    if start < 6 or not content.startswith(_JPEG_START):
        return 1
    tiff = content[start : start + 2**16]
    order = "<" if tiff.startswith(b"II") else ">"
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, directory)
        for place in range(directory + 2, directory + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, place)
            if tag == 274:
                return value if 1 <= value <= 8 else 1
    except struct.error:  # cut: no viewer turns such an image
        pass
    return 1


def _upright(image: np.ndarray, orientation: int) -> np.ndarray:
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


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
