"""LSTM layers by the published equations, on packed rows, in both directions, with gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN, assert_close

from dawnjax.machine.mesh import batch_sharding, make_mesh, replicated
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.arithmetic import arithmetic_of
from dawnjax.models.lstm import LSTM, BidirectionalLSTM
from dawnjax.profile.hlo import analyze

pytestmark = pytest.mark.compiles

IN, WIDTH, ARITHMETIC = 5, 3, arithmetic_of(PLAIN)
SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 0], [1, 0, 0, 0, 0, 0], [1, 1, 2, 2, 2, 2]])


def inputs(seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=(3, 6, IN)), jnp.float32)


def by_hand(layer, values, is_reversed=False):
    """One sequence [length, in] through the published equations, in NumPy."""
    kernels = (layer.input_kernel, layer.state_kernel, layer.bias)
    to_gates, to_state, bias = (np.array(kernel[...], np.float64) for kernel in kernels)
    hidden, cell, outputs = np.zeros(WIDTH), np.zeros(WIDTH), []
    for value in values[::-1] if is_reversed else values:
        i, f, g, o = np.split(value @ to_gates + hidden @ to_state + bias, 4)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        hidden = np.tanh(cell) / (1 + np.exp(-o))
        outputs.append(hidden)
    return np.array(outputs[::-1] if is_reversed else outputs)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_each_segment_of_a_row_gives_what_it_gives_alone(is_reversed):
    layer, values = LSTM(IN, WIDTH, ARITHMETIC, 0.1, nnx.Rngs(0)), inputs()
    outputs = np.array(layer(values, SEGMENTS, is_reversed=is_reversed))
    for row in range(3):
        for segment in (1, 2):
            place = np.array(SEGMENTS[row] == segment)
            if place.any():
                wanted = by_hand(layer, np.array(values[row])[place], is_reversed)
                np.testing.assert_allclose(outputs[row][place], wanted, atol=1e-6)
    assert (outputs[np.array(SEGMENTS) == 0] == 0).all()


def test_gradients_across_segments_and_padding_are_the_finite_differences():
    layer, values = BidirectionalLSTM(IN, WIDTH, ARITHMETIC, 0.1, nnx.Rngs(1)), inputs(2)
    graph, params = nnx.split(layer)

    def total(params, values):
        return jnp.square(nnx.merge(graph, params)(values, SEGMENTS)).sum()

    jax.test_util.check_grads(total, (params, values), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)
    to_values = np.array(jax.grad(total, argnums=1)(params, values))
    assert (to_values[np.array(SEGMENTS) == 0] == 0).all()


def test_a_gradient_on_several_devices_gathers_no_rows_and_sums_once():
    mesh = make_mesh(MeshShape(data=2), jax.devices()[:2])
    placed = {"batch_shards": 2, "placement": batch_sharding(mesh, 0)}
    execution = dataclasses.replace(PLAIN, **placed)
    layer = LSTM(IN, WIDTH, arithmetic_of(execution), 0.1, nnx.Rngs(0))
    graph, params = nnx.split(layer)

    def loss(params, values, segments):
        return jnp.square(nnx.merge(graph, params)(values, segments)).sum()

    arguments = params, inputs()[:2], SEGMENTS[:2]
    rows = batch_sharding(mesh, 0)
    split = jax.jit(jax.grad(loss), in_shardings=(replicated(mesh), rows, rows))
    text = split.lower(*arguments).compile().as_text() or ""
    assert "dot" in text and "all-gather" not in text
    # JAX's own gradient would sum the state's kernel over devices at each of the six times.
    assert {collective.runs for collective in analyze(text).collectives.values()} == {1}
    alone = LSTM(IN, WIDTH, ARITHMETIC, 0.1, nnx.Rngs(0))
    graph = nnx.split(alone)[0]
    assert_close(split(*arguments), jax.grad(loss)(*arguments), rtol=1e-5, atol=1e-6)
