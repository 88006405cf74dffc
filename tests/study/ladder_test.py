"""`dawnjax study --kind=ladder` and `dawnjax compare --ladder`: one change at several sizes."""

import dataclasses
import json
from pathlib import Path

import pytest
from made_other_logs import normal, write_lines
from made_runs import write_run

from dawnjax.__main__ import main
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

SIZES = "1e6,4e6,16e6"


def ladder(folder, speeds, *, every=5, tokens=100, count=5, steps=100):
    """Six folders of logs: at each size those of A, and of B that is so many times as fast."""
    paths = []
    for number, speed in enumerate(speeds):
        for name, factor in (("a", 1.0), ("b", speed)):
            side = folder / f"{name}{number}"
            seed = 2 * number + (name == "b")
            for trial, offset in enumerate(normal(0, 0.002, count, seed)):
                rows = [
                    {"step": step, "tokens": tokens * step}
                    | {"val_loss": 4 - 0.02 * step * factor - number + offset}
                    for step in range(every, steps + 1, every)
                ]
                write_lines(side / f"seed_{trial}.jsonl", rows)
            paths.append(str(side))
    return paths


def told(capsys, *argv):
    assert main(["compare", "--ladder", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["result"]["ladder"]


def test_a_budget_of_all_sizes(tmp_path, capsys):
    """At 5,000 tokens, half of the way: what A has there B has at 5,000 over its speed."""
    found = told(capsys, *ladder(tmp_path, (1.25,) * 3), f"--sizes={SIZES}", "--at=tokens=5000")
    assert found["at"] == {"unit": "tokens", "amount": 5000.0}
    assert [row["gain"]["value"] for row in found["sizes"]] == pytest.approx([1.25] * 3, rel=2e-3)


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


def test_steps_of_other_work_are_no_speedup(tmp_path, capsys):
    """B halves its steps by a doubled batch: in FLOPs it is as fast."""

    def rows_of(side, size, step, offset):
        factor = 2 if side == "b" else 1
        return {"flops": 1e6 * factor * step, "val_loss": 4 - 0.01 * factor * step + offset}

    paths = logs(tmp_path, rows_of)
    found = told(capsys, *paths, f"--sizes={SIZES}", "--flops=flops", "--at=flops=9e7")
    assert [row["gain"]["value"] for row in found["sizes"]] == pytest.approx([1] * 3, rel=0.02)
    assert told(capsys, *paths, f"--sizes={SIZES}", "--flops=flops")["gain_is"] == (
        "speedup in flops"
    )
    found = told(capsys, *paths, f"--sizes={SIZES}", "--flops=flops", "--at=steps=100")
    assert found["cautions"][0] == (
        "at 1,000,000 a step of A is 1e+06 FLOPs and of B 2e+06 FLOPs: equal steps are not "
        "equal work; --at=flops=AMOUNT is"
    )


def test_a_side_that_trains_or_spends_more_is_told(tmp_path, capsys):
    paths = ladder(tmp_path / "x", (1.2,) * 3)
    less = ladder(tmp_path / "y", (1.2,) * 3, steps=80)
    mixed = [it for a, b in zip(paths[::2], less[1::2], strict=True) for it in (a, b)]
    for flags, said in (
        ((), "A ends at 100 steps and B at 80 steps (means): the sides were not trained alike"),
        (
            ("--at=steps=80",),
            "A ends at 10,000 tokens and B at 8,000 tokens: --at=tokens=AMOUNT compares equal work",
        ),
    ):
        found = told(capsys, *mixed, f"--sizes={SIZES}", *flags)
        assert found["cautions"][0] == f"at 1,000,000 {said}"


def test_trials_of_one_evaluation_have_a_difference_alone(tmp_path, capsys):
    paths = ladder(tmp_path, (1.2,) * 3, every=100)
    found = told(capsys, *paths, f"--sizes={SIZES}", "--margin=0.02")
    assert found["gain_is"] == "difference of val_loss" and found["word"] == "holds"
    assert [row["gain"]["value"] for row in found["sizes"]] == pytest.approx([0.4] * 3)


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


def arms(**fields):
    study = Study(experiment="wikipedia_bytes_small", kind="ladder", **fields)
    return arms_of(study, (), load_experiment("wikipedia_bytes_small"))


def test_the_arms_of_a_ladder():
    made = arms(
        axes=("model.width=32,64,96", "max_steps=10,20,30"),
        change=("model.unet_skips=false",),
    )
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
