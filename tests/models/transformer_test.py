"""The Transformer: its layers by the paper's equations, packing, and other forms of them."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN, assert_close

from dawnjax.models.arithmetic import Arithmetic, linear
from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.dropout import Dropout
from dawnjax.models.transformer import position_encoding
from dawnjax.train_step import execution_of

pytestmark = pytest.mark.compiles

SMALL = Transformer(num_layers=2, width=16, hidden_width=24, num_heads=2, dropout_rate=0.3)


def make(config=SMALL, vocabulary=11, dtype="float32", platform="cpu"):
    execution = dataclasses.replace(PLAIN, compute_dtype=dtype, platform=platform)
    return config.build(vocabulary_size=vocabulary, execution=execution, rngs=nnx.Rngs(1))


def test_positions_are_sines_and_cosines():
    table = position_encoding(50, 8)
    # PE(pos, 2i) = sin(pos / 10000^(2i / d)): position 3, i = 1, d = 8 gives 3 / 10.
    assert table[3, 2] == pytest.approx(math.sin(0.3), abs=1e-6)
    assert table[3, 3] == pytest.approx(math.cos(0.3), abs=1e-6)
    assert table[49, 6] == pytest.approx(math.sin(0.049), abs=1e-6)


def test_packed_sentences_give_the_logits_of_lone_ones():
    module = make()
    random = np.random.default_rng(0)
    lengths = [(3, 4), (5, 2), (1, 3)]
    sources = [random.integers(1, 11, n) for n, _ in lengths]
    targets = [random.integers(1, 11, n) for _, n in lengths]
    packed_source, source_segments = pack(sources, 12)
    packed_target, target_segments = pack(targets, 11)
    forward = compiled(module)
    packed = forward(packed_source, source_segments, packed_target, target_segments)[0]
    start = 0
    for source, target in zip(sources, targets, strict=True):
        lone = forward(*pack([source], 12), *pack([target], 11))[0, : len(target)]
        # The same sums over other lengths: a few units in the last place.
        np.testing.assert_allclose(packed[start : start + len(target)], lone, atol=2e-5)
        start += len(target)


def compiled(module):
    return jax.jit(lambda *arguments: module.logits(module(*arguments)))


def pack(sentences, length):
    tokens, segments = np.zeros((1, length), int), np.zeros((1, length), int)
    start = 0
    for number, sentence in enumerate(sentences, start=1):
        tokens[0, start : start + len(sentence)] = sentence
        segments[0, start : start + len(sentence)] = number
        start += len(sentence)
    return jnp.array(tokens), jnp.array(segments)


def by_hand(module, source, target):
    """Logits of one pair in NumPy: the paper's equations, with the norms before the layers."""

    def norm(layer, hidden):
        centred = hidden - hidden.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return scaled * layer.scale[...] + layer.bias[...]

    def attention(layer, hidden, others, visible):
        query, key, value = (
            (states @ getattr(layer, name)[...]).reshape(len(states), 2, 8)
            for name, states in (("query", hidden), ("key", others), ("value", others))
        )
        weights = np.exp(np.einsum("qhc,khc->hqk", query, key) / math.sqrt(8)) * visible
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khc->qhc", weights, value).reshape(-1, 16) @ layer.output[...]

    def feed_forward(layer, hidden):
        middle = np.maximum(hidden @ layer.kernel_1[...] + layer.bias_1[...], 0)
        return middle @ layer.kernel_2[...] + layer.bias_2[...]

    def embedded(tokens):
        return 4 * embedding[tokens] + position_encoding(len(tokens), 16)

    embedding = np.asarray(module.embedding[...], np.float64)
    hidden = embedded(source)
    for layer in module.encoder.values():
        normed = norm(layer.attention_norm, hidden)
        hidden = hidden + attention(layer.attention, normed, normed, 1)
        hidden = hidden + feed_forward(layer.feed_forward, norm(layer.feed_forward_norm, hidden))
    encoded, hidden = norm(module.encoder_norm, hidden), embedded(target)
    for layer in module.decoder.values():
        normed = norm(layer.attention_norm, hidden)
        hidden = hidden + attention(layer.attention, normed, normed, np.tri(len(target)))
        normed = norm(layer.source_norm, hidden)
        hidden = hidden + attention(layer.source_attention, normed, encoded, 1)
        hidden = hidden + feed_forward(layer.feed_forward, norm(layer.feed_forward_norm, hidden))
    return norm(module.decoder_norm, hidden) @ embedding.T


def test_logits_are_those_of_the_equations():
    module, random = make(), np.random.default_rng(2)
    for _, param in nnx.iter_graph(module):
        if isinstance(param, nnx.Param):  # norms and biases too: they start as ones and zeros
            param[...] = param[...] + 0.2 * random.normal(size=param.shape).astype(np.float32)
    source, target = np.array([3, 1, 4, 1, 5, 9, 2, 6]), np.array([2, 7, 1, 8, 2])
    parts = (source, np.ones(8, int), target, np.ones(5, int))
    (logits,) = compiled(module)(*(jnp.asarray(part[None]) for part in parts))
    # float32 sums of up to 24 products of order 1, through four layers.
    np.testing.assert_allclose(logits, by_hand(module, source, target), atol=1e-4)


@pytest.mark.parametrize("platform, activations", [("gpu", jnp.bfloat16), ("cpu", jnp.float32)])
def test_bfloat16_keeps_parameters_and_logits_in_float32(platform, activations):
    # Only the choice of dtypes is the platform's; the program itself runs here.
    module, exact = make(dtype="bfloat16", platform=platform), make()
    ones = jnp.ones((1, 6), int)
    tokens = jnp.arange(6)[None] + 1
    assert jax.eval_shape(lambda: module.encode(tokens, ones, Dropout(None))).dtype == activations
    logits = compiled(module)(tokens, ones, tokens, ones)
    assert logits.dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))
    expected = compiled(exact)(tokens, ones, tokens, ones)
    # bfloat16 has 8 bits of mantissa; logits are of order 1 after some tens of roundings.
    np.testing.assert_allclose(logits, expected, atol=0.1)
    assert abs(logits - expected).max() > 1e-4  # it is not float32 in disguise


FLOAT32, BFLOAT16 = jnp.dtype("float32"), jnp.dtype("bfloat16")


@pytest.mark.parametrize("kernel_axes", ["io", "oi"])
@pytest.mark.parametrize(
    "arithmetic, tolerance",
    [
        (Arithmetic(FLOAT32, FLOAT32, PLAIN), 1e-5),
        (Arithmetic(FLOAT32, BFLOAT16, PLAIN), 2e-2),
        (Arithmetic(FLOAT32, BFLOAT16, PLAIN, transposed_copies=True), 2e-2),
    ],
)
def test_the_gradients_of_a_linear_layer_are_those_of_the_product(
    arithmetic, tolerance, kernel_axes
):
    random = np.random.default_rng(0)
    hidden, kernel, weights = (
        jnp.array(random.normal(size=shape), jnp.float32)
        for shape in ((2, 3, 8), (8, 5), (2, 3, 5))
    )

    def loss(hidden, kernel):
        mapped: jax.Array = linear(hidden, kernel, arithmetic, kernel_axes)
        return (mapped * weights).sum()

    given = jnp.array(np.array(kernel).T) if kernel_axes == "oi" else kernel
    value, (to_hidden, to_kernel) = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(hidden, given)
    computed = value, (to_hidden, np.array(to_kernel).T if kernel_axes == "oi" else to_kernel)
    # By hand: d/dh sum(w * (h k)) = w k^T, and d/dk = h^T w.
    weights_rows, hidden_rows = np.array(weights).reshape(6, 5), np.array(hidden).reshape(6, 8)
    expected = (
        (hidden_rows @ np.array(kernel) * weights_rows).sum(),
        ((weights_rows @ np.array(kernel).T).reshape(2, 3, 8), hidden_rows.T @ weights_rows),
    )
    for ours, by_hand in zip(jax.tree.leaves(computed), jax.tree.leaves(expected), strict=True):
        # Rounding of each factor to 8 bits: a relative 0.4 % of the largest terms, which are 3.
        np.testing.assert_allclose(ours, by_hand, rtol=tolerance, atol=4 * tolerance)


def test_the_gpus_forms_of_the_layers_are_the_same_function():
    random = np.random.default_rng(0)
    source, target = (jnp.asarray(random.integers(0, 11, (2, 8))) for _ in range(2))
    segments = jnp.asarray([[1, 1, 1, 2, 2, 2, 3, 0], [1, 1, 2, 2, 2, 2, 0, 0]])
    key = jax.random.key(2)

    def loss_and_gradients(platform):
        graph, state = nnx.split(make(dataclasses.replace(SMALL, num_layers=1), platform=platform))
        # Off their start, so that scales and biases matter.
        state = jax.tree.map(
            lambda leaf: leaf + 0.1 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), state
        )

        def loss(state):
            module = nnx.merge(graph, state)
            hidden = module(source, segments, target, segments, dropout_key=key)
            return module.loss_and_count(hidden, target, segments > 0, 0.1)[0]

        return jax.jit(jax.value_and_grad(loss))(state)

    assert_close(loss_and_gradients("gpu"), loss_and_gradients("tpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "platform, capability, is_fused",
    [
        ("cuda", "9.0", True),
        ("gpu", "7.5", False),
        ("rocm", "gfx942", False),
    ],
)
def test_attention_is_given_to_cudnn_where_it_takes_it(platform, capability, is_fused):
    device = SimpleNamespace(platform=platform, compute_capability=capability)
    mesh: Any = SimpleNamespace(
        devices=np.array([device]), size=1, shape={"data": 1, "fsdp": 1, "expert": 1}
    )
    experiment: Any = SimpleNamespace(compute_dtype="bfloat16", batch_norm_group_size=1)
    assert execution_of(experiment, mesh).attention == ("fused" if is_fused else "products")
