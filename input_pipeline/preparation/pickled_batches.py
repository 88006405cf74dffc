"""The pickled batches of the original CIFAR-10, read without running what a pickle can run.

A pickle is a program that may call anything it can name. Here it can name only the parts of a
batch, and a call is only recorded; the array is built from that record, once it was checked.
"""

import dataclasses
import io
import pickle
import pickletools
import struct
from typing import Any

import numpy as np

from dawnjax.input_pipeline.reading.dataset import DataError


@dataclasses.dataclass(eq=False)
class _Described:
    """Object that a pickle asked for."""

    called: str
    arguments: tuple[Any, ...]
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


@dataclasses.dataclass(frozen=True)
class _Name:
    """Name in a pickle; calling it describes the call."""

    name: str

    def __call__(self, *arguments: Any) -> _Described | bytes:
        match self.name, arguments:
            case "bytes", (str() as text, "latin1"):  # a key may be one
                return text.encode("latin1")
        return _Described(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        # The names are shared by all pickles; none may change what the next one finds.
        raise pickle.UnpicklingError("it changes a name")


# All that a batch can contain: arrays as Python 2 and 3 pickle them (the module's name differs
# between NumPy 1 and 2; `_frombuffer` since protocol 5), and bytes as Python 3 writes them in the
# protocol of Python 2.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Name("array"),
    ("numpy._core.multiarray", "_reconstruct"): _Name("array"),
    ("numpy.core.numeric", "_frombuffer"): _Name("array_from_bytes"),
    ("numpy._core.numeric", "_frombuffer"): _Name("array_from_bytes"),
    ("numpy", "ndarray"): _Name("ndarray"),
    ("numpy", "dtype"): _Name("dtype"),
    ("_codecs", "encode"): _Name("bytes"),
}


MOST_BYTES = 64 * 2**20
MOST_OPCODES = 300_000
"""A batch of CIFAR-10 has 31 MB, and some 60,000 opcodes of its labels and names of files. An
opcode of one byte can make an object of a hundred."""


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python: the one in C allocates whatever number a pickle states."""

    stack: list[Any]
    read: Any
    append: Any
    pop_mark: Any

    def load_bytearray8(self) -> None:
        # Python's own makes the array before it reads.
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set_items(items)

    def refuse_set(self) -> None:
        raise pickle.UnpicklingError("it makes a set")

    def _set_items(self, items: list[Any]) -> None:
        # The hash of a tuple of tuples takes time that doubles with each of a few bytes.
        if not all(isinstance(key, str | bytes) for key in items[::2]):
            raise pickle.UnpicklingError("a key is no text")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    dispatch: dict[int, Any] = {
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        **dict.fromkeys((pickle.ADDITEMS[0], pickle.FROZENSET[0]), refuse_set),
    }

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            name = f"{module_name}.{global_name}"[:100]
            raise pickle.UnpicklingError(
                f"it asks for {name!r}, which no batch of images needs"
            ) from None


def read_pickled_batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Pixels uint8 [n, row] and labels int64 [n] of a pickled batch."""
    if len(content) > MOST_BYTES:
        raise DataError(f"has {len(content):,} bytes; a batch has at most {MOST_BYTES:,}")
    try:
        for number, _ in enumerate(pickletools.genops(content)):
            if number > MOST_OPCODES:
                raise pickle.UnpicklingError(f"it has more than {MOST_OPCODES:,} opcodes")
        # Strings of Python 2 are bytes; read as such, the pixels are not decoded and encoded.
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        # A damaged pickle fails in any way that Python can.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"is no pickled batch of images: {reason}") from None
    if not isinstance(batch, dict):
        raise DataError("is no pickled batch of images: no dictionary")
    values = {_text(key): value for key, value in batch.items()}
    if "data" not in values or "labels" not in values:
        raise DataError("is no pickled batch of images: data or labels are missing")
    labels = values["labels"]
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError("has labels that are no list of integers")
    if any(not 0 <= label < 2**31 for label in labels):
        raise DataError("has labels out of range")
    return _pixels(values["data"]), np.array(labels, np.int64)


def _text(key: Any) -> Any:
    return key.decode("latin1") if isinstance(key, bytes) else key


def _pixels(described: Any) -> np.ndarray:
    """Array that a pickle described, if it is two-dimensional uint8 in rows."""
    wrong = DataError("has data that are no uint8 array [images, pixels]")
    match described:
        case _Described("array", _, (_, shape, dtype, fortran, content)):
            pass
        case _Described("array_from_bytes", (content, dtype, shape, order)):
            fortran = order != "C"
        case _:
            raise wrong
    if not isinstance(content, bytes | bytearray):
        raise wrong
    match dtype, shape:
        case _Described("dtype", ("u1" | b"u1", *_)), (int() as rows, int() as columns):
            if fortran or rows < 0 or columns < 0 or rows * columns != len(content):
                raise wrong
            return np.frombuffer(content, np.uint8).reshape(rows, columns)
    raise wrong
