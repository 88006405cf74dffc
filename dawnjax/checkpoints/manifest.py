"""The manifest of a checkpoint: size and BLAKE2b hash of every other file, and a hash of its own.

It is written last and in one piece. A folder without one that verifies is not a checkpoint.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from dawnjax import records

if TYPE_CHECKING:  # With Orbax it takes 0.15 to 0.3 s to import.
    from etils import epath

MANIFEST = "manifest.json"
"""The file that makes a folder a checkpoint."""

MANIFEST_VERSION = 2

_CHUNK_BYTES = 2**20

_MOST_BYTES = 64 * 2**20
"""Of a manifest: it has some 200 bytes for each file and array."""

_DEEPEST = 30
"""Folders inside each other; Orbax makes three."""


class SavePoint(NamedTuple):
    """Steps that made a saved state, and the calls since the last of them that made examples.

    Points of a run are in the order in which it passes them.
    """

    step: int
    calls: int = 0

    @property
    def folder(self) -> str:
        """Name of its folder, such as `120`, or `120-7` between the steps 120 and 121."""
        return f"{self.step}-{self.calls}" if self.calls else str(self.step)

    def __str__(self) -> str:
        return f"step {self.step}" + (f" and {self.calls} calls" if self.calls else "")


_FOLDER = re.compile(r"(0|[1-9]\d*)(?:-([1-9]\d*))?", re.ASCII)


class DamageError(Exception):
    """A folder is no checkpoint; says which file and why."""


class UnfinishedError(DamageError):
    """A folder has no manifest."""


def files_of(path: "epath.Path", prefix: str = "") -> Iterator[str]:
    """Yield the names of all files under a folder, with `/`, except its manifest."""
    if _is_in_bucket(path):
        yield from _objects_of(path)
        return
    if prefix.count("/") > _DEEPEST:
        raise DamageError(f"{prefix[:40]}... is more than {_DEEPEST} folders deep")
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        name = prefix + entry.name
        if entry.is_dir():
            yield from files_of(entry, name + "/")
        elif name != MANIFEST:
            yield name


def _is_in_bucket(path: "epath.Path") -> bool:
    return "://" in os.fspath(path)


def _objects_of(path: "epath.Path") -> list[str]:
    """Names in a bucket, which is asked once for each folder and not for each entry."""
    names: list[str] = []
    top = None
    for folder, _, files in path.walk():
        top = top or folder
        names += [(folder.relative_to(top) / name).as_posix() for name in files if name]
    return sorted(name for name in names if name != MANIFEST)


def fingerprints(path: "epath.Path") -> dict[str, dict[str, Any]]:
    """Size and hash of each file of a folder, once local ones are on disk."""
    names = list(files_of(path))
    # The run trains meanwhile: one thread leaves it the cores. A bucket costs latency, not cores.
    threads = 8 if _is_in_bucket(path) else 1
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(lambda name: fingerprint(path / name, sync=True), names)
        return dict(zip(names, found, strict=True))


def fingerprint(path: "epath.Path", *, sync: bool = False) -> dict[str, Any]:
    """Size and hash of a file, as `b2sum --length=256` prints it; `sync` waits for the disk."""
    digest, size = hashlib.blake2b(digest_size=32), 0
    _refuse_special(path)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
        # A manifest must not outlive what it names.
        if sync:
            with contextlib.suppress(AttributeError, OSError):  # Objects in a bucket have no fd.
                os.fsync(file.fileno())
    return {"bytes": size, "blake2b": digest.hexdigest()}


_SEAL = ',\n "blake2b": "%s"\n}\n'
"""The end of a manifest: the hash of all that is before it."""

_SEAL_LENGTH = len(_SEAL % ("0" * 64))


def _refuse_special(path: "epath.Path") -> None:
    """Refuse a local path that is no plain file: to read a pipe waits for its writer."""
    if os.path.exists(path) and not os.path.isfile(path):  # a bucket's objects do not exist here
        raise OSError(errno.EINVAL, "it is no plain file", os.fspath(path))


def write_manifest(path: "epath.Path", content: dict[str, Any], *, remote: bool) -> None:
    body = json.dumps(content).removesuffix("}").encode()  # indented, it would be slow Python
    data = body + (_SEAL % hashlib.blake2b(body, digest_size=32).hexdigest()).encode()
    if remote:
        (path / MANIFEST).write_bytes(data)  # An object appears whole or not at all.
        return
    records.sync_folder(path)  # the files' names before the manifest's, which vouches for them
    records.write(Path(path) / MANIFEST, data, durable=True)
    records.sync_folder(path.parent)


def read_manifest(path: "epath.Path | Path", point: SavePoint) -> dict[str, Any]:
    """Manifest of a checkpoint, no file compared with it; or a DamageError that says why."""
    try:
        if os.path.exists(path / MANIFEST) and not os.path.isfile(path / MANIFEST):
            raise DamageError(f"{MANIFEST} is no plain file")
        told: Any = (path / MANIFEST).stat()
        size = told.st_size if isinstance(told, os.stat_result) else told.length  # epath's own
        if size > _MOST_BYTES:
            raise DamageError(f"{MANIFEST} has {size:,} bytes; at most {_MOST_BYTES:,} are read")
        data = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise UnfinishedError(
            f"{MANIFEST} is missing: its save was cut off, or the file was deleted"
        ) from None
    body, seal = data[:-_SEAL_LENGTH], data[-_SEAL_LENGTH:]
    if seal != (_SEAL % hashlib.blake2b(body, digest_size=32).hexdigest()).encode():
        raise DamageError(f"{MANIFEST} is damaged: its own hash differs")
    try:
        content = records.decode(data, dict[str, Any])
        version = content.get("manifest_version")
        if version != MANIFEST_VERSION:
            raise DamageError(
                f"{MANIFEST} has version {version!r}; this program reads version {MANIFEST_VERSION}"
            )
        records.convert(content, _Manifest)
    except ValueError as error:
        raise DamageError(f"{MANIFEST} is none that this program writes: {error}") from None
    if point_of(content) != point:
        raise DamageError(f"{MANIFEST} is of {point_of(content)}: the folder was renamed")
    return content


def newest_metadata(directory: "epath.Path | Path") -> dict[str, Any] | None:
    """Metadata of the newest checkpoint whose manifest is whole, whatever its arrays; or None."""
    try:
        for point in sorted(points_of(directory), reverse=True):
            with contextlib.suppress(DamageError):
                return read_manifest(directory / point.folder, point)["metadata"]
    except OSError:
        return None
    return None


def point_of(content: dict[str, Any]) -> SavePoint:
    return SavePoint(content["step"], content.get("calls", 0))


def points_of(directory: "epath.Path | Path") -> list[SavePoint]:
    if not directory.exists():
        return []
    found = [_FOLDER.fullmatch(path.name) for path in directory.iterdir()]
    return [SavePoint(int(match[1]), int(match[2] or 0)) for match in found if match]


def verified_manifest(path: "epath.Path", point: SavePoint) -> dict[str, Any]:
    """Manifest of a checkpoint, every file compared with it; or a DamageError that names one."""
    content = read_manifest(path, point)
    present = set(files_of(path))
    for name in sorted(present - content["files"].keys()):
        raise DamageError(f"{name} is not of this checkpoint: it was added later")
    for name in sorted(content["files"].keys() - present):  # nor is what lies elsewhere read
        raise DamageError(f"{name[:200]} cannot be read: {os.strerror(errno.ENOENT)}")

    def damage(name: str) -> str | None:
        expected = content["files"][name]
        try:
            actual = fingerprint(path / name)
        except OSError as error:
            return f"{name} cannot be read: {one_line(error)}"
        if actual["bytes"] != expected["bytes"]:
            return f"{name} has {actual['bytes']} bytes instead of {expected['bytes']}"
        return None if actual == expected else f"{name} was changed: its hash differs"

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Hashing releases the GIL.
        for reason in pool.map(damage, content["files"]):
            if reason is not None:
                raise DamageError(reason)
    return content


class _File(TypedDict):
    bytes: int
    blake2b: str


class _Manifest(TypedDict):
    manifest_version: int
    step: int
    calls: NotRequired[int]  # absent where there are none
    metadata: dict[str, Any]
    arrays: dict[str, str]  # dtype and shape of each
    files: dict[str, _File]
    blake2b: str


def delete(path: "epath.Path") -> None:
    """Delete a checkpoint; cut off in the middle, it leaves one without a manifest."""
    (path / MANIFEST).unlink(missing_ok=True)
    path.rmtree()


def one_line(error: BaseException) -> str:
    """Reason of an error, in the operating system's words where it has any."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if code := re.search(r"os_error_code='(\d+)'", str(error)):  # TensorStore's way to say it.
        return os.strerror(int(code[1]))
    said = str(error).partition(" [http_response_")[0]  # TensorStore appends the whole answer.
    return " ".join(said.split())[:300] or type(error).__name__
