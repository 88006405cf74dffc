"""Decoders of the Llama family: sizes, positions, experts, adapters, losses in chunks."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import PLAIN, assert_close, count

from dawnjax.checkpoints.arrays import by_path
from dawnjax.models.causal_attention import causal_attention, visible
from dawnjax.models.configs.experts import Experts
from dawnjax.models.configs.llama import LLAMA_SIZES, Llama
from dawnjax.models.configs.lora import Lora
from dawnjax.models.configs.published_llama import published_names
from dawnjax.models.experts import balance_loss, routed_mlp

SMALL = Llama(
    num_layers=2, width=16, num_heads=4, num_kv_heads=2, head_width=4, mlp_width=24, initial_std=0.3
)


def build(config, vocabulary=11, rngs=None):
    sizes = {"vocabulary_size": vocabulary, "sequence_length": 8, "separator": 0}
    return config.build(**sizes, execution=PLAIN, rngs=rngs or nnx.Rngs(0))


def shapes(config, vocabulary):
    module = nnx.eval_shape(lambda: build(config, vocabulary))
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


# Of the models' published configurations; see `LLAMA_SIZES`.
@pytest.mark.parametrize(
    ("name", "vocabulary", "expected"),
    [
        ("llama_3_2_1b", 128_256, 1_235_814_400),
        ("llama_3_1_8b", 128_256, 8_030_261_248),
        ("llama_3_1_70b", 128_256, 70_553_706_496),
        ("llama_3_1_405b", 128_256, 405_853_388_800),
        ("llama_2_70b", 32_000, 68_976_648_192),
        ("mixtral_8x7b", 32_000, 46_702_792_704),
        ("gpt_oss_20b", 201_088, 20_914_757_184),
    ],
)
def test_published_sizes_have_their_published_parameters(name, vocabulary, expected):
    assert count(shapes(LLAMA_SIZES[name], vocabulary)) == expected


@pytest.mark.parametrize(
    ("name", "vocabulary", "expected"),
    # Products of a token, without the input table and norms: the sizes of the table of the papers.
    [
        ("llama_3_1_8b", 128_256, 7_504_658_432),
        ("llama_2_70b", 32_000, 68_713_185_280),
        ("mixtral_8x7b", 32_000, 12_748_587_008),
        ("gpt_oss_20b", 201_088, 3_607_142_400),
    ],
)
def test_products_of_a_token(name, vocabulary, expected):
    assert LLAMA_SIZES[name].products_per_token(vocabulary) == expected


def test_mlperfs_adapters_have_their_parameters():
    lora = Lora(rank=16, alpha=32, targets=("qkv", "output"))
    config = dataclasses.replace(LLAMA_SIZES["llama_2_70b"], lora=lora, param_dtype="bfloat16")
    params = shapes(config, 32_000)
    assert count(params["adapters"]) == 44_564_480
    assert params["blocks"]["query"].dtype == jnp.bfloat16


@pytest.mark.parametrize("name", [*LLAMA_SIZES])
def test_every_parameter_names_its_axes_and_its_published_tensors(name):
    config = LLAMA_SIZES[name]
    if "mlperf" in name:
        config = dataclasses.replace(config, lora=Lora(rank=2))
    named, published = config.logical_axes(), published_names(config)
    paths = by_path(shapes(config, 64))
    for path, leaf in paths.items():
        assert path == "norm" or len(named[path]) == leaf.ndim, path
    assert set(published) == {path for path in paths if not path.startswith("adapters/")}


@pytest.mark.compiles
def test_queries_share_keys_as_if_these_were_repeated():
    random = np.random.default_rng(0)
    query = jnp.asarray(random.normal(size=(2, 9, 4, 8)), jnp.float32)
    key, value = jnp.asarray(random.normal(size=(2, 2, 9, 2, 8)), jnp.float32)
    shared = causal_attention(query, key, value, None, 5, PLAIN)
    key, value = (jnp.repeat(array, 2, axis=2) for array in (key, value))
    alone = causal_attention(query, key, value, None, 5, PLAIN)
    np.testing.assert_allclose(shared, alone, atol=1e-6)
    # A sink of -inf changes nothing; one of the size of a score takes its share.
    none = causal_attention(query, key, value, None, 5, PLAIN, jnp.full(4, -jnp.inf))
    np.testing.assert_allclose(none, alone, atol=1e-6)
    first = causal_attention(query, key, value, None, 5, PLAIN, jnp.zeros(4))[0, 0, 0]
    score = float(query[0, 0, 0] @ key[0, 0, 0]) / math.sqrt(8)
    np.testing.assert_allclose(first, value[0, 0, 0] / (1 + math.exp(-score)), rtol=1e-5)


@pytest.mark.compiles
@pytest.mark.parametrize(("window", "block"), [(6, 64), (65, 64), (70, 70)])
def test_a_short_window_of_a_long_text_multiplies_two_blocks_of_keys(window, block):
    random = np.random.default_rng(0)
    query, sinks = jnp.asarray(random.normal(size=(2, 350, 4, 8)), jnp.float32), jnp.ones(4)
    key, value = jnp.asarray(random.normal(size=(2, 2, 350, 2, 8)), jnp.float32)
    documents = jnp.asarray(random.integers(0, 2, (2, 350)).cumsum(1) // 50)
    length = 350 if window == 70 else 320
    query, key, value = query[:, :length], key[:, :length], value[:, :length]
    for one in (None, documents[:, :length]):
        mask = visible(one, 0, length, 0, length, window)
        found = causal_attention(query, key, value, one, window, PLAIN, sinks)
        shared = np.repeat(key, 2, axis=2), np.repeat(value, 2, axis=2)
        scores = np.einsum("bqhc,bkhc->bhqk", query, shared[0]) / math.sqrt(8)
        weights = np.where(mask[:, None], np.exp(scores), 0)
        # Each sink is 1, and adds to the sum alone.
        weights /= weights.sum(-1, keepdims=True) + math.e
        wanted = np.einsum("bhqk,bkhc->bqhc", weights, shared[1])
        np.testing.assert_allclose(found, wanted, atol=1e-5)

    def alone(query, key, value):
        return causal_attention(query, key, value, None, window, PLAIN)

    traced = str(jax.make_jaxpr(alone)(query, key, value))
    assert f",{block},{2 * block}]" in traced


@pytest.mark.compiles
def test_losses_in_chunks_are_those_of_all_logits_and_hold_no_array_of_them():
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 9)))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def loss(config):
        graph, params = nnx.split(build(config))

        def of(params):
            return nnx.merge(graph, params).losses(inputs, targets)[0].sum()

        return jax.jit(jax.value_and_grad(of)), params

    whole, params = loss(SMALL)
    wanted, gradients = whole(params)
    wanted = float(wanted)
    for remat in ("full", "products"):
        chunked, _ = loss(dataclasses.replace(SMALL, loss_chunk=2, remat=remat))
        found, also = chunked(params)
        assert float(found) == pytest.approx(wanted, rel=1e-6)
        assert_close(also, gradients, atol=1e-5)
        text = chunked.lower(params).as_text()
        assert "2x2x11xf32" in text and "2x8x11xf32" not in text
    assert "2x8x11xf32" in whole.lower(params).as_text()


def moe(count=4, chosen=2, **changes):
    experts = Experts(count=count, chosen=chosen, **changes)
    return dataclasses.replace(SMALL, experts=experts)


def layer_of(config):
    blocks = nnx.to_pure_dict(nnx.state(build(config).blocks, nnx.Param))
    return {name: array[0] for name, array in blocks.items()}


@pytest.mark.compiles
def test_a_routing_counts_the_experts_chosen_and_the_probability_of_each():
    config = moe()
    weights = layer_of(config)
    inputs = jnp.asarray(np.random.default_rng(1).normal(size=(2, 5, 16)), jnp.float32)
    _, routing = routed_mlp(inputs, weights, None, config, PLAIN)
    scores = np.asarray(inputs, np.float64).reshape(10, 16) @ np.asarray(weights["router"])
    counts = np.bincount(np.argsort(-scores)[:, :2].ravel(), minlength=4)
    probability = (np.exp(scores) / np.exp(scores).sum(1, keepdims=True)).sum(0)
    np.testing.assert_array_equal(routing.expert_tokens, counts)
    np.testing.assert_allclose(routing.expert_probability, probability, rtol=1e-5)
    balance = 4 * (counts / 20 * probability / 10).sum()
    assert float(balance_loss(routing)) == pytest.approx(balance, rel=1e-5)
    assert routing.dropped == 0


@pytest.mark.compiles
def test_the_balance_loss_is_added_in_training_times_its_factor():
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 9)))
    for factor in (0.0, 0.5):
        module = build(moe(balance=factor))
        losses, added, _ = module.losses(tokens[:, :-1], tokens[:, 1:])
        # A router that prefers no expert has balance 1; a drawn one lies somewhat above.
        assert 0.9 * factor <= float(added) <= 2 * factor and losses.shape == (2, 8)
    # Padding counts nowhere: the first row alone has 8 tokens, of two choices in each layer.
    real = jnp.array([[True], [False]]) & (tokens[:, 1:] >= 0)
    _, _, routing = module.losses(tokens[:, :-1], tokens[:, 1:], real=real)
    assert routing is not None
    np.testing.assert_array_equal(routing.expert_tokens.sum(1), [16, 16])
    np.testing.assert_allclose(routing.expert_probability.sum(1), [8, 8], rtol=1e-5)


@pytest.mark.compiles
def test_adapters_begin_without_effect_and_then_add_their_product():
    config = dataclasses.replace(SMALL, lora=Lora(rank=2, alpha=6.0, targets=("output",)))
    tokens = jnp.array([[1, 2, 3, 4]])
    module, plain = build(config), build(SMALL)
    np.testing.assert_array_equal(module(tokens), plain(tokens))
    adapters: Any = module.adapters
    last = jax.random.normal(jax.random.key(1), adapters.output_out.shape)
    adapters.output_out[...] = last
    # W + alpha / rank * A B, as one matrix.
    joined = jnp.einsum("lir,lro->lio", adapters.output_in[...], last)
    plain.blocks.output[...] = plain.blocks.output[...] + 3 * joined
    np.testing.assert_allclose(module(tokens), plain(tokens), atol=1e-5)


def test_projections_to_the_stream_begin_smaller_where_asked():
    config = dataclasses.replace(
        moe(), num_layers=8, width=32, mlp_width=64, initial_std=0.02, scales_projections=True
    )
    blocks: Any = build(config).blocks
    # Megatron's 0.02 / sqrt(2 x 8 layers).
    for name, std in (
        *(("output", 0.005), ("expert_down", 0.005), ("query", 0.02), ("expert_up", 0.02)),
        ("router", 0.02),
    ):
        assert float(getattr(blocks, name)[...].std()) == pytest.approx(std, rel=0.1), name
    dense: Any = build(dataclasses.replace(config, experts=Experts())).blocks
    assert float(dense.down[...].std()) == pytest.approx(0.005, rel=0.1)


@pytest.mark.compiles
def test_normalized_queries_have_no_length_but_that_of_their_factors():
    config = dataclasses.replace(SMALL, num_layers=1, normalizes_queries=True)
    tokens = jnp.array([[1, 2, 3, 4]])
    module: Any = build(config)
    before = module(tokens)
    module.blocks.query[...] = 9 * module.blocks.query[...]
    module.blocks.key[...] = 5 * module.blocks.key[...]
    np.testing.assert_allclose(module(tokens), before, atol=1e-3)
    module.blocks.query_norm[...] = 4 * module.blocks.query_norm[...]
    assert not np.allclose(module(tokens), before, atol=1e-2)
    # Without a length every score is 0, and each token attends to all before it alike.
    module.blocks.key_norm[...] = 0 * module.blocks.key_norm[...]
    uniform = module(tokens)
    module.blocks.query[...] = module.blocks.query[...][:, ::-1]
    np.testing.assert_allclose(module(tokens), uniform, atol=1e-5)


def test_a_router_multiplies_in_float32_on_every_platform():
    """In one bfloat16 pass of a TPU, or in TF32, near ties choose other experts."""
    config, execution = moe(), dataclasses.replace(PLAIN, compute_dtype="bfloat16")
    inputs = jnp.zeros((2, 5, 16), jnp.bfloat16)
    traced = jax.make_jaxpr(lambda x, w: routed_mlp(x, w, None, config, execution))(
        inputs, layer_of(config)
    )
    products = [eqn for eqn in traced.eqns if eqn.primitive.name == "dot_general"]
    assert products[0].params["precision"] == (jax.lax.Precision.HIGHEST,) * 2
    assert products[0].invars[0].aval.dtype == jnp.float32
