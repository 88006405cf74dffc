"""Agreement of a run's processes by the coordination service: the devices run nothing for it."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import jax

from dawnjax import records
from dawnjax.cluster.key_value_store import KeyValueStore, store_of_this_process
from dawnjax.errors import CheckpointError

TIMEOUT_SECONDS = 1200
"""How long processes wait for each other's part of a save, or for process 0 to verify."""

_conversations = itertools.count()
"""Numbers what the processes tell each other; they all count alike."""


def from_process_zero(make: Callable[[], Any]) -> Any:
    """JSON result of `make` on process 0, on every process; its error is a CheckpointError."""
    if jax.process_count() == 1:
        return make()
    key = f"dawnjax/checkpoint/{next(_conversations)}"
    if jax.process_index() == 0:
        try:
            message = {"result": make()}
        except Exception as error:  # The others wait for an answer, whatever happened here.
            message = {"error": str(error) or type(error).__name__}
        _store().put_first(key, json.dumps(message))
    message = records.load_json(_store().wait_for(key, TIMEOUT_SECONDS))
    if "error" in message:
        raise CheckpointError(message["error"])
    return message["result"]


class RefusedError(Exception):
    """A process could not do its part."""


class Assent:
    """A barrier in stages that a process may refuse, which ends it for all."""

    def __init__(self) -> None:
        """Number the agreement; every process makes its agreements in the same order."""
        self._name = f"dawnjax/checkpoint/{next(_conversations)}"
        self._stage = 0
        self._is_over = False

    def give(self, refusal: str = "") -> None:
        """Wait until all processes are ready for the next stage, or one refused (RefusedError).

        A process that refuses waits for the others all the same, so that they stop writing.
        """
        # After a refused stage, the failure that follows from it is no news to the others.
        if jax.process_count() == 1 or (self._is_over and refusal):
            return
        self._stage += 1
        store, stage = _store(), f"{self._name}/{self._stage}"
        if refusal:
            store.put(f"{stage}/{store.process_index}", refusal)
        store.wait_for_all(stage, TIMEOUT_SECONDS)
        refusals = sorted(store.read(stage).items())
        if refusals:
            self._is_over = True
            raise RefusedError("; ".join(f"process {index}: {text}" for index, text in refusals))


def _store() -> KeyValueStore:
    store = store_of_this_process()
    assert store is not None  # there are several processes
    return store
