"""Checkpoints that are either whole or not used.

A checkpoint is the folder `<directory>/<step>/`, or `<step>-<calls>/` where calls after that step
made examples: the arrays as Orbax writes them, and `manifest.json`, written last. Orbax alone
restores past some missing files and takes the target's dtype for the data's; here what is restored
is what was saved, bit for bit.

Several processes share one directory (a network file system or `gs://`). Process 0 alone hashes,
verifies and deletes, and tells the others what it chose.
"""

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from dawnjax import records
from dawnjax.checkpoints.agreement import Assent, RefusedError, from_process_zero
from dawnjax.checkpoints.arrays import (
    by_path,
    check_same_structure,
    empty_array,
    from_signature,
    signature,
    with_elements,
)
from dawnjax.checkpoints.bucket import folder_at, is_bucket
from dawnjax.checkpoints.checkpointer import open_checkpointer
from dawnjax.checkpoints.location import check_reachable, check_shared, try_to_write
from dawnjax.checkpoints.manifest import (
    MANIFEST,
    MANIFEST_VERSION,
    DamageError,
    SavePoint,
    UnfinishedError,
    delete,
    fingerprints,
    one_line,
    point_of,
    points_of,
    verified_manifest,
    write_manifest,
)
from dawnjax.errors import CheckpointError

if TYPE_CHECKING:
    # With Orbax it takes 0.15 to 0.3 s to import; who opens no checkpoints does not pay that.
    from etils import epath

_UNFINISHED = re.compile(r"\d+(-\d+)?\.orbax-checkpoint-tmp.*")
"""Folders of saves that Orbax has not committed."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint that was read back; `metadata` and `calls` are what `save` was given."""

    step: int
    state: Any
    metadata: dict[str, Any]
    calls: int = 0

    @property
    def point(self) -> SavePoint:
        return SavePoint(self.step, self.calls)


class Checkpoints:
    """Saves and restores a directory's checkpoints; all processes call it in the same order."""

    def __init__(
        self,
        directory: str,
        *,
        keep: int,
        warn: Callable[[str], None],
        before_manifest: Callable[[], None] = lambda: None,
    ):
        """Open a directory of checkpoints; a single process writes nothing until it saves.

        Args:
          directory: A local path or a `gs://` one; made at the first save.
          keep: Checkpoints to keep, 1 or more. 2 or more let a damaged one be stepped over.
          warn: Called on the caller's thread with one line for each failure that the run survives.
          before_manifest: Called on the writing thread before a save becomes a checkpoint, for what
            must be on disk by then.

        Raises:
          CheckpointError: Several processes do not share the directory, or a bucket cannot be
            reached.
        """
        if keep < 1:
            raise ValueError(f"keep={keep}: keep 1 checkpoint or more")
        self._remote = is_bucket(directory)
        self._directory = folder_at(directory)
        self._keep = keep
        self._warn = warn
        self._before_manifest = before_manifest
        self._assent = Assent()
        self._thread: threading.Thread | None = None
        self._failures: list[
            str
        ] = []  # Found on the thread that finishes a save; wait() warns of them.
        # Points that were saved or restored here, and that were seen to be damaged; every process
        # knows the same.
        self._whole: set[SavePoint] = set()
        self._damaged: set[SavePoint] = set()
        self._reads_back = False  # whether Orbax was seen to find the arrays of a save
        self._failed_saves: list[SavePoint] = []
        if self._remote:
            check_reachable(self._directory)
        elif jax.process_count() > 1:
            check_shared(self._directory)
        self._checkpointer = open_checkpointer(self._meet)

    def save(self, step: int, state: Any, metadata: dict[str, Any], calls: int = 0) -> None:
        """Start to save a state, after the save before it has ended; what is saved already is not
        saved again.

        Returns once the arrays are on the host, so donating them is safe. Writing, hashing and the
        deletion of old checkpoints happen on another thread. A save that fails, such as on a full
        disk, is a warning of a later call; its remains are deleted.

        Args:
          step: 0 or more.
          state: A tree of `jax.Array`, without PRNG key arrays.
          metadata: JSON values; they are read back equal.
          calls: Calls since that step that made examples.

        Raises:
          TypeError: A leaf is not a numeric `jax.Array`, or the metadata is not JSON.
        """
        import orbax.checkpoint as ocp

        if step < 0:
            raise ValueError(f"step={step}: steps are counted from 0")
        arrays = by_path(state)
        for name, array in arrays.items():
            if not isinstance(array, jax.Array) or jax.dtypes.issubdtype(
                array.dtype, jax.dtypes.extended
            ):
                raise TypeError(f"{name} is a {type(array).__name__}, not a plain array")
        point = SavePoint(step, calls)
        content = {
            "manifest_version": MANIFEST_VERSION,
            "step": step,
            **({"calls": calls} if calls else {}),
            "metadata": metadata,
            "arrays": {name: signature(array) for name, array in arrays.items()},
        }
        # A copy, because the caller may change its metadata afterwards.
        content = records.load_json(json.dumps(content))

        self.wait()
        if point in self._whole:
            return
        self._assent = Assent()
        obstacle = from_process_zero(lambda: self._clear_way(point))
        if obstacle:
            # Orbax is not asked: its threads would wait 5 minutes for a folder that never comes,
            # and keep the other processes from going on, and the program from ending.
            self._note_failure(point, obstacle)
            return
        try:
            args = ocp.args.PyTreeSave(with_elements(arrays))
            self._checkpointer.save(self._directory / point.folder, args=args)
        except Exception as error:  # Orbax names no set of errors; none of them may end the run.
            self._save_failed(point, error)
            return
        self._thread = threading.Thread(
            target=self._finish, args=(point, content), name=f"checkpoint-{point.folder}"
        )
        self._thread.start()

    def holds(self, step: int, calls: int = 0) -> bool:
        """True if a state was saved or restored here; waits for a save that is under way."""
        self.wait()
        return SavePoint(step, calls) in self._whole

    def wait(self) -> None:
        """Wait until the last save is on disk, manifest and all, or has failed; then warn."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while self._failures:
            self._warn(self._failures.pop(0))

    def shortfall(self) -> str:
        """One line about saves that failed since the last good one, once none is under way."""
        self.wait()
        newest = max(self._whole, default=SavePoint(-1))
        if max(self._failed_saves, default=SavePoint(-1)) <= newest:
            return ""
        count = len(self._failed_saves)
        failed = f"{count} saves of a checkpoint failed" if count > 1 else "a save failed"
        if newest.step < 0:
            return (
                f"{failed}, and there is no checkpoint in {self._directory}: this run cannot be "
                "resumed, evaluated or asked for answers"
            )
        return f"{failed}, and with it the newest state: the newest checkpoint is of {newest}"

    def restore_newest(self, like: Any) -> Restored | None:
        """Restore the newest checkpoint that verifies; warn of each damaged one that is skipped.

        The devices and the mesh may differ from those that saved.

        Args:
          like: A tree of `jax.ShapeDtypeStruct` with shardings: what to restore.

        Returns:
          The checkpoint; None where there is none but saves that were cut off before their
          manifest.

        Raises:
          CheckpointError: There are checkpoints and none verifies: a person must decide to start
            anew, as that overwrites them. Or the newest holds another model, or the directory
            cannot be read.
        """
        wanted = by_path(like)
        for name, leaf in wanted.items():
            if getattr(leaf, "sharding", None) is None:
                raise TypeError(f"{name}: what to restore has no sharding")
        content = self._newest_whole()
        if content is None:
            return None
        check_same_structure(self._directory / point_of(content).folder, content["arrays"], wanted)
        arrays = self._arrays_of(content, wanted)
        leaves = [arrays[name] for name in wanted]
        state = jax.tree.unflatten(jax.tree.structure(like), leaves)
        return _restored(content, state)

    def _newest_whole(self) -> dict[str, Any] | None:
        self.wait()
        content, skipped = from_process_zero(self._find_newest)
        for place, reason in skipped:
            point = SavePoint(*place)  # a list, from another process
            self._warn(f"checkpoint {self._directory / point.folder} is not used: {reason}")
            self._whole.discard(point)
            self._damaged.add(point)
        return content

    def _arrays_of(self, content: dict[str, Any], wanted: dict[str, Any]) -> dict[str, jax.Array]:
        point = point_of(content)
        path = self._directory / point.folder
        try:
            arrays = self._read(path, wanted)
        except Exception as error:
            raise CheckpointError(
                f"checkpoint {path} verifies but Orbax cannot read it: {one_line(error)}"
            ) from error
        self._whole.add(point)
        return arrays

    def read_newest(self, place_of: Callable[[str], Any]) -> Restored | None:
        """Read the arrays for whose path, such as `params/0/bias`, there is a sharding.

        Otherwise as `restore_newest`.
        """
        content = self._newest_whole()
        if content is None:
            return None
        wanted = {
            name: from_signature(text, place)
            for name, text in content["arrays"].items()
            if (place := place_of(name)) is not None
        }
        return _restored(content, self._arrays_of(content, wanted))

    def close(self) -> None:
        """Wait for the last save and end Orbax's threads."""
        self.wait()
        self._checkpointer.close()

    def _meet(self, *, key: str, timeout_ms: int) -> None:
        self._assent.give()

    def _clear_way(self, point: SavePoint) -> str:
        """Clear a save's way of all but whole checkpoints; return why that failed, or nothing."""
        try:
            if self._remote:
                self._delete_leftovers(point)
            else:
                try_to_write(os.fspath(self._directory))
                # Orbax then fails for the same reason, and says it.
                with contextlib.suppress(OSError, RecursionError):
                    self._delete_leftovers(point)
        except Exception as error:  # Of whichever package asks the store.
            return one_line(error)
        return ""

    def _delete_leftovers(self, point: SavePoint) -> None:
        """Delete what a killed attempt left unfinished: no save is under way."""
        path = self._directory / point.folder
        self._delete_unfinished()
        if path.exists() and (point in self._damaged or not (path / MANIFEST).exists()):
            delete(path)

    def _delete_unfinished(self) -> bool:
        """Delete the folders that Orbax has not committed; True if there were any."""
        if not self._directory.exists():  # A bucket has no folder without an object.
            return False
        unfinished = [p for p in self._directory.iterdir() if _UNFINISHED.fullmatch(p.name)]
        for path in unfinished:
            path.rmtree()
        return bool(unfinished)

    def _finish(self, point: SavePoint, content: dict[str, Any]) -> None:
        path = self._directory / point.folder
        try:
            self._checkpointer.wait_until_finished()
            # A manifest makes the folder a checkpoint: what must not be lost with it goes first.
            self._before_manifest()
            if jax.process_index() == 0:
                self._read_back(path, content["arrays"])
                whole = {**content, "files": fingerprints(path)}
                write_manifest(path, whole, remote=self._remote)
            self._assent.give()
        except Exception as error:  # As in save().
            self._save_failed(point, error)
            return
        self._whole.add(point)
        self._damaged.discard(point)
        self._delete_old()

    def _read_back(self, path: "epath.Path", arrays: dict[str, str]) -> None:
        """Look for the arrays of the first save as a restore would, before a run relies on it."""
        if self._reads_back:
            return
        # Once a run: Orbax reads each array's description from its place, 0.04 s for 100 of them.
        metadata = self._checkpointer.metadata(path).item_metadata
        tree = {} if metadata is None else metadata.tree
        for name, saved in arrays.items():
            if "0" in saved.rstrip("]").partition("[")[2].split(","):
                continue  # without elements, which Orbax is not given
            seen = signature(tree[name]) if name in tree else "absent"
            if seen != saved:
                raise CheckpointError(
                    f"it was written but cannot be read back: {name} is {seen} for Orbax and not "
                    f"{saved}"
                )
        self._reads_back = True

    def _save_failed(self, point: SavePoint, error: Exception) -> None:
        # Or there is no answer within the time.
        with contextlib.suppress(RefusedError, jax.errors.JaxRuntimeError):
            self._assent.give(refusal=one_line(error))
        self._note_failure(point, one_line(error))
        # A new one, so that nothing of the failure stays behind in it.
        with contextlib.suppress(Exception):  # It may raise the same again.
            self._checkpointer.close()
        self._checkpointer = open_checkpointer(self._meet)
        if jax.process_index() == 0:
            self._delete_remains(self._directory / point.folder)

    def _note_failure(self, point: SavePoint, reason: str) -> None:
        self._failed_saves.append(point)
        self._failures.append(
            f"checkpoint {self._directory / point.folder} could not be saved: {reason}; the "
            "run goes on with the checkpoints that it has"
        )

    def _delete_remains(self, path: "epath.Path") -> None:
        """Delete what a failed save left, until nothing comes back.

        Orbax no longer knows of arrays still on their way to the disk, and they would mix with
        another attempt at the same step. The next save deletes the rest.
        """
        deadline = time.monotonic() + 10.0
        looks_clean = 0
        # Four looks in a row: a late write can make the folder again after a look.
        while looks_clean < 4 and time.monotonic() < deadline:
            came_back = False
            with contextlib.suppress(Exception):  # Of the disk, or of who asks the store.
                came_back = self._delete_unfinished()
                if path.exists() and not (path / MANIFEST).exists():
                    delete(path)
            looks_clean = 0 if came_back else looks_clean + 1
            time.sleep(0.05)

    def _delete_old(self) -> None:
        """Delete all that is older than the `keep` newest checkpoints known to be whole."""
        if len(self._whole) < self._keep:
            return
        # Only those known to be whole count: a damaged one must not push out a good one.
        oldest = sorted(self._whole)[-self._keep]
        self._whole = {point for point in self._whole if point >= oldest}
        if jax.process_index() > 0:
            return
        try:
            for point in points_of(self._directory):
                if point < oldest:
                    delete(self._directory / point.folder)
        except Exception as error:  # Of the disk, or of who asks the store.
            self._failures.append(f"cannot delete an old checkpoint: {one_line(error)}")

    def _find_newest(self) -> tuple[dict[str, Any] | None, list[tuple[SavePoint, str]]]:
        """Manifest of the newest checkpoint that verifies, or None; newer ones, each with its
        damage.
        """
        skipped: list[tuple[SavePoint, str]] = []
        only_unfinished = True
        try:
            for point in sorted(points_of(self._directory), reverse=True):
                try:
                    content = verified_manifest(self._directory / point.folder, point)
                except DamageError as error:
                    only_unfinished &= isinstance(error, UnfinishedError)
                    skipped.append((point, str(error)))
                    continue
                del content["files"]  # The other processes have no use for them.
                return content, skipped
        except Exception as error:  # Of the disk, or of who asks the store.
            raise CheckpointError(f"cannot read {self._directory}: {one_line(error)}") from error
        if only_unfinished:
            return None, skipped
        reasons = "; ".join(f"{point}: {reason}" for point, reason in skipped)
        raise CheckpointError(
            f"no checkpoint in {self._directory} verifies ({reasons}); bring back a copy of one, "
            "or, to train that run from the beginning, delete that directory"
        )

    def _read(self, path: "epath.Path", wanted: dict[str, Any]) -> dict[str, jax.Array]:
        import orbax.checkpoint as ocp

        stored = with_elements(wanted)
        restore_args = ocp.checkpoint_utils.construct_restore_args(stored)
        # Whether all was saved that is wanted is known before: what else was saved stays there.
        args = ocp.args.PyTreeRestore(item=stored, restore_args=restore_args, partial_restore=True)
        read = self._checkpointer.restore(path, args=args)
        return {
            name: read[name] if name in stored else empty_array(wanted[name]) for name in wanted
        }


def _restored(content: dict[str, Any], state: Any) -> Restored:
    point = point_of(content)
    return Restored(point.step, state, content["metadata"], point.calls)
