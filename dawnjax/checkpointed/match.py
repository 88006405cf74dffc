"""A match between the newest checkpoints of two runs."""

import dataclasses
from typing import Any

import jax
import numpy as np

from dawnjax import records
from dawnjax.checkpointed.earlier_run import EarlierRun, restore
from dawnjax.config.run_options import CheckpointOptions, RunOptions
from dawnjax.machine.mesh import replicated
from dawnjax.programs import compile_program
from dawnjax.session import joined
from dawnjax.statistics.proportions import score
from dawnjax.train_step import evaluated_params


def play_match(
    run: EarlierRun,
    other: EarlierRun,
    options: RunOptions,
    *,
    games: int,
    simulations: int,
    seed: int,
) -> None:
    """Play games between two networks, and print the score of the first as a line of JSON.

    Each begins half of an even number of games. Every device plays all of them. `simulations` of 0
    takes those of the run's self-play; both networks search as that run does.
    """
    session, _ = joined(run.experiment, run.spec, options)
    elsewhere = dataclasses.replace(options, checkpoint=CheckpointOptions())
    recipe, restored = restore(run, session.mesh, options, "evaluate")
    other_recipe, other_restored = restore(other, session.mesh, elsewhere, "evaluate")
    recipes = (recipe, other_recipe)
    settings = (recipe.setting, other_recipe.setting)
    states = tuple(
        (evaluated_params(recipe.experiment, found.state), found.state.batch_stats)
        for recipe, found in zip(recipes, (restored, other_restored), strict=True)
    )

    def call(states: Any, key: jax.Array) -> jax.Array:
        first, second = (
            recipe.model.bind(*state) for recipe, state in zip(recipes, states, strict=True)
        )
        return run.experiment.task.match((first, second), settings, games, simulations, key)

    whole = replicated(session.mesh)
    arguments = (states, jax.device_put(jax.random.key(seed), whole))
    program = compile_program("match", call, arguments, whole, (), lambda *_: None)
    points = np.asarray(program(*arguments), np.float64)
    if jax.process_index() != 0:
        return
    found = score(float(points.sum()), games)
    row = {
        "step": restored.step,
        "against": {"run_id": other.record["run_id"], "step": other_restored.step},
        "games": games,
        "seed": seed,
        "won": int((points == 1.0).sum()),
        "drawn": int((points == 0.5).sum()),
        "lost": int((points == 0.0).sum()),
        "score": found.value,
        "interval_95": [found.low, found.high],
        "score_beginning": float(points[: games // 2].mean()),
    }
    print(records.json_text(row))
