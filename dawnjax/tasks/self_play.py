"""Self-play whose quality is the score against a fixed player."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.limits import NonNegative
from dawnjax.statistics.proportions import score
from dawnjax.tasks import game_search, opponents
from dawnjax.tasks.metric import fraction
from dawnjax.tasks.playing import Playing
from dawnjax.tasks.task import Arrays, Setting

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import pure_model

SCORE = fraction("score", "score")
SCORE_LOW = fraction("score_low", "lower bound of the score")

_MATCH_KEY = 20
"""Seed of an evaluation's games: the same in every evaluation of every run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPlay(Playing):
    """Self-play, evaluated by games against a player that does not learn.

    Attributes:
      opponent: The evaluation's opponent, one of `opponents.Opponent`.
      match_simulations: Simulations for the network's moves in an evaluation; 0 takes the most
        likely move of its policy.
    """

    TAG: ClassVar[str] = "self_play"
    metrics: ClassVar = (SCORE, SCORE_LOW)
    evaluation_fields: ClassVar = ("opponent", "match_simulations")

    opponent: opponents.Opponent = "wins_and_blocks"
    match_simulations: NonNegative[int] = 0

    def validate(self, model: Any, spec: Any) -> None:
        super().validate(model, spec)
        most = opponents.MOST_ACTIONS_LOOKED_AT
        if self.opponent == "wins_and_blocks" and spec.num_actions > most:
            raise ConfigError(
                f"task.opponent=wins_and_blocks looks at each reply to each of {spec.num_actions} "
                f"moves, and at most {most} are practical; take random or wins"
            )

    def measure(self, module: Any, batch: Arrays, setting: Setting) -> Arrays:
        """Points of each game against the opponent; the network begins those of even index."""
        rules = setting.data.rules()

        def match(module: Any, index: jax.Array) -> jax.Array:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(_MATCH_KEY), index)
            mover = opponents.between(*self._players(module, setting))
            return opponents.play(rules, mover, keys, index % 2 == 0)

        points = game_search.over_games(match, setting, module, (batch["index"],))
        return {"score": points, "score_low": points}

    def _players(self, module: Any, setting: Setting) -> tuple[opponents.Player, opponents.Player]:
        rules, simulations = setting.data.rules(), self.match_simulations
        ours = self.evaluator(module, setting)
        opponent = opponents.opponent(self.opponent, rules)
        if not simulations:
            return _likeliest(module), opponent
        config = self.search.with_simulations(simulations)
        return game_search.searching(config, rules, ours, False), opponent

    def metrics_of(
        self, totals: Mapping[str, np.ndarray], setting: Setting
    ) -> dict[str, float | str]:
        """Mean points of a game, and the low end of its 95 % interval."""
        found = score(float(totals["score"]), int(totals["examples"]))
        return {"score": found.value, "score_low": found.low or 0.0}


def _likeliest(module: Any) -> opponents.Player:
    def move(states: Any, keys: jax.Array) -> jax.Array:
        logits, _ = module(states.observation, **pure_model.mode_arguments(module, False))
        legal = jnp.where(states.legal_action_mask, logits, -jnp.inf)
        return legal.argmax(-1).astype(jnp.int32)

    return move
