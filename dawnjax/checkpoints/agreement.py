"""How the processes of a run agree on a save, stage by stage, and on what process 0 chose.

They talk through the coordination service, so that nothing here compiles or runs a program on the
devices.
"""

import itertools
import json
from collections.abc import Callable
from typing import Any

import jax

from dawnjax.cluster.board import Board, board_of_this_process
from dawnjax.errors import CheckpointError

TIMEOUT_MS = 1_200_000
"""How long processes wait for each other's part of a save, or for process 0 to verify."""

_conversations = itertools.count()
"""Numbers what the processes tell each other; they all count alike."""


def from_process_zero(make: Callable[[], Any]) -> Any:
    """Gives every process what `make` returns on process 0, as JSON; its error ends all alike."""
    if jax.process_count() == 1:
        return make()
    key = f"dawnjax/checkpoint/{next(_conversations)}"
    if jax.process_index() == 0:
        try:
            message = {"result": make()}
        except Exception as error:  # The others wait for an answer, whatever happened here.
            message = {"error": str(error) or type(error).__name__}
        _board().put_first(key, json.dumps(message))
    text = _board().wait_for(key, TIMEOUT_MS / 1000)
    message = json.loads(text)
    if "error" in message:
        raise CheckpointError(message["error"])
    return message["result"]


class RefusedError(Exception):
    """What a process said that could not do its part."""


class Assent:
    """What all processes must agree to, stage by stage; one that refuses ends it for all.

    At a plain barrier the others would wait for a process that failed.
    """

    def __init__(self, replaces: str = ""):
        """Makes one; every process makes the same ones in the same order.

        Args:
          replaces: The name of one that every process has left when it gives its first assent to
            this one; its messages are deleted then.
        """
        self.name = f"dawnjax/checkpoint/{next(_conversations)}"
        self._replaces = replaces
        self._stage = 1
        self._over = False

    def give(self, timeout_ms: int) -> None:
        """Says that this process is ready for the next stage, and waits until all are.

        Raises:
          RefusedError: A process refused.
        """
        if jax.process_count() == 1:
            return
        self._answer("", timeout_ms)
        refusal = self._hear("all", timeout_ms)
        self._stage += 1
        if refusal:
            self._over = True
            raise RefusedError(refusal)
        if jax.process_index() == 0 and self._replaces:
            _board().remove(self._replaces)
            self._replaces = ""

    def refuse(self, reason: str, timeout_ms: int) -> None:
        """Says that this process cannot do its part of the next stage, unless it is over.

        Process 0 waits here until the others have come as far: they no longer write then.
        """
        if jax.process_count() > 1 and not self._over:
            self._over = True
            self._answer(reason, timeout_ms)

    def _answer(self, refusal: str, timeout_ms: int) -> None:
        if jax.process_index() > 0:
            self._say(str(jax.process_index()), refusal)
            return
        answers = {0: refusal}
        for index in range(1, jax.process_count()):
            answers[index] = self._hear(str(index), timeout_ms)
        refusals = [f"process {index}: {answer}" for index, answer in answers.items() if answer]
        self._say("all", "; ".join(refusals))

    def _say(self, topic: str, text: str) -> None:
        _board().put_first(f"{self.name}/{self._stage}/{topic}", text)

    def _hear(self, topic: str, timeout_ms: int) -> str:
        return _board().wait_for(f"{self.name}/{self._stage}/{topic}", timeout_ms / 1000)


def _board() -> Board:
    """Gives the board of a run of several processes."""
    board = board_of_this_process()
    assert board is not None
    return board
