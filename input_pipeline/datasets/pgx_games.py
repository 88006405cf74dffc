"""Board games of pgx: their rules, on the device. They hold no examples; a task plays to make them.

Source: Koyamada et al. 2023, "Pgx: Hardware-Accelerated Parallel Game Simulators for Reinforcement
Learning" (arXiv 2303.17503).
"""

import dataclasses
import functools
import hashlib
import math
import re
from typing import Any, ClassVar

import numpy as np

from dawnjax.errors import install
from dawnjax.input_pipeline.reading.dataset import DataError, Declaration, Shapes, Spec, Split
from dawnjax.limits import NonNegative, OneOrMore, check_fields

_OTHERS = (
    *("tic_tac_toe", "connect_four", "othello", "hex"),
    *("gardner_chess", "animal_shogi", "chess", "shogi"),
)
"""Games of two players who see everything and draw nothing, beside Go."""

_LEAST_SIDE, _MOST_SIDE = 3, 19


@dataclasses.dataclass(frozen=True, kw_only=True)
class GameSpec(Spec):
    """Counts and shapes of a game.

    Attributes:
      num_train_examples: Positions that a generation trains on.
      num_eval_examples: Games of an evaluation, or positions of one.
      observation_shape: (height, width, planes) of what the player to move sees; planes are bool.
      num_actions: Moves that the rules name, legal or not in a position.
    """

    observation_shape: tuple[int, int, int]
    num_actions: int

    def example_shapes(self, split: Split) -> Shapes:
        """No arrays: the task makes its examples on the device."""
        return {}

    def batch_elements(self, batch_size: int) -> int:
        return batch_size * math.prod(self.observation_shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PgxGame:
    """A game of two players, with the rules of pgx.

    Attributes:
      game: `go_9x9` (or another side from 3 to 19), or one of `tic_tac_toe`, `connect_four`,
        `othello`, `hex`, `gardner_chess`, `animal_shogi`, `chess`, `shogi`.
      komi: Points of Go's second player for moving second.
      max_moves: Moves after which a game of Go ends; 0 takes pgx's, twice the points of the board.
      examples_per_generation: Positions that a generation's steps draw; this is one epoch.
      num_eval_games: Games of an evaluation.
    """

    TAG: ClassVar[str] = "pgx"
    game: str = "connect_four"
    komi: float = 7.5
    max_moves: NonNegative[int] = 0
    examples_per_generation: OneOrMore[int] = 4096
    num_eval_games: OneOrMore[int] = 256

    def spec(self) -> GameSpec:
        """Count and shapes; ValueError for a game that there is not."""
        check_fields(self, "data.")
        is_go = _side(self.game) > 0
        if not is_go and self.game not in _OTHERS:
            raise ValueError(
                f"data.game={self.game!r} must be go_NxN with N from {_LEAST_SIDE} to "
                f"{_MOST_SIDE}, or one of {', '.join(_OTHERS)}"
            )
        default = PgxGame()
        for name in ("komi", "max_moves"):
            value = getattr(self, name)
            if not is_go and value != getattr(default, name):
                raise ValueError(f"data.{name}={value} needs Go; data.game={self.game}")
        shape, num_actions = _sizes(self.game)
        return GameSpec(
            num_train_examples=self.examples_per_generation,
            num_eval_examples=self.num_eval_games,
            fingerprint=hashlib.sha256(repr(self).encode()).hexdigest()[:16],
            declaration=Declaration(name=f"{self.game.replace('_', ' ')}, played by the model"),
            observation_shape=shape,
            num_actions=num_actions,
        )

    def load(self, split: Split) -> dict[str, np.ndarray]:
        return {}

    @property
    def side(self) -> int:
        """Side of a board of Go; 0 for another game."""
        return _side(self.game)

    def rules(self) -> Any:
        """The game as a `pgx.Env`."""
        return _rules(self.game, self.komi, self.max_moves)

    def symmetries(self) -> tuple[np.ndarray, np.ndarray]:
        """Symmetries of the board: int32 [symmetries, cells] and [symmetries, actions].

        The first is the identity. A position is the same game if cell i shows what cell
        `cells[k, i]` showed, and action i is action `actions[k, i]`.
        """
        (height, width, _), num_actions = _sizes(self.game)
        cells = np.arange(height * width, dtype=np.int32).reshape(height, width)
        if self.game == "connect_four":  # its actions are the columns
            boards, columns = [cells, cells[:, ::-1]], np.arange(width, dtype=np.int32)
            actions = np.stack([columns, columns[::-1]])
            return np.stack([board.reshape(-1) for board in boards]), actions
        if self.game == "tic_tac_toe" or _side(self.game):
            turned = [np.rot90(board, turns) for board in (cells, cells.T) for turns in range(4)]
            boards = np.stack([board.reshape(-1) for board in turned])
            # An action is a cell, or to pass, which stays.
            passes = np.arange(cells.size, num_actions, dtype=np.int32)
            kept = np.broadcast_to(passes, (len(boards), len(passes)))
            return boards, np.concatenate([boards, kept], axis=1)
        return cells.reshape(1, -1), np.arange(num_actions, dtype=np.int32)[None]


def _side(game: str) -> int:
    match = re.fullmatch(r"go_(\d{1,2})x\1", game)
    side = int(match[1]) if match else 0
    return side if _LEAST_SIDE <= side <= _MOST_SIDE else 0


@functools.lru_cache(maxsize=8)
def _rules(game: str, komi: float, max_moves: int) -> Any:
    try:
        import pgx
        from pgx.go import Go
    except ImportError:
        raise DataError(f"data=pgx needs pgx: {install('selfplay')}") from None
    side = _side(game)
    if not side:
        return pgx.make(game)  # type: ignore[arg-type]
    return Go(size=side, komi=komi, max_terminal_steps=max_moves or None)


@functools.lru_cache(maxsize=32)
def _sizes(game: str) -> tuple[tuple[int, int, int], int]:
    import jax

    rules = _rules(game, 7.5, 0)
    # Without a device: JAX may not have been told yet which to use.
    state = jax.eval_shape(rules.init, jax.eval_shape(lambda: jax.random.key(0)))
    height, width, planes = state.observation.shape
    return (height, width, planes), state.legal_action_mask.shape[0]
