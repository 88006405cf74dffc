"""Adam and the inverse square root schedule, by hand."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.config.experiment import Adam, Constant, InverseSquareRoot
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.optim.optimizers import make_optimizer, relative_schedule


def experiment_with(**fields):
    """The digits experiment, whose data come with it, with other fields."""
    experiment = dataclasses.replace(load_experiment("digits"), **fields)
    return experiment, experiment.data.spec()


def numbers(updates):
    return {name: np.asarray(value) for name, value in updates.items()}


@pytest.mark.compiles
def test_two_steps_of_adam_by_hand():
    config = Adam(base_learning_rate=0.1, beta_1=0.8, beta_2=0.6, epsilon=1e-3)
    experiment, spec = experiment_with(optimizer=config, schedule=Constant())
    optimizer = make_optimizer(experiment, spec)
    params = {"w": jnp.array([1.0])}
    state = optimizer.init(params)
    mean = square = 0.0
    for step, gradient in enumerate([2.0, -1.0], start=1):
        updates, state = optimizer.update({"w": jnp.array([gradient])}, state, params)
        mean = 0.8 * mean + 0.2 * gradient
        square = 0.6 * square + 0.4 * gradient**2
        corrected = mean / (1 - 0.8**step), square / (1 - 0.6**step)
        expected = -0.1 * corrected[0] / (math.sqrt(corrected[1]) + 1e-3)
        assert numbers(updates)["w"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.compiles
def test_weight_decay_is_decoupled_and_of_matrices_only():
    config = Adam(base_learning_rate=0.1, weight_decay=0.5)
    experiment, spec = experiment_with(optimizer=config, schedule=Constant())
    optimizer = make_optimizer(experiment, spec)
    params = {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.full(2, 3.0)}
    zeros = {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    np.testing.assert_allclose(numbers(updates)["kernel"], -0.1 * 0.5 * 3.0, rtol=1e-6)
    np.testing.assert_array_equal(numbers(updates)["bias"], 0.0)


def test_the_inverse_square_root_by_hand():
    # 900 examples in batches of 64 are 14.0625 steps an epoch; two epochs of warm-up are 28 steps.
    experiment, spec = experiment_with(schedule=InverseSquareRoot(warmup_epochs=2.0))
    schedule = relative_schedule(experiment, spec)

    def rate(count):
        return np.asarray(schedule(count)).item()

    assert rate(0) == 0.0
    assert rate(14) == pytest.approx(0.5)
    assert rate(28) == pytest.approx(1.0)
    assert rate(4 * 28) == pytest.approx(0.5)
    assert rate(9 * 28) == pytest.approx(1 / 3)


def test_it_needs_a_warm_up():
    experiment, spec = experiment_with(schedule=InverseSquareRoot(warmup_epochs=0.0))
    with pytest.raises(ConfigError, match="warmup_epochs=0.0 must be above 0"):
        experiment.validate(spec)
