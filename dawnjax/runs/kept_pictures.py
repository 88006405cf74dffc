"""Pictures of a run's answers that `dawnjax infer --draw` keeps in the run directory, for reports.

    inference/<PLATFORM>-step<STEP>[-<N>of<M>]/<EXAMPLE>.jpg

A run directory may come from a stranger: only plain files of few bytes are read, and a page shows
them as images alone.
"""

import re
from pathlib import Path
from typing import NamedTuple

from dawnjax import records

MOST_PICTURES_OF_A_RUN, MOST_PICTURE_BYTES = 4, 256 * 2**10
_MOST_NAMES = 10_000

_FOLDER = re.compile(r"[a-z]{1,20}-step(\d{1,18})(?:-\d{1,18}of\d{1,18})?", re.ASCII)
_FILE = re.compile(r"(\d{1,18})\.jpg", re.ASCII)


class KeptPicture(NamedTuple):
    """A JPEG of an answered example; `step` is that of the parameters that answered."""

    example: int
    step: int
    content: bytes


def read(run_directory: Path) -> tuple[list[KeptPicture], list[str]]:
    """Pictures of the newest step of a run, and a line for each file that is refused."""
    above = run_directory / "inference"
    folders = [
        (int(match[1]), path)
        for path in _inside(above)
        if (match := _FOLDER.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()
    ]
    if not folders:
        return [], []
    step, folder = max(folders)
    files = [(int(m[1]), path) for path in _inside(folder) if (m := _FILE.fullmatch(path.name))]
    pictures, problems = [], []
    for example, path in sorted(files)[:MOST_PICTURES_OF_A_RUN]:
        try:
            if path.is_symlink():
                raise ValueError("is a link")
            content = records.read_plain(path, MOST_PICTURE_BYTES)
            if not content.startswith(b"\xff\xd8"):
                raise ValueError("is no JPEG")
        except (OSError, ValueError) as error:
            name = "/".join((run_directory.name, *path.parts[-3:]))
            problems.append(f"{name}: {error}")
        else:
            pictures.append(KeptPicture(example, step, content))
    return pictures, problems


def _inside(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        found.append(path)
        if len(found) == _MOST_NAMES:
            break
    return found
