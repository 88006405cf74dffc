"""Writing whole or not at all.

A file is written under a random name beside its place and renamed. A reader sees the old content or
the new, and a failure leaves the old. A link at the place is replaced, not followed: a stranger's
folder cannot make us overwrite a file elsewhere.

Mounted buckets rename no folder, and some no file. There a file is written at its place, which its
reader sees once it is closed, and a folder's files are moved one by one.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dawnjax.errors import ConfigError, RunError

CANNOT_RENAME = {errno.EXDEV, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EMFILE}
"""Of mounted buckets; gcsfuse says "Too many open files" of a folder, Mountpoint for S3 "Function
not implemented" of all. Overlays of containers say "Invalid cross-device link" of a folder."""


def write(path: Path, content: bytes | str, *, durable: bool = False) -> None:
    """Write a file whole or not at all, and make its folders; a link there is replaced.

    A text is written as UTF-8, its line ends unchanged. `durable` waits until the file and its
    name are on disk. After a `RunError` the old file stands.
    """
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")  # names of files may be no UTF-8
    # Drawn, because several processes may write one file at a time, and shortened, because a name
    # has at most 255 bytes.
    partial = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_special(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(partial, flags, 0o666), "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if not _renamed(partial, path):
            _write_in_place(path, content, durable)
        if durable:
            # Without this, a power failure may undo the rename.
            sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot write {path}: {reason}; what was there stays") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()  # absent where it was renamed


def _renamed(source: Path, place: Path) -> bool:
    """Rename, and replace what is there; False where the file system does not rename."""
    try:
        os.replace(source, place)
    except OSError as error:
        if error.errno not in CANNOT_RENAME:
            raise
        return False
    return True


def _write_in_place(path: Path, content: bytes, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)  # an error until here leaves what was there
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; its file system renames no file, so "
            "what was there is lost"
        ) from None


def put_folder(folder: Path, place: Path, last: str = "") -> None:
    """Give a folder the name of another, which is empty or absent.

    Where folders cannot be renamed their files move one by one, the one called `last` behind all
    others: who finds it finds a whole folder.
    """
    if _renamed(folder, place):
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    try:
        for file in sorted(files, key=lambda file: file.name == last):
            target = place / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not _renamed(file, target):
                shutil.copyfile(file, target)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(folder)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON text to print; a number that is not finite becomes null, since JSON has none."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any, *, durable: bool = False, indent: int | None = 2) -> None:
    """Write a value as JSON, as `write` does; `RunError` also for numbers that are not finite."""
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError as error:  # a forged log may hold a NaN
        raise RunError(f"cannot write {path}: {error}; what was there stays") from None
    write(path, text + "\n", durable=durable)


def write_folder(out: Path, fill: Callable[[Path], None]) -> None:
    """Write a new folder by `fill`, whole or not at all; `ConfigError` if it is not empty."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"--out={out} exists and is not empty; choose a new folder")
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        # Beside `out`, because a rename works within one file system only.
        partial = out.with_name(f".{out.name[:60]}.{secrets.token_hex(4)}.tmp")
        try:
            partial.mkdir()
            fill(partial)
            put_folder(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}") from None


def open_append(path: Path) -> int:
    """File descriptor to append to and read a plain file, made where absent.

    `OSError` for a link or any file that is not plain.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a plain file", os.fspath(path))
    return fd


def lock(fd: int) -> bool:
    """Lock an open file for this process alone; False where its file system has no locks.

    The kernel drops the lock however the process ends. `BlockingIOError` if another process has it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some mounts of FUSE, Lustre and NFS.
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
            raise
        return False
    return True


def no_lock(path: str | os.PathLike[str]) -> str:
    """Line on a folder whose file system has no locks."""
    return (
        f"{os.fspath(path)} is on a file system without locks: nothing keeps a second process from "
        "writing there too"
    )


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Wait until the names in a folder are on disk; `OSError` if the disk fails."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a mounted bucket has no such call
            raise
    finally:
        os.close(fd)


def _refuse_special(path: Path) -> None:
    """Keep /dev/null and pipes from being replaced by a file."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself is replaced as any other
            return
        raise
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not a plain file")
