"""The Transformer: its size, its layers against PyTorch, packing, and dropout."""

import dataclasses
import functools
import math
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic, arithmetic_of, linear
from dawnjax.models.configs.transformer import Transformer
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.transformer import (
    position_encoding,
    same_segment,
    segment_positions,
)
from dawnjax.train_step import execution_of

pytestmark = pytest.mark.compiles

EXECUTION = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=1)
SMALL = Transformer(num_layers=2, width=16, hidden_width=24, num_heads=2, dropout_rate=0.3)


def make(config=SMALL, vocabulary=11, dtype="float32", platform="cpu"):
    execution = dataclasses.replace(EXECUTION, compute_dtype=dtype, platform=platform)
    return config.build(vocabulary_size=vocabulary, execution=execution, rngs=nnx.Rngs(1))


# By hand: an encoder layer has 4 d^2 + 2 d f + f + d + 4 d parameters, a decoder layer
# 8 d^2 + 2 d f + f + d + 6 d; then two norms of 2 d and V d of the embedding. The paper's Table 3
# says 65 and 213 million, with biases in places and its own vocabulary.
@pytest.mark.parametrize(
    "config, vocabulary, expected",
    [
        (Transformer(), 37_000, 6 * (3_150_336 + 4_199_936) + 2_048 + 18_944_000),
        (
            Transformer(width=1024, hidden_width=4096, num_heads=16),
            37_000,
            6 * (12_592_128 + 16_788_480) + 4_096 + 37_888_000,
        ),
        (Transformer(num_layers=3, width=256, hidden_width=1024, num_heads=8), 8_000, 7_569_408),
    ],
)
def test_parameter_counts(config, vocabulary, expected):
    module = nnx.eval_shape(lambda: make(config, vocabulary))
    params = jax.tree.leaves(nnx.state(module, nnx.Param))
    assert sum(math.prod(leaf.shape) for leaf in params) == expected
    assert all(leaf.dtype == jnp.float32 for leaf in params)


def test_positions_are_sines_and_cosines():
    table = position_encoding(50, 8)
    # PE(pos, 2i) = sin(pos / 10000^(2i / d)): position 3, i = 1, d = 8 gives 3 / 10.
    assert table[3, 2] == pytest.approx(math.sin(0.3), abs=1e-6)
    assert table[3, 3] == pytest.approx(math.cos(0.3), abs=1e-6)
    assert table[49, 6] == pytest.approx(math.sin(0.049), abs=1e-6)


def test_segments_restart_positions_and_hide_each_other():
    segments = jnp.array([[1, 1, 1, 2, 2, 3, 0, 0]])
    assert segment_positions(segments, EXECUTION)[0, :6].tolist() == [0, 1, 2, 0, 1, 0]
    visible = same_segment(segments, segments)[0]
    assert visible[3].tolist() == [False] * 3 + [True] * 2 + [False] * 3
    assert not visible[6].any() and not visible[:, 6].any()


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
    graph, state = nnx.split(module)

    @jax.jit
    def logits(state, *arguments):
        module = nnx.merge(graph, state)
        return module.logits(module(*arguments))

    return functools.partial(logits, state)


def pack(sentences, length):
    tokens, segments = np.zeros((1, length), int), np.zeros((1, length), int)
    start = 0
    for number, sentence in enumerate(sentences, start=1):
        tokens[0, start : start + len(sentence)] = sentence
        segments[0, start : start + len(sentence)] = number
        start += len(sentence)
    return jnp.array(tokens), jnp.array(segments)


def test_a_token_sees_no_later_one():
    module = make()
    ones = jnp.ones((1, 6), int)
    source, target = jnp.arange(6)[None] + 1, jnp.arange(6)[None] + 2
    changed = target.at[0, 4].set(1)
    forward = compiled(module)
    before, after = forward(source, ones, target, ones), forward(source, ones, changed, ones)
    np.testing.assert_array_equal(before[0, :4], after[0, :4])
    assert abs(before[0, 4:] - after[0, 4:]).max() > 1e-3


@pytest.mark.parity
def test_logits_agree_with_pytorch():
    torch = pytest.importorskip("torch", reason="needs PyTorch, the independent implementation")
    module = make()
    reference = torch.nn.Transformer(
        d_model=16,
        nhead=2,
        num_encoder_layers=2,
        num_decoder_layers=2,
        dim_feedforward=24,
        dropout=0.0,
        layer_norm_eps=1e-6,
        batch_first=True,
        norm_first=True,
    ).eval()
    with torch.no_grad():
        for ours, theirs in zip(module.encoder.values(), reference.encoder.layers, strict=True):
            copy_attention(torch, ours.attention, theirs.self_attn)
            copy_rest(torch, ours, theirs, [ours.attention_norm, ours.feed_forward_norm])
        for ours, theirs in zip(module.decoder.values(), reference.decoder.layers, strict=True):
            copy_attention(torch, ours.attention, theirs.self_attn)
            copy_attention(torch, ours.source_attention, theirs.multihead_attn)
            norms = [ours.attention_norm, ours.source_norm, ours.feed_forward_norm]
            copy_rest(torch, ours, theirs, norms)
        copy_norm(torch, module.encoder_norm, reference.encoder.norm)
        copy_norm(torch, module.decoder_norm, reference.decoder.norm)

    source = jnp.array([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 0, 0, 0]])
    target = jnp.array([[2, 7, 1, 8, 2], [8, 1, 8, 0, 0]])
    segments, target_segments = (source > 0).astype(int), (target > 0).astype(int)
    embedding = np.array(module.embedding[...])

    def embedded(tokens):
        # By hand: sqrt(16) times the row, plus the position.
        return torch.tensor(4 * embedding[tokens] + position_encoding(tokens.shape[1], 16))

    with torch.no_grad():
        hidden = reference(
            embedded(source),
            embedded(target),
            tgt_mask=torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=1),
            src_key_padding_mask=torch.tensor(np.array(source == 0)),
            memory_key_padding_mask=torch.tensor(np.array(source == 0)),
        )
        wanted = (hidden @ torch.tensor(embedding).T).numpy()
    logits = compiled(module)(source, segments, target, target_segments)
    real = np.array(target > 0)
    # float32 sums of up to 24 products of order 1, through four layers.
    np.testing.assert_allclose(logits[real], wanted[real], atol=2e-5)


def copy_attention(torch, ours, theirs):
    kernels = [np.array(kernel[...]).T for kernel in (ours.query, ours.key, ours.value)]
    theirs.in_proj_weight.copy_(torch.tensor(np.concatenate(kernels)))
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(torch.tensor(np.array(ours.output[...]).T))
    theirs.out_proj.bias.zero_()


def copy_rest(torch, ours, theirs, norms):
    random = np.random.default_rng(2)
    for number, norm in enumerate(norms, start=1):
        # Away from 1 and 0, so that a wrong or missing norm shows.
        norm.scale[...] = jnp.array(random.uniform(0.5, 1.5, 16), jnp.float32)
        norm.bias[...] = jnp.array(random.uniform(-0.5, 0.5, 16), jnp.float32)
        copy_norm(torch, norm, getattr(theirs, f"norm{number}"))
    feed_forward = ours.feed_forward
    feed_forward.bias_1[...] = jnp.array(random.uniform(-0.5, 0.5, 24), jnp.float32)
    feed_forward.bias_2[...] = jnp.array(random.uniform(-0.5, 0.5, 16), jnp.float32)
    for layer, number in ((theirs.linear1, 1), (theirs.linear2, 2)):
        kernel, bias = getattr(feed_forward, f"kernel_{number}"), f"bias_{number}"
        layer.weight.copy_(torch.tensor(np.array(kernel[...]).T))
        layer.bias.copy_(torch.tensor(np.array(getattr(feed_forward, bias)[...])))


def copy_norm(torch, ours, theirs):
    theirs.weight.copy_(torch.tensor(np.array(ours.scale[...])))
    theirs.bias.copy_(torch.tensor(np.array(ours.bias[...])))


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
        (Arithmetic(FLOAT32, FLOAT32, EXECUTION), 1e-5),
        (Arithmetic(FLOAT32, BFLOAT16, EXECUTION), 2e-2),
        (Arithmetic(FLOAT32, BFLOAT16, EXECUTION, transposed_copies=True), 2e-2),
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
        graph, state = nnx.split(make(platform=platform))
        # Off their start, so that scales and biases matter.
        state = jax.tree.map(
            lambda leaf: leaf + 0.1 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), state
        )

        def loss(state):
            module = nnx.merge(graph, state)
            hidden = module(source, segments, target, segments, dropout_key=key)
            return module.loss_and_count(hidden, target, segments > 0, 0.1)[0]

        return jax.jit(jax.value_and_grad(loss))(state)

    ours, plain = loss_and_gradients("gpu"), loss_and_gradients("tpu")
    for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "platform, capability, is_fused",
    [
        ("cuda", "9.0", True),
        ("gpu", "10.0", True),
        ("gpu", "7.5", False),
        ("rocm", "gfx942", False),
        ("tpu", "", False),
    ],
)
def test_attention_is_given_to_cudnn_where_it_takes_it(platform, capability, is_fused):
    device = SimpleNamespace(platform=platform, compute_capability=capability)
    mesh: Any = SimpleNamespace(
        devices=np.array([device]), size=1, shape={"data": 1, "fsdp": 1, "expert": 1}
    )
    experiment: Any = SimpleNamespace(compute_dtype="bfloat16", batch_norm_group_size=1)
    assert execution_of(experiment, mesh).attention == ("fused" if is_fused else "products")


@pytest.mark.parametrize(
    "dtype, batch_shards, copies",
    [("bfloat16", 1, True), ("bfloat16", 4, False), ("float32", 1, False)],
)
def test_a_cpu_alone_makes_transposed_copies_in_bfloat16(dtype, batch_shards, copies):
    execution = Execution(
        platform="cpu", compute_dtype=dtype, batch_norm_group_size=1, batch_shards=batch_shards
    )
    arithmetic = arithmetic_of(execution)
    assert arithmetic.transposed_copies == copies

    def to_kernel(hidden, kernel):
        mapped: jax.Array = linear(hidden, kernel, arithmetic)
        return mapped.sum()

    shapes = jax.ShapeDtypeStruct((64, 32), FLOAT32), jax.ShapeDtypeStruct((32, 16), FLOAT32)
    hlo = jax.jit(jax.grad(to_kernel, argnums=1)).lower(*shapes).compile().as_text() or ""
    # A copy in the layout of a matrix of 32 x 64 exists only where it was asked for.
    assert bool(re.search(r"bf16\[32,64\]\{1,0\}", hlo)) == copies


@pytest.mark.parametrize(
    "config, message",
    [
        (Transformer(width=20, num_heads=4), "width=20 must be a multiple of twice the 4 heads"),
        (Transformer(num_layers=0), "num_layers=0 must be 1 or more"),
        (Transformer(dropout_rate=1.0), "dropout_rate=1.0 must lie in"),
    ],
)
def test_impossible_models_are_refused(config, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(config)
