"""Trials of an arm that are pooled: of one layout, with numbers, on clocks of their own."""

import dataclasses
import math

import pytest
from made_runs import write_run
from made_studies import DIGITS, made_study

from dawnjax.errors import ExitStatus, RunError
from dawnjax.report.studies import studies_sections
from dawnjax.study import trials
from dawnjax.study.design import Study, arms_of, trials_of
from dawnjax.study.figures import figures
from dawnjax.study.reading import trials_over
from dawnjax.study.text import text_of
from dawnjax.trials.target import Target


def test_thresholds_are_read_from_the_same_trials(tmp_path):
    study = Study(experiment="digits", kind="threshold", thresholds=(0.4, 0.95), seeds=2)
    of_arms = arms_of(study, (), DIGITS)
    ordered = trials_of(study, of_arms)
    for plan in ordered:
        write_run(plan.directory(tmp_path), seed=plan.seed, seconds=15.0)
    runs = trials_over(ordered, tmp_path, {})
    found = figures(study, of_arms, runs, tmp_path)
    assert [len(row.trials) for row in found.arms] == [2, 2]
    assert [row.name for row in found.arms] == ["top_1_accuracy 0.4", "top_1_accuracy 0.95"]
    [section] = studies_sections([found])
    assert "2 of 2 planned trials of digits have ended" in section.lead[0]
    # No evaluation without a number reaches, and the other targets are aside.
    [plan, _] = ordered
    first, second, third = runs[plan].evaluations
    rows = (dataclasses.replace(first, value=0.3), dataclasses.replace(second, value=math.nan))
    target = Target(metric="top_5_accuracy", value=0.99)
    changed = dataclasses.replace(
        runs[plan],
        evaluations=(*rows, third),
        target=dataclasses.replace(runs[plan].target, others=(target,)),
    )
    arms = figures(study, of_arms, {plan: changed}, tmp_path).arms
    assert [row.figures.mean_seconds for row in arms] == [15.0, 15.0]
    assert [row.name for row in arms] == [
        "top_1_accuracy 0.4 alone",
        "top_1_accuracy 0.95 alone",
    ]


def test_a_trial_of_unknown_length_leaves_an_arm_without_an_expected_time(tmp_path):
    study, of_arms, ordered = made_study(tmp_path, {"3": [10.0, None], "4": [10.0, 10.0]})
    runs = trials_over(ordered, tmp_path, {})
    # Its clock never started.
    runs = {
        trial: run if run.reached else dataclasses.replace(run, clock_seconds=None)
        for trial, run in runs.items()
    }
    first, second = figures(study, of_arms, runs, tmp_path).arms
    assert (first.reached, first.figures.expected_seconds) == ("1 of 2", None)
    assert first.time_text == "the length of a trial is not known"
    assert first.cautions == [f"{first.time_text}, so it has no expected time"]
    assert second.verdict is None and not second.cautions


def test_a_verdict_on_arms_of_different_machines_says_so(tmp_path):
    study, of_arms, ordered = made_study(tmp_path / "s", {"3": [10.0], "4": []})
    trial = next(trial for trial in ordered if trial.seed == 0 and trial.arm is of_arms[1])
    place = trial.directory(tmp_path / "s")
    write_run(place, device_kind="tpu v5", versions={"jax": "0.10.1", "commit": "b"})
    runs = trials_over(ordered, tmp_path / "s", {})
    found = figures(study, of_arms, runs, tmp_path / "s")
    first, second = found.arms
    said = "only it ran with 8 x tpu v5 on 2 hosts, jax 0.10.1, "
    said += "only the first arm ran with 8 x tpu v4 on 2 hosts, jax 0.10.2, "
    said += "so its ratio reflects more than the recipes"
    assert first.cautions == [] and second.cautions == [said]
    assert said in text_of(found)
    assert found.to_json()["arms"][1]["elsewhere"] in said
    [section] = studies_sections([found])
    assert f"Arm num_epochs=4: {said}." in section.lead
    names = {first.name: "a", second.name: "b"}
    runs = {
        plan: dataclasses.replace(
            runs[ordered[0]], versions={}, hosts=({"hostname": names[plan.arm.name]},)
        )
        for plan in runs
    }
    second = figures(study, of_arms, runs, tmp_path / "s").arms[1]
    assert second.elsewhere == "no host trained both"


def test_a_trial_on_other_devices_than_the_arm_s_first_ends_a_study(tmp_path, monkeypatch):
    study, of_arms, ordered = made_study(tmp_path, {"3": [10.0], "4": [10.0]})

    def run_trial(study, trial, out, set_up_seconds):
        write_run(trial.directory(out), seed=trial.seed, num_devices=4)
        return ExitStatus.DONE

    monkeypatch.setattr(trials, "run_trial", run_trial)
    runner = trials.TrialRunner(study, tmp_path, {}, lambda name: None)
    ran = trials.run_all(study, of_arms, ordered, runner)
    assert len([next(ran), next(ran)]) == 2
    with pytest.raises(RunError, match="ran with devices=4, and another trial of the arm with 8"):
        next(ran)
