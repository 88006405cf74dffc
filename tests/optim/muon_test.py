"""Muon: singular values against NumPy's, and single steps by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dawnjax.config.experiment import Muon, MuonAdam
from dawnjax.optim import muon, muon_adam

pytestmark = pytest.mark.compiles

CONFIG = Muon(
    base_learning_rate=0.25,
    momentum=0.5,
    newton_schulz_steps=3,
    bias_learning_rate=0.1,
    head_learning_rate=0.5,
    whitening_bias_epochs=2.0,
    sgd_momentum=0.5,
    sgd_weight_decay=0.01,
)


QUINTIC = CONFIG.newton_schulz_coefficients


def orthogonalized(matrix, num_steps, coefficients=QUINTIC):
    """Result of Newton-Schulz, from NumPy's decomposition in float64."""
    a, b, c = coefficients
    left, values, right = np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False)
    values = values / np.sqrt((values**2).sum())
    for _ in range(num_steps):
        values = a * values + b * values**3 + c * values**5
    return left @ np.diag(values) @ right


@pytest.mark.parametrize("coefficients", [QUINTIC, (3.4576, -4.7391, 2.0843)])
@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_newton_schulz_maps_singular_values_by_the_quintic(shape, coefficients):
    matrices = jnp.asarray(np.random.default_rng(0).normal(size=(3, *shape)), jnp.float32)
    results = jax.jit(muon.newton_schulz, static_argnums=1)(matrices, (coefficients,) * 3)
    for matrix, result in zip(matrices, results, strict=True):
        expected = orthogonalized(matrix, 3, coefficients)
        np.testing.assert_allclose(result, expected, atol=2e-5)
    # A kernel without a gradient stays a number.
    assert not np.asarray(muon.newton_schulz(0 * matrices, (coefficients,) * 3)).any()


def test_five_steps_of_the_default_bring_singular_values_near_one():
    """As published of its coefficients: to 0.68 to 1.13."""
    made = orthogonalized(np.random.default_rng(1).normal(size=(60, 20)), 5)
    values = np.linalg.svd(made, compute_uv=False)
    assert values.min() > 0.68 and values.max() < 1.14


def network():
    random = np.random.default_rng(2)

    def draw(*shape):
        return jnp.asarray(random.normal(size=shape), jnp.float32)

    return {
        "whitening": {"kernel": draw(2, 2, 3, 24), "bias": draw(24)},
        "conv": {"kernel": draw(3, 3, 4, 8)},
        "norm": {"bias": draw(8)},
        "classifier": {"kernel": draw(8, 10), "bias": draw(10)},
    }


def steps_of(params, gradients, count, relative):
    rule = muon.muon(CONFIG, relative, steps_per_epoch=2, global_batch_size=5)
    state = rule.init(params)
    trajectory = [params]
    for _ in range(count):
        updates, state = jax.jit(rule.update)(gradients, state, params)
        params = optax.apply_updates(params, updates)
        trajectory.append(params)
    return trajectory


def test_two_steps_of_every_rule_by_hand():
    params, gradients = network(), jax.tree.map(lambda leaf: 0.3 * leaf + 0.1, network())

    def relative(count):
        return 1 - count / 4

    first, second = steps_of(params, gradients, 2, relative)[1:]
    np.testing.assert_array_equal(second["whitening"]["kernel"], params["whitening"]["kernel"])

    # A kernel is scaled to norm sqrt(8) and moves by the rate along the orthogonalized direction,
    # which is the gradient's as long as that does not change.
    kernel = np.asarray(params["conv"]["kernel"], np.float64).reshape(-1, 8)
    direction = orthogonalized(
        np.asarray(gradients["conv"]["kernel"]).reshape(-1, 8), CONFIG.newton_schulz_steps
    )
    for rate, result in [(0.25, first), (0.25 * 0.75, second)]:
        kernel = kernel * np.sqrt(8) / np.linalg.norm(kernel) - rate * direction
        np.testing.assert_allclose(
            result["conv"]["kernel"].reshape(-1, 8), kernel, rtol=1e-4, atol=1e-5
        )

    # SGD on the sum of 5 losses; Nesterov: g + m v with v = m v + g.
    for layer, name, peak, rates in [
        ("norm", "bias", 0.1, (1.0, 0.75)),
        ("classifier", "bias", 0.1, (1.0, 0.75)),
        ("classifier", "kernel", 0.5, (1.0, 0.75)),
        # Falls from 1 to 0 over two epochs of two steps.
        ("whitening", "bias", 0.1, (1.0, 0.75)),
    ]:
        value = np.asarray(params[layer][name], np.float64)
        gradient, velocity = np.asarray(gradients[layer][name], np.float64), 0.0
        for rate, result in zip(rates, (first, second), strict=True):
            decayed = 5 * gradient + 0.01 / peak * value
            velocity = 0.5 * velocity + decayed
            value = value - rate * peak * (decayed + 0.5 * velocity)
            np.testing.assert_allclose(result[layer][name], value, rtol=1e-4, atol=1e-5)


def test_the_whitening_bias_stops_and_the_rest_goes_on():
    params, gradients = network(), network()
    trajectory = steps_of(params, gradients, 6, lambda count: 1.0)
    biases = [np.asarray(step["whitening"]["bias"]) for step in trajectory]
    assert (biases[3] != biases[4]).all()
    np.testing.assert_array_equal(biases[4], biases[5])
    np.testing.assert_array_equal(biases[5], biases[6])
    assert (trajectory[5]["norm"]["bias"] != trajectory[6]["norm"]["bias"]).all()


def test_polar_express_brings_singular_values_near_one_in_five_steps():
    random = np.random.default_rng(3)
    left, right = (np.linalg.qr(random.normal(size=(n, 24)))[0] for n in (40, 24))
    values = np.geomspace(1e-2, 1, 24)
    matrix = jnp.asarray(left @ np.diag(values) @ right.T, jnp.float32)
    spread = {}
    for name in ("polar_express", "newton_schulz"):
        config = MuonAdam(orthogonalization=name)
        result = muon.newton_schulz(matrix, muon_adam.polynomials(config))
        found = np.linalg.svd(np.asarray(result), compute_uv=False)
        spread[name] = np.abs(found - 1).max()
    assert spread["polar_express"] < 0.15 < spread["newton_schulz"] < 0.4


def test_one_step_of_muon_with_adam():
    """By hand: the kernel moves along U V^T, the rest by Adam's first step, its rate times sign."""
    random = np.random.default_rng(4)
    params = {
        "embedding": jnp.ones((6, 4)),
        "mlp": {"kernel": jnp.asarray(random.normal(size=(4, 16)), jnp.float32)},
        "classifier": {"kernel": jnp.ones((4, 6))},
        "norm": {"scale": jnp.ones(4)},
    }
    gradients = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), params)
    config = MuonAdam(
        base_learning_rate=0.1, adam_learning_rate=0.01, iterations=8, weight_decay=0.5
    )
    rule = muon_adam.muon_adam(config, optax.constant_schedule(1.0))
    updates: Any = rule.update(gradients, rule.init(params), params)[0]
    left, _, right = np.linalg.svd(gradients["mlp"]["kernel"], full_matrices=False)
    kernel = np.asarray(params["mlp"]["kernel"])
    wanted = -0.1 * (2.0 * left @ right + 0.5 * kernel)  # sqrt(16 / 4) is 2
    np.testing.assert_allclose(updates["mlp"]["kernel"], wanted, atol=1e-3)
    for name in ("embedding", "classifier", "norm"):
        for update, gradient in zip(
            jax.tree.leaves(updates[name]), jax.tree.leaves(gradients[name]), strict=True
        ):
            np.testing.assert_allclose(update, -0.01 * np.sign(gradient), rtol=1e-4)
