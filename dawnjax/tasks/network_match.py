"""Matches of two networks, each of which searches its moves."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dawnjax.errors import ConfigError
from dawnjax.tasks import game_search, opponents
from dawnjax.tasks.game_search import Evaluate, GameSearch


def points(
    config: GameSearch,
    rules: Any,
    evaluator: Callable[[jax.Array], Evaluate],
    games: int,
    key: jax.Array,
) -> jax.Array:
    """Points of the first of two networks: 1 for a game won, 1/2 for a draw, float32 [games].

    Args:
      config: Search of every move. Its noise is left out; what it draws besides, such as the first
        moves by their visits, makes the games differ.
      evaluator: From whether the first is to move, bool [], to the network that is.
      games: Even; the first begins half of them.
    """
    config = dataclasses.replace(config, noise_fraction=0.0)
    half = games // 2

    def side(begins: jax.Array, key: jax.Array) -> jax.Array:
        def move(states: Any, keys: jax.Array, _: Any, ply: jax.Array) -> jax.Array:
            # The players take turns, so in all games that still run the same one is to move.
            network = evaluator((ply % 2 == 0) == begins)
            return game_search.search(config, rules, network, states, keys).action

        keys = game_search.game_keys(key, half)
        return opponents.play(rules, move, keys, jnp.full(half, begins))

    # One after the other: a search takes long to compile.
    sides = jnp.array([True, False]), jax.random.split(key)
    return jax.lax.map(lambda one: side(*one), sides).reshape(-1)


def either(is_first: jax.Array, first: Evaluate, second: Evaluate) -> Evaluate:
    """One of two networks, which may have other sizes."""
    return lambda observations, key: jax.lax.cond(is_first, first, second, observations, key)


def refuse_other_game(own: Any, other: Any, config: GameSearch) -> None:
    """Refuse a match between networks of two games."""
    if not hasattr(other, "rule_fields"):
        raise ConfigError(f"its data={other.TAG} are no game")
    if own.rule_fields != other.rule_fields:
        texts = (
            ", ".join(f"{name} {value}" for name, value in data.rule_fields.items())
            for data in (own, other)
        )
        raise ConfigError("its games have other rules: {1}, and here {0}".format(*texts))
    refuse_one_game(config)


def refuse_one_game(config: GameSearch) -> None:
    if config.method == "puct" and not config.opening_moves:
        raise ConfigError("task.search.opening_moves=0 would make all games of a match the same")
