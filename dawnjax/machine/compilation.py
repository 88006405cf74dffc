"""The cache of compiled programs, and its use by a run.

On a GPU, JAX keeps XLA's search for the fastest kernels (autotuning) in the same directory.
"""

import contextlib
import dataclasses
import hashlib
import os
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

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.errors import ConfigError, RunError
from dawnjax.runs.clock import boot_id

DEFAULT_CACHE_DIR = "~/.cache/dawnjax/compiled"


def configure(cache_dir: str) -> None:
    """Keep compiled programs between runs; call it before JAX's first use of a device.

    Args:
      cache_dir: The directory; `none` keeps nothing. Empty takes that of JAX's own variables, else
        `DEFAULT_CACHE_DIR`, or keeps nothing where that cannot be made, with a warning.

    Raises:
      ConfigError: The directory that was asked for cannot be made, or is none.
    """
    global directory
    directory = None
    # JAX reads this setting once, at the first compilation; set it before, or later commands in
    # this process keep the old value.
    compilation_cache.reset_cache()
    named_by = "compile_cache_dir" if cache_dir else "JAX_COMPILATION_CACHE_DIR"
    cache_dir = cache_dir or _asked_of_jax()
    jax.config.update("jax_enable_compilation_cache", cache_dir != "none")
    if cache_dir == "none":
        return
    if "://" in cache_dir:
        raise ConfigError(
            f"{named_by}={cache_dir}: compiled programs need a directory, here or mounted, "
            "and no address; give another, or none"
        )
    try:
        own = records.path_of(cache_dir) if cache_dir else None
        kept_in = own or records.in_home(DEFAULT_CACHE_DIR)
        kept_in.mkdir(parents=True, exist_ok=True)
    except (OSError, RunError) as error:
        why = f"cannot keep compiled programs: {error}; give another --compile_cache_dir, or none"
        if cache_dir:
            raise ConfigError(why) from None
        # Nobody asked for it: a home that cannot be written is no reason to train nothing.
        print(f"dawnjax: warning: {why}", file=sys.stderr)
        jax.config.update("jax_enable_compilation_cache", False)
        return
    directory = kept_in
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # Small programs too: a run compiles few, and each then starts at once the second time.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _asked_of_jax() -> str:
    """Directory that the user gave JAX by a variable; `none` where its cache was turned off."""
    is_off = os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in ("0", "false", "no")
    return "none" if is_off else os.environ.get("JAX_COMPILATION_CACHE_DIR", "")


directory: Path | None = None
"""Where programs are kept now."""

_waits_for_first = False
"""Whether processes other than the first wait for it to compile."""


def share_between_processes() -> None:
    """Let all processes of a run find compiled programs, or none of them.

    All processes call it, once they have joined, before anything is compiled. JAX lets only process
    0 keep programs. Where the others cannot read them, all do without: process 0 would wait for
    them, and on GPUs they for it, as XLA divides the search for kernels. On CPUs of one machine the
    others wait in `compile_in_turn`: compiling all at once, they would take each other's cores.
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
    # A drawn name, so that a mark of a killed run is not taken for this one's.
    name = processes.same_text(f".seen-by-all-{uuid.uuid4().hex}")
    mark = None if directory is None else directory / name
    is_first = jax.process_index() == 0
    with contextlib.suppress(OSError):
        if mark is not None and is_first:
            mark.touch()
    # No process looks before process 0 has written.
    processes.gather("marked")
    all_see = all(processes.gather(mark is not None and mark.exists()))
    with contextlib.suppress(OSError):
        if mark is not None and is_first:
            mark.unlink()
    return all_see


def _name_devices_alike() -> bool:
    """Have all processes name the run's CPUs as process 0 does, in JAX's key of a program.

    The fingerprint of the same CPUs differs between processes (jax 0.10 and 0.11), so that none
    finds what another keeps. `serialize_executable` is no way around it: XLA's CPU client loses
    parts of programs read from the cache. False where this version of JAX keeps its key elsewhere.
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
        # Programs of a few processes keep their own key: their devices differ.
        if len({device.process_index for device in devices.flat}) == jax.process_count():
            hash_object.update(names[0].encode())
        else:
            hash_devices(hash_object, devices)

    cache_key._hash_accelerator_config = hash_alike
    return True


@contextmanager
def compile_in_turn(arguments: Any, results: Any) -> Iterator[float]:
    """Let process 0 compile a program first; the other processes then read it from the cache.

    Yields the seconds waited: 0 for a program that runs on this process's devices alone, as the
    shardings of `arguments` and `results` (None where they follow from the arguments) show.
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
    """Origin of a program: `warm` (read from the cache), `cold` (compiled and kept) or `off`.

    On a GPU also `tuned`: compiled, but with all of XLA's search for kernels read back.
    """

    state: str = "off"


_EVENTS = {
    "/jax/compilation_cache/compile_requests_use_cache": "cold",  # a hit follows, or none
    "/jax/compilation_cache/cache_hits": "warm",
}
_watching: list[CacheUse] = []


@contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Find out where the program that a block compiles comes from."""
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
    """Number of XLA's searches for kernels that process 0 keeps, a file each; 0 without a GPU."""
    if directory is None or jax.default_backend() != "gpu" or jax.process_index() > 0:
        return 0
    folder = directory / "xla_gpu_per_fusion_autotune_cache_dir"  # JAX's name for it
    return len(list(folder.iterdir())) if folder.is_dir() else 0


_listens: list[bool] = []


def _note(event: str, **_: object) -> None:
    if event in _EVENTS:
        for use in _watching:
            use.state = _EVENTS[event]
