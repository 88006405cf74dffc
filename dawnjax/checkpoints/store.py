"""Checkpoints of a run: saved beside the steps by Orbax, and restored as they were saved.

`orbax.checkpoint.CheckpointManager` writes, commits, keeps and deletes; `saved` says what lies
where. Orbax alone restores past some missing files and takes the target's dtype for the data's, so
names, dtypes and shapes are compared with those saved.

Several processes share one directory (a network file system or `gs://`). Each writes and reads the
parts of its own devices; none reads back what another wrote.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from absl import logging as absl_logging

from dawnjax.checkpoints import saved
from dawnjax.checkpoints.arrays import by_path, check_same_structure, from_signature, signature
from dawnjax.checkpoints.location import check_shared, folder_at, one_line, write_mark
from dawnjax.checkpoints.saved import Content, SavePoint
from dawnjax.cluster import processes
from dawnjax.errors import CheckpointError

if TYPE_CHECKING:
    # With Orbax it takes 0.15 to 0.3 s to import; who opens no checkpoints does not pay that.
    from etils import epath

CHUNK_BYTES = 2**30
"""Bytes that each process restores between two reports of progress."""


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
    """Saves and restores a directory's checkpoints; all processes call it in the same order.

    Attributes:
      last_save_seconds: Duration of the last save that ended well, from `save` to its commit; 0
        before one has.
    """

    def __init__(self, directory: str, *, keep: int, warn: Callable[[str], None]):
        """Open a directory of checkpoints; a single process writes nothing until it saves.

        Args:
          directory: A local path or a `gs://` one; made at the first save.
          keep: Checkpoints to keep, 1 or more. 2 or more let a damaged one be stepped over.
          warn: Called on the caller's thread with one line for each failure that the run survives.

        Raises:
          CheckpointError: Several processes do not share the directory.
        """
        self._directory = folder_at(directory)
        self._keep = keep
        self._warn = warn
        self._manager: Any = None  # Orbax's; made at the first save
        self._number = 0  # of the last save that was tried; process 0 alone counts
        self._writing: tuple[SavePoint, threading.Thread] | None = None
        self._error: Exception | None = None  # of the save that was written last
        self._held: set[SavePoint] = set()  # saved or restored here
        self._failed: list[SavePoint] = []
        self.last_save_seconds = 0.0
        _mute_orbax()
        if jax.process_count() > 1:
            check_shared(self._directory)

    def save(self, point: SavePoint, state: Any, metadata: dict[str, Any], log: str) -> None:
        """Start to save a state; what is saved already is not saved again.

        Returns once the arrays are on the host, so donating them is safe. It waits for the save
        before it, if that is still being written: ask `is_saving` first. A save that fails, such
        as on a full disk, is a warning of a later call.

        Args:
          state: A tree of `jax.Array`, without PRNG key arrays.
          metadata: JSON values; they are read back equal.
          log: Text of the run's log so far.

        Of `metadata` and `log`, those of process 0 are saved.
        """
        import orbax.checkpoint as ocp

        arrays = by_path(state)
        signatures = {name: signature(array) for name, array in arrays.items()}
        content = Content(
            version=saved.VERSION, **point._asdict(), metadata=metadata, arrays=signatures
        )
        # It copies, because the caller may change its metadata afterwards.
        plain = dataclasses.asdict(content)
        self.wait()
        number, obstacle = processes.from_first(lambda: self._clear_way(point))
        if obstacle:
            self._note_failure(point, obstacle)
        if not number:
            return
        started = time.monotonic()
        if self._manager is None:
            self._manager = _open_manager(self._directory, self._keep)
        try:
            args = ocp.args.Composite(
                state=ocp.args.PyTreeSave(arrays),
                metadata=ocp.args.JsonSave(plain),
                log=ocp.args.JsonSave({"log": log}),
            )
            self._manager.save(number, args=args, force=True)
        except Exception as error:  # Orbax names no set of errors; none of them may end the run.
            self._error = error
        thread = threading.Thread(target=self._finish, args=(started,), name="checkpoint")
        self._writing = (point, thread)
        thread.start()

    @property
    def is_saving(self) -> bool:
        """True while a save is being written, which another would wait for; may differ by host."""
        return self._writing is not None and self._writing[1].is_alive()

    def holds(self, point: SavePoint) -> bool:
        """True if a state was saved or restored here; waits for a save that is under way."""
        self.wait()
        return processes.from_first(lambda: point in self._held)

    def wait(self) -> None:
        """Wait until the last save is committed or has failed; then warn."""
        if self._writing is None:
            return
        point, thread = self._writing
        thread.join()
        error, self._writing, self._error = self._error, None, None
        if error is None:
            self._held.add(point)
            return
        self._note_failure(point, one_line(error))
        # A new one at the next save, in which nothing of the failure stays behind.
        manager, self._manager = self._manager, None
        for end in (manager.wait_until_finished, manager.close):
            with contextlib.suppress(Exception):  # It raises the same again.
                end()

    def shortfall(self) -> str:
        """One line about saves that failed since the last good one, once none is under way."""
        self.wait()
        newest = max(self._held, default=SavePoint(-1))
        if max(self._failed, default=SavePoint(-1)) <= newest:
            return ""
        kept = f"the newest checkpoint is of {newest}" if newest.step >= 0 else "no state was saved"
        return f"saves failed ({len(self._failed)}), including the newest state: {kept}"

    def restore_newest(
        self, like: Any, progress: Callable[[], object] = lambda: None
    ) -> Restored | None:
        """Restore the newest checkpoint that can be; warn of each that is stepped over.

        The devices and the mesh may differ from those that saved.

        Args:
          like: A tree of `jax.ShapeDtypeStruct` with shardings: what to restore.
          progress: Called after each part, on all processes alike.

        Returns:
          The checkpoint; None where there is none.

        Raises:
          CheckpointError: There are checkpoints and none can be restored, or the newest holds
            another model.
        """
        wanted = by_path(like)

        def choose(content: Content) -> dict[str, Any]:
            check_same_structure(content.arrays, wanted)
            return wanted

        found = self._newest(choose, progress)
        if found is None:
            return None
        leaves = [found.state[name] for name in wanted]
        return dataclasses.replace(
            found, state=jax.tree.unflatten(jax.tree.structure(like), leaves)
        )

    def read_newest(
        self, place_of: Callable[[str], Any], progress: Callable[[], object] = lambda: None
    ) -> Restored | None:
        """Read the arrays for whose path, such as `params/0/bias`, there is a sharding.

        Otherwise as `restore_newest`, with the arrays by their paths.
        """

        def choose(content: Content) -> dict[str, Any]:
            places = {name: place_of(name) for name in content.arrays}
            return {
                name: from_signature(content.arrays[name], place)
                for name, place in places.items()
                if place is not None
            }

        return self._newest(choose, progress)

    def close(self) -> None:
        """Wait for the last save and end Orbax's threads."""
        self.wait()
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _newest(
        self, choose: Callable[[Content], dict[str, Any]], progress: Callable[[], object]
    ) -> Restored | None:
        self.wait()
        skipped: list[str] = []
        for number in processes.from_first(lambda: list(saved.folders(self._directory))):
            folder = self._directory / f"{saved.PREFIX}_{number}"
            restored, fault = None, ""
            try:
                content = saved.content_of(folder)
                arrays = _read(folder / "state", choose(content), progress)
                restored = Restored(content.step, arrays, content.metadata, content.calls)
            except CheckpointError as error:
                raise CheckpointError(f"{folder}: {error}") from None
            except Exception as error:  # Orbax and the stores name no set of errors.
                fault = one_line(error)
            faults = [each for each in processes.gather(fault) if each]
            if restored is not None and not faults:
                for line in skipped:
                    self._warn(f"checkpoint {line}; the one before it is used")
                self._held.add(restored.point)
                return restored
            skipped.append(f"{folder} cannot be restored: {faults[0]}")
        if skipped:
            raise CheckpointError(
                f"{'; '.join(skipped)}; restore a copy of one, or delete that directory to train "
                "the run from the beginning"
            )
        return None

    def _clear_way(self, point: SavePoint) -> tuple[int, str]:
        """Number of the next save, or 0 and the reason if there is one against it."""
        if point in self._held:
            return 0, ""
        try:
            # Orbax's threads would wait for a folder that never comes.
            write_mark(self._directory).unlink()
            self._number = max([self._number, *saved.folders(self._directory)]) + 1
        except Exception as error:  # Of the disk, or of who asks the store.
            return 0, one_line(error)
        return self._number, ""

    def _finish(self, started: float) -> None:
        try:
            self._manager.wait_until_finished()
        except Exception as error:  # As in `save`.
            self._error = error
        if self._error is None:
            self.last_save_seconds = time.monotonic() - started

    def _note_failure(self, point: SavePoint, reason: str) -> None:
        self._failed.append(point)
        self._warn(
            f"the state of {point} could not be saved in {self._directory}: {reason}; the run "
            "continues with its earlier checkpoints"
        )


def _handler() -> Any:
    import orbax.checkpoint as ocp

    # Orbax's default splits replicated arrays among the replicas, which compiles a program for
    # each shape and device at the first save: 15 s for 100 shapes on four devices.
    arrays = ocp.type_handlers.ArrayHandler(use_replica_parallel=False)
    return ocp.PyTreeCheckpointHandler(
        type_handler_registry=ocp.type_handlers.create_type_handler_registry((jax.Array, arrays)),
        multiprocessing_options=_processes(),
    )


def _processes() -> Any:
    import orbax.checkpoint as ocp

    # Named, they meet at the coordination service instead of on their devices.
    everyone = set(range(jax.process_count()))
    return ocp.options.MultiprocessingOptions(
        active_processes=everyone, barrier_sync_key_prefix="dawnjax"
    )


def _open_manager(directory: "epath.Path", keep: int) -> Any:
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        step_prefix=saved.PREFIX,
        create=False,
        save_root_metadata=False,
        cleanup_tmp_directories=True,  # what a killed or failed save left
        multiprocessing_options=_processes(),
    )
    registry = ocp.handlers.create_default_handler_registry(
        state=_handler(),
        metadata=ocp.JsonCheckpointHandler(saved.METADATA),
        log=ocp.JsonCheckpointHandler(saved.LOG),
    )
    return ocp.CheckpointManager(directory, options=options, handler_registry=registry)


def _read(
    folder: "epath.Path", wanted: dict[str, Any], progress: Callable[[], object]
) -> dict[str, jax.Array]:
    """Arrays of a save, as Orbax's handler reads them: it waits for no other process."""
    import orbax.checkpoint as ocp

    handler, waiting = _handler(), dict(wanted)
    read: dict[str, Any] = {}
    while waiting:
        part, size = {}, 0
        while waiting and size < CHUNK_BYTES * jax.process_count():  # the same part on all
            name = next(iter(waiting))
            part[name] = waiting.pop(name)
            size += math.prod(part[name].shape) * part[name].dtype.itemsize
        restore_args = ocp.checkpoint_utils.construct_restore_args(part)
        # What else was saved stays there.
        args = ocp.args.PyTreeRestore(item=part, restore_args=restore_args, partial_restore=True)
        read |= handler.restore(folder, args=args)
        progress()
    return read


@functools.cache
def _mute_orbax() -> None:
    """Keep the terminal free of tracebacks after a failure, which is raised anyway."""
    absl_logging.get_absl_logger().addFilter(lambda record: "/orbax/" not in record.pathname)
    logging.getLogger("asyncio").addFilter(lambda record: "orbax" not in record.getMessage())
    show = sys.unraisablehook

    def show_others(unraisable: Any) -> None:
        # Reads and writes that end after the save or restore that they belong to has failed.
        late = ("Event loop is closed", "Encountered error while reading array index")
        if not str(unraisable.exc_value).startswith(late):
            show(unraisable)

    sys.unraisablehook = show_others
