"""Players that need no network, and matches: against them, or between two networks that search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.tasks import game_search
from dawnjax.tasks.game_search import Evaluate, GameSearch

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

Opponent = Literal["random", "wins", "wins_and_blocks"]
"""A uniformly random legal move; one that wins at once if there is one; and besides none after
which the other can win at once, if there is another."""

Player = Callable[[Any, "jax.Array"], "jax.Array"]
"""From states of games [games] and keys [games] to moves, int32 [games]."""

Mover = Callable[[Any, "jax.Array", "jax.Array", "jax.Array"], "jax.Array"]
"""The same of both players, from states, keys, where the first is to move, and the moves so far."""

MOST_ACTIONS_LOOKED_AT = 100
"""`wins_and_blocks` plays every reply to every move: in Go on 19 x 19 some 130,000 a position."""


def opponent(kind: Opponent, rules: Any) -> Player:
    def move(state: Any, key: jax.Array) -> jax.Array:
        rank = state.legal_action_mask.astype(jnp.int32)
        if kind != "random":
            mover = state.current_player
            actions = jnp.arange(len(rank))
            after = jax.vmap(rules.step, (None, 0))(state, actions)
            wins = after.rewards[:, mover] > 0
            if kind == "wins_and_blocks":
                replies = jax.vmap(jax.vmap(rules.step, (None, 0)), (0, None))(after, actions)
                loses = after.legal_action_mask & (replies.rewards[..., mover] < 0)
                rank += state.legal_action_mask & ~loses.any(1)
            rank = jnp.where(state.legal_action_mask & wins, 3, rank)
        return jax.random.categorical(key, jnp.where(rank == rank.max(), 0.0, -jnp.inf))

    return jax.vmap(move)


def between(first: Player, second: Player) -> Mover:
    """Moves of two players that both look at all games."""
    return lambda states, keys, is_first, ply: jnp.where(
        is_first, first(states, keys), second(states, keys)
    )


def play(rules: Any, move: Mover, keys: jax.Array, begins: jax.Array) -> jax.Array:
    """Points of the first of two players: 1 for a game won, 1/2 for a draw, float32 [games].

    Each key is a game's; `begins`, bool [games], says where that player has the first move. The
    games step together until the last has ended.
    """

    def step(carry: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
        states, outcome, ply = carry
        move_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, 1 + ply)
        action = move(states, move_keys, states.current_player == player, ply)
        states = jax.vmap(rules.step)(states, action)
        # A game that has ended gives no more rewards.
        return states, outcome + states.rewards[jnp.arange(len(keys)), player], ply + 1

    states = jax.vmap(rules.init)(keys)
    player = jnp.where(begins, states.current_player, 1 - states.current_player)
    start = (states, jnp.zeros(len(keys)), jnp.int32(0))
    _, outcome, _ = jax.lax.while_loop(lambda carry: ~has_ended(carry[0]).all(), step, start)
    return (1 + outcome) / 2


def has_ended(states: Any) -> jax.Array:
    return states.terminated | states.truncated


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
        return play(rules, move, keys, jnp.full(half, begins))

    # One after the other: a search takes long to compile.
    sides = jnp.array([True, False]), jax.random.split(key)
    return jax.lax.map(lambda one: side(*one), sides).reshape(-1)


def refuse_one_game(config: GameSearch) -> None:
    if config.method == "puct" and not config.opening_moves:
        raise ConfigError("task.search.opening_moves=0 would make all games of a match the same")
