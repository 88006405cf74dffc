"""Group-sequential bounds against published ones, and what a study that looks does."""

import numpy as np
import pytest
from scipy import special

from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.study.design import Study, arms_of, trials_of
from dawnjax.study.looks import Looks
from dawnjax.study.stopping import looks_of, nominal_levels


@pytest.mark.parametrize(
    ("looks", "bounds"),
    [
        (2, [2.963, 1.969]),
        (3, [3.710, 2.511, 1.993]),
        (5, [4.877, 3.357, 2.680, 2.290, 2.031]),
    ],
)
def test_bounds_are_those_of_lan_and_demets(looks, bounds):
    """Two-sided 5 %, evenly spaced looks, the spending function like O'Brien and Fleming's.

    Source: tables of group-sequential software, such as `ldbounds` for R, to three digits.
    """
    levels = np.array(nominal_levels(range(1, looks + 1)))
    np.testing.assert_allclose(-special.ndtri(levels / 2), bounds, atol=1e-3)


def test_all_looks_together_tell_equal_walks_apart_in_5_percent():
    at = looks_of(40, 4)
    assert at == (10, 20, 30, 40)
    walks = np.random.default_rng(0).standard_normal((40_000, 40)).cumsum(axis=1)
    z = np.abs(walks[:, np.array(at) - 1]) / np.sqrt(at)
    levels = np.array(nominal_levels(at))
    told = (2 * special.ndtr(-z) < levels).any(axis=1).mean()
    naive = (2 * special.ndtr(-z) < 0.05).any(axis=1).mean()
    assert told == pytest.approx(0.05, abs=0.0035)  # three standard errors
    assert naive > 0.11


STUDY = Study(experiment="digits", kind="grid", axes=("num_epochs=1,2,3",), seeds=20, looks=2)
ARMS = arms_of(STUDY, (), load_experiment("digits"))


def made_rows(*means: float) -> dict:
    random = np.random.default_rng(1)
    return {
        arm: {seed: (mean * random.uniform(0.9, 1.1), 1.0) for seed in range(10)}
        for arm, mean in zip(ARMS, means, strict=True)
    }


def test_an_arm_that_is_told_apart_gets_no_more_trials():
    trials, looks = trials_of(STUDY, ARMS), Looks(STUDY)

    def runs(rows) -> set:
        return {
            (trial.arm, trial.seed)
            for trial in trials
            if not looks.has_been_told(rows, ARMS[0], trial)
        }

    assert len(runs(made_rows(1.0, 1.0, 1.0))) == 60
    half = runs(made_rows(1.0, 2.0, 1.0))
    assert {seed for arm, seed in half if arm == ARMS[1]} == set(range(10))
    assert len(half) == 50
    # The first arm too needs no more once all others are told.
    assert len(runs(made_rows(1.0, 2.0, 3.0))) == 30


def test_nothing_is_claimed_between_looks():
    rows = made_rows(1.0, 2.0, 1.0)
    first, second = rows[ARMS[0]], rows[ARMS[1]]
    told = Looks(STUDY).verdict(first, second)
    assert told is not None and told["word"] == "slower" and "99." in told["why"]
    early = {seed: row for seed, row in second.items() if seed < 9}
    told = Looks(STUDY).verdict(first, early)
    assert told is not None and told["word"] == "undecided"
    assert told["why"] == "the study first looks after 10 trials of each" and told["low"] is None


def test_looks_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="first look would have 3 trials"):
        Looks(Study(experiment="digits", seeds=12, looks=4))
    with pytest.raises(ConfigError, match="a study of one arm"):
        arms_of(Study(experiment="digits", seeds=12, looks=2), (), load_experiment("digits"))
