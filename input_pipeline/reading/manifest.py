"""`dataset.json`, the manifest of prepared data: its files with size and checksums, and facts.

    {"schema_version": 1, "kind": "images", "dataset": "cifar10", "source": {"kind": "arrays"},
     "facts": {"classes": [...], ...}, "algorithm": "crc32",
     "files": {"eval_labels.npy": {"num_bytes": 40128, "checksums": ["9c3f01aa"],
                                   "dtype": "int32", "shape": [10000]}, ...},
     "sha256": "..."}

It is written last and appears whole or not at all: a directory without it is half-converted.
"""

import concurrent.futures
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import npy_files
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

SCHEMA_VERSION = 1

FILE = "dataset.json"

MOST_BYTES = 16 * 2**20
"""Of a manifest; that of ImageNet has 0.5 MB, for 33,000 checksums."""

UNFINISHED_FILE = "prepare_unfinished"
"""Lies beside the files while they are written; locked by the process that writes them."""

BLOCK_BYTES = 8 * 2**20
"""A file has one checksum for each such block: damage is located, and threads share the work."""

OTHER_DIRECTORY = "choose another directory"
"""Ends the error of a whole manifest of other data; preparing again would not help."""

_AGAIN = "run `dawnjax prepare` again"

Algorithm = Literal["crc32", "sha256"]
"""CRC32 where a run reads gigabytes on its clock (3 GiB/s a core); SHA-256 has a quarter of that
speed, and nobody can make other content for it."""

Facts = TypeVar("Facts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file of prepared data.

    Attributes:
      num_bytes: Its size.
      checksums: Of each block of `BLOCK_BYTES`, in hex digits.
      dtype: NumPy's name of an array's dtype; empty for a file that is no array.
      shape: Of the array.
    """

    num_bytes: int
    checksums: tuple[str, ...]
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Generic[Facts]):
    """Content of `dataset.json`, but for the hash of itself.

    Attributes:
      kind: Name of the `Kind`.
      dataset: Name of the dataset, such as `cifar10`.
      facts: Counts and the like, as the kind has them.
      files: Each file, by name.
      algorithm: Of the checksums.
      source: Origin of the data; names no path of this machine.
    """

    schema_version: int = SCHEMA_VERSION
    kind: str
    dataset: str
    facts: Facts
    files: dict[str, File]
    algorithm: Algorithm
    source: dict[str, str] = dataclasses.field(default_factory=dict)

    def fingerprint(self, *more: Any) -> str:
        """Hash of all files and of more JSON values: 16 hex digits, equal for equal content."""
        content = [*more, {name: file.checksums for name, file in sorted(self.files.items())}]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def content(self, directory: pathlib.Path, name: str) -> bytes:
        """Verified bytes of a file."""
        return self._verified(directory, name).tobytes()

    def text(self, directory: pathlib.Path, name: str) -> str:
        """Verified text of a file."""
        try:
            return self.content(directory, name).decode()
        except UnicodeDecodeError:
            raise DataError(f"{directory / name}: damaged (no UTF-8); {_AGAIN}") from None

    def array(self, directory: pathlib.Path, name: str, *, verified: bool = True) -> np.ndarray:
        """Array of a file, mapped read only, verified (0.07 s for 180 MB on two cores) if asked."""
        if verified:
            self._verified(directory, name)
        else:
            _check_form(directory / name, self.files[name])
        return npy_files.map_array(directory / name)

    def mapped(self, directory: pathlib.Path, name: str, *, verified: bool = True) -> np.ndarray:
        """Bytes of a file, uint8, mapped read only, verified if asked."""
        if verified:
            return self._verified(directory, name)
        _check_form(directory / name, self.files[name])
        empty = np.empty(0, np.uint8)
        return np.memmap(directory / name, np.uint8, "r") if self.files[name].num_bytes else empty

    def verify(self, directory: pathlib.Path) -> None:
        for name in self.files:
            self._verified(directory, name)

    def to_json(self) -> bytes:
        """Text of `dataset.json`, which carries a hash of itself."""
        body = records.plain(self)
        return (json.dumps({**body, "sha256": _hash_of(body)}, indent=1) + "\n").encode()

    def _verified(self, directory: pathlib.Path, name: str) -> np.ndarray:
        path, file = directory / name, self.files[name]
        _check_form(path, file)
        try:
            with records.open_plain(path) as opened:
                mapped = file.num_bytes > 0  # nothing cannot be mapped
                content = np.memmap(opened, np.uint8, "r") if mapped else np.empty(0, np.uint8)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error})") from None
        starts = range(0, file.num_bytes, BLOCK_BYTES)
        # Both algorithms let other threads run, and one thread's CRC32 is slower than the memory.
        with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            checksums = threads.map(
                lambda start: _checksum(self.algorithm, content[start : start + BLOCK_BYTES].data),
                starts,
            )
            for start, checksum, expected in zip(starts, checksums, file.checksums, strict=True):
                if checksum != expected:
                    end = min(start + BLOCK_BYTES, file.num_bytes)
                    raise DataError(
                        f"{path}: damaged between bytes {start:,} and {end:,} (checksum "
                        f"{checksum[:8]}, should be {expected[:8]}); {_AGAIN}"
                    )
        return content


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind(Generic[Facts]):
    """One kind of prepared data.

    Attributes:
      title: Name of the data in messages.
      facts: The type of their facts, a dataclass whose `summary()` names the content in words.
      files: Files that all data of the kind have.
    """

    name: str
    title: str
    facts: type[Facts]
    files: tuple[str, ...]
    algorithm: Algorithm = "sha256"

    def is_begun(self, directory: pathlib.Path) -> bool:
        """True if a directory holds such data, finished or not, or a manifest of other data."""
        names = (FILE, UNFINISHED_FILE, *self.files)
        return any((directory / name).exists() for name in names)

    def read(self, directory: pathlib.Path, command: str = "") -> Manifest[Facts]:
        """Read a manifest, and compare sizes and headers of its files: less than a millisecond.

        Where nothing is there, the message names the flags of `dawnjax prepare` in `command`.
        """
        path = directory / FILE
        try:
            body = records.load_json(records.read_plain(path, MOST_BYTES))
        except FileNotFoundError:
            if self.is_begun(directory):
                raise DataError(
                    f"{directory}: half-converted ({FILE} is missing); {_AGAIN}"
                ) from None
            raise MissingDataError(
                f"{directory}: no prepared {self.title} there; `dawnjax prepare "
                f"{command or f'--dataset={self.name}'}` makes them (--data.data_dir names another "
                "place)"
            ) from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError as error:
            reason = str(error) if isinstance(error, records.BoundError) else "no JSON"
            raise DataError(f"{path}: damaged ({reason}); {_AGAIN}") from None
        manifest = self._decode(path, body)
        for name, file in manifest.files.items():
            _check_form(directory / name, file)
        return manifest

    def make(
        self,
        dataset: str,
        facts: Facts,
        contents: Mapping[str, np.ndarray | bytes | memoryview],
        source: dict[str, str] | None = None,
    ) -> Manifest[Facts]:
        return Manifest(
            kind=self.name,
            dataset=dataset,
            facts=facts,
            files={name: _file_of(content, self.algorithm) for name, content in contents.items()},
            algorithm=self.algorithm,
            source=source or {},
        )

    def _decode(self, path: pathlib.Path, body: Any) -> Manifest[Facts]:
        if not isinstance(body, dict) or not {"kind", "dataset", "sha256"} <= body.keys():
            raise DataError(f"{path}: damaged (no complete description); {_AGAIN}")
        if body["kind"] != self.name:
            dataset = str(body["dataset"])[:80]
            raise DataError(f"{path}: describes {dataset}, not {self.title}; {OTHER_DIRECTORY}")
        if body.get("schema_version") != SCHEMA_VERSION:
            raise DataError(
                f"{path}: has schema version {str(body.get('schema_version'))[:80]}, but this "
                f"program reads {SCHEMA_VERSION}; {_AGAIN}"
            )
        if body.pop("sha256") != _hash_of(body):
            raise DataError(f"{path}: damaged (its hash does not fit); {_AGAIN}")
        try:
            manifest = records.convert(body, Manifest[self.facts])
        except records.FieldError as error:
            raise DataError(f"{path}: damaged ({error}); {_AGAIN}") from None
        # A manifest may come from a stranger, who can make its hash fit.
        missing = set(self.files) - manifest.files.keys()
        if missing or manifest.algorithm != self.algorithm:
            raise DataError(f"{path}: damaged (lacks {sorted(missing)}); {_AGAIN}")
        for name, file in manifest.files.items():
            wanted = -(-file.num_bytes // BLOCK_BYTES)
            if "/" in name or file.num_bytes < 0 or len(file.checksums) != wanted:
                raise DataError(f"{path}: damaged (files.{name[:80]}); {_AGAIN}")
        return manifest


def npy_blocks(array: np.ndarray) -> Iterator[bytes | memoryview]:
    header = io.BytesIO()
    # Version 1.0 by hand: `np.save` cannot yield blocks, and may pick another version.
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    data = memoryview(array.reshape(-1).view(np.uint8).data)
    first = BLOCK_BYTES - len(header.getvalue())
    yield header.getvalue() + bytes(data[:first])
    for start in range(first, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]


def blocks_of(content: np.ndarray | bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield the file of an array or of bytes in blocks of `BLOCK_BYTES`."""
    if isinstance(content, np.ndarray):
        yield from npy_blocks(np.ascontiguousarray(content))
    else:
        for start in range(0, len(content), BLOCK_BYTES):
            yield memoryview(content)[start : start + BLOCK_BYTES]


def _file_of(content: np.ndarray | bytes | memoryview, algorithm: Algorithm) -> File:
    blocks = list(blocks_of(content))
    is_array = isinstance(content, np.ndarray)
    return File(
        num_bytes=sum(len(block) for block in blocks),
        checksums=tuple(_checksum(algorithm, block) for block in blocks),
        dtype=content.dtype.name if is_array else "",
        shape=content.shape if is_array else (),
    )


def _checksum(algorithm: Algorithm, data: bytes | memoryview) -> str:
    return f"{zlib.crc32(data):08x}" if algorithm == "crc32" else hashlib.sha256(data).hexdigest()


def _hash_of(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _check_form(path: pathlib.Path, file: File) -> None:
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: is no plain file; {_AGAIN}")
        num_bytes = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path}: missing; {_AGAIN}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    form = _form_in_header(path) if file.dtype else None
    if form is not None and form != (file.dtype, file.shape):
        raise DataError(
            f"{path}: holds {form[0]} {form[1]}, but should hold {file.dtype} {file.shape}; "
            f"{_AGAIN}"
        )
    if num_bytes != file.num_bytes:
        change = "truncated" if num_bytes < file.num_bytes else "too long"
        raise DataError(f"{path}: {change} ({num_bytes:,} of {file.num_bytes:,} bytes); {_AGAIN}")


def _form_in_header(path: pathlib.Path) -> tuple[str, tuple[int, ...]] | None:
    try:
        with records.open_plain(path) as file:
            shape, _, dtype = npy_files.read_form(file)
            return dtype.name, shape
    except (OSError, ValueError, DataError):
        return None  # the checksum finds it
