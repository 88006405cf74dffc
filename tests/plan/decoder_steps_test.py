"""Steps of decoders from shapes: hand-computed FLOPs, and published steps that were left out."""

import dataclasses
import math

import pytest

from dawnjax.errors import RunError
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.configs.llama import LLAMA_SIZES
from dawnjax.plan.decoders import step as decoder_step
from dawnjax.plan.decoders.terms import (
    LAYERS,
    MEMORY,
    WEIGHTS,
    Arrangement,
    attention_flops,
    exchanges,
    memory_bytes,
    model_flops,
    parameters,
    product_flops,
    score_bytes,
    seen_pairs,
    terms,
)
from dawnjax.plan.hardware.interconnect import exchange_seconds
from dawnjax.plan.hardware.systems import accelerators, parse_system


def arranged(system="v6e:8", mesh=None, rows=24, length=8192, vocabulary=128_256, **more):
    system = parse_system(system)
    mesh = mesh or MeshShape(data=1, fsdp=system.num_devices)
    return Arrangement(
        system=system,
        rows=rows,
        sequence_length=length,
        vocabulary_size=vocabulary,
        mesh=mesh,
        **more,
    )


@pytest.mark.parametrize(
    ("name", "length", "vocabulary", "products", "attention"),
    [  # GFLOP a token in training, and of causal attention: 3 x 2 x multiply-adds, by hand
        ("llama_3_1_8b", 8192, 128_256, 45.03, 6.44),
        ("llama_3_1_70b", 8192, 128_256, 417.01, 32.21),
        ("llama_2_70b", 4096, 32_000, 412.28, 16.11),
    ],
)
def test_flops_of_a_token_are_those_of_the_published_sizes(
    name, length, vocabulary, products, attention
):
    arrangement = arranged(length=length, vocabulary=vocabulary)
    model, tokens = LLAMA_SIZES[name], arrangement.tokens
    assert product_flops(model, arrangement) / tokens == pytest.approx(products * 1e9, rel=1e-3)
    # The backward pass of fused attention takes 2.5 forward passes, and not 2.
    causal = attention_flops(model, arrangement) / tokens * 3 / 3.5
    assert causal == pytest.approx(attention * 1e9, rel=1e-3)
    # MFU counts attention as four blocks multiply it: 10 of 16 parts of all pairs, and not 8.
    counted = model_flops(model, arrangement) / tokens
    assert counted == pytest.approx((products + 10 / 8 * attention) * 1e9, rel=1e-3)


def test_parameters_are_the_published_ones_but_for_norms():
    for name, count in (("llama_3_1_8b", 8_030_261_248), ("llama_3_1_70b", 70_553_706_496)):
        model = LLAMA_SIZES[name]
        norms = (2 * model.num_layers + 1) * model.width
        assert parameters(model, 128_256) + norms == count
    mixtral = LLAMA_SIZES["mixtral_8x7b"]
    norms = (2 * mixtral.num_layers + 1) * mixtral.width
    assert parameters(mixtral, 32_000) + norms == 46_702_792_704


def test_what_is_computed_again_and_what_is_frozen():
    model = LLAMA_SIZES["llama_3_1_8b"]
    plain = arranged()
    again = dataclasses.replace(plain, recomputed=("gate", "up", "attention"))
    more = product_flops(model, again) - product_flops(model, plain)
    assert more == 2 * plain.tokens * 32 * 2 * 4096 * 14_336
    ratio = attention_flops(model, again) / attention_flops(model, plain)
    assert ratio == pytest.approx(4.5 / 3.5)
    adapted = dataclasses.replace(model, lora=dataclasses.replace(model.lora, rank=16))
    assert product_flops(adapted, plain) == pytest.approx(product_flops(model, plain) * 2 / 3)
    at_rates = terms(adapted, plain)
    assert at_rates[WEIGHTS] == pytest.approx(terms(model, plain)[WEIGHTS] / 2, rel=0.01)


def test_experts_on_a_gpu_multiply_all_rows():
    """XLA expands `ragged_dot` there: 4 of 32 experts cost as much as 128, and MFU counts 4."""
    model = LLAMA_SIZES["gpt_oss_20b_mlperf"]
    ragged, expanded = (arranged("h100:64", rows=64, is_expanded=e) for e in (False, True))
    more = product_flops(model, expanded) - product_flops(model, ragged)
    mlp = 3 * 2880 * 2880
    assert more == pytest.approx(2 * ragged.tokens * 3 * 24 * mlp * 4 * (32 - 1))
    assert model_flops(model, expanded) == model_flops(model, ragged)
    # What the backward pass computes again has all of an expert's products, whatever is named.
    again = dataclasses.replace(ragged, recomputed=("output", "attention"))
    more = product_flops(model, again) - product_flops(model, ragged)
    assert more == pytest.approx(2 * ragged.tokens * 24 * (4 * mlp + 4096 * 2880))


def test_the_expert_axis_splits_experts_and_nothing_else():
    model = LLAMA_SIZES["gpt_oss_20b_mlperf"]
    arrangement = arranged("h100:64", MeshShape(data=1, fsdp=16, expert=4), rows=64)
    routed = 24 * 32 * 3 * 2880 * 2880
    outside = parameters(model, 128_256) - routed
    kinds = {(e.kind, e.group_size): e.num_bytes for _, e in exchanges(model, arrangement)}
    # Twice in bfloat16; and gradients in float32 of what all devices along `expert` hold.
    assert kinds["all-gather", 16] == pytest.approx(2 * 2 * (outside + routed / 4))
    assert kinds["all-reduce", 4] == pytest.approx(4 * outside / 16)


def test_a_device_updates_all_that_it_holds():
    model = LLAMA_SIZES["llama_3_1_8b"]
    split, whole = (arranged(mesh=mesh) for mesh in (MeshShape(data=1, fsdp=8), MeshShape(data=8)))
    more = memory_bytes(model, whole) - memory_bytes(model, split)
    assert more == pytest.approx(28 * parameters(model, 128_256) * (1 - 1 / 8))


def test_chunks_of_the_loss_and_gathers_of_the_text_are_made_again():
    plain = LLAMA_SIZES["llama_3_1_8b"]
    chunked = dataclasses.replace(plain, loss_chunk=1024)
    arrangement = arranged()
    more = product_flops(chunked, arrangement) - product_flops(plain, arrangement)
    assert more == pytest.approx(2 * arrangement.tokens * 4096 * 128_256)
    assert model_flops(chunked, arrangement) == model_flops(plain, arrangement)
    # As compiled: 6 gathers and 5 sums of each layer with remat, 4 and 4 without.
    mesh = MeshShape(data=1, fsdp=2, model=4)
    of_text = {}
    for again in ((), ("output", "attention")):
        arrangement = arranged(mesh=mesh, recomputed=again)
        [of_text[again]] = (e for _, e in exchanges(plain, arrangement) if e.group_size == 4)
    assert [e.runs for e in of_text.values()] == [8 * 32, 11 * 32]
    assert of_text[()].num_bytes == pytest.approx(8 * 32 * 4096 * 2 * arrangement.tokens * 4)


def test_the_interval_is_wider_where_no_published_step_is_alike():
    factors = decoder_step.fitted(accelerators()["h200"])
    eight, one, experts = (
        (LLAMA_SIZES[name], arranged("h200:64", rows=64))
        for name in ("llama_3_1_8b", "llama_3_2_1b", "gpt_oss_20b_mlperf")
    )
    assert factors.spread_at(*eight) == pytest.approx(factors.spread)
    away = math.log2(parameters(eight[0], 128_256) / parameters(one[0], 128_256))
    wider = math.hypot(factors.spread, decoder_step.OTHER_SIZE * away)
    assert factors.spread_at(*one) == pytest.approx(wider)
    assert factors.spread_at(*experts) > decoder_step.UNPUBLISHED
    # Published steps on H100 multiply in 8 bits, and ours in 16.
    factors = decoder_step.fitted(accelerators()["h100"])
    low, high = (
        factors.spread_at(LLAMA_SIZES["llama_3_1_8b"], arranged("h100:64", rows=64, products=dtype))
        for dtype in ("float8", "bfloat16")
    )
    assert low == pytest.approx(factors.spread) and high > 2 * low


def test_a_window_sees_its_tokens_alone():
    plain = LLAMA_SIZES["gpt_oss_20b_mlperf"]
    whole = dataclasses.replace(plain, windows=())
    narrow = dataclasses.replace(plain, windows=(129,))
    arrangement = arranged()
    full, windowed, mixed = (attention_flops(m, arrangement) for m in (whole, narrow, plain))
    assert windowed / full == pytest.approx(129 / 4096, rel=0.02)
    assert mixed == pytest.approx((full + windowed) / 2)


def test_attention_of_products_moves_its_scores_through_memory():
    """Four blocks of queries see 10 of 16 parts of the pairs; with `context` each sees all."""
    model = LLAMA_SIZES["llama_3_1_8b"]
    fused, blocks = arranged(), arranged(is_fused=False)
    whole = dataclasses.replace(blocks, mesh=MeshShape(data=1, fsdp=4, context=2))
    assert seen_pairs(model, fused) == 8192 / 2
    assert seen_pairs(model, blocks) == 8192 * 10 / 16
    assert seen_pairs(model, whole) == 8192
    pairs = blocks.tokens * 32 * 32 * 8192 * 10 / 16
    assert score_bytes(model, blocks) == 30 * pairs and score_bytes(model, fused) == 0
    narrow = dataclasses.replace(model, windows=(129,))
    assert seen_pairs(narrow, blocks) == 256  # its own block and the one before it
    # Scores are most of what a step of Llama 3.1 8B moves.
    assert terms(model, blocks)[MEMORY] > 5 * terms(model, fused)[MEMORY]


def test_collectives_lie_on_the_axis_of_their_term():
    model = LLAMA_SIZES["llama_3_1_8b"]
    mesh = MeshShape(data=2, fsdp=4, context=2, model=4)
    arrangement = arranged("v5p:4x4x4", mesh, rows=64)
    found = list(exchanges(model, arrangement))
    sizes = {(name, e.kind, e.group_size, e.group_stride) for name, e in found if e.group_size > 1}
    assert sizes == {
        (WEIGHTS, "all-gather", 4, 8),
        (WEIGHTS, "reduce-scatter", 4, 8),
        (WEIGHTS, "all-reduce", 2, 32),
        (WEIGHTS, "all-reduce", 2, 4),  # `context` holds the same weights twice
        (LAYERS, "all-gather", 2, 4),
        (LAYERS, "all-gather", 4, 1),
    }
    gathered = next(e for name, e in found if e.kind == "all-gather" and e.group_size == 4)
    # Twice, in bfloat16, a quarter of the weights: `model` splits them.
    assert gathered.num_bytes == pytest.approx(2 * 2 * parameters(model, 128_256) / 4)
    at_rates = terms(model, arrangement)
    seconds = sum(exchange_seconds(e, arrangement.system) for name, e in found if name == LAYERS)
    assert at_rates[LAYERS] == pytest.approx(seconds) and at_rates[MEMORY] > 0


def test_a_rack_is_one_domain():
    """72 GPUs of a GB200 reach each other over NVLink, 64 of a B200 over the network of hosts."""
    model = LLAMA_SIZES["llama_3_1_8b"]
    rack, hosts = (
        terms(model, arranged(f"{name}:64", rows=64))[WEIGHTS] for name in ("gb200", "b200")
    )
    assert hosts > 2 * rack
    assert accelerators()["gb200"].domain == 72 and accelerators()["b200"].domain == 8
    # 18 trays of four ports of 400 Gb/s.
    assert accelerators()["gb200"].domain_bytes_per_second == pytest.approx(18 * 200e9)


def test_a_chip_without_a_dtype_says_so():
    model = LLAMA_SIZES["llama_3_1_8b"]
    eight, four = (
        terms(model, arranged("b200:8", products=dtype))[f"products in {bits} bits"]
        for dtype, bits in (("float8", 8), ("float4", 4))
    )
    assert eight == pytest.approx(2 * four)
    with pytest.raises(RunError, match="Cloud TPU v5e has no known peak for float8"):
        terms(model, arranged("v5e:8", products="float8"))
