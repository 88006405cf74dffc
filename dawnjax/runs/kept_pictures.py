"""Pictures of a run's answers that `dawnjax infer --draw` keeps in the run directory, for reports.

    inference/<PLATFORM>-step<STEP>[-<N>of<M>]/<EXAMPLE>.jpg

A run directory may come from a stranger: only plain files of few bytes are read, and what a JPEG
holds beside its pixels is not kept.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dawnjax import records

MOST_PICTURES_OF_A_RUN, MOST_PICTURE_BYTES, MOST_SIDE = 4, 256 * 2**10, 4096
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
            content = _encoded_anew(content)
        except (OSError, ValueError) as error:
            name = "/".join((run_directory.name, *path.parts[-3:]))
            problems.append(f"{name}: {error}")
        else:
            pictures.append(KeptPicture(example, step, content))
    return pictures, problems


def _encoded_anew(content: bytes) -> bytes:
    """JPEG of the pixels alone: Exif data, thumbnails and what follows the image are dropped."""
    import cv2  # takes a tenth of a second, and few runs have pictures

    if not content.startswith(b"\xff\xd8"):
        raise ValueError("is not a JPEG")
    data = np.frombuffer(content, np.uint8)
    # An eighth of the sides first: a header of a few bytes may claim 4 billion pixels.
    small = cv2.imdecode(data, cv2.IMREAD_REDUCED_GRAYSCALE_8)
    if small is not None and max(small.shape) > MOST_SIDE // 8:
        raise ValueError(f"has more than {MOST_SIDE:,} pixels on a side")
    image = None if small is None else cv2.imdecode(data, cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError("is a damaged JPEG")
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 75])[1].tobytes()


def _inside(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        found.append(path)
        if len(found) == _MOST_NAMES:
            break
    return found
