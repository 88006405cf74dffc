"""JAX's key-value store, by which the processes of a run leave notes for each other.

It belongs to the coordination service of process 0. A note arrives even while a process's devices,
main thread or collectives are stuck, which is when it is needed. JAX has no public name for the
store; this module alone knows where it is.
"""

import dataclasses
from typing import Any

_LONG_MILLISECONDS = 10**9
"""Longest wait, of days: one that waits for a dead or stuck process is ended by the watchdog."""


@dataclasses.dataclass(frozen=True)
class KeyValueStore:
    """A process's view of the store.

    Each method may block, or raise what the service raises, when process 0 is gone.
    """

    process_index: int
    num_processes: int
    _client: Any = dataclasses.field(repr=False)

    def put(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value, allow_overwrite=True)

    def read(self, folder: str) -> dict[str, str]:
        """Notes whose keys begin with `folder/`, by the rest of the key."""
        prefix = folder + "/"
        notes = self._client.key_value_dir_get(prefix)
        return {key.removeprefix(prefix): value for key, value in notes}

    def wait_for(self, key: str) -> str:
        return self._client.blocking_key_value_get(key, _LONG_MILLISECONDS)

    def wait_for_all(self, name: str) -> None:
        """Wait until every process waits for the same name; each name serves once."""
        self._client.wait_at_barrier(name, _LONG_MILLISECONDS)


def coordinator_port() -> int:
    """Port of the coordination service; 0 for a process alone."""
    from jax._src.distributed import global_state as state

    return int((state.coordinator_address or ":0").rpartition(":")[2])


def store_of_this_process() -> KeyValueStore | None:
    """The store; None for a process alone."""
    from jax._src.distributed import global_state as state

    if state.client is None or state.num_processes == 1:
        return None
    return KeyValueStore(int(state.process_id), int(state.num_processes), state.client)
