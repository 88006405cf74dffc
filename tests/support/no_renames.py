"""A file system that renames no folder, or nothing at all, as mounted buckets do."""

import os
from pathlib import Path
from typing import Any


def mount(monkeypatch: Any, number: int, *, files: bool) -> list[str]:
    """Refuse renames of folders, or of files too, with an errno; returns the names that move."""
    moved: list[str] = []

    def refusing(rename: Any) -> Any:
        def call(source: Any, place: Any, **more: Any) -> Any:
            if files or Path(source).is_dir():
                raise OSError(number, os.strerror(number), os.fspath(source))
            moved.append(Path(place).name)
            return rename(source, place, **more)

        return call

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    return moved
