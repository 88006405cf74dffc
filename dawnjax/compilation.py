"""The cache of compiled programs, whether it was used, and the memory that they compute in."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from dawnjax import host_memory
from dawnjax.errors import ConfigError

DEFAULT_CACHE_DIR = "~/.cache/dawnjax/compiled"


def configure(cache_dir: str, batch_elements: int = 0) -> None:
    """Keeps compiled programs between runs, and readies this process for them.

    To be called before JAX's first use of a device.

    Args:
      cache_dir: The directory; empty takes `DEFAULT_CACHE_DIR`, `none` keeps nothing.
      batch_elements: Of the largest array that a step is known to need, as the data's
        specification says.

    Raises:
      ConfigError: The directory cannot be made.
    """
    host_memory.prepare(batch_elements)
    # JAX decides at its first program, and would hold to that for later commands of a process.
    compilation_cache.reset_cache()
    jax.config.update("jax_enable_compilation_cache", cache_dir != "none")
    if cache_dir == "none":
        return
    try:
        directory = Path(cache_dir or DEFAULT_CACHE_DIR).expanduser()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"cannot keep compiled programs: {error}; give another --compile_cache_dir, or none"
        ) from None
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # Small programs too: a run compiles few, and each then starts at once the second time.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@dataclasses.dataclass
class CacheUse:
    """Whether a program came from the cache.

    Attributes:
      state: `warm` (read back), `cold` (compiled, and kept where it can be) or `off`.
    """

    state: str = "off"


_EVENTS = {
    "/jax/compilation_cache/cache_hits": "warm",
    "/jax/compilation_cache/cache_misses": "cold",
}
_watching: list[CacheUse] = []


@contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Tells of the program that a block compiles whether it came from the cache."""
    if not _listens:
        jax.monitoring.register_event_listener(_note)
        _listens.append(True)
    use = CacheUse()
    _watching.append(use)
    try:
        yield use
    finally:
        _watching.remove(use)


_listens: list[bool] = []


def _note(event: str, **_: object) -> None:
    if event in _EVENTS:
        for use in _watching:
            use.state = _EVENTS[event]
