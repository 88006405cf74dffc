"""MLPerf Training v0.6's Minigo: Go on 9 x 9 to half of the games against a fixed model.

    pip install "dawnjax[selfplay,weights]"
    dawnjax export --format=safetensors RUN_DIR --out=data/opponent
    dawnjax train --experiment=minigo_9x9_v06

RUN_DIR is a run of `minigo_9x9`, which has the same network, or of this experiment. The model of
the benchmark's round is in none of its repositories, so the fixed model is a checkpoint of yours,
and times are comparable between runs against the same one alone. It counts in the identity.

A generation: 4,096 games side by side play 60 moves each, with 240 simulations a move; training
draws half as many positions as the last 10 generations hold, 300 steps of 4,096; then a match of
100 games decides by 49 % whether the newest parameters play. The reference begins with 8,192 games
of 20 simulations; here the first generation is as the others. Noise, opening moves and exploration
are those of `minigo_9x9`, and so is what experiments/mlperf_recipes.md says of the rules.

Not trained here. Entrants reached their target after 15 to 21 generations.

Source: mlcommons/training at v0.6, `reinforcement/tensorflow/minigo`, the flags for 9 x 9.
"""

import dataclasses

from dawnjax.experiments.minigo_9x9 import SEARCH
from dawnjax.own import (
    Evaluation,
    Experiment,
    PgxOpponent,
    PiecewiseStep,
    PolicyValue,
    SelfPlay,
    Sgd,
    Target,
)

STEPS_PER_GENERATION = 300

EXPERIMENT = Experiment(
    name="minigo_9x9_v06",
    task=SelfPlay(
        games=4096,
        moves=60,
        window_generations=10,
        search=dataclasses.replace(
            SEARCH,
            method="puct",
            simulations=240,
            exploration_base=1e9,  # the weight of the prior stays
        ),
        value_weight=0.25,
        symmetries=False,
        gating_games=100,
        gating_score=0.49,
        opponent="network",
    ),
    model=PolicyValue(),
    data=PgxOpponent(
        game="go_9x9",
        komi=7.5,
        max_moves=113,
        examples_per_generation=STEPS_PER_GENERATION * 4096,
        num_eval_games=100,
    ),
    optimizer=Sgd(base_learning_rate=0.16, momentum=0.9, nesterov=False, weight_decay=1e-4),
    schedule=PiecewiseStep(
        boundary_epochs=(25_000 / STEPS_PER_GENERATION, 37_500 / STEPS_PER_GENERATION),
        factors=(0.1, 0.1),
    ),
    num_epochs=150,
    global_batch_size=4096,
    batch_norm_group_size=4096,
    targets=(Target(metric="score", value=0.5),),
    evaluation=Evaluation(every_epochs=1.0, global_batch_size=100),
)
