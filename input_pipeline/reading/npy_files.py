"""Arrays in .npy files, whose header is read first: none is made that the file cannot fill."""

import contextlib
import io
import math
import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import IO

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

Form = tuple[tuple[int, ...], bool, np.dtype]
"""Shape, whether columns come first, and the type of the values."""


def read_form(file: IO[bytes]) -> Form:
    """Read the header of an .npy file, and stop behind it; DataError if it has none of numbers."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        with warnings.catch_warnings(action="ignore"):
            form = readers[np.lib.format.read_magic(file)](file)
    except Exception:
        # NumPy parses a damaged header as Python, which fails in many ways.
        raise DataError("is not a .npy file") from None
    if form[2].hasobject:
        raise DataError("holds Python objects, which are not read")
    return form


def array_of(content: bytes) -> np.ndarray:
    """Array in the content of a file, read only, without a copy."""
    file = io.BytesIO(content)
    shape, is_fortran, dtype = read_form(file)
    wanted, there = _num_bytes(shape, dtype), len(content) - file.tell()
    if wanted != there:
        raise DataError(f"is cut short: {there:,} of {wanted:,} bytes")
    array = np.frombuffer(content, dtype, offset=file.tell()) if wanted else np.zeros(0, dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")


def map_array(path: pathlib.Path) -> np.ndarray:
    """Map the array of a file, read only; a DataError names the file."""
    with _opened(path) as file:
        shape, is_fortran, dtype = read_form(file)
        offset, wanted = file.tell(), _num_bytes(shape, dtype)
        there = file.seek(0, 2) - offset
        if wanted != there:
            raise DataError(f"is cut short: {there:,} of {wanted:,} bytes")
        order = "F" if is_fortran else "C"
        if not wanted:  # nothing to map
            return np.zeros(shape, dtype, order)
        return np.memmap(file, dtype, "r", offset, shape, order)


def map_bytes(path: pathlib.Path) -> np.ndarray:
    """Map the bytes of a file, uint8 [n], read only; a DataError names the file."""
    with _opened(path) as file:
        return np.memmap(file, np.uint8, "r") if file.seek(0, 2) else np.zeros(0, np.uint8)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
    try:
        with records.open_plain(path) as file:
            yield file
    except (DataError, records.BoundError) as error:
        raise DataError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise MissingDataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Start of an .npy file, of equal size for any number of rows."""
    file = io.BytesIO()
    form = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, form)
    return file.getvalue()


def _num_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    # NumPy counts no zeros: neither (0, 2**62, 4) nor 2**62 values of no bytes can be made.
    most = sys.maxsize // math.prod(size or 1 for size in shape)
    if min(shape, default=0) < 0 or not 0 < dtype.itemsize <= most:
        raise DataError(f"states the shape {shape} of {dtype.str}")
    return dtype.itemsize * math.prod(shape)
