"""Planes of the profiler's trace file, an `XSpace` message.

The schema is built in code, so that `protobuf` alone reads it. JAX's own reader omits the metadata
of events, where the categories of a TPU's ops stand.

Source: field numbers from OpenXLA, `tsl/profiler/protobuf/xplane.proto`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from dawnjax import records
from dawnjax.errors import RunError

MOST_BYTES = 2**30
"""A file above this is not read: parsed, its events take about five times as much memory."""

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


def read_planes(path: Path) -> Iterator[Plane]:
    """Planes of a trace file; `TraceError` for one that cannot be read."""
    try:
        space = message("XSpace").FromString(records.read_plain(path, MOST_BYTES))  # type: ignore[attr-defined]
    except records.BoundError as error:
        raise TraceError(f"{path} {error}; profile fewer steps") from None
    except DecodeError:
        raise TraceError(f"{path} is damaged or cut off") from None
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    if not space.planes:
        raise TraceError(f"{path} holds no plane: nothing was traced")
    for proto in space.planes:
        yield Plane(proto.name, proto)
