"""Group-sequential bounds against published ones, and what a study that looks does."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.statistics.looks import looks_of, nominal_levels
from dawnjax.study.design import Study, arms_of, trials_of
from dawnjax.study.verdicts import Looks, cost_of_looks, looks_made, words_of_cost
from dawnjax.trials.trial import Trial


@pytest.mark.parametrize(
    ("looks", "bounds"),
    [
        (2, [2.963, 1.969]),
        (5, [4.877, 3.357, 2.680, 2.290, 2.031]),
    ],
)
def test_bounds_are_those_of_lan_and_demets(looks, bounds):
    """Two-sided 5 %, evenly spaced looks, the spending function like O'Brien and Fleming's.

    Source: tables of group-sequential software, such as `ldbounds` for R, to three digits.
    """
    levels = np.array(nominal_levels(tuple(range(1, looks + 1))))
    np.testing.assert_allclose(-special.ndtri(levels / 2), bounds, atol=1e-3)
    assert looks_of(40, 4) == (10, 20, 30, 40)


STUDY = Study(experiment="digits", kind="grid", axes=("num_epochs=1,2,3",), seeds=20, looks=2)
ARMS = arms_of(STUDY, (), load_experiment("digits"))


def trial(seconds: float, seed: int) -> Trial:
    return Trial(name="", reached=True, time_to_accuracy_seconds=seconds, seed=seed)


def made_rows(*means: float) -> dict:
    random = np.random.default_rng(1)
    return {
        arm: {seed: trial(mean * random.uniform(0.9, 1.1), seed) for seed in range(10)}
        for arm, mean in zip(ARMS, means, strict=True)
    }


def test_an_arm_that_differs_gets_no_more_trials():
    trials, looks = trials_of(STUDY, ARMS), Looks(STUDY)

    def runs(rows) -> set:
        return {(trial.arm, trial.seed) for trial in trials if not looks.needs_no_more(rows, trial)}

    assert len(runs(made_rows(1.0, 1.0, 1.0))) == 60
    half = runs(made_rows(1.0, 2.0, 1.0))
    assert {seed for arm, seed in half if arm == ARMS[1]} == set(range(10))
    assert len(half) == 50
    # The first arm too needs no more once all others are told.
    assert len(runs(made_rows(1.0, 2.0, 3.0))) == 30


def test_nothing_is_claimed_between_looks():
    rows = made_rows(1.0, 2.0, 1.0)
    told = Looks(STUDY).verdicts(rows)
    assert told[ARMS[1]].word == "slower_if_all_reach" and "99." in told[ARMS[1]].why
    assert told[ARMS[2]].word == "undecided"
    early = {**rows, ARMS[1]: {seed: row for seed, row in rows[ARMS[1]].items() if seed < 9}}
    verdict = Looks(STUDY).verdicts(early)[ARMS[1]]
    assert verdict.word == "undecided"
    assert verdict.why == "the study first looks after 10 trials of each"
    assert verdict.ratio is not None and verdict.ratio.low is None
    # So it is with a study of one look, whose result file is written after each trial.
    once = dataclasses.replace(STUDY, looks=1, seeds=11)
    assert Looks(once).verdicts(rows)[ARMS[1]].word == "undecided"
    assert (
        Looks(dataclasses.replace(once, seeds=10)).verdicts(rows)[ARMS[1]].word
        == "slower_if_all_reach"
    )


def test_an_extended_study_says_what_its_looks_cost():
    made = []
    for seeds in (5, 10, 20, 40):
        made = looks_made(made, Looks(dataclasses.replace(STUDY, looks=1, seeds=seeds)))
    assert made == [(5, 0.05), (10, 0.05), (20, 0.05), (40, 0.05)]
    cost = cost_of_looks(made, 1)
    assert cost["looks"] == [5, 10, 20, 40] and 0.13 < cost["false_verdicts"] < 0.16
    [line] = words_of_cost(cost)
    assert "judged after 5, 10, 20, 40 trials of each arm" in line and "up to 14 %" in line
    for study in (STUDY, dataclasses.replace(STUDY, looks=1)):
        planned = cost_of_looks(looks_made([], Looks(study)), 1)
        assert planned["false_verdicts"] == pytest.approx(0.05, abs=1e-3)
        assert not words_of_cost(planned)
