"""Pictures of a run's answers that `dawnjax infer --draw` keeps in the run directory, for reports.

    inference/<PLATFORM>-step<STEP>[-<N>of<M>]/<EXAMPLE>.jpg

A run directory may come from a stranger, and a page shows their bytes as they are: only plain files
are read, of few bytes and pixels, and only JPEG without text, colour profile or thumbnail.
"""

import re
from pathlib import Path
from typing import NamedTuple

from dawnjax import records

MOST_PICTURES_OF_A_RUN, MOST_PICTURE_BYTES = 4, 256 * 2**10
_MOST_SIDE = 4096
_MOST_NAMES = 10_000

_FOLDER = re.compile(r"[a-z]{1,20}-step(\d{1,18})(?:-\d{1,18}of\d{1,18})?", re.ASCII)
_FILE = re.compile(r"(\d{1,18})\.jpg", re.ASCII)

_START, _END = b"\xff\xd8", b"\xff\xd9"
_JFIF, _FRAMES, _SCAN = 0xE0, (0xC0, 0xC2), 0xDA
_SEGMENTS = frozenset({_JFIF, *_FRAMES, _SCAN, 0xC4, 0xDB, 0xDD})
"""Markers of a JPEG. Source: ITU-T T.81, table B.1; T.871 for JFIF."""

_JFIF_BYTES = 16
"""Of a JFIF segment without a thumbnail."""


class KeptPicture(NamedTuple):
    """A JPEG of an answered example; `step` is that of the parameters that answered."""

    example: int
    step: int
    content: bytes
    width: int
    height: int


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
            width, height = _size(content)
        except (OSError, ValueError) as error:
            name = "/".join((run_directory.name, *path.parts[-3:]))
            problems.append(f"{name}: {error}")
        else:
            pictures.append(KeptPicture(example, step, content, width, height))
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


def _size(content: bytes) -> tuple[int, int]:
    """Width and height of a JPEG; ValueError for anything else that its bytes hold."""
    if content[:2] != _START or content[-2:] != _END:
        raise ValueError("is no JPEG")
    place, size = 2, (0, 0)
    while place < len(content) - 2:
        kind, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4])
        end = place + 2 + length
        if content[place] != 0xFF or kind not in _SEGMENTS or length < 2 or end > len(content):
            raise ValueError("holds more than a JPEG's image")
        if kind == _JFIF and length != _JFIF_BYTES:
            raise ValueError("holds more than a JPEG's image")
        if kind in _FRAMES:
            height, width = (int.from_bytes(content[place + n : place + n + 2]) for n in (5, 7))
            size = width, height
        if kind == _SCAN:
            end = _end_of_scan(content, end)
        place = end
    if not all(0 < side <= _MOST_SIDE for side in size):
        raise ValueError(f"has {size[0]}x{size[1]} pixels; a side has 1 to {_MOST_SIDE:,}")
    return size


def _end_of_scan(content: bytes, place: int) -> int:
    """Place of the marker behind a scan's data, in which a marker is a restart or escaped."""
    while True:
        place = content.index(b"\xff", place)
        if content[place + 1] != 0 and not 0xD0 <= content[place + 1] <= 0xD7:
            return place
        place += 2
