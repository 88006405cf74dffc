"""`dawnjax study --kind=ladder` and `dawnjax compare --ladder`: one change at several sizes."""

import dataclasses
from pathlib import Path

import pytest
from made_other_logs import normal, write_lines
from made_runs import write_run

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.other_logs.columns import BY_NAME
from dawnjax.other_logs.reading import read_entry
from dawnjax.statistics.ladder import HOLDS
from dawnjax.study.at_budget import Budget
from dawnjax.study.design import Arm, Study, arms_of, trials_of
from dawnjax.study.figures import figures
from dawnjax.study.ladder import ladder as ladder_of
from dawnjax.study.reading import trials_over
from dawnjax.study.sides import Side


def logs(folder, rows_of, count=5):
    """Six folders of logs; `rows_of(side, size, step, offset)` is what a row has."""
    paths = [str(folder / f"{name}{size}") for size in range(3) for name in "ab"]
    for number, path in enumerate(paths):
        for trial, offset in enumerate(normal(0, 0.002, count, number)):
            rows = [
                {"step": step} | rows_of("ab"[number % 2], number // 2, step, offset)
                for step in range(5, 101, 5)
            ]
            write_lines(Path(path) / f"seed_{trial}.jsonl", rows)
    return paths


@pytest.mark.parametrize("alone", [False, True])
def test_a_ladder_in_seconds_is_judged_without_disturbed_trials_too(tmp_path, alone):
    """B is 1.2 times as fast at each size; at the largest, other work made a trial of it slow."""

    def rows_of(side, size, step, offset):
        return {"seconds": step, "val_loss": 4 - (0.024 if side == "b" else 0.02) * step + offset}

    paths = logs(tmp_path, rows_of, count=6)
    sides = [Side(given=path, entry=read_entry(Path(path), BY_NAME)) for path in paths]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    budget = Budget("seconds", 80.0)
    calm = ladder_of(pairs, sizes=[1, 2, 3], budget=budget)
    assert calm.trend.word == HOLDS and not calm.without

    a, b = pairs[-1]
    for place in range(6 if alone else 1):
        trial = b.entry.trials[place]
        load = {"others_fraction": 0.3, "stolen_fraction": 0.0, "limit_fraction": 0.05}
        rows = [
            dataclasses.replace(row, seconds_since_run_start=3.0 * (row.step or 0))
            for row in trial.evaluations
        ]
        slow = dataclasses.replace(trial, load=load, evaluations=tuple(rows))
        trials = [*b.entry.trials[:place], slow, *b.entry.trials[place + 1 :]]
        b = dataclasses.replace(b, entry=dataclasses.replace(b.entry, trials=tuple(trials)))
    found = ladder_of([*pairs[:-1], (a, b)], sizes=[1, 2, 3], budget=budget)
    assert found.trend.word != HOLDS
    without = "not known: a side has none at 3" if alone else "the gain holds: "
    assert found.without.startswith(without)
    assert f"without the disturbed trials: {found.without}" in found.lines()
    assert found.to_json()["without_disturbed"] == found.without
    assert any(it.startswith("at 3 other work took much") for it in found.cautions)


def test_a_ladder_is_judged_after_all_its_trials(tmp_path):
    study = Study(
        experiment="digits",
        kind="ladder",
        axes=("model.width=1,2,3",),
        change=("num_epochs=3",),
    )
    arms = [Arm(f"{size}{name}", ()) for size in range(3) for name in "ab"]
    plans = trials_of(study, arms)
    for plan in plans:
        write_run(plan.directory(tmp_path), seed=plan.seed, seconds=10.0)
    runs = trials_over(plans, tmp_path, {})
    assert "5 trials of each arm" not in figures(study, arms, runs, tmp_path).no_ladder
    runs.pop(plans[-1])
    found = figures(study, arms, runs, tmp_path)
    assert found.ladder is None
    assert "no ladder yet: a ladder is judged after 5 trials of each arm" in found.remarks
    with pytest.raises(ConfigError, match="judged after 5 trials of each arm"):
        assert found.pairs


def test_the_arms_of_a_ladder():
    study = Study(
        experiment="wikipedia_bytes_small",
        kind="ladder",
        axes=("model.width=32,64,96", "max_steps=10,20,30"),
        change=("model.unet_skips=false",),
    )
    made = arms_of(study, (), load_experiment("wikipedia_bytes_small"))
    assert [arm.name for arm in made[:2]] == [
        "width=32 max_steps=10",
        "width=32 max_steps=10 unet_skips=false",
    ]
    # Trials that ended at their target would end at other steps.
    whole = "--evaluation.stop_at_target=false"
    assert [arm.flags for arm in made[4:]] == [
        ("--model.width=96", "--max_steps=30", whole),
        ("--model.width=96", "--max_steps=30", whole, "--model.unet_skips=false"),
    ]
