"""Names and layouts of a Llama's arrays in published checkpoints, to read them.

Hugging Face's files hold [out, in] matrices, one array a layer; ours are stacked [layers, in, out].
Rotary pairs are the same: channel i of a head turns with channel i + half.

Source: transformers, `models/llama/modeling_llama.py`, `models/mixtral/modeling_mixtral.py` and
`models/gpt_oss/modeling_gpt_oss.py`.
"""

import dataclasses
from typing import Any

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
_MLP = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}


@dataclasses.dataclass(frozen=True)
class Published:
    """Place of one of our arrays in a published checkpoint.

    Attributes:
      names: Its tensors, by leading axes of ours: one for each layer, or for each layer's experts.
        A nested tuple for a stack, a name for a single array.
      is_transposed: Whether the last two axes are the other way round there.
      every: (start, step) of the columns of the last axis that are ours, of interleaved tensors.
    """

    names: Any
    is_transposed: bool = False
    every: tuple[int, int] = (0, 1)


def published_names(config: Any) -> dict[str, Published]:
    """Place of each array of a `llama.Llama`, by its path in the parameters."""

    def stacked(end: str, **layout: Any) -> Published:
        layers = range(config.num_layers)
        return Published(tuple(f"model.layers.{n}.{end}" for n in layers), **layout)

    def of_experts(end: str) -> Published:
        prefix, count = "model.layers.{}.block_sparse_moe.experts.{}.", config.experts.count
        layers = range(config.num_layers)
        names = tuple(
            tuple(prefix.format(n, expert) + end for expert in range(count)) for n in layers
        )
        return Published(names, is_transposed=True)

    places = {
        "embedding": Published("model.embed_tokens.weight"),
        "norm": Published("model.norm.weight"),
        "blocks/attention_norm": stacked("input_layernorm.weight"),
        "blocks/mlp_norm": stacked("post_attention_layernorm.weight"),
    }
    if not config.ties_embedding:
        places["classifier"] = Published("lm_head.weight", is_transposed=True)
    for ours, theirs in _ATTENTION.items():
        places[f"blocks/{ours}"] = stacked(f"self_attn.{theirs}.weight", is_transposed=True)
        if config.has_biases:
            places[f"blocks/{ours}_bias"] = stacked(f"self_attn.{theirs}.bias")
    if config.has_sinks:
        places["blocks/sinks"] = stacked("self_attn.sinks")
    if not config.experts.count:
        for ours, theirs in _MLP.items():
            places[f"blocks/{ours}"] = stacked(f"mlp.{theirs}.weight", is_transposed=True)
    elif not config.has_biases:
        places["blocks/router"] = stacked("block_sparse_moe.gate.weight", is_transposed=True)
        for ours, theirs in _MIXTRAL.items():
            places[f"blocks/expert_{ours}"] = of_experts(f"{theirs}.weight")
    else:
        places["blocks/router"] = stacked("mlp.router.weight", is_transposed=True)
        places["blocks/router_bias"] = stacked("mlp.router.bias")
        # GPT-OSS keeps [in, out] here, and columns of gate and up by turns.
        for ours, start in (("gate", 0), ("up", 1)):
            both = {"every": (start, 2)}
            places[f"blocks/expert_{ours}"] = stacked("mlp.experts.gate_up_proj", **both)
            places[f"blocks/expert_{ours}_bias"] = stacked("mlp.experts.gate_up_proj_bias", **both)
        places["blocks/expert_down"] = stacked("mlp.experts.down_proj")
        places["blocks/expert_down_bias"] = stacked("mlp.experts.down_proj_bias")
    return places
