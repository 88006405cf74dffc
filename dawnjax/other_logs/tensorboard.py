"""Scalars of TensorBoard's event files, as TensorFlow, PyTorch and tensorboardX write them.

Source: records are framed as in TensorFlow's `TFRecord` (a length of 8 bytes, its checksum
of 4, the data, its checksum of 4); the messages come from tensorboardX.
"""

import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from google.protobuf.message import DecodeError

from dawnjax import records
from dawnjax.errors import RunError
from dawnjax.other_logs.rows import MOST_BYTES, Row

MARK = ".tfevents."
"""In the name of an event file."""

_MOST_RECORD_BYTES = 2**20
"""Limit of a record with scalars: an empty value of two bytes takes a hundred in memory."""

_MOST_VALUES = 3_000_000

_ONE_VALUE = re.compile(
    rb"\x09.{8}(?:\x10[\x80-\xff]{0,9}[\0-\x7f])?"
    rb"(?:[^\x10\x2a]|\x2a([\x80-\xff]{0,4}[\0-\x7f])\x0a([\x80-\xff]{0,4}[\0-\x7f]))",
    re.DOTALL,
)
"""Beginning of an event (a moment, a step) with something else than a summary, such as a graph; or
a summary and its first value, such as an image, with the length of each."""

_FLOAT, _DOUBLE = 1, 2
"""Types of a tensor's values, by the numbers of TensorFlow's `DataType`."""


def scalars(folder: Path) -> Iterator[Row]:
    """Rows of the event files in a folder, in the order in which they were begun.

    Raises:
      RunError: A file is damaged. A torn last record is dropped.
    """
    files = (
        [path for path in folder.iterdir() if MARK in path.name] if folder.is_dir() else [folder]
    )
    # Names have the second of their beginning after the mark.
    for path in sorted(files, key=lambda path: path.name.partition(MARK)[2]):
        yield from _scalars(path)


def _scalars(path: Path) -> Iterator[Row]:
    message, num_values = _event_class(), 0
    try:
        with records.open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise records.BoundError(f"has {size:,} bytes; at most {MOST_BYTES:,} are read")
            for number, data in enumerate(_records(file, size), start=1):
                event = message.FromString(data)
                num_values += len(event.summary.value)
                if num_values > _MOST_VALUES:
                    raise records.BoundError(f"has more than {_MOST_VALUES:,} values")
                cells: dict[str, Any] = {"step": event.step, "wall_time": event.wall_time}
                for value in event.summary.value:
                    scalar = _scalar(value)
                    if scalar is not None:
                        cells[value.tag] = scalar
                yield number, cells
    except (DecodeError, struct.error):
        raise RunError(f"{path} is damaged, or not a TensorBoard event file") from None
    except (OSError, records.BoundError) as error:
        raise RunError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _event_class() -> Any:
    # tensorboardX loads PyTorch where that is installed: two seconds, for nothing here.
    sys.modules.setdefault("torch", None)  # pyright: ignore[reportArgumentType]
    try:
        from tensorboardX.proto import event_pb2
    finally:
        if sys.modules.get("torch", "") is None:
            del sys.modules["torch"]
    return event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]


def _records(file: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left >= 12:
        [length] = struct.unpack("<Q", file.read(8))
        left -= 16 + length
        if left < 0:
            return  # it is still being written
        file.seek(4, 1)
        if length > _MOST_RECORD_BYTES:
            start = file.tell()
            if not _has_one_value(file.read(64)):
                raise records.BoundError(f"has a record of {length:,} bytes with several values")
            file.seek(start + length)
        else:
            yield file.read(length)
        file.seek(4, 1)


def _has_one_value(start: bytes) -> bool:
    """True if an event has no summary, or one value, by its first bytes: if long, no scalar."""
    found = _ONE_VALUE.match(start)
    if not found or not found[1]:
        return found is not None
    whole, value = (_whole_number(number) for number in found.groups())
    return whole - value == 1 + len(found[2])


def _whole_number(parts: bytes) -> int:
    return sum((part & 0x7F) << 7 * place for place, part in enumerate(parts))


def _scalar(value: Any) -> float | None:
    """A scalar of either generation of writers; None for images, texts and histograms."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    tensor = value.tensor
    if kind != "tensor" or tensor.tensor_shape.dim or tensor.dtype not in (_FLOAT, _DOUBLE):
        return None
    code, numbers = (
        ("<f", tensor.float_val) if tensor.dtype == _FLOAT else ("<d", tensor.double_val)
    )
    if tensor.tensor_content:
        return struct.unpack(code, tensor.tensor_content)[0]
    return numbers[0] if numbers else None
