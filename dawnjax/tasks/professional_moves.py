"""Self-play whose quality is the share of others' moves that a search predicts.

Source: mlcommons/training v0.5, `reinforcement/tensorflow/minigo/predict_games.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import OneOrMore
from dawnjax.tasks import game_search
from dawnjax.tasks.metric import fraction
from dawnjax.tasks.playing import Playing
from dawnjax.tasks.task import Arrays, Setting

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

PROFESSIONAL_MOVES = fraction("professional_moves", "moves predicted", is_proportion=True)

_KEY = 21


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfessionalMoves(Playing):
    """Self-play, evaluated on the positions of others' games.

    From each position the search finds a move without noise; it counts if it was the one played.

    Attributes:
      predict_simulations: Simulations of that search.
    """

    TAG: ClassVar[str] = "professional_moves"
    metrics: ClassVar = (PROFESSIONAL_MOVES,)
    evaluation_fields: ClassVar = ("predict_simulations",)

    predict_simulations: OneOrMore[int] = 1000

    def validate(self, model: Any, spec: Any) -> None:
        super().validate(model, spec)
        if not hasattr(spec, "most_moves"):
            raise ConfigError(f"task={self.TAG} predicts moves of games: choose data=go_games")

    def measure(self, module: Any, batch: Arrays, setting: Setting) -> Arrays:
        """1 for each position whose move the search predicts, else 0."""
        rows = (batch["moves"], batch["number"], batch["index"])

        def predict(module: Any, moves: jax.Array, number: jax.Array, index: jax.Array) -> Any:
            rules = setting.data.rules()
            config = self.search.with_simulations(self.predict_simulations)
            states = jax.vmap(lambda moves, number: position(rules, moves, number))(moves, number)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(_KEY), index)
            evaluate = self.evaluator(module, setting)
            found = game_search.search(config, rules, evaluate, states, keys, explores=False)
            played = jnp.take_along_axis(moves, number[:, None], axis=1)[:, 0]
            return (found.action == played).astype(jnp.float32)

        return {"professional_moves": game_search.over_games(predict, setting, module, rows)}


def position(rules: Any, moves: jax.Array, number: jax.Array) -> Any:
    """State of a game after the first `number` of its moves."""

    def play(count: jax.Array, state: Any) -> Any:
        after = rules.step(state, moves[count].astype(jnp.int32))
        return jax.tree.map(lambda new, old: jnp.where(count < number, new, old), after, state)

    return jax.lax.fori_loop(0, len(moves), play, rules.init(jax.random.key(0)))
