"""Saves as they lie in a directory, read without devices: their order, metadata and log.

A save is the folder `save_N/`, N counted from 1, as `orbax.checkpoint.CheckpointManager` writes it:

    state/                  the arrays by their paths
    metadata/metadata.json  a `Content`
    log/log.json            the text of the run's log at that save, as `log`
"""

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dawnjax import records
from dawnjax.checkpoints.location import folder_at, one_line
from dawnjax.errors import CheckpointError

if TYPE_CHECKING:
    from etils import epath

VERSION = 3
PREFIX = "save"
"""Prefix of folders: a number, not a step, follows, because two attempts may save one step."""

METADATA, LOG = "metadata.json", "log.json"


class SavePoint(NamedTuple):
    """Steps that made a saved state, and the calls since the last of them that made examples.

    Points of a run are in the order in which it passes them.
    """

    step: int
    calls: int = 0

    def __str__(self) -> str:
        return f"step {self.step}" + (f" and {self.calls} calls" if self.calls else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """What a save holds.

    Attributes:
      metadata: What the run gave.
      arrays: Dtype and shape of each array by its path, such as `bfloat16[3,3,64]`.
    """

    version: int
    step: int
    calls: int
    metadata: dict[str, Any]
    arrays: dict[str, str]

    @property
    def point(self) -> SavePoint:
        return SavePoint(self.step, self.calls)


def folders(directory: "epath.Path") -> dict[int, "epath.Path"]:
    """Folders of the saves that were committed, by number, the newest first."""
    import orbax.checkpoint as ocp

    try:
        if not directory.exists():  # A bucket has no folder without an object.
            return {}
        found = list(ocp.path.step.standard_name_format(step_prefix=PREFIX).find_all(directory))
    except Exception as error:  # Of the disk, or of who asks the store.
        raise CheckpointError(f"cannot read {directory}: {one_line(error)}") from error
    return {save.step: save.path for save in sorted(found, key=lambda s: s.step, reverse=True)}


def content_of(folder: "epath.Path") -> Content:
    """The metadata of a save; OSError or ValueError if they are not whole."""
    content = records.decode((folder / "metadata" / METADATA).read_bytes(), dict[str, Any])
    version = content.get("version")
    if version != VERSION:
        raise ValueError(f"has version {version!r}; this program reads version {VERSION}")
    return records.convert(content, Content)


def newest_saved(directory: str) -> tuple[dict[str, Any], str] | None:
    """Metadata and log of the newest save that has both whole, whatever its arrays; or None."""
    for folder in folders(folder_at(directory)).values():
        with contextlib.suppress(OSError, ValueError, KeyError):
            data = (folder / "log" / LOG).read_bytes()
            log = records.decode(data, dict[str, str], most_marks=len(data))["log"]
            return content_of(folder).metadata, log
    return None
