"""The cache of compiled programs, which is JAX's, and its use by a run.

On a GPU, JAX keeps XLA's search for the fastest kernels (autotuning) in the same directory.
"""

import contextlib
import functools
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from dawnjax import records
from dawnjax.cluster import processes
from dawnjax.errors import ConfigError

DEFAULT_CACHE_DIR = "~/.cache/dawnjax/compiled"


def configure(cache_dir: str) -> None:
    """Keep compiled programs between runs; call it before JAX's first use of a device.

    Args:
      cache_dir: The directory, here or in a bucket (`gs://...`); `none` keeps nothing. Empty takes
        that of JAX's own variables, else `DEFAULT_CACHE_DIR`, or keeps nothing where that cannot be
        made, with a warning.

    Raises:
      ConfigError: The directory that was asked for cannot be made.
    """
    global directory
    directory = ""
    # JAX reads this setting once, at the first compilation; set it before, or later commands in
    # this process keep the old value.
    compilation_cache.reset_cache()
    cache_dir = cache_dir or _asked_of_jax()
    jax.config.update("jax_enable_compilation_cache", cache_dir != "none")
    if cache_dir == "none":
        return
    try:
        kept_in = _made(cache_dir)
    except Exception as error:  # a bucket's package raises whatever it likes
        reason = (str(error) or type(error).__name__).splitlines()[0]
        why = f"cannot keep compiled programs: {reason}; give another --compile_cache_dir, or none"
        if cache_dir:
            raise ConfigError(why) from None
        # Nobody asked for it: a home that cannot be written is no reason to train nothing.
        print(f"dawnjax: warning: {why}", file=sys.stderr)
        jax.config.update("jax_enable_compilation_cache", False)
        return
    directory = kept_in
    jax.config.update("jax_compilation_cache_dir", directory)
    # Small programs too: a run compiles few, and each then starts at once the second time.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _made(cache_dir: str) -> str:
    if "://" in cache_dir:
        from etils import epath  # as JAX's cache does

        epath.Path(cache_dir).mkdir(parents=True, exist_ok=True)
        return cache_dir
    path = records.path_of(cache_dir) if cache_dir else records.in_home(DEFAULT_CACHE_DIR)
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _asked_of_jax() -> str:
    """Directory that the user gave JAX by a variable; `none` where its cache was turned off."""
    is_off = os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "").lower() in ("0", "false", "no")
    return "none" if is_off else os.environ.get("JAX_COMPILATION_CACHE_DIR", "")


directory = ""
"""Where programs are kept now; empty where they are not."""


def share_between_processes() -> None:
    """Let every process of a run find its programs again; all call it once they have joined.

    JAX has process 0 alone keep programs, for all. That serves processes that share its directory.
    Elsewhere each keeps its own: hosts with a disk each, and CPUs, whose programs have another key
    in each process. On GPUs that do not share it nothing is kept: XLA divides the search for
    kernels, and a process that finds its program would leave the others waiting for its share.
    """
    if jax.process_count() == 1:
        return
    platform = jax.default_backend()
    if _all_see_directory_of_first() and platform != "cpu":
        return
    if platform == "gpu":
        compilation_cache.reset_cache()
        jax.config.update("jax_enable_compilation_cache", False)
    else:
        _keep_on_each_process()


def _all_see_directory_of_first() -> bool:
    # A drawn name, so that a mark of a killed run is not taken for this one's.
    name = processes.same_text(f".seen-by-all-{uuid.uuid4().hex}")
    if all(processes.gather("://" in directory)):
        return True
    mark = Path(directory, name) if directory else None
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


def _keep_on_each_process() -> None:
    # Nothing public tells JAX to; where a version has no such function, process 0 alone keeps them.
    from jax._src import compiler, distributed

    write = getattr(compiler, "_cache_write", None)
    if write is None:
        return

    def write_here(*arguments: Any, **keywords: Any) -> None:
        state = distributed.global_state
        process_id, state.process_id = state.process_id, 0
        try:
            write(*arguments, **keywords)
        finally:
            state.process_id = process_id

    compiler._cache_write = write_here


class CacheUse:
    """Origin of a program: `warm` (read from the cache), `cold` (compiled and kept) or `off`."""

    state = "off"


_EVENTS = {
    "/jax/compilation_cache/compile_requests_use_cache": "cold",  # a hit follows, or none
    "/jax/compilation_cache/cache_hits": "warm",
}
_watching: list[CacheUse] = []


@contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Find out where the program that a block compiles comes from."""
    _listen()
    use = CacheUse()
    _watching.append(use)
    try:
        yield use
    finally:
        _watching.remove(use)


@functools.cache
def _listen() -> None:
    def note(event: str, **_: object) -> None:
        for use in _watching:
            use.state = _EVENTS.get(event, use.state)

    jax.monitoring.register_event_listener(note)
