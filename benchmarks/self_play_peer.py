"""CPU seconds of one move of all games: our program against a plain loop of mctx and pgx.

    python -m benchmarks self_play_peer [--rounds=12] [-- --FLAG=VALUE...]

Both sides play `connect_four_selfplay` with the same network and the same search. The plain loop is
that of pgx's AlphaZero example: one key for all games, `auto_reset`, and no window; ours gives each
game keys of its own and writes the window.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import harness
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import MeshShape
from dawnjax.generations import Generations, compile_generation
from dawnjax.machine import compilation
from dawnjax.machine.mesh import make_mesh
from dawnjax.tasks.game_search import require_mctx
from dawnjax.tasks.self_play import SelfPlay
from dawnjax.train_step import PRNG_IMPLEMENTATION, Recipe, TrainState, make_recipe


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("flags", nargs="*", help="more flags of `dawnjax train`, after --")
    arguments = parser.parse_args()
    compilation.configure("")
    flags = ["--experiment=connect_four_selfplay", *arguments.flags]
    experiment: Any = parse_request("train", flags)[0].experiment
    spec = experiment.data.spec()
    experiment.validate(spec)
    recipe = make_recipe(experiment, spec, make_mesh(MeshShape(data=1), jax.devices()[:1]))
    task = experiment.task
    results = harness.Results(
        "self_play_peer", games=task.games, simulations=task.search.simulations
    )
    key = jax.random.key(0, impl=PRNG_IMPLEMENTATION)
    state = jax.jit(recipe.initial_state)(key)
    theirs = _timed(plain_loop(recipe, state))
    ours = _timed(our_calls(recipe, state, key))
    rounds = harness.alternate(ours, theirs, arguments.rounds, 2, "CPU s a move of all games")
    results.add(move=rounds.to_json())
    print(harness.table([harness.head("DawnJAX", "plain loop"), rounds.row("a move")]))
    print(results.path)
    return 0


def _timed(call: Callable[[], Any]) -> Callable[[], float]:
    def seconds() -> float:
        began = time.process_time()
        jax.block_until_ready(call())
        return time.process_time() - began

    return seconds


def our_calls(recipe: Recipe, state: TrainState, key: jax.Array) -> Callable[[], Any]:
    programs = compile_generation(recipe, lambda *_: None)
    generations = Generations(recipe, programs, state.made)

    def call() -> Any:
        nonlocal state
        state = generations.advance(state, key)
        return state.made

    return call


def plain_loop(recipe: Recipe, state: TrainState) -> Callable[[], Any]:
    from pgx.experimental import auto_reset

    mctx, task = require_mctx(), recipe.experiment.task
    assert isinstance(task, SelfPlay)
    rules, games, config, model = recipe.setting.data.rules(), task.games, task.search, recipe.model
    rows = jnp.arange(games)

    def evaluate(parameters: Any, states: Any) -> tuple[jax.Array, jax.Array]:
        logits, values = model.bind(*parameters)(states.observation, train=False)
        lowest = jnp.finfo(logits.dtype).min
        shifted = logits - logits.max(-1, keepdims=True)
        return jnp.where(states.legal_action_mask, shifted, lowest), values

    def expand(parameters: Any, key: jax.Array, action: jax.Array, states: Any) -> Any:
        del key
        mover = states.current_player
        states = jax.vmap(rules.step)(states, action)
        logits, values = evaluate(parameters, states)
        found = mctx.RecurrentFnOutput(
            reward=states.rewards[rows, mover],
            discount=jnp.where(states.terminated, 0.0, -1.0),
            prior_logits=logits,
            value=jnp.where(states.terminated, 0.0, values),
        )
        return found, states

    @jax.jit
    def move(parameters: Any, states: Any, key: jax.Array) -> tuple[Any, Any]:
        logits, values = evaluate(parameters, states)
        search_key, reset_key = jax.random.split(key)
        found = mctx.gumbel_muzero_policy(
            params=parameters,
            rng_key=search_key,
            root=mctx.RootFnOutput(prior_logits=logits, value=values, embedding=states),
            recurrent_fn=expand,
            num_simulations=config.simulations,
            invalid_actions=~states.legal_action_mask,
            max_num_considered_actions=config.considered,
        )
        step = jax.vmap(auto_reset(rules.step, rules.init))
        after = step(states, found.action, jax.random.split(reset_key, games))
        rewards = after.rewards[rows, states.current_player]
        return after, (states.observation, found.action_weights, rewards, after.terminated)

    parameters = (state.params, state.batch_stats)
    states = jax.jit(jax.vmap(rules.init))(jax.random.split(jax.random.key(1), games))
    moves = 0

    def call() -> Any:
        nonlocal states, moves
        moves += 1
        states, made = move(parameters, states, jax.random.key(moves))
        return made

    return call


if __name__ == "__main__":
    sys.exit(main())
