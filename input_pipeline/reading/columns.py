"""Columns: fixed-size examples as plain `.npy` files beside one `dataset.json`.

    {"columns": 1, "kind": "images", "dataset": "cifar10", "source": "...", "facts": {...},
     "files": {"eval_labels.npy": {"shape": [10000], "dtype": "int32", "crc32": "9c3f01aa"}, ...},
     "crc32": "..."}

A file without `.npy` in its name is plain bytes, described as an axis of uint8: shards of examples
of any size (`shards`) are such. A data set is written into a folder beside its own, which takes its
place once all is there.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import npy_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

VERSION = 1
OLD_KINDS = ("coco",)
"""Written by earlier versions, in a form that no longer is."""

FILE, UNFINISHED_FILE = "dataset.json", "unfinished.json"

BLOCK_BYTES = 8 * 2**20
"""A checksum of blocks lets threads share a file: one thread takes 0.15 s for CIFAR-10, which is a
seventh of its fastest run."""

PART_BYTES = 2**28
"""Bytes of `Rows` written to disk before the next are made: the most that a stop loses."""

Outcome = Literal["written", "unchanged"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of an array that take long to make, such as squares of photographs.

    Of a data set with a `source`, the parts that a stopped call wrote stay.

    Attributes:
      shape: Of a row.
      dtype: NumPy's name.
      blocks: Makes the rows from a position on, in an order that never changes.
    """

    shape: tuple[int, ...]
    dtype: str
    blocks: Callable[[int], Iterable[np.ndarray]]


Content = np.ndarray | bytes | Iterable[np.ndarray] | Rows
"""An array, the bytes of a file, or blocks of rows of an array that may be larger than memory."""

Facts = TypeVar("Facts")


class Shards(Protocol):
    """Examples that are written into a folder as files of their own, with the columns beside."""

    def write(self, folder: pathlib.Path, progress: Callable[[int], None]) -> None:
        """Write them; whole shards of a stopped call stay, and files of other data go."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A file of a data set.

    Attributes:
      dtype: NumPy's name.
      crc32: Eight hex digits: the CRC32 of the CRC32s (four bytes each, the highest first) of the
        values' blocks of `BLOCK_BYTES`. The header of an .npy file does not count.
    """

    shape: tuple[int, ...]
    dtype: str
    crc32: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(Generic[Facts]):
    """A prepared data set.

    Attributes:
      kind: Name of the form that its facts and files have, such as `images`.
      dataset: Its name, such as `cifar10`.
      facts: Counts and the like.
      source: Says what it was made from, with a hash of that and without a path: equal texts mean
        equal data. Empty where nothing is said.
    """

    directory: pathlib.Path
    kind: str
    dataset: str
    facts: Facts
    files: dict[str, Column]
    source: str = ""

    def fingerprint(self, *more: Any) -> str:
        """Hash of all files and of more JSON values: 16 hex digits, equal for equal content."""
        files = sorted(
            (name, file.shape, file.dtype, file.crc32) for name, file in self.files.items()
        )
        return hashlib.sha256(json.dumps([*more, files]).encode()).hexdigest()[:16]

    def array(self, name: str, *, verified: bool = True) -> np.ndarray:
        """Array of a file, mapped read only; without `verified`, its header alone is compared."""
        path, column = self.directory / name, self.files[name]
        try:
            array = (npy_files.map_array if name.endswith(".npy") else npy_files.map_bytes)(path)
        except DataError as error:
            raise DataError(f"{error}; {AGAIN}") from None
        if (array.shape, array.dtype.name) != (column.shape, column.dtype):
            raise DataError(
                f"{path}: holds {array.dtype} {array.shape}, but should hold {column.dtype} "
                f"{column.shape}; {AGAIN}"
            )
        if verified and crc32_of(array) != column.crc32:
            raise DataError(f"{path}: damaged (its checksum does not fit); {AGAIN}")
        return array

    def content(self, name: str) -> bytes:
        """Verified bytes of a file that is no array."""
        return self.array(name).tobytes()

    def text(self, name: str) -> str:
        """Verified text of a file."""
        return self.content(name).decode()

    def verify(self) -> None:
        """Read and compare every byte."""
        for name in self.files:
            self.array(name)

    def to_json(self) -> bytes:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["directory"]
        body = records.plain({"columns": VERSION, **fields})
        return (json.dumps({**body, "crc32": _crc32_of_body(body)}, indent=1) + "\n").encode()


AGAIN = "prepare it again with --overwrite"


def read(
    directory: pathlib.Path, kind: str, facts: type[Facts], command: str = ""
) -> Columns[Facts]:
    """Description of the prepared data of a kind, whose facts are a dataclass.

    Sizes and headers of all files are compared with it, in a millisecond.
    `command` are the flags of `dawnjax prepare` that make it, for the error where it is missing.
    """
    path = directory / FILE
    prepare = f"`dawnjax prepare {command or f'--dataset={kind}'} --out={directory}`"
    try:
        body = records.load_json(records.read_plain(path))
    except FileNotFoundError:
        raise MissingDataError(
            f"{directory}: no prepared {kind.replace('_', ' ')} there; {prepare} makes it "
            "(--data.data_dir names another place)"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        reason = str(error) if isinstance(error, records.BoundError) else "no JSON"
        raise DataError(f"{path}: damaged ({reason}); {AGAIN}") from None
    is_known = isinstance(body, dict) and body.get("columns") == VERSION
    if not is_known or body.get("kind") in OLD_KINDS:
        raise DataError(
            f"{path}: another version of DawnJAX prepared this; {prepare} with --overwrite "
            "prepares it again"
        )
    if body.pop("crc32", None) != _crc32_of_body(body):
        raise DataError(f"{path}: damaged (its checksum does not fit); {AGAIN}")
    if body.get("kind") != kind:
        described, wanted = body.get("dataset"), kind.replace("_", " ")
        raise DataError(f"{path}: describes {described}, not {wanted}; choose another directory")
    try:
        found = Columns(
            directory=directory,
            kind=kind,
            dataset=body["dataset"],
            facts=records.convert(body["facts"], facts, at="facts"),
            files=records.convert(body["files"], dict[str, Column], at="files"),
            source=body["source"],
        )
    except (records.FieldError, KeyError) as error:
        raise DataError(f"{path}: damaged ({error}); {AGAIN}") from None
    for name in found.files:
        found.array(name, verified=False)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made(Generic[Facts]):
    """A data set to be written.

    Attributes:
      facts: They may be computed from the files once these are written.
      form: Type of the facts, where they are computed.
      dataset: Its name; the kind's without one.
      source: As in `Columns`.
      summary: Line about it once it is written; the facts' own text without one.
      shards: Examples that are no columns.
    """

    directory: pathlib.Path
    kind: str
    files: Mapping[str, Content]
    facts: Facts | Callable[["Columns[None]"], Facts]
    form: type[Facts] | None = None
    dataset: str = ""
    source: str = ""
    summary: Callable[["Columns[Facts]"], str] = lambda written: str(written.facts)
    shards: Shards | None = None

    def write(
        self, *, overwrite: bool = False, progress: Callable[[int], None] = lambda count: None
    ) -> tuple[Columns[Facts], Outcome]:
        """Write the data set, or find that its directory holds the same, intact."""
        directory, dataset = self.directory, self.dataset or self.kind
        with replacing(directory) as folder:
            is_resumable = bool(self.source) and (
                self.shards is not None
                or any(isinstance(content, Rows) for content in self.files.values())
            )
            try:
                there = self._there(overwrite)
                if there is not None and self.source:
                    if (there.dataset, there.source) == (dataset, self.source):
                        is_resumable = False
                        return there, "unchanged"
                    if not overwrite:
                        raise other_content(directory)
                kept = _kept(folder, self.source)
                for path in folder.iterdir():  # of a process that was killed
                    is_of_shards = self.shards is not None and path.name not in (*self.files, FILE)
                    if not is_of_shards and path.name not in (*kept, UNFINISHED_FILE):
                        path.unlink()

                def keep(name: str, column: Column) -> None:
                    kept[name] = column
                    parts = records.plain(_Unfinished(self.source, kept))
                    records.write_json(folder / UNFINISHED_FILE, parts, durable=True)

                described = {}
                if self.shards is not None:
                    self.shards.write(folder, progress)
                    described = {path.name: _synced(path) for path in sorted(folder.iterdir())}
                for name, content in self.files.items():
                    described[name] = _written(folder / name, content, kept.get(name), keep)
                written: Columns[Any] = Columns(
                    directory=folder,
                    kind=self.kind,
                    dataset=dataset,
                    facts=None,
                    files=described,
                    source=self.source,
                )
                found: Any = self.facts(written) if callable(self.facts) else self.facts
                wanted: Columns[Facts] = dataclasses.replace(
                    written, directory=directory, facts=found
                )
                if there == wanted:
                    is_resumable = False
                    return wanted, "unchanged"
                if there is not None and not overwrite:
                    raise other_content(directory)
                (folder / UNFINISHED_FILE).unlink(missing_ok=True)
                records.write(folder / FILE, wanted.to_json(), durable=True)
                is_resumable = False
                take_place(folder, directory)
            finally:
                if not is_resumable:
                    shutil.rmtree(folder, ignore_errors=True)
        return wanted, "written"

    def _there(self, overwrite: bool) -> Columns[Facts] | None:
        """Data in the directory, every byte compared; None for what may be replaced."""
        form: Any = self.form or type(self.facts)
        try:
            there = read(self.directory, self.kind, form)
            there.verify()
            return there
        except MissingDataError:
            if not overwrite and self.directory.exists() and any(self.directory.iterdir()):
                raise other_content(self.directory) from None  # shards alone
            return None
        except DataError:
            if overwrite:
                return None
            raise


def _synced(path: pathlib.Path) -> Column:
    """Description of a file that others wrote, once it is on the disk."""
    with _named_errors(path), path.open("rb") as file:
        os.fsync(file.fileno())
    content = npy_files.map_bytes(path)
    return Column(shape=content.shape, dtype="uint8", crc32=crc32_of(content))


def other_content(directory: pathlib.Path) -> DataError:
    return DataError(f"{directory}: holds other content; give --overwrite to replace it")


def refuse_strangers(directory: pathlib.Path) -> None:
    """Refuse a directory that holds something else than a prepared data set."""
    marks = (FILE, "dataset_info.json")  # of columns, and of shards
    is_ours = not directory.exists() or any((directory / mark).exists() for mark in marks)
    if not is_ours and (not directory.is_dir() or any(directory.iterdir())):
        raise DataError(f"{directory}: holds something else; choose another directory")


@contextlib.contextmanager
def replacing(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Folder beside a data set's directory to write it in, for one process at a time."""
    refuse_strangers(directory)
    folder = directory.with_name(f"{directory.name}.partial")
    with _named_errors(directory):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            if not records.lock(lock):
                print(f"note: {records.no_lock(directory)}", file=sys.stderr)
        except BlockingIOError:
            raise DataError(f"{directory}: another process is writing to it") from None
        yield folder
    finally:
        os.close(lock)


def take_place(folder: pathlib.Path, directory: pathlib.Path) -> None:
    """Put a whole folder in the place of a data set's directory, which `FILE` shows."""
    with _named_errors(directory):
        records.sync_folder(folder)
        if directory.exists():
            shutil.rmtree(directory)
        records.put_folder(folder, directory, last=FILE)


@dataclasses.dataclass(frozen=True)
class _Unfinished:
    """Files of `Rows` that a call has not finished, as far as they are on the disk."""

    source: str
    files: dict[str, Column]


def _kept(folder: pathlib.Path, source: str) -> dict[str, Column]:
    """What a stopped call left of the same source."""
    try:
        found = records.read_json(folder / UNFINISHED_FILE, _Unfinished)
    except (OSError, ValueError):
        return {}
    paths = {name: folder / name for name in found.files if found.source == source}
    return {name: found.files[name] for name, path in paths.items() if path.is_file()}


def _written(
    path: pathlib.Path, content: Content, kept: Column | None, keep: Callable[[str, Column], None]
) -> Column:
    """Write a file and wait for the disk; `keep` gets each part of `Rows` that is there."""
    if isinstance(content, bytes):
        content = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    is_array, num_unsynced = path.suffix == ".npy", 0

    def header(column: Column) -> bytes:  # NumPy leaves room in it for any number of rows
        return npy_files.header(column.shape, np.dtype(column.dtype)) if is_array else b""

    with _named_errors(path), path.open("w+b" if kept is None else "r+b") as file:
        if isinstance(content, Rows):
            empty = Column(shape=(0, *content.shape), dtype=content.dtype, crc32="")
            rows, crc = _continued(file, empty, kept, len(header(empty)))
            blocks = iter(content.blocks(rows))
        else:
            blocks = iter([content] if isinstance(content, np.ndarray) else content)
            first = next(blocks)
            empty = Column(shape=(0, *first.shape[1:]), dtype=first.dtype.name, crc32="")
            rows, crc = 0, _Crc32()
            blocks = itertools.chain([first], blocks)
            file.write(header(empty))

        def column() -> Column:
            shape = (rows, *empty.shape[1:])
            return dataclasses.replace(empty, shape=shape, crc32=crc.hexdigest())

        for block in blocks:
            data = _bytes_of(block)
            file.write(data)
            crc.update(data)
            rows, num_unsynced = rows + len(block), num_unsynced + len(data)
            if isinstance(content, Rows) and num_unsynced >= PART_BYTES:
                _sync(file)
                keep(path.name, column())
                num_unsynced = 0
        file.seek(0)
        file.write(header(column()))
        _sync(file)
    if isinstance(content, Rows):
        keep(path.name, column())
    return column()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _continued(
    file: IO[bytes], empty: Column, kept: Column | None, start: int
) -> tuple[int, "_Crc32"]:
    """Rows of a file that a stopped call left whole, and their checksum; what follows is cut."""
    crc, rows = _Crc32(), 0
    if kept is not None and (kept.shape[1:], kept.dtype) == (empty.shape[1:], empty.dtype):
        print(f"comparing {kept.shape[0]:,} rows that a stopped call wrote", file=sys.stderr)
        left = math.prod(kept.shape) * np.dtype(kept.dtype).itemsize
        file.seek(start)
        while left > 0 and (data := file.read(min(left, BLOCK_BYTES))):
            crc.update(memoryview(data))
            left -= len(data)
        rows = kept.shape[0] if not left and crc.hexdigest() == kept.crc32 else 0
    if not rows:
        crc = _Crc32()
        file.seek(0)
        file.write(bytes(start))
    file.truncate()
    return rows, crc


class _Crc32:
    """The checksum of a `Column`, of parts of any size."""

    def __init__(self) -> None:
        self._of_blocks, self._newest, self._left = b"", 0, BLOCK_BYTES

    def update(self, data: memoryview) -> None:
        while data:
            part, data = data[: self._left], data[self._left :]
            self._newest, self._left = zlib.crc32(part, self._newest), self._left - len(part)
            if not self._left:
                self._of_blocks += self._newest.to_bytes(4, "big")
                self._newest, self._left = 0, BLOCK_BYTES

    def hexdigest(self) -> str:
        rest = b"" if self._left == BLOCK_BYTES else self._newest.to_bytes(4, "big")
        return f"{zlib.crc32(self._of_blocks + rest):08x}"


def crc32_of(array: np.ndarray) -> str:
    """The checksum of a `Column`, computed by threads."""
    data = _bytes_of(array)
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        of_blocks = b"".join(crc.to_bytes(4, "big") for crc in threads.map(zlib.crc32, blocks))
    return f"{zlib.crc32(of_blocks):08x}"


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _crc32_of_body(body: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def _named_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
