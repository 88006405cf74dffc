"""Names and layouts of a Llama's arrays in published checkpoints, to read them and to write them.

Hugging Face's files hold [out, in] matrices, one array a layer; ours are stacked [layers, in, out].
Rotary pairs are the same: channel i of a head turns with channel i + half.

Source: transformers, `models/llama/modeling_llama.py`, `models/mixtral/modeling_mixtral.py` and
`models/gpt_oss/modeling_gpt_oss.py`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dawnjax.models.lora import TARGETS

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


def published_tensors(
    places: Mapping[str, Published], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Tensors of a published checkpoint made of our arrays, by the same places as it is read."""
    made: dict[str, np.ndarray] = {}
    for path, place in places.items():
        start, step = place.every
        for name, part in _parts(place.names, arrays[path]):
            part = part.swapaxes(-1, -2) if place.is_transposed else part
            if step > 1:
                shape = (*part.shape[:-1], part.shape[-1] * step)
                made.setdefault(name, np.empty(shape, part.dtype))[..., start::step] = part
            else:
                made[name] = part
    return made


def _parts(names: Any, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if not isinstance(names, tuple):
        yield names, array
        return
    for inner, part in zip(names, array, strict=True):
        yield from _parts(inner, part)


def with_adapters(config: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays without adapters, each of which is added to the matrix that it stands beside.

    The sum is made in float32 and rounded once to the dtype of the matrix.
    """
    merged = {name: a for name, a in arrays.items() if not name.startswith("adapters/")}
    for target in config.lora.targets if config.lora.rank else ():
        first = arrays[f"adapters/{target}_in"]
        for product in TARGETS[target]:
            base = merged[f"blocks/{product}"]
            added = (
                config.lora.alpha / config.lora.rank * (first @ arrays[f"adapters/{product}_out"])
            )
            merged[f"blocks/{product}"] = (base.astype(np.float32) + added).astype(base.dtype)
    return merged


def published_config(
    config: Any, *, vocabulary_size: int, length: int, window: int, dtype: str
) -> dict[str, Any]:
    """`config.json` with which transformers makes the same network; ValueError if it has none.

    `window` is the task's, and `length` the most tokens of a row.
    """
    fields = {
        "vocab_size": vocabulary_size,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": length,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary.base,
        "rope_scaling": _scaling(config.rotary),
        "tie_word_embeddings": config.ties_embedding,
        "torch_dtype": dtype,
    }
    windows, experts = config.windows or (window,), config.experts
    if experts.count:
        fields |= {"num_local_experts": experts.count, "num_experts_per_tok": experts.chosen}
    has_windows, is_plain = any(windows), experts.activation == "swiglu" and not config.has_sinks
    if not experts.count and not has_windows and not config.has_sinks:
        fields |= {"attention_bias": config.has_biases}
        return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **fields}
    if experts.count and not config.has_biases and is_plain and not has_windows:
        fields |= {"sliding_window": None}
        return {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **fields}
    is_clipped = experts.activation == "clipped_swiglu"
    if experts.count and config.has_biases and config.has_sinks and is_clipped:
        sizes = {size for size in windows if size}
        if len(sizes) <= 1:
            kinds = ["sliding_attention" if size else "full_attention" for size in windows]
            fields |= {"layer_types": kinds * (config.num_layers // len(windows))}
            fields |= {"sliding_window": max(windows) or None, "attention_bias": True}
            # Without a scaling transformers would take the released network's.
            fields["rope_scaling"] = fields["rope_scaling"] or {"rope_type": "default"}
            return {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], **fields}
    raise ValueError(
        "transformers has no network with its parts: a Llama has neither windows nor sinks, a "
        "Mixtral no biases either, and a GPT-OSS has biases, sinks, clipping and one window"
    )


def _scaling(rotary: Any) -> dict[str, Any] | None:
    if rotary.scaling == "none":
        return None
    fields = {"factor": rotary.factor, "original_max_position_embeddings": rotary.original_length}
    if rotary.scaling == "llama3":
        fields |= {"low_freq_factor": rotary.low, "high_freq_factor": rotary.high}
    else:
        fields |= {"beta_slow": rotary.low, "beta_fast": rotary.high, "truncate": False}
    return {"rope_type": rotary.scaling, **fields}
