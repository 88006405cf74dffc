"""The cache of compiled programs, and whether it was used.

On a GPU XLA's search for the fastest kernels (autotuning) is kept in the same directory: JAX puts
it there wherever programs are kept, and nowhere where they are not.
"""

import contextlib
import dataclasses
import hashlib
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Sharding

from dawnjax.cluster import processes
from dawnjax.errors import ConfigError
from dawnjax.runs.clock import boot_id

DEFAULT_CACHE_DIR = "~/.cache/dawnjax/compiled"


def configure(cache_dir: str) -> None:
    """Keeps compiled programs between runs. To be called before JAX's first use of a device.

    Args:
      cache_dir: The directory; `none` keeps nothing. Empty takes `DEFAULT_CACHE_DIR`, or keeps
        nothing where that cannot be made, and says so on standard error.

    Raises:
      ConfigError: The directory that was asked for cannot be made, or is none.
    """
    global _directory
    _directory = None
    # JAX reads this setting once, at the first compilation; set it before, or later commands in
    # this process keep the old value.
    compilation_cache.reset_cache()
    jax.config.update("jax_enable_compilation_cache", cache_dir != "none")
    if cache_dir == "none":
        return
    if "://" in cache_dir:
        raise ConfigError(
            f"compile_cache_dir={cache_dir}: compiled programs need a directory, here or mounted, "
            "and no address; give another, or none"
        )
    try:
        directory = Path(cache_dir or DEFAULT_CACHE_DIR).expanduser()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        why = f"cannot keep compiled programs: {error}; give another --compile_cache_dir, or none"
        if cache_dir:
            raise ConfigError(why) from None
        # Nobody asked for it: a home that cannot be written is no reason to train nothing.
        print(f"dawnjax: warning: {why}", file=sys.stderr)
        jax.config.update("jax_enable_compilation_cache", False)
        return
    _directory = directory
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # Small programs too: a run compiles few, and each then starts at once the second time.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


_directory: Path | None = None
"""Where programs are kept now."""

_waits_for_first = False
"""Whether processes other than the first wait for it to compile."""


def share_between_processes() -> None:
    """Lets all processes of a run find compiled programs, or none of them.

    Of several processes only process 0 keeps what it compiled (JAX's rule). Where the others do not
    see its cache, or would not find their programs in it (CPUs of several machines), all do
    without: process 0 would have to wait for them anyway, and on GPUs they for it, since XLA
    divides the search for the fastest kernels among all that compile. On CPUs of one machine the
    others wait for process 0 in `compile_in_turn`, and read what it compiled; there each compiles
    alone, and all at once would take each other's cores.

    To be called by all processes alike, once they have joined, before anything is compiled.
    """
    global _waits_for_first
    _waits_for_first = False
    if jax.process_count() == 1:
        return
    all_find = _all_see_cache_of_first()
    if jax.default_backend() == "cpu":
        machines = set(processes.gather(boot_id()))
        all_find = _name_devices_alike() and all_find and len(machines) == 1
        _waits_for_first = all_find = all_find and None not in machines
    if not all_find:
        compilation_cache.reset_cache()
        jax.config.update("jax_enable_compilation_cache", False)


def _all_see_cache_of_first() -> bool:
    """Whether all processes see the files that process 0 writes to its cache's directory."""
    name = processes.same_text(f".seen-by-all-{uuid.uuid4().hex}")
    mark = None if _directory is None else _directory / name
    is_first = jax.process_index() == 0
    with contextlib.suppress(OSError):
        if mark is not None and is_first:
            mark.touch()
    processes.gather("marked")
    all_see = all(processes.gather(mark is not None and mark.exists()))
    with contextlib.suppress(OSError):
        if mark is not None and is_first:
            mark.unlink()
    return all_see


def _name_devices_alike() -> bool:
    """Has all processes name the run's CPUs as process 0 does, in JAX's key of a program.

    The fingerprint of the same CPUs differs between processes (jax 0.10 and 0.11), so that none
    would find what another has kept. JAX has no public way around it: programs that were read from
    the cache cannot be handed on by `serialize_executable`, as XLA's CPU client then loses parts of
    them.

    Returns:
      Whether all could; a version of JAX may keep its key elsewhere.
    """
    name, cache_key, hash_devices = "", None, None
    with contextlib.suppress(ImportError, AttributeError, TypeError, jax.errors.JaxRuntimeError):
        from jax._src import cache_key

        hash_devices, digest = cache_key._hash_accelerator_config, hashlib.sha256()
        hash_devices(digest, np.array(jax.devices()))
        name = digest.hexdigest()
    names = processes.gather(name)
    if cache_key is None or hash_devices is None or not all(names):
        return False

    def hash_alike(hash_object: Any, devices: np.ndarray) -> None:
        if len({device.process_index for device in devices.flat}) == jax.process_count():
            hash_object.update(names[0].encode())
        else:
            hash_devices(hash_object, devices)

    cache_key._hash_accelerator_config = hash_alike
    return True


@contextmanager
def compile_in_turn(arguments: Any, results: Any) -> Iterator[float]:
    """Lets process 0 compile a program first; the other processes then read it from the cache.

    A program of a process's own devices is compiled at once.

    Args:
      arguments: Of the program, or their shapes, with their shardings.
      results: Shardings of the results; None where they follow from the arguments.

    Yields:
      The seconds that this process has waited.
    """
    leaves = jax.tree.leaves((arguments, results))
    shardings = [getattr(leaf, "sharding", leaf) for leaf in leaves]
    if all(s.is_fully_addressable for s in shardings if isinstance(s, Sharding)):
        yield 0.0
        return
    arrived = time.perf_counter()
    with processes.first_goes_first(_waits_for_first):
        yield time.perf_counter() - arrived


@dataclasses.dataclass
class CacheUse:
    """Whether a program came from the cache.

    Attributes:
      state: `warm` (read back), `cold` (compiled; process 0 keeps it) or `off`. On a GPU `tuned`:
        compiled, but what XLA keeps of its search for the fastest kernels was all there.
    """

    state: str = "off"


_EVENTS = {
    "/jax/compilation_cache/compile_requests_use_cache": "cold",  # a hit follows, or none
    "/jax/compilation_cache/cache_hits": "warm",
}
_watching: list[CacheUse] = []


@contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Finds out whether the program that a block compiles came from the cache."""
    if not _listens:
        jax.monitoring.register_event_listener(_note)
        _listens.append(True)
    use = CacheUse()
    kept = _kept_searches()
    _watching.append(use)
    try:
        yield use
    finally:
        _watching.remove(use)
        if use.state == "cold" and kept and kept == _kept_searches():
            use.state = "tuned"


def _kept_searches() -> int:
    """Number of XLA's searches for kernels that this process keeps: a file each.

    0 where there is no GPU, and in processes but the first, which keep none.
    """
    if _directory is None or jax.default_backend() != "gpu" or jax.process_index() > 0:
        return 0
    folder = _directory / "xla_gpu_per_fusion_autotune_cache_dir"  # JAX's name for it
    return len(list(folder.iterdir())) if folder.is_dir() else 0


_listens: list[bool] = []


def _note(event: str, **_: object) -> None:
    if event in _EVENTS:
        for use in _watching:
            use.state = _EVENTS[event]
