"""The one way in and out of the files of this project: bounded reading, typed decoding, writing.

A run directory, an archive of results or a prepared data set may come from a stranger. Only plain
files are opened, because a pipe has no end. Their size is asked before they are read, and the
values in a JSON text are counted in its bytes, because the 3 bytes `[],` become an object of 80.

A file is written under a drawn name beside its place and renamed. A reader sees the old content or
the new, a failure leaves the old, and a link at the place is replaced and never followed: a
stranger's folder cannot make us overwrite a file elsewhere.
"""

import contextlib
import errno
import gzip
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from dawnjax.errors import ConfigError, RunError

DEEPEST = 60
"""Lists and objects inside each other; no file of this project has 20."""

MOST_MARKS = 1_000_000
"""Commas, colons and brackets of one JSON text; each costs at most 100 bytes of memory."""

MOST_DIGITS = 20
"""Of a whole number in our own files; 64 bits have 20."""

MOST_BYTES = 16 * 2**20
"""Of a JSON file, where its reader names no other limit."""

Kind = TypeVar("Kind")


class BoundError(ValueError):
    """A file is larger, deeper or of another kind than what is read; one line says which."""


class FieldError(ValueError):
    """A field is missing, unknown or of another type; one line names its path."""


def open_plain(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a plain file to read; a pipe is not waited for.

    Raises:
      BoundError: It is a folder, a pipe or a device.
      OSError: It cannot be opened.
    """
    # O_NONBLOCK does not matter to a plain file; the open of a pipe would wait for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BoundError("is no plain file")
    return os.fdopen(fd, "rb")


def read_plain(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """Read a plain file whole; nothing of one with more than `most_bytes`.

    Raises:
      BoundError: It is too large, or no plain file.
      OSError: It cannot be read.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most_bytes else file.read(most_bytes + 1)
    size = max(size, len(data))  # it may grow meanwhile, and /proc says 0
    if size > most_bytes:
        raise BoundError(f"has {size:,} bytes; at most {most_bytes:,} are read")
    return data


def lines(path: Path, most_bytes: int, most_line_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a plain file, each with its newline.

    Raises:
      BoundError: It is too large or no plain file, or a line is too long.
      OSError: It cannot be read.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise BoundError(f"has {size:,} bytes; at most {most_bytes:,} are read")
        number = 0
        while line := file.readline(most_line_bytes + 1):
            number += 1
            if len(line) > most_line_bytes:
                raise BoundError(f"line {number} has more than {most_line_bytes:,} bytes")
            yield line


def gunzip(file: IO[bytes], most_bytes: int) -> bytes:
    """Unpack a gzip file, from its start; never more than `most_bytes`.

    Raises:
      BoundError: It unpacks to more.
      OSError, EOFError, zlib.error: It is damaged.
    """
    data = gzip.GzipFile(fileobj=file).read(most_bytes + 1)
    if len(data) > most_bytes:
        raise BoundError(f"unpacks to more than {most_bytes:,} bytes")
    return data


def count_marks(data: bytes) -> int:
    """Number of commas, colons and opening brackets: no fewer than the values of a JSON text."""
    return sum(map(data.count, (b",", b":", b"[", b"{")))


def check_json(data: bytes, most_marks: int = MOST_MARKS) -> None:
    """Refuse a JSON text of too many values, before they are made.

    Raises:
      BoundError: It has too many commas, colons and brackets.
    """
    marks = count_marks(data)
    if marks > most_marks:
        raise BoundError(f"has {marks:,} commas, colons and brackets; {most_marks:,} are read")


def load_json(data: bytes | str, most_marks: int = MOST_MARKS, *, with_nan: bool = False) -> Any:
    """Decode a JSON text of this project: UTF-8, finite numbers, of bounded size and depth.

    Args:
      data: The text.
      most_marks: Commas, colons and brackets that it may have.
      with_nan: Whether NaN and infinities pass, for a reader that says where they are.

    Raises:
      BoundError: It has more values, is deeper, or has a number that no file of ours has.
      ValueError: It is no JSON.
    """
    data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    check_json(data, most_marks)
    try:
        # Not by msgspec: names of files may hold lone surrogates, which it takes for a text's end.
        value = (_WITH_NAN if with_nan else _STRICT).decode(data.decode())
    except RecursionError:
        raise BoundError(f"is nested more than {DEEPEST} deep") from None
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        check_depth(value)
    return value


def decode(
    data: bytes | str, kind: type[Kind], most_marks: int = MOST_MARKS, *, others: bool = False
) -> Kind:
    """Decode a JSON text into a dataclass, a named tuple or a container of them.

    Raises:
      BoundError, ValueError: As of `load_json`.
      FieldError: As of `convert`.
    """
    return convert(load_json(data, most_marks), kind, others=others)


def read_json(path: str | os.PathLike[str], kind: type[Kind], most_bytes: int = MOST_BYTES) -> Kind:
    """Read and decode a JSON file.

    Raises:
      OSError: It cannot be read.
      BoundError, ValueError, FieldError: As of `read_plain` and `decode`.
    """
    return decode(read_plain(path, most_bytes), kind)


def convert(value: Any, kind: type[Kind], *, at: str = "", others: bool = False) -> Kind:
    """Make a value of the given type from plain JSON values.

    Types are exact: a whole number is no text, `1.0` no whole number, `true` no number.

    Args:
      value: The values.
      kind: The type.
      at: The path of the value in its file, for the message.
      others: Whether fields that the type does not have may be there; they are dropped.

    Raises:
      FieldError: A field is missing, unknown or of another type.
    """
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise FieldError(_in_words(error, value, at)) from None
    # msgspec drops what a dataclass does not know, such as the misspelt name of an optional field.
    unknown = "" if others else _unknown_field(value, msgspec.to_builtins(made))
    if unknown:
        raise FieldError(f"{unknown[:200]} is no field of it")
    return made


_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def _in_words(error: msgspec.ValidationError, value: Any, at: str) -> str:
    """The line of a wrong field: its path, its value where it is short, and what is expected."""
    reason, _, within = str(error).replace("`", "").partition(" - at $")
    path = (at + within).removeprefix(".")
    if missing := re.fullmatch(r"Object missing required field (\w+)", reason):
        return f"{path}.{missing[1]} is missing".removeprefix(".")
    wanted = re.fullmatch(r"Expected (.*), got \w+", reason)
    if wanted is None or "[...]" in within:  # msgspec does not name the key of a dict
        return f"{path}: {reason}" if path else reason
    with contextlib.suppress(LookupError, TypeError):
        for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", within):
            value = value[int(index) if index else name]
        kinds = " or ".join(_WORDS.get(kind, kind) for kind in wanted[1].split(" | "))
        return f"{path or 'it'} is {repr(value)[:60]}; it must be {kinds}"
    return f"{path}: {reason}"


def plain(value: Any) -> Any:
    """Dicts, lists, texts and numbers of a dataclass, or of a container of them."""
    return msgspec.to_builtins(value)


def _unknown_field(given: Any, known: Any, path: str = "") -> str:
    if isinstance(given, dict) and isinstance(known, dict):
        for name in given:
            where = f"{path}.{name}" if path else str(name)
            if name not in known:
                return where
            if found := _unknown_field(given[name], known[name], where):
                return found
    elif isinstance(given, list) and isinstance(known, list | tuple):
        for index, (left, right) in enumerate(zip(given, known, strict=False)):
            if isinstance(left, dict | list) and (
                found := _unknown_field(left, right, f"{path}[{index}]")
            ):
                return found
    return ""


def check_depth(value: Any) -> None:
    """Refuse a value that code which calls itself for its parts could not walk through.

    Raises:
      BoundError: Lists and objects are too deep inside each other.
    """
    layer = [value]
    for _ in range(DEEPEST):
        layer = [part for whole in layer for part in _parts(whole) if isinstance(part, dict | list)]
        if not layer:
            return
    raise BoundError(f"is nested more than {DEEPEST} deep")


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise BoundError(f"has a whole number of {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BoundError(f"has the number {digits[:40]}, which is too large")
    return value


def _no_constant(name: str) -> Any:
    raise BoundError(f"has {name}, which is no JSON")


_STRICT = json.JSONDecoder(parse_int=_whole, parse_float=_finite, parse_constant=_no_constant)
_WITH_NAN = json.JSONDecoder(parse_int=_whole)


def write(path: Path, content: bytes | str, *, durable: bool = False) -> None:
    """Write a file whole or not at all, and the folders above it where they are absent.

    Args:
      path: The file; a link there is replaced, not followed.
      content: Bytes, or a text to write as UTF-8 with the ends of lines as they are.
      durable: Whether to wait until the file and its name are on disk.

    Raises:
      RunError: It cannot be written; what was there stays.
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
        os.replace(partial, path)
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot write {path}: {reason}; what was there stays") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()  # absent where it was renamed


def write_json(path: Path, value: Any, *, durable: bool = False, indent: int | None = 2) -> None:
    """Write a value as JSON, as `write` does.

    Raises:
      RunError: It cannot be written, or has a number that is not finite; what was there stays.
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError as error:  # a forged log may hold a NaN
        raise RunError(f"cannot write {path}: {error}; what was there stays") from None
    write(path, text + "\n", durable=durable)


def write_folder(out: Path, fill: Callable[[Path], None]) -> None:
    """Write a new folder whole or not at all.

    Args:
      out: The folder; it must not exist or be empty.
      fill: Writes into the folder that it is given.

    Raises:
      ConfigError: The folder holds something.
      RunError: It cannot be written.
    """
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"--out={out} exists and is not empty; choose a new folder")
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_name(f".{out.name[:60]}.{secrets.token_hex(4)}.tmp")
        try:
            partial.mkdir()
            fill(partial)
            partial.replace(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}") from None


def open_append(path: Path) -> int:
    """Open a plain file to append and to read; it is made, with its folder, where it is absent.

    Returns:
      A file descriptor.

    Raises:
      OSError: It cannot be opened, or it is a link or no plain file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", os.fspath(path))
    return fd


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Wait until the names in a folder are on disk.

    Raises:
      OSError: The disk failed.
    """
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
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "it is no plain file")
