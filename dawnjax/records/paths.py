"""Paths that begin with `~`."""

import os
from pathlib import Path

from dawnjax.errors import RunError


def path_of(text: str | os.PathLike[str]) -> Path:
    """Path that a user wrote. As in a shell, a `~` stays where the home directory is not known."""
    return Path(os.path.expanduser(text))


def in_home(text: str | os.PathLike[str]) -> Path:
    """Path of a file of our own, such as a cache; RunError where there is no home directory.

    A home that is empty or relative is none: the cache would lie in any folder.
    """
    path = path_of(text)
    if not path.is_absolute() or not os.path.isabs(os.environ.get("HOME", "/")):
        raise RunError("there is no home directory; set HOME")
    return path
