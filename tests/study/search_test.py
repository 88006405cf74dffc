"""`dawnjax study --search`: recipes that are drawn, seeds that choose and seeds that judge."""

import dataclasses
import json

import numpy as np
import pytest
from made_runs import write_run

from dawnjax import analysis
from dawnjax.__main__ import main
from dawnjax.errors import ConfigError, RunError
from dawnjax.study.design import Arm, Study, StudyFolder, TrialPlan, trials_of
from dawnjax.study.figures import figures
from dawnjax.study.reading import trials_over
from dawnjax.study.search import run_search, search_figures, winner
from dawnjax.trials.trial import Trial

RATE = "optimizer.base_learning_rate=log(0.01,1)"


def ended_after(seconds: float | None) -> Trial:
    """A trial that reached after so long, or spent 40 s."""
    reached = seconds is not None
    return Trial(
        name="",
        status="reached" if reached else "not_reached",
        reached=reached,
        time_to_accuracy_seconds=seconds,
        clock_seconds=seconds or 40.0,
    )


def rate_of(arm: Arm) -> float:
    return float(arm.name.partition("=")[2])


def ran(study: Study, seconds_of) -> list[TrialPlan]:
    """Trials of a search whose times a function gives."""
    pytest.importorskip("optuna", reason="Optuna is not installed")
    search = run_search(study, lambda trial: (ended_after(seconds_of(trial)), ""), lambda arm: True)
    return [trial for trial, _, _ in search]


def test_a_random_search_judges_its_winner_on_other_seeds():
    study = Study(kind="search", axes=(RATE,), search="random", trials=8, seeds=3, first_seed=5)
    trials = ran(study, lambda trial: 10 + rate_of(trial.arm))
    chose, judged = trials[:8], trials[8:]
    assert [(t.number, t.seed, t.chooses) for t in chose] == [(n, 5, True) for n in range(8)]
    assert len({t.arm for t in chose}) == 8 and all(0.01 <= rate_of(t.arm) <= 1 for t in chose)
    assert {t.arm for t in judged} == {min((t.arm for t in chose), key=rate_of)}
    assert [(t.seed, t.chooses) for t in judged] == [(6, False), (7, False), (8, False)]
    assert trials == ran(study, lambda trial: 10 + rate_of(trial.arm)), "drawn from a seed"
    other = dataclasses.replace(study, order_seed=1)
    assert trials != ran(other, lambda trial: 10 + rate_of(trial.arm))


def test_halving_gives_trials_to_the_faster_recipes():
    study = Study(kind="search", axes=(RATE,), search="asha", trials=40, seeds=2)
    trials = ran(study, lambda trial: 10 + rate_of(trial.arm) + 0.01 * trial.seed)
    chose = [t for t in trials if t.chooses]
    counts = {arm: sum(t.arm == arm for t in chose) for arm in {t.arm for t in chose}}
    assert len(chose) == 40 and {t.seed for t in chose} == {0, 1, 2, 3}
    last = chose[-1].arm  # whose trials the end may cut
    kept = [arm for arm, count in counts.items() if count == 4]
    dropped = [arm for arm, count in counts.items() if count < 4 and arm != last]
    assert set(counts.values()) <= {1, 2, 3, 4} and len(dropped) > len(kept) > 1
    assert {counts[arm] for arm in dropped} == {1, 2}
    assert np.median([*map(rate_of, kept)]) < np.median([*map(rate_of, dropped)])
    judged = [t for t in trials if not t.chooses]
    assert {t.arm for t in judged} == {min(kept, key=rate_of)}
    assert [t.seed for t in judged] == [4, 5]


def test_a_recipe_that_cannot_be_trained_is_drawn_past_and_a_value_only_once():
    pytest.importorskip("optuna", reason="Optuna is not installed")
    study = Study(kind="search", axes=("num_epochs=int(1,4)",), search="random", trials=3, seeds=1)
    search = run_search(
        study, lambda trial: (ended_after(10.0), ""), lambda arm: "=2" not in arm.name
    )
    chose = [trial.arm.name for trial, _, _ in search if trial.chooses]
    assert sorted(chose) == ["num_epochs=1", "num_epochs=3", "num_epochs=4"]
    endless = run_search(study, lambda trial: (ended_after(10.0), ""), lambda arm: False)
    with pytest.raises(ConfigError, match="gave no new trainable recipe"):
        next(endless)


def test_a_trial_whose_clock_never_started_makes_no_recipe_fast():
    pytest.importorskip("optuna", reason="Optuna is not installed")
    study = Study(kind="search", axes=(RATE,), search="asha", trials=6, seeds=1)

    def run(plan: TrialPlan) -> tuple[Trial, str]:
        if plan.arm == arms[0] and plan.seed == 1:  # the first recipe, which gets a second trial
            return Trial(name="", reached=False, status="failed"), ""
        return ended_after(10.0 + rate_of(plan.arm)), ""

    arms: list[Arm] = []
    trials = [trial for trial, _, _ in run_search(study, run, lambda arm: not arms.append(arm))]
    assert [t.seed for t in trials if t.arm == arms[0]] == [0, 1], "it gets no third"
    [judged] = [trial.arm for trial in trials if not trial.chooses]
    assert judged != arms[0]


def test_the_winner_has_passed_most_rungs():
    sure, lucky, failed = Arm("sure"), Arm("lucky"), Arm("failed")
    rows = {
        lucky: {0: ended_after(1.0)},
        sure: {0: ended_after(2.0), 1: ended_after(2.0)},
        failed: {0: ended_after(None), 1: ended_after(None)},
    }
    assert winner(rows) is sure
    rows[sure][1] = ended_after(None)
    assert winner(rows) is sure
    assert winner({failed: rows[failed]}) is None


@pytest.fixture
def searched(tmp_path):
    """A search of three recipes that is over: the second is the fastest, judged on two seeds."""
    study = Study(
        experiment="digits", kind="search", axes=("num_epochs=int(3,9)",), search="random",
        trials=3, seeds=2,
    )  # fmt: skip
    arms = tuple(Arm(f"num_epochs={n}", (f"--num_epochs={n}",)) for n in (3, 5, 8))
    out = tmp_path / "found"
    for trial in trials_of(study, arms):
        place = arms.index(trial.arm)
        shared = {"identity": trial.arm.name, "overrides": {"num_epochs": (3, 5, 8)[place]}}
        if trial.chooses:
            seconds = (30.0, 10.0, None)[place]
            options = {"chooses": True}
            write_run(trial.directory(out), seed=0, seconds=seconds, options=options, **shared)
        elif place == 1:
            write_run(trial.directory(out), seed=trial.seed, seconds=20.0, **shared)
    StudyFolder(out).write(study, arms)
    return study, arms, out


def test_figures_say_which_seeds_chose_and_which_judged(searched):
    study, arms, out = searched
    over = trials_over(trials_of(study, arms), out, {})
    [judged] = figures(study, arms, over, out).arms
    assert (judged.name, judged.figures.expected_seconds) == ("num_epochs=5", 20.0)
    assert [*judged.trials] == [1, 2]
    found = search_figures(study, over)
    assert found is not None and found.winner == "num_epochs=5"
    assert (found.chose, found.judged, found.trials) == ([0], [1, 2], 3)
    assert [r["choosing_seconds"] for r in found.recipes] == [10.0, 30.0, None]
    assert found.sentence() == (
        "3 of 3 trials of 3 recipes, on seed 0, chose num_epochs=5; seeds 1 to 2, which did not "
        "choose it, judge it"
    )


def test_trials_that_chose_are_in_no_entry_comparison_or_export(searched, tmp_path, capsys):
    _, arms, out = searched
    with pytest.warns(UserWarning, match="1 files, runs or entries were left out"):
        entries = analysis.load(out)
    [entry] = entries
    assert [trial.seed for trial in entry.trials] == [1, 2]
    assert entries.problems == ("3 trials chose a recipe in a search: their times are not results",)
    assert main(["compare", str(out / "trials" / arms[0].folder), str(out)]) == 2
    line = capsys.readouterr().err
    assert "has only the trials that chose a search's recipe" in line and line.count("\n") == 1
    run = out / "trials" / arms[1].folder / "seed_0"
    export = ["export", str(run), "--format=mlperf", f"--out={tmp_path / 'e'}", "--submitter=a"]
    assert main(export) == 2
    assert "a search chose its recipe by this run" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_a_trial_that_chose_is_none_that_judges(searched):
    study, arms, out = searched
    trials = trials_of(study, arms)
    judge = next(t for t in trials if not t.chooses and t.arm == arms[0])
    write_run(judge.directory(out), seed=judge.seed, options={"chooses": True})
    with pytest.raises(RunError, match="is not a trial of the study found: it chose a recipe"):
        trials_over([judge], out, {})


# With one step a call, JAX traces the step once.
TINY = ["study", "--experiment=digits", "--tiny=true", "--tensorboard=false"]
TINY += ["--model.stage_sizes=1", "--model.stage_widths=16", "--targets.0.value=0"]
TINY += ["--steps_per_call=1"]


@pytest.mark.compiles
@pytest.mark.usefixtures("kept_programs")
def test_a_search_from_the_command_line_resumes_what_it_drew(tmp_path, compile_cache, capsys):
    pytest.importorskip("optuna", reason="Optuna is not installed")
    out = tmp_path / "s"
    command = [*TINY, compile_cache, f"--out={out}", f"--axis={RATE}", "--search=random"]
    command += ["--trials=2", "--seeds=1"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "2 of 2 trials of 2 recipes, on seed 0, chose base_learning_rate=" in shown.out
    result = json.loads((out / "result.json").read_text())
    [judged] = result["arms"]
    assert [row["seed"] for row in judged["rows"]] == [1]
    assert judged["arm"] == result["search"]["winner"]
    runs = sorted((out / "trials").glob("*/seed_*/result.json"))
    before = [run.stat().st_mtime_ns for run in runs]
    assert len(runs) == 3 and main(command) == 0
    assert before == [run.stat().st_mtime_ns for run in runs]
    study = json.loads((out / "study.json").read_text())
    study["arms"][0]["name"] = "base_learning_rate=0.5"
    (out / "study.json").write_text(json.dumps(study))
    capsys.readouterr()
    assert main(command) == 2
    assert (
        "recipe 1 was base_learning_rate=0.5; this version of Optuna draws"
        in capsys.readouterr().err
    )
