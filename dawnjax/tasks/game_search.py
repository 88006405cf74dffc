"""Tree search over the moves of pgx games, by mctx: PUCT, or Gumbel's sequential halving.

A game is searched by itself, with its own key: what is found does not depend on the games beside it
or on the number of devices.

Source: Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi
and Go through self-play", "Search" in the supplement; Danihelka et al. 2022, "Policy improvement by
planning with Gumbel" (ICLR).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError, install
from dawnjax.limits import Fraction, NonNegative, OneOrMore, Positive, require
from dawnjax.tasks.task import Setting

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.machine import mesh as device_mesh
    from dawnjax.models import pure_model

Evaluate = Callable[["jax.Array", "jax.Array"], "tuple[jax.Array, jax.Array]"]
"""From observations [batch, ...] and a key to logits [batch, actions] and the mover's values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GameSearch:
    """Search of a move.

    Attributes:
      method: `puct` visits by the sum of a move's value and its prior; `minigo` does so with the
        prior's weight of MLPerf v0.5's Minigo; `gumbel` halves a few considered moves, and learns
        with few simulations.
      simulations: Positions that the network evaluates after the root.
      exploration: Weight of the prior in `puct`; the prior of a position with N visits is weighed
        by it plus log((1 + N + base) / base). In `minigo` it is the weight.
      exploration_base: That base.
      noise_alpha: Alpha of the Dirichlet noise at the root of `puct`.
      noise_fraction: Weight of that noise beside the prior.
      opening_moves: First moves of a game that `puct` draws by their visits; then the most visited.
      considered: Moves that `gumbel` considers at the root.
      symmetries: Turn and mirror the board at random before each evaluation by the network.
    """

    method: Literal["puct", "minigo", "gumbel"] = "puct"
    simulations: OneOrMore[int] = 32
    exploration: Positive[float] = 1.25
    exploration_base: Positive[float] = 19652.0
    noise_alpha: Positive[float] = 0.3
    noise_fraction: Fraction = 0.25
    opening_moves: NonNegative[int] = 10
    considered: OneOrMore[int] = 16
    symmetries: bool = False

    def with_simulations(self, simulations: int) -> GameSearch:
        considered = min(self.considered, simulations)
        return dataclasses.replace(self, simulations=simulations, considered=considered)

    def check_together(self, prefix: str) -> None:
        """Refuse fewer simulations than moves that Gumbel must look at once."""
        if self.method == "gumbel":
            require(
                self.simulations >= self.considered,
                f"{prefix}simulations",
                self.simulations,
                f"be {prefix}considered={self.considered} or more",
            )


class Found(NamedTuple):
    """Moves chosen, int32 [games], and targets of the policy, float32 [games, actions]."""

    action: jax.Array
    weights: jax.Array


def evaluator(module: Any, symmetries: tuple[np.ndarray, np.ndarray] | None) -> Evaluate:
    """Network as a search calls it; with `symmetries`, as `PgxGame.symmetries`, in a random one."""
    network = _of_all_games(module)

    def evaluate(observations: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        if symmetries is None:
            return network(observations)
        cells, back = jnp.asarray(symmetries[0]), jnp.asarray(np.argsort(symmetries[1], axis=1))
        which = jax.random.randint(key, (), 0, len(cells))
        rows, planes = len(observations), observations.shape[-1]
        turned = observations.reshape(rows, -1, planes)[:, cells[which]]
        logits, values = network(turned.reshape(observations.shape))
        return logits[:, back[which]], values

    return evaluate


def _of_all_games(module: Any) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Network that sees the positions of games searched one by one as a single batch.

    `jax.vmap` alone would keep a batch of one for each game, and XLA then turns the axes of every
    layer's products.
    """
    arrays, made_of = pure_model.split_module(module)

    @jax.custom_batching.custom_vmap
    def network(arrays: Any, observations: jax.Array) -> tuple[jax.Array, jax.Array]:
        module = made_of(arrays)
        return module(observations, **pure_model.mode_arguments(module, False))

    @network.def_vmap
    def of_batches(games: int, _: Any, arrays: Any, observations: jax.Array) -> Any:
        # The games share the parameters, so that the observations alone are mapped.
        logits, values = network(arrays, observations.reshape(-1, *observations.shape[2:]))
        of_each = logits.reshape(games, -1, logits.shape[-1]), values.reshape(games, -1)
        return of_each, (True, True)

    return functools.partial(network, arrays)


def game_keys(key: jax.Array, games: int) -> jax.Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(games))


def to_tree(states: Any) -> pure_model.Tree:
    """States of games as a dict: what is in a checkpoint must not depend on pgx's classes."""
    return {f"{place:02}": leaf for place, leaf in enumerate(jax.tree.leaves(states))}


def from_tree(tree: pure_model.Tree, like: Any) -> Any:
    return jax.tree.unflatten(jax.tree.structure(like), [tree[name] for name in sorted(tree)])


def search(
    config: GameSearch,
    rules: Any,
    evaluate: Evaluate,
    states: Any,
    keys: jax.Array,
    *,
    explores: bool = True,
) -> Found:
    """Search a move of each game; `states` are pgx states of games that have not ended.

    Without `explores` there is no noise, and the best move is taken.
    """
    mctx = require_mctx()
    prior_of = prior_of_all_moves if config.method == "minigo" else _legal

    def expand(_: Any, key: jax.Array, action: jax.Array, states: Any) -> Any:
        mover = states.current_player
        states = jax.vmap(rules.step)(states, action)
        logits, value = evaluate(states.observation, key)
        rows = jnp.arange(len(mover))
        ended = states.terminated | states.truncated
        same = jnp.where(states.current_player == mover, 1.0, -1.0)
        return mctx.RecurrentFnOutput(
            reward=states.rewards[rows, mover],
            discount=jnp.where(ended, 0.0, same),
            prior_logits=prior_of(logits, states),
            value=jnp.where(ended, 0.0, value),
        ), states

    def one(state: Any, key: jax.Array) -> Found:
        # A batch of one: mctx draws for a batch, and a game's draws must be its own.
        states = jax.tree.map(lambda leaf: leaf[None], state)
        network_key, search_key = jax.random.split(key)
        logits, value = evaluate(states.observation, network_key)
        if config.method == "minigo" and explores:
            logits = noisy_logits(logits, jax.random.fold_in(search_key, 0), config)
        prior = prior_of(logits, states)
        root = mctx.RootFnOutput(prior_logits=prior, value=value, embedding=states)
        call = functools.partial(
            _policy(mctx, config, explores, states, prior[0]),
            params=(),
            rng_key=search_key,
            root=root,
            recurrent_fn=expand,
            num_simulations=config.simulations,
            invalid_actions=~states.legal_action_mask,
        )
        found = call()
        return Found(found.action[0].astype(jnp.int32), found.action_weights[0])

    return jax.vmap(one)(states, keys)


def searching(
    config: GameSearch, rules: Any, evaluate: Evaluate, explores: bool
) -> Callable[..., jax.Array]:
    """Player that takes the moves that a search finds."""
    found: Callable[..., Found] = functools.partial(
        search, config, rules, evaluate, explores=explores
    )
    return lambda states, keys: found(states, keys).action


def over_games(
    function: Callable[..., Any], setting: Setting, module: Any, rows: tuple, *whole: Any
) -> Any:
    """Call `function(module, *rows, *whole)`, each device with its own games."""
    mesh = setting.mesh
    if mesh is None or mesh.size == 1:
        return function(module, *rows, *whole)
    arrays, made_of = pure_model.split_module(module)
    all_games, own = (
        jax.sharding.PartitionSpec(),
        jax.sharding.PartitionSpec(device_mesh.BATCH_AXES),
    )
    return jax.shard_map(
        lambda arrays, rows, whole: function(made_of(arrays), *rows, *whole),
        mesh=mesh,
        in_specs=(all_games, own, all_games),
        out_specs=own,
        check_vma=False,
    )(arrays, rows, whole)


def _policy(
    mctx: Any, config: GameSearch, explores: bool, states: Any, root_prior: jax.Array
) -> Callable[..., Any]:
    if config.method == "gumbel":
        return functools.partial(
            mctx.gumbel_muzero_policy,
            max_num_considered_actions=config.considered,
            gumbel_scale=1.0 if explores else 0.0,
        )
    is_opening = states._step_count[0] < (config.opening_moves if explores else 0)
    policy = functools.partial(
        mctx.muzero_policy,
        dirichlet_alpha=config.noise_alpha,
        temperature=jnp.where(is_opening, 1.0, 0.0),
    )
    if config.method == "minigo":
        # Both terms of a score, beside which mctx's own has no weight.
        score = functools.partial(_minigo_score, config.exploration, root_prior)
        return functools.partial(
            policy, qtransform=score, dirichlet_fraction=0.0, pb_c_init=0.0, pb_c_base=1e30
        )
    return functools.partial(
        policy,
        qtransform=_value_from_parent,
        dirichlet_fraction=config.noise_fraction if explores else 0.0,
        pb_c_init=config.exploration,
        pb_c_base=config.exploration_base,
    )


def _minigo_score(
    exploration: float, root_prior: jax.Array, tree: Any, node: jax.Array
) -> jax.Array:
    """Score of each move of a node, by which a search chooses.

    Source: mlcommons/training v0.5, `reinforcement/tensorflow/minigo/mcts.py`, `child_U`, whose N
    counts the visit under way too.
    """
    visits, moves_visits = tree.node_visits[node] + 1, tree.children_visits[node]
    # mctx moves the root's logits by a constant.
    logits = jnp.where(node == 0, root_prior, tree.children_prior_logits[node])
    weight = exploration * jnp.sqrt(1.0 + visits) * jnp.exp(logits) / (1 + moves_visits)
    return _value_from_parent(tree, node) + weight


def noisy_logits(logits: jax.Array, key: jax.Array, config: GameSearch) -> jax.Array:
    """Logits of a prior [batch, actions] with noise on all moves, those against the rules too."""
    noise = jax.random.dirichlet(key, jnp.full(logits.shape[-1], config.noise_alpha))
    fraction = config.noise_fraction
    return jnp.log((1 - fraction) * jax.nn.softmax(logits) + fraction * noise)


def _value_from_parent(tree: Any, node: jax.Array) -> jax.Array:
    """Mean value of each move, the position's own value counted as its first visit.

    Source: mlcommons/training v0.5, `reinforcement/tensorflow/minigo/mcts.py`, `child_Q`.
    """
    visits = tree.children_visits[node]
    means = (tree.raw_values[node] + visits * tree.qvalues(node)) / (1 + visits)
    # mctx masks the moves of the root alone. Elsewhere a move that the rules forbid has no prior,
    # but without visits it would keep the position's value, above legal moves that turned out bad.
    is_legal = tree.children_prior_logits[node] > jnp.finfo(means.dtype).min
    return jnp.where(is_legal, means, -jnp.inf)


def prior_of_all_moves(logits: jax.Array, states: Any) -> jax.Array:
    """Logarithms of a softmax over all moves, for the legal ones."""
    lowest = jnp.finfo(logits.dtype).min
    return jnp.where(states.legal_action_mask, jax.nn.log_softmax(logits), lowest)


def _legal(logits: jax.Array, states: Any) -> jax.Array:
    # A finite number: of infinities a softmax would make NaN.
    lowest = jnp.finfo(logits.dtype).min
    return jnp.where(states.legal_action_mask, logits - logits.max(-1, keepdims=True), lowest)


def require_mctx() -> Any:
    """Load mctx; a run calls it early, so that one without it ends before it has trained."""
    try:
        import mctx
    except ImportError:
        raise ConfigError(f"task=self_play needs mctx: {install('selfplay')}") from None
    return mctx
