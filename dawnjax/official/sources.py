"""Files of a folder, an archive or a single path, one at a time.

Nothing is unpacked to disk, and no link of a folder is followed. A file is read only on request and
never beyond a limit, so that a sparse file of 10 GB costs one look at its size.
"""

import dataclasses
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.reading import archives
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.official.outcome import Refused, SourceRefused

MAX_EXPANSION = 100
"""Logs compress by 15 to 40; an archive that expands to more than this many times is a bomb."""

LOG_BYTES = 64 * 2**20
TABLE_BYTES = 4 * 2**20
DESCRIPTION_BYTES = 2 * 2**20

MAX_ARCHIVE_FILES = 100_000


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """One file of a source, by its path there (`name`) and with the folders above (`context`).

    `read` takes the most bytes to read and works until the next file. The content decides the kind
    if `alone`.
    """

    name: str
    context: str
    read: Callable[[int], bytes]
    alone: bool = False


def is_archive(path: Path) -> bool:
    """True if a file's first bytes are those of an archive."""
    try:
        return path.is_file() and archives.kind_of(path) != "folder"
    except DataError:
        return False


def files(path: Path) -> Iterator[SourceFile]:
    """Yield the files of a folder, an archive (`SourceRefused` if it is bad) or a single path."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {str(path)!r}: {reason}") from None
    if stat.S_ISDIR(status.st_mode):
        yield from _folder(path)
    elif not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{str(path)!r} is neither a file nor a folder")
    elif is_archive(path):
        yield from _archive(path)
    else:
        context = "/".join(path.absolute().parts[1:])
        yield SourceFile(path.name, context, lambda limit: _read(path, limit), True)


def _folder(path: Path) -> Iterator[SourceFile]:
    above = "/".join(path.resolve().parts[1:])

    def fail(error: OSError) -> None:
        raise SourceRefused(f"cannot be read: {error.strerror}", file=str(error.filename))

    for folder, folders, names in _walk(path, fail):
        # A link to a folder is named, so that it is counted as not read.
        links = [name for name in folders if (folder / name).is_symlink()]
        for name in sorted([*names, *links]):
            location = folder / name
            relative = location.relative_to(path).as_posix()

            # A default argument, because a closure would see the loop's last file.
            def read(limit: int, location: Path = location) -> bytes:
                return _read(location, limit)

            yield SourceFile(relative, f"{above}/{relative}", read)


def _walk(
    path: Path, fail: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    try:
        yield from records.walk(path, on_error=fail)
    except records.BoundError as error:
        raise SourceRefused(str(error), file=str(path)) from None


def _read(path: Path, limit: int) -> bytes:
    try:
        status = path.lstat()
        # A link may lead out of the folder; opening a pipe would wait for its writer for ever.
        if not stat.S_ISREG(status.st_mode):
            raise Refused("is not a plain file but a link, a pipe or a device; not read")
        if status.st_size > limit:
            raise Refused(f"has {status.st_size:,} bytes; at most {limit:,} are read")
        with records.open_plain(path) as file:
            # The file may have grown since its size was read.
            data = file.read(limit + 1)
    except records.BoundError as error:
        raise Refused(f"{error}; not read") from None
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise Refused(f"has more than {limit:,} bytes")
    return data


def _archive(path: Path) -> Iterator[SourceFile]:
    limits = archives.Limits(
        num_members=MAX_ARCHIVE_FILES,
        member_bytes=LOG_BYTES,
        total_bytes=min(8 * 2**30, max(LOG_BYTES, MAX_EXPANSION * path.stat().st_size)),
    )
    try:
        for member in archives.members(path, limits):

            def read(limit: int, member: archives.Member = member) -> bytes:
                try:
                    data = member.read()
                except DataError as error:
                    raise _archive_refused(path, error) from None
                if len(data) > limit:
                    raise Refused(f"has {len(data):,} bytes; at most {limit:,} are read")
                return data

            yield SourceFile(member.name, f"{path.stem}/{member.name}", read)
    except DataError as error:
        raise _archive_refused(path, error) from None


def _archive_refused(path: Path, error: DataError) -> SourceRefused:
    reason = str(error).removeprefix(f"{path}: ")
    return SourceRefused(f"{reason}; nothing of the archive was imported", file=str(path))
