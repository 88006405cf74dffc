"""The files in a folder or an archive, one after another, without unpacking anything to disk.

An archive is not trusted: names that lead out of it, links, devices, encrypted and repeated members
are refused. Its expanded bytes are counted while it is read, and end at `LIMITS`.
"""

import bz2
import contextlib
import dataclasses
import gzip
import hashlib
import io
import lzma
import os
import pathlib
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from tarfile import EOFHeaderError, HeaderError, ReadError  # type: ignore[attr-defined]
from typing import IO, Any, Literal, Protocol

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError

Kind = Literal["folder", "tar", "tar.gz", "tar.xz", "tar.bz2", "zip"]

_MAGIC: tuple[tuple[bytes, int, Kind], ...] = (
    (b"\x1f\x8b", 0, "tar.gz"),
    (b"\xfd7zXZ\x00", 0, "tar.xz"),
    (b"BZh", 0, "tar.bz2"),
    (b"PK\x03\x04", 0, "zip"),
    (b"ustar", 257, "tar"),
)

_READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError)
_READ_ERRORS += (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError)
"""Raised by Python's readers of archives on damaged ones."""


MOST_MEMBERS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a source: far more than any dataset here, far less than memory and disk.

    Attributes:
      num_members: Files and folders.
      name_bytes: All their names.
      member_bytes: One file, unpacked; `total_bytes` of all.
    """

    num_members: int = MOST_MEMBERS
    name_bytes: int = 32 * 2**20
    member_bytes: int = 160 * 2**20
    total_bytes: int = 512 * 2**20


LIMITS = Limits()

BLOCK = tarfile.BLOCKSIZE
_MOST_HEADER_BYTES = 2**16
"""Limit of a tar's extended header, which tarfile reads whole; a path has at most 4,096 bytes."""

_MOST_GLOBAL_BYTES = 2**12
"""Limit of all global headers together: tarfile copies their fields for each member."""

_MOST_FIELDS, _MOST_FIELD_BYTES = 10, 320
"""In extended headers for each member that a tar may have: a field costs microseconds."""

_DIGITS, _LENGTH = re.compile(rb"\d+"), re.compile(rb"(\d{1,8}) ")
_MOST_DIGITS = 100
"""Digits in a row in an extended header; in it tarfile searches in the square of their number."""

_PACKED_TIGHT = 2**26
_TIGHTEST = 100
"""What expands to more than `_PACKED_TIGHT` bytes may be so many times as large as it is packed:
text shrinks to a tenth, and Deflate packs a long run of one letter to a thousandth."""

_XZ_BYTES = 132 * 2**20
"""Memory to unpack an .xz, which its header asks for: the highest preset takes 65 MiB, a dictionary
of 128 MiB takes 129."""


@dataclasses.dataclass(frozen=True)
class Member:
    """File in a folder or an archive; `name` is its path there, with forward slashes.

    `size` is what the folder or the archive says, in bytes.
    """

    source: pathlib.Path
    name: str
    size: int
    read_unnamed: Callable[[], bytes]

    def read(self) -> bytes:
        with _damage_named(self.source):
            return self.read_unnamed()


def kind_of(path: pathlib.Path) -> Kind:
    """Kind of a source by its content, whatever its name says."""
    try:
        if path.is_dir():
            return "folder"
        if not path.exists():
            raise MissingDataError(f"{path}: no such file or folder")
        with records.open_plain(path) as file:
            start = file.read(512)
    except records.BoundError as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    for magic, offset, kind in _MAGIC:
        if start[offset : offset + len(magic)] == magic:
            return kind
    raise DataError(f"{path}: not a folder, .tar, .tar.gz, .tar.xz, .tar.bz2, .zip or .npz")


def sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hex digits."""
    with _damage_named(path):
        opened: Any = records.open_plain(path)
        with opened as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def members(path: pathlib.Path, limits: Limits = LIMITS) -> Iterator[Member]:
    """Files of an archive in its order, or of a folder in sorted order."""
    kind = kind_of(path)
    walk = {"folder": _folder_members, "zip": _zip_members}.get(kind, _tar_members)
    seen: set[str] = set()
    with _damage_named(path):
        for member in walk(path, limits):
            if member.name in seen:
                raise DataError(f"{path}: {shown(member.name)} is in it twice")
            seen.add(member.name)
            yield member


@contextlib.contextmanager
def _damage_named(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except _READ_ERRORS as error:
        if isinstance(error, OSError) and error.strerror:
            raise DataError(
                f"{error.filename or path}: cannot be read ({error.strerror})"
            ) from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: damaged or cut short ({reason})") from None


def _folder_members(path: pathlib.Path, limits: Limits) -> Iterator[Member]:
    budget = _Budget(path, limits)
    for folder, folders, files in records.walk(path, follow_links=True, on_error=_raise):
        for name in folders:
            # A link to a folder above would be walked for ever.
            target = os.path.realpath(folder / name)
            if os.path.commonpath([target, os.path.realpath(folder)]) == target:
                raise DataError(f"{folder / name}: is a link to a folder above it")
            budget.count(name)
        for file in files:
            location = folder / file
            name = location.relative_to(path).as_posix()
            budget.count(name)

            def read(location: pathlib.Path = location, name: str = name) -> bytes:
                budget.spend(name, location.stat().st_size)
                try:
                    return records.read_plain(location, limits.member_bytes)
                except records.BoundError as error:
                    raise DataError(f"{location}: {error}") from None

            yield Member(path, name, location.stat().st_size, read)


def _raise(error: OSError) -> None:
    raise error


class _ZipFile(io.BufferedReader):
    """Bytes of a zip, whose members are counted before Python makes objects of them."""

    def __init__(self, path: pathlib.Path, limits: Limits) -> None:
        opened: Any = records.open_plain(path)
        super().__init__(opened.detach())
        self._path, self._limits = path, limits

    def read(self, size: int | None = -1) -> bytes:
        # `zipfile` reads the list of members in one piece, of the size that the file states.
        is_list = self.peek(4)[:4] == b"PK\x01\x02"
        most = self._limits.name_bytes if is_list else self._limits.member_bytes + 1
        if size is not None and size > most:
            raise DataError(
                f"{self._path}: its list of members has {size:,} bytes, more than {most:,}"
            )
        data = super().read(size)
        if is_list and data.count(b"PK\x01\x02") > self._limits.num_members:
            raise DataError(f"{self._path}: more than {self._limits.num_members:,} files")
        return data


def _zip_members(path: pathlib.Path, limits: Limits) -> Iterator[Member]:
    budget = _Budget(path, limits)
    with _ZipFile(path, limits) as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = _safe_name(path, info.filename)
            budget.count(name)
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DataError(f"{path}: {shown(name)} is a link")
            if info.flag_bits & 1:
                raise DataError(f"{path}: {shown(name)} is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(f"{path}: {shown(name)} is not packed with Deflate; pack it again")
            if info.is_dir():
                continue

            def read(info: zipfile.ZipInfo = info, name: str = name) -> bytes:
                budget.spend(name, info.file_size)
                _check_ratio(f"{path}: {shown(name)}", info.file_size, info.compress_size)
                # Without a number of bytes, zipfile unpacks up to 2 GiB before it looks at the
                # size that is stated. The one more makes it compare the checksum at the end.
                with archive.open(info) as file:
                    return file.read(info.file_size + 1)

            yield Member(path, name, info.file_size, read)


class _TarInfo(tarfile.TarInfo):
    """Header of a tar: a damaged one ends the archive for tarfile, as if it were whole."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            raise
        except HeaderError as error:
            raise ReadError(str(error)) from None

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Any:
        info = super().frombuf(buf, encoding, errors)
        if info.type in b"xgLKX" and not 0 <= info.size <= _MOST_HEADER_BYTES:
            raise ReadError(f"an extended header has {info.size:,} bytes")
        if info.type == tarfile.GNUTYPE_SPARSE:
            raise ReadError(f"{shown(info.name)} is a sparse file")
        return info

    def _proc_member(self, tarfile: Any) -> Any:
        """Check an extended header before tarfile reads it, which lets subclasses come between."""
        if self.type in b"xgX":
            stream = tarfile.fileobj
            content = stream.read(-(-self.size // BLOCK) * BLOCK)
            tarfile.check_header(self.type, content[: self.size])
            tarfile.fileobj = _Again(content, tarfile, stream)
        return super()._proc_member(tarfile)  # type: ignore[misc]


@dataclasses.dataclass(frozen=True)
class _Again:
    """Stream that gives once more what was read; then the archive goes on with the rest."""

    content: bytes
    archive: Any
    rest: Any

    def read(self, _: int) -> bytes:
        self.archive.fileobj = self.rest
        return self.content


class _Tar(tarfile.TarFile):
    """Tar whose extended headers are well formed, and bounded together."""

    tarinfo = _TarInfo

    def __init__(self, *arguments: Any, num_members: int, **more: Any) -> None:
        self._fields_left = _MOST_FIELDS * num_members
        self._bytes_left = _MOST_FIELD_BYTES * num_members
        self._global_bytes_left = _MOST_GLOBAL_BYTES
        super().__init__(*arguments, **more)  # which reads the first member

    def check_header(self, kind: bytes, content: bytes) -> None:
        if any(len(digits) > _MOST_DIGITS for digits in _DIGITS.findall(content)):
            raise ReadError(f"an extended header has a number with more than {_MOST_DIGITS} digits")
        if b"GNU.sparse" in content:
            raise ReadError("an extended header describes a sparse file")
        place = 0
        while content[place : place + 1].strip(b"\0"):  # zeros may follow the fields
            found = _LENGTH.match(content, place)
            end = place + int(found[1]) if found else 0
            # Else tarfile would take all up to a later `=` for a name, again at each length.
            field = content[found.end() : end] if found else b""
            if b"=" not in field or not field.endswith(b"\n"):
                raise ReadError("an extended header is damaged")
            self._fields_left, place = self._fields_left - 1, end
        self._bytes_left -= len(content)
        self._global_bytes_left -= len(content) if kind == b"g" else 0
        if min(self._fields_left, self._bytes_left, self._global_bytes_left) < 0:
            raise ReadError("its extended headers have too many fields")


def _tar_members(path: pathlib.Path, limits: Limits) -> Iterator[Member]:
    budget = _Budget(path, limits)
    with records.open_plain(path) as file:
        opened = _OPENERS[kind_of(path)](file)
        stream: Any = _Bounded(opened, path, limits.total_bytes, file.tell)
        bounded: Any = _Tar
        with bounded.open(fileobj=stream, mode="r|", num_members=limits.num_members) as archive:
            while info := archive.next():
                archive.members.clear()  # type: ignore[attr-defined]  # each costs a kilobyte
                name = _safe_name(path, info.name)
                budget.count(name)
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse():
                    raise DataError(f"{path}: {shown(name)} is a link, a device or a sparse file")
                budget.spend(name, info.size)
                content = archive.extractfile(info)
                assert content is not None  # of a plain file
                yield Member(path, name, info.size, content.read)
        stream.finish()


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Xz:
    """An .xz, unpacked in bounded memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = lzma.LZMADecompressor(memlimit=_XZ_BYTES)

    def read(self, size: int) -> bytes:
        while True:
            packed = b""
            if self._decoder.eof:  # another stream may follow, after zeros
                packed = self._decoder.unused_data.lstrip(b"\0")
                packed = packed or self._file.read(2**16).lstrip(b"\0")
                if not packed:
                    return b""
                self._decoder = lzma.LZMADecompressor(memlimit=_XZ_BYTES)
            elif self._decoder.needs_input:
                packed = self._file.read(2**16)
                if not packed:
                    raise EOFError("the stream ends before its end mark")
            if data := self._decoder.decompress(packed, size):
                return data

    def read_whole(self, most_bytes: int) -> bytes:
        """All of it, or its first `most_bytes`."""
        parts = [b""]
        while most_bytes and (part := self.read(most_bytes)):
            parts.append(part)
            most_bytes -= len(part)
        return b"".join(parts)


_OPENERS: dict[Kind, Callable[[IO[bytes]], _Stream]] = {
    "tar": lambda file: file,
    "tar.gz": lambda file: gzip.GzipFile(fileobj=file),
    "tar.xz": Xz,
    "tar.bz2": bz2.BZ2File,
}


def _check_ratio(where: str, expanded: int, packed: int) -> None:
    if expanded > max(_PACKED_TIGHT, _TIGHTEST * packed):
        raise DataError(
            f"{where}: expands to {expanded:,} bytes from {packed:,}, more than {_TIGHTEST} times "
            "as many; unpack it to a folder"
        )


class _Bounded:
    """Stream that fails beyond a number of bytes, and knows whether a tar in it is whole."""

    def __init__(
        self, stream: _Stream, path: pathlib.Path, limit: int, num_packed: Callable[[], int]
    ) -> None:
        self._stream = stream
        self._num_packed = num_packed
        self._expanded = 0
        self._path = path
        self._left = limit
        self._tail = b""

    def read(self, size: int) -> bytes:
        # One byte more than is left shows that the limit is passed.
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"{self._path}: expands to more than the limit of a data set")
        self._expanded += len(data)
        _check_ratio(str(self._path), self._expanded, self._num_packed())
        if data:
            self._tail = (self._tail + data[-1024:])[-1024:]
        return data

    def finish(self) -> None:
        """Read on to the checksum at the end; a missing end mark alone shows a tar that was cut."""
        while self.read(2**20):
            pass
        if len(self._tail) < 1024 or any(self._tail):
            raise tarfile.ReadError("the end mark is missing")


class _Budget:
    """Rest of the limits of one source."""

    def __init__(self, path: pathlib.Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._members = 0
        self._bytes = 0
        self._name_bytes = 0

    def count(self, name: str) -> None:
        self._members += 1
        self._name_bytes += len(name)
        if self._members > self._limits.num_members:
            raise DataError(
                f"{self._path}: more than {self._limits.num_members:,} files, at {shown(name)}"
            )
        if self._name_bytes > self._limits.name_bytes:
            raise DataError(f"{self._path}: its names have more than {self._name_bytes:,} bytes")

    def spend(self, name: str, num_bytes: int) -> None:
        self._bytes += num_bytes
        if num_bytes > self._limits.member_bytes or self._bytes > self._limits.total_bytes:
            raise DataError(
                f"{self._path}: {shown(name)} expands to {num_bytes:,} bytes, all so far to "
                f"{self._bytes:,}, more than the limit of a data set"
            )


def _safe_name(path: pathlib.Path, name: str) -> str:
    """Member's name without a leading `./`; one that leads out of the archive is refused."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or name[1:2] == ":":
        raise DataError(f"{path}: the member name {shown(name)} leads out of the archive")
    return "/".join(parts)


def shown(name: str) -> str:
    return repr(name if len(name) <= 100 else name[:97] + "...")
