"""Planes of the profiler's trace file, an `XSpace` message.

The schema is built in code, so that `protobuf` alone reads it. JAX's own reader omits the metadata
of events, where a TPU's FLOPs, bytes and categories stand. One plane is in memory at a time.

Source: field numbers from OpenXLA, `tsl/profiler/protobuf/xplane.proto`.
"""

import dataclasses
import functools
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dawnjax import records
from dawnjax.errors import RunError

LARGEST_PLANE_BYTES = 2**30
"""A plane above this is not read: parsed, its events take about five times as much memory."""

LARGEST_FILE_BYTES = 2**34

_PACKAGE = "dawnjax.xplane"

# The fields that are read: number and type; `*` is repeated, `map` has an integer for its key.
_SCHEMA: dict[str, dict[str, tuple[int, str]]] = {
    "XSpace": {"planes": (1, "XPlane*")},
    "XPlane": {
        "name": (2, "string"),
        "lines": (3, "XLine*"),
        "event_metadata": (4, "map XEventMetadata"),
        "stat_metadata": (5, "map XStatMetadata"),
        "stats": (6, "XStat*"),
    },
    "XLine": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "XEvent*"),
    },
    "XEvent": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "XStat*"),
    },
    "XStat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double"),
        "uint64_value": (3, "uint64"),
        "int64_value": (4, "int64"),
        "str_value": (5, "string"),
        "bytes_value": (6, "bytes"),
        "ref_value": (7, "uint64"),
    },
    "XEventMetadata": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "display_name": (4, "string"),
        "stats": (5, "XStat*"),
    },
    "XStatMetadata": {"id": (1, "int64"), "name": (2, "string")},
}


class TraceError(RunError):
    """An unreadable trace, or one without the requested events; one line."""


@functools.cache
def message(name: str) -> Callable[..., Any]:
    """Class of a message, such as `XSpace`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="dawnjax/xplane.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in _SCHEMA.items():
        described = file.message_type.add(name=message_name)
        if message_name == "XStat":  # of its values one is set, and may be zero
            described.oneof_decl.add(name="value")
        for name, (number, kind) in fields.items():
            if kind.startswith("map "):  # a repeated message of key and value
                words = "".join(word.capitalize() for word in name.split("_"))
                entry = described.nested_type.add(name=f"{words}Entry")
                entry.options.map_entry = True
                _add_field(entry, "key", 1, "int64")
                _add_field(entry, "value", 2, kind.removeprefix("map "))
                kind = f"{message_name}.{entry.name}*"
            field = _add_field(described, name, number, kind)
            if name.endswith("_value"):
                field.oneof_index = 0
    # A separate pool, because another package may register xplane.proto in the default one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(
    described: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str
) -> descriptor_pb2.FieldDescriptorProto:
    field = described.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    if kind.startswith("X"):
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind.removesuffix('*')}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    return field


@dataclasses.dataclass(frozen=True)
class Plane:
    """One plane of a trace (an `XPlane`), such as `/device:TPU:0` or `/host:CPU`."""

    name: str
    proto: Any

    @functools.cached_property
    def stat_names(self) -> dict[int, str]:
        """Names of stats by their number in this plane."""
        return {number: stat.name for number, stat in self.proto.stat_metadata.items()}

    def stats(self, owner: Any) -> dict[str, Any]:
        """Stats of an event, its metadata or the plane, by name."""
        return {
            self.stat_names.get(stat.metadata_id, ""): self._value(stat) for stat in owner.stats
        }

    def _value(self, stat: Any) -> Any:
        field = stat.WhichOneof("value")
        if field == "ref_value":  # a string that is kept once, as the name of a stat
            return self.stat_names.get(stat.ref_value, "")
        return None if field is None else getattr(stat, field)


def read_planes(path: Path, wanted: Callable[[str], bool]) -> Iterator[Plane]:
    """Planes of a trace file whose names are wanted, parsed one at a time; else `TraceError`."""
    try:
        size = path.stat().st_size
        if size == 0:
            raise TraceError(f"{path} is empty: the profiler was stopped before it wrote anything")
        if size > LARGEST_FILE_BYTES:
            raise TraceError(
                f"{path} has {size / 2**30:.1f} GiB, above the {LARGEST_FILE_BYTES // 2**30} GiB "
                "that are read; profile fewer steps"
            )
        # Mapped, so that unwanted planes are never read into memory.
        with (
            records.open_plain(path) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            is_empty = True
            for start, end in _plane_spans(data, path):
                is_empty = False
                name = _plane_name(data, start, end)
                if not wanted(name):
                    continue
                if end - start > LARGEST_PLANE_BYTES:
                    raise TraceError(
                        f"{path}: plane {name} has {(end - start) / 2**30:.1f} GiB, above the "
                        f"{LARGEST_PLANE_BYTES / 2**30:g} GiB that are read; profile fewer steps"
                    )
                try:
                    proto = message("XPlane").FromString(data[start:end])  # type: ignore[attr-defined]
                except DecodeError:
                    raise TraceError(f"{path} is damaged: plane {name} cannot be read") from None
                yield Plane(name, proto)
            if is_empty:
                raise TraceError(f"{path} holds no plane: nothing was traced")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None


def _plane_spans(data: mmap.mmap, path: Path) -> Iterator[tuple[int, int]]:
    """Start and end of each plane: the length-delimited fields 1 of the XSpace."""
    position = 0
    while position < len(data):
        try:
            tag, position = _varint(data, position)
            number, wire = tag >> 3, tag & 7
            # XSpace has the fields 1 to 4: planes, errors, warnings and hostnames.
            if wire != 2 or number not in (1, 2, 3, 4):
                raise TraceError(f"{path} is no trace: it does not begin as an XSpace does")
            length, position = _varint(data, position)
        except IndexError:
            raise TraceError(f"{path} is cut off after {len(data)} bytes") from None
        if position + length > len(data):
            raise TraceError(
                f"{path} is cut off: it has {len(data)} bytes and says that it goes on to "
                f"{position + length}"
            )
        if number == 1:
            yield position, position + length
        position += length


def _plane_name(data: mmap.mmap, position: int, end: int) -> str:
    """Plane's name without parsing the plane: field 2, among the first fields."""
    try:
        while position < end:
            tag, position = _varint(data, position)
            value, position = _varint(data, position)
            if tag & 7 == 2:
                if tag >> 3 == 2:
                    return data[position : min(end, position + value)].decode(errors="replace")
                position += value
            elif tag & 7 != 0:
                break
    except IndexError:
        pass
    return ""


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            # No field has more than 64 bits; callers take this for a cut-off file.
            raise IndexError
