"""Update rules and schedules against values computed by hand or by Optax."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dawnjax.config.experiment import (
    Adam,
    Constant,
    Experiment,
    Exponential,
    InverseSquareRoot,
    Lars,
    OptimizerConfig,
    PiecewiseLinear,
    PiecewiseStep,
    Polynomial,
    RmsProp,
    ScheduleConfig,
    Sgd,
    WarmupCosine,
)
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.optim.optimizers import make_optimizer, peak_learning_rate, relative_schedule

DIGITS = load_experiment("digits")
SPEC = dataclasses.replace(DIGITS.data.spec(), num_train_examples=1000)


def experiment(**fields: Any) -> Experiment:
    """Makes an experiment of ten epochs of ten steps."""
    return dataclasses.replace(
        DIGITS, num_epochs=10, global_batch_size=100, batch_norm_group_size=20, **fields
    )


def rates(schedule: ScheduleConfig, steps: list[int]) -> list[float]:
    relative: Any = relative_schedule(experiment(schedule=schedule), SPEC)
    return [float(relative(jnp.int32(step))) for step in steps]


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("schedule", "steps", "want"),
    [
        (
            Polynomial(warmup_epochs=2, power=2, final_fraction=0.0),
            [0, 10, 20, 60, 100],
            [0.0, 0.5, 1.0, 0.25, 0.0],
        ),
        # 0.88 an epoch in a staircase, counted from the start of the run.
        (
            Exponential(warmup_epochs=3, rate=0.88),
            [0, 15, 30, 39, 40, 99],
            [0.0, 0.5, 0.88**3, 0.88**3, 0.88**4, 0.88**9],
        ),
        (Exponential(rate=0.5, is_staircase=False), [0, 5, 10], [1.0, 0.5**0.5, 0.5]),
        (Exponential(rate=0.1, final_fraction=0.005), [0, 90], [1.0, 0.005]),
        (
            PiecewiseStep(warmup_epochs=1, boundary_epochs=(3, 6), factors=(0.1, 0.5)),
            [0, 5, 10, 29, 30, 59, 60, 99],
            [0.0, 0.5, 1.0, 1.0, 0.1, 0.1, 0.05, 0.05],
        ),
        (
            PiecewiseLinear(knot_epochs=(0, 4, 4, 8), fractions=(0.5, 1.0, 0.2, 0.0)),
            [0, 20, 40, 60, 80, 99],
            [0.5, 0.75317, 0.2, 0.1, 0.0, 0.0],  # (0.5 + 0.5 * 20 / 39.5)
        ),
        (InverseSquareRoot(warmup_epochs=2), [0, 10, 20, 80, 180], [0.0, 0.5, 1.0, 0.5, 1 / 3]),
    ],
)
def test_schedules_have_the_values_computed_by_hand(schedule, steps, want):
    np.testing.assert_allclose(rates(schedule, steps), want, atol=2e-5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignSgd(Sgd):
    def build(self, learning_rate):
        return optax.sign_sgd(learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Halves(WarmupCosine):
    def build(self, *, num_steps, steps_per_epoch):
        return lambda count: 0.5 ** (count / steps_per_epoch)


def test_a_class_that_extends_one_of_ours_is_trained_by_its_own_build():
    mine = experiment(optimizer=SignSgd(base_learning_rate=0.25), schedule=Halves())
    optimizer = make_optimizer(mine, SPEC)
    params = {"w": jnp.array([3.0, -7.0])}
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    np.testing.assert_allclose(jax.tree.leaves(updates)[0], [-0.25, 0.25])
    assert rates(Halves(), [0, 10, 20]) == [1.0, 0.5, 0.25]
    # Its rate does not end with the run, so time alone may end that.
    timed = dataclasses.replace(mine, num_epochs=0.0, max_seconds=9.0, schedule=Halves())
    timed.validate(SPEC)
    with pytest.raises(ConfigError, match="num_epochs=0 leaves the run without a length"):
        dataclasses.replace(timed, schedule=WarmupCosine()).validate(SPEC)


@pytest.mark.parametrize("kind", [Sgd, Lars, RmsProp])
def test_the_rate_follows_the_batch_where_asked(kind):
    assert peak_learning_rate(experiment(optimizer=kind(base_learning_rate=0.1))) == 0.1
    scaled = kind(base_learning_rate=0.1, reference_batch_size=25)
    assert peak_learning_rate(experiment(optimizer=scaled)) == pytest.approx(0.4)


PARAMS = {
    "kernel": np.array([[3.0, 0.0], [0.0, 4.0]], np.float32),
    "bias": np.array([1.0, -2.0], np.float32),
}
GRADIENTS = [
    {"kernel": np.array([[0.6, 0.0], [0.8, 0.0]], np.float32), "bias": np.array([0.5, 1.0])},
    {"kernel": np.array([[0.0, -2.0], [0.0, 0.0]], np.float32), "bias": np.array([-1.0, 0.0])},
]


def after(optimizer: OptimizerConfig) -> dict[str, np.ndarray]:
    """The parameters after the two gradients, at a constant rate."""
    transformation = make_optimizer(experiment(optimizer=optimizer, schedule=Constant()), SPEC)
    params: Any = jax.tree.map(jnp.asarray, PARAMS)
    state = transformation.init(params)
    for gradient in GRADIENTS:
        gradient = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), gradient)
        updates, state = transformation.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return {name: np.asarray(value) for name, value in params.items()}


@pytest.mark.compiles
def test_lars_is_the_papers():
    config = Lars(
        base_learning_rate=2.0, momentum=0.5, weight_decay=0.1, trust_coefficient=0.01, epsilon=0.5
    )
    kernel, bias = PARAMS["kernel"].astype(float), PARAMS["bias"].astype(float)
    kernel_velocity, bias_velocity = 0.0, 0.0
    for gradient in GRADIENTS:
        weight_norm = math.sqrt((kernel**2).sum())
        gradient_norm = math.sqrt((gradient["kernel"] ** 2).sum())
        ratio = 0.01 * weight_norm / (gradient_norm + 0.1 * weight_norm + 0.5)
        decayed = gradient["kernel"] + 0.1 * kernel
        kernel_velocity = 0.5 * kernel_velocity + 2.0 * ratio * decayed
        bias_velocity = 0.5 * bias_velocity + 2.0 * gradient["bias"]
        kernel, bias = kernel - kernel_velocity, bias - bias_velocity
    got = after(config)
    np.testing.assert_allclose(got["kernel"], kernel, rtol=1e-5)
    np.testing.assert_allclose(got["bias"], bias, rtol=1e-5)


@pytest.mark.compiles
def test_lars_leaves_parameters_of_norm_0_their_gradient():
    config = Lars(base_learning_rate=1.0, weight_decay=0.0)
    transformation = make_optimizer(experiment(optimizer=config, schedule=Constant()), SPEC)
    params = {"kernel": jnp.zeros((2, 2))}
    for value, want in ((0.5, -0.5), (0.0, 0.0)):
        gradient = {"kernel": jnp.full((2, 2), value)}
        updates: Any = transformation.update(gradient, transformation.init(params), params)[0]
        np.testing.assert_array_equal(updates["kernel"], np.full((2, 2), want))


@pytest.mark.compiles
def test_rmsprop_is_tensorflows():
    config = RmsProp(
        base_learning_rate=0.1,
        decay=0.8,
        momentum=0.5,
        epsilon=0.3,
        weight_decay=0.1,
        clip_global_norm=1.0,
    )
    params = {name: value.astype(float) for name, value in PARAMS.items()}
    squares: dict[str, Any] = {"kernel": 1.0, "bias": 1.0}
    velocity: dict[str, Any] = {"kernel": 0.0, "bias": 0.0}
    for gradient in GRADIENTS:
        decayed = {
            "kernel": gradient["kernel"] + 0.1 * params["kernel"],
            "bias": gradient["bias"],
        }
        norm = math.sqrt(sum((value**2).sum() for value in decayed.values()))
        for name, value in decayed.items():
            value = value / max(norm, 1.0)
            squares[name] = 0.8 * squares[name] + 0.2 * value**2
            velocity[name] = 0.5 * velocity[name] + 0.1 * value / np.sqrt(squares[name] + 0.3)
            params[name] = params[name] - velocity[name]
    for name, value in after(config).items():
        np.testing.assert_allclose(value, params[name], rtol=1e-5)


@pytest.mark.compiles
def test_adam_is_the_papers_with_a_decoupled_decay_of_matrices_alone():
    config = Adam(base_learning_rate=0.1, beta_1=0.8, beta_2=0.6, epsilon=1e-3, weight_decay=0.5)
    params = {name: value.astype(float) for name, value in PARAMS.items()}
    mean: dict[str, Any] = {"kernel": 0.0, "bias": 0.0}
    square: dict[str, Any] = {"kernel": 0.0, "bias": 0.0}
    for step, gradient in enumerate(GRADIENTS, start=1):
        for name, value in gradient.items():
            mean[name] = 0.8 * mean[name] + 0.2 * value
            square[name] = 0.6 * square[name] + 0.4 * value**2
            root = np.sqrt(square[name] / (1 - 0.6**step))
            decay = 0.5 * params[name] if name == "kernel" else 0.0
            change = mean[name] / (1 - 0.8**step) / (root + 1e-3) + decay
            params[name] = params[name] - 0.1 * change
    for name, value in after(config).items():
        np.testing.assert_allclose(value, params[name], rtol=1e-5, atol=1e-7)
