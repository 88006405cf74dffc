"""Files by name, written as a folder or packed."""

import io
import pathlib
import tarfile
import zipfile
from typing import Any

from dawnjax.__main__ import main

Files = dict[str, bytes]


def write_folder(path: pathlib.Path, files: Files) -> pathlib.Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def write_tar(path: pathlib.Path, files: Files, mode: str = "w:gz") -> pathlib.Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_members(path: pathlib.Path, *members: tuple[str, dict[str, Any]]) -> None:
    """A tar of empty members with other fields in their headers, such as links."""
    with tarfile.open(path, "w") as archive:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info)


def write_zip(path: pathlib.Path, files: Files) -> pathlib.Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def prepare(dataset: str, source: pathlib.Path, out: pathlib.Path, *flags: str) -> int:
    """Exit status of `dawnjax prepare`."""
    return main(["prepare", f"--dataset={dataset}", f"--from={source}", f"--out={out}", *flags])
