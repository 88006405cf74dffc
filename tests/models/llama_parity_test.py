"""Decoders against those of transformers: the same weights, the same logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_steps import build

from dawnjax.checkpointed.published_weights import PublishedWeights
from dawnjax.checkpoints.arrays import by_path
from dawnjax.programs import state_shapes

pytestmark = [pytest.mark.compiles, pytest.mark.parity]

SIZES = {
    "vocab_size": 257,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
FLAGS = (
    *("--experiment=wikipedia_llama_small", "--data=synthetic_tokens", "--model.width=64"),
    *("--model.num_layers=2", "--model.num_heads=4", "--model.num_kv_heads=2"),
    *("--model.head_width=16", "--model.mlp_width=96", "--model.masks_documents=false"),
)
LLAMA = (
    *("--model.rotary.scaling=llama3", "--model.rotary.factor=8"),
    *("--model.rotary.original_length=64", "--model.rotary.base=500000"),
)
EXPERTS = ("--model.experts.count=4", "--model.experts.chosen=2")
GPT_OSS = (
    *(*EXPERTS, "--model.experts.activation=clipped_swiglu", "--model.windows=8,0"),
    *("--model.has_biases", "--model.has_sinks", "--model.rotary.scaling=yarn"),
    *("--model.rotary.base=150000", "--model.rotary.factor=32", "--model.rotary.high=32"),
    "--model.rotary.original_length=64",
)


def network(kind):
    """One of transformers' networks with drawn weights."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if kind == "llama":
        rotary = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}
        rotary |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rotary |= {"original_max_position_embeddings": 64}
        config = transformers.LlamaConfig(**SIZES, rope_parameters=rotary)
        made = transformers.LlamaForCausalLM(config)
    elif kind == "mixtral":
        rotary = {"rope_type": "default", "rope_theta": 1e6}
        counts = {"num_local_experts": 4, "num_experts_per_tok": 2}
        config = transformers.MixtralConfig(**SIZES, **counts, rope_parameters=rotary)
        made = transformers.MixtralForCausalLM(config)
    else:
        rotary = {"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0}
        rotary |= {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
        rotary |= {"original_max_position_embeddings": 64}
        config = transformers.GptOssConfig(
            **SIZES,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            rope_parameters=rotary,
            attn_implementation="eager",
        )
        made = transformers.GptOssForCausalLM(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            # Biases, sinks and norms too: at first they are zeros and ones.
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return made.float().eval()


@pytest.mark.parametrize(
    ("kind", "flags", "devices"),
    [
        ("llama", LLAMA, 1),
        ("llama", (*LLAMA, "--mesh.model=2", "--mesh.fsdp=2"), 4),
        ("mixtral", (*EXPERTS, "--model.rotary.base=1000000"), 1),
        ("gpt_oss", GPT_OSS, 1),
    ],
)
def test_logits_agree_with_transformers(kind, flags, devices, tmp_path):
    pytest.importorskip("safetensors", reason="the extra `weights` is not installed")
    made = network(kind)
    import torch

    made.save_pretrained(tmp_path, max_shard_size="100KB")  # several files and an index
    tokens = np.random.default_rng(0).integers(0, 256, (2, 40))
    with torch.no_grad():
        wanted = made(torch.tensor(tokens)).logits.numpy()

    recipe, _ = build(devices, *FLAGS, *flags)
    weights = PublishedWeights(tmp_path)
    chosen = weights.choose(recipe)
    assert all(chosen.values())
    params = state_shapes(recipe).params
    read = weights.read(recipe, by_path({"params": params}), lambda: None)
    params = jax.tree.unflatten(jax.tree.structure(params), list(read.values()))
    if devices > 1:
        query = params["blocks"]["query"]
        assert query.addressable_shards[0].data.shape == (2, 64, 32)  # 2 of 4 heads
    logits = recipe.model.bind(params, {})(jnp.asarray(tokens, jnp.int32))
    # Sums of float32 numbers in another order; logits reach about 2.
    np.testing.assert_allclose(logits, wanted, atol=1e-5, rtol=0)
