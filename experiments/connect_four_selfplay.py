"""Connect four from no knowledge but its rules, by self-play: a small network, for a CPU.

    pip install "dawnjax[selfplay]"
    dawnjax train --experiment=connect_four_selfplay

128 games side by side, each move found by Gumbel's search of 16 simulations; 16 moves of each make
a generation of 2,048 positions. Training draws 8,192 from the last 8 generations. Two residual
blocks of 32 channels.

Quality is the score of the averaged parameters' bare policy, without search, against a player that
wins at once if it can, leaves no win to the other if it can, and else moves at random. An untrained
network that stacks one column wins some of those games too. The target is half of the points, on
the lower end of the score's 95 % interval over 256 games.

Expected: the target after 14 to 26 generations, 46 to 92 CPU seconds on one core of an AMD EPYC (10
seeds, benchmarks/measurements.md). Half way there the lower end lay between 0.18 and 0.39.

Source: Danihelka et al. 2022, "Policy improvement by planning with Gumbel" (ICLR), for the search;
sizes and rates are our own.
"""

from dawnjax.own import (
    Adam,
    Constant,
    Evaluation,
    Experiment,
    GameSearch,
    PgxGame,
    PolicyValue,
    SelfPlay,
    Target,
    Technique,
)

EXPERIMENT = Experiment(
    name="connect_four_selfplay",
    task=SelfPlay(
        games=128,
        moves=16,
        window_generations=8,
        search=GameSearch(method="gumbel", simulations=16, considered=7),
    ),
    model=PolicyValue(
        num_blocks=2, width=32, policy_width=32, value_width=8, value_hidden_width=64, norm="none"
    ),
    data=PgxGame(game="connect_four", examples_per_generation=8192, num_eval_games=256),
    optimizer=Adam(base_learning_rate=2e-3, beta_2=0.999, epsilon=1e-8, weight_decay=1e-4),
    schedule=Constant(),
    num_epochs=50,
    global_batch_size=128,
    ema_decay=0.99,
    targets=(Target(metric="score_low", value=0.5),),
    target_note="chosen on seed 101: below it until generation 18, above it from 20 on",
    evaluation=Evaluation(every_epochs=2.0, weights="ema", global_batch_size=256),
)

TECHNIQUES = (
    Technique("gumbel", ("--task.search.method=puct",)),
    Technique("symmetries", ("--task.symmetries=false",)),
    Technique("window", ("--task.window_generations=1",)),
    Technique("weight_decay", ("--optimizer.weight_decay=0",)),
    Technique("averaging", ("--ema_decay=0", "--evaluation.weights=raw")),
)
