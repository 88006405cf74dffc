"""Moves that a search finds one position at a time, and a whole game of them as a drawing."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.models.pure_model import Tree
from dawnjax.tasks import game_search, opponents
from dawnjax.tasks.game_search import Evaluate, GameSearch, from_tree, to_tree
from dawnjax.tasks.task import Answering, Arrays, Compiled

_KEY = 16


@dataclasses.dataclass(frozen=True)
class Answerer:
    """Search of one move at a time.

    Attributes:
      rules: The game, as a `pgx.Env`.
      config: The search, which explores nothing.
      evaluator: From the module to the network as a search calls it.
      position: From the arrays of one example to the state of the game to move in.
      is_drawn: Whether pgx draws this game.
    """

    rules: Any
    config: GameSearch
    evaluator: Callable[[Any], Evaluate]
    position: Callable[[Arrays], Any]
    is_drawn: bool

    def answering(
        self,
        compiled: Compiled,
        examples: Mapping[str, Any],
        quality: Callable[[list[Any], list[int]], dict[str, Any]],
    ) -> Answering:
        def arrays_of(index: int) -> dict[str, np.ndarray]:
            rows = {name: np.asarray(array[np.array([index])]) for name, array in examples.items()}
            return {**rows, "index": np.array([index], np.int32)}

        starts = compiled(self._start, arrays_of(0))

        def example(index: int) -> dict[str, np.ndarray]:
            arrays = arrays_of(index)
            return {**starts(arrays), "index": arrays["index"]}

        first = example(0)
        answer = compiled(self._move, first)
        timed = (
            "from a position on the host to the move that a search of "
            f"{self.config.simulations} simulations found"
        )
        game = functools.partial(self._game, compiled, answer, first) if self.is_drawn else None
        return Answering(example=example, answer=answer, quality=quality, timed=timed, game=game)

    def _start(self, module: Any, arrays: Arrays) -> Tree:
        return to_tree(jax.vmap(self.position)(arrays))

    def _states(self, arrays: Mapping[str, Any]) -> Any:
        keys = game_search.game_keys(jax.random.key(_KEY), 1)
        like = jax.eval_shape(jax.vmap(self.rules.init), keys)
        return from_tree({name: leaf for name, leaf in arrays.items() if name.isdecimal()}, like)

    def _move(self, module: Any, arrays: Arrays) -> jax.Array:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(_KEY), arrays["index"])
        found = game_search.search(
            self.config,
            self.rules,
            self.evaluator(module),
            self._states(arrays),
            keys,
            explores=False,
        )
        return found.action

    def _stepped(self, module: Any, arrays: Arrays) -> dict[str, Any]:
        """States after a move, whether that ended the games, and the reward of who made it."""
        states = self._states(arrays)
        after = jax.vmap(self.rules.step)(states, arrays["move"])
        reward = after.rewards[jnp.arange(1), states.current_player]
        return {"ended": opponents.has_ended(after), "reward": reward, "states": to_tree(after)}

    def _game(
        self, compiled: Compiled, answer: Callable[[Any], Any], arrays: dict[str, np.ndarray]
    ) -> tuple[str, str]:
        """Drawing of the game that both sides play on from a position, and its outcome in words."""
        step = compiled(self._stepped, {**arrays, "move": np.zeros(1, np.int32)})
        boards, after = [arrays], dict[str, Any](ended=False)
        while not after["ended"]:
            after = step({**boards[-1], "move": answer(boards[-1])})
            boards.append({**after["states"], "index": arrays["index"]})
        moves, reward = len(boards) - 1, float(after["reward"][0])
        winner = "first" if (reward > 0) == (moves % 2 == 1) else "second"
        outcome = f"won by the {winner} player" if reward else "drawn"
        joined = {name: np.concatenate([board[name] for board in boards]) for name in arrays}
        return self._states(joined).to_svg(), f"{moves} moves, {outcome}"
