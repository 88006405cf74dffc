"""Parameters and moments in bfloat16: how they are rounded, and what arrives of small updates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.config.experiment import Adam, Constant, Sgd
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets.synthetic_tokens import SyntheticTokens
from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.llama import Llama
from dawnjax.optim.low_precision import round_at_random
from dawnjax.optim.optimizers import make_optimizer
from dawnjax.train_step import make_recipe

SMALL = Llama(num_layers=1, width=16, num_heads=2, num_kv_heads=1, head_width=8, mlp_width=16)


def experiment_with(param_dtype="float32", **fields):
    experiment = dataclasses.replace(
        load_experiment("wikipedia_llama_small"),
        data=SyntheticTokens(),
        model=dataclasses.replace(SMALL, param_dtype=param_dtype),
        schedule=Constant(),
        **fields,
    )
    return experiment, experiment.data.spec()


def test_a_number_becomes_one_of_its_neighbours_and_is_right_on_average():
    # From 1 on, bfloat16 numbers lie 1/128 apart; from 2 on, 1/64.
    for value, below, above in ((1 + 1 / 1024, 1.0, 1 + 1 / 128), (-2.01, -2 - 1 / 64, -2.0)):
        rounded = round_at_random(jnp.full(4096, value, jnp.float32), jax.random.key(1))
        assert rounded.dtype == jnp.bfloat16
        found = np.asarray(rounded, np.float64)
        assert set(found) == {below, above}
        # Four deviations of the mean of 4,096 draws that are the upper one with probability p.
        p = (value - below) / (above - below)
        allowed = 4 * (above - below) * (p * (1 - p) / 4096) ** 0.5
        assert found.mean() == pytest.approx(value, abs=allowed)
    same = jnp.array([np.nan, np.inf, -np.inf, 0.0, 1.5], jnp.float32)
    rounded = np.asarray(round_at_random(same, jax.random.key(0)), np.float32)
    np.testing.assert_array_equal(rounded, same)


@pytest.mark.compiles
@pytest.mark.parametrize(("rounding", "expected"), [("nearest", 1.0), ("stochastic", 0.99)])
def test_updates_below_half_a_step_of_bfloat16_arrive_if_rounded_at_random(rounding, expected):
    config = Adam(base_learning_rate=1e-4, moment_dtype="bfloat16", rounding=rounding)
    optimizer = make_optimizer(*experiment_with("bfloat16", optimizer=config))
    params = {"w": jnp.ones(4096, jnp.bfloat16)}
    gradient = {"w": jnp.full(4096, 0.3, jnp.bfloat16)}

    @jax.jit
    def steps(params, state):
        def step(_, carry):
            params, state = carry
            updates, state = optimizer.update(gradient, state, params)
            return jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates), state

        return jax.lax.fori_loop(0, 100, step, (params, state))

    params, state = steps(params, optimizer.init(params))
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.ndim]
    assert [leaf.dtype for leaf in (*moments, params["w"])] == [jnp.bfloat16] * 3
    # A hundred updates of 1e-4; numbers below 1 lie 1/256 apart.
    allowed = 4 * (0.01 * (1 / 256) / 4096) ** 0.5
    assert np.asarray(params["w"], np.float64).mean() == pytest.approx(expected, abs=allowed)


@pytest.mark.compiles
def test_moments_in_bfloat16_leave_parameters_and_arithmetic_in_float32():
    states = []
    for dtype in ("float32", "bfloat16"):
        config = Adam(base_learning_rate=0.01, clip_global_norm=1.0, moment_dtype=dtype)
        optimizer = make_optimizer(*experiment_with(optimizer=config))
        params = {"w": jnp.linspace(-1.0, 1.0, 8)}
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(params, state, params)
            params = jax.tree.map(jnp.add, params, updates)
        assert params["w"].dtype == jnp.float32
        assert {leaf.dtype for leaf in jax.tree.leaves(state) if leaf.ndim} == {jnp.dtype(dtype)}
        states.append(np.asarray(params["w"]))
    # Three updates of 0.01, each of moments that are right to 1/256.
    np.testing.assert_allclose(*states, atol=3 * 0.01 / 256)


@pytest.mark.parametrize(
    ("param_dtype", "fields", "line"),
    [
        (
            "float32",
            {"optimizer": Adam(base_learning_rate=0.1, rounding="stochastic")},
            "optimizer.rounding=stochastic must be nearest: moments and parameters are float32",
        ),
        (
            "bfloat16",
            {"optimizer": Sgd(base_learning_rate=0.1)},
            "model.param_dtype=bfloat16 needs optimizer=adam: sgd computes in the dtype of the",
        ),
        (
            "bfloat16",
            {"ema_decay": 0.9},
            "ema_decay=0.9 would average parameters of model.param_dtype=bfloat16; give 0",
        ),
    ],
)
def test_what_bfloat16_would_spoil_is_refused(param_dtype, fields, line):
    experiment, spec = experiment_with(param_dtype, **fields)
    with pytest.raises(ConfigError, match=line):
        make_recipe(experiment, spec, make_mesh(MeshShape(), jax.devices()[:1]))
