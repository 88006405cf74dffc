"""Names and layouts of a Llama's arrays in published checkpoints, and the settings beside them.

Hugging Face's files hold [out, in] matrices, one array a layer; ours are stacked [layers, in, out].
Rotary pairs are the same: channel i of a head turns with channel i + half.

Source: transformers, `models/llama/modeling_llama.py`, `models/mixtral/modeling_mixtral.py` and
`models/gpt_oss/modeling_gpt_oss.py`, with the configurations beside them for names and defaults of
settings; `modeling_rope_utils.py` for those of positions.
"""

import dataclasses
import math
import operator
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


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting that a published `config.json` states.

    Attributes:
      field: The field of a `llama.Llama` with its path, such as `rotary.base`.
      value: Its value there, as the field has it.
      words: What the file says.
    """

    field: str
    value: Any
    words: str

    @property
    def flag(self) -> str:
        value = self.value
        if isinstance(value, tuple):
            value = ",".join(map(str, value))
        return f"--model.{self.field}={str(value).lower() if isinstance(value, bool) else value}"

    def holds(self, model: Any, windows: tuple[int, ...], length: int) -> bool:
        """Whether a model computes as the setting says rows of `length` tokens."""
        if self.field == "windows":
            # A window as long as a row is none.
            ours, theirs = (
                [min(window or length, length) for window in turn * (model.num_layers // len(turn))]
                for turn in (windows, self.value)
            )
            return ours == theirs
        ours = operator.attrgetter(self.field)(model)
        if isinstance(ours, float):
            return math.isclose(ours, self.value, rel_tol=1e-9)
        return ours == self.value


ROTARY_BASES = {"llama": 1e4, "mistral": 1e4, "qwen3": 1e4, "mixtral": 1e6, "gpt_oss": 1.5e5}
"""Kinds of model that a `llama.Llama` can be, each with the rotary base that it has unless stated.
Others have layers of these names that compute something else, such as Gemma's norms."""

_SAME = {
    "hidden_size": "width",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_width",
    "intermediate_size": "mlp_width",
    "num_local_experts": "experts.count",
    "num_experts_per_tok": "experts.chosen",
    "rms_norm_eps": "norm_epsilon",
    "tie_word_embeddings": "ties_embedding",
}
"""Names in a `config.json`, and ours of the same values."""

_SCALED = {
    "factor": "factor",
    "original_max_position_embeddings": "original_length",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "beta_slow": "low",
    "beta_fast": "high",
}


def stated_settings(fields: dict[str, Any]) -> list[Setting]:
    """Settings of a published `config.json`; ValueError for one that no `llama.Llama` has."""
    kind = fields.get("model_type", "llama")
    if kind not in ROTARY_BASES:
        raise ValueError(f"states model_type={kind}; wanted one of {', '.join(ROTARY_BASES)}")

    def setting(name: str, ours: str, value: Any) -> Setting:
        return Setting(ours, value, f"{name}={value}")

    heads, width = fields.get("num_attention_heads"), fields.get("hidden_size")
    implied = {"num_key_value_heads": heads}
    if isinstance(heads, int) and isinstance(width, int) and heads > 0:
        implied["head_dim"] = width // heads
    stated = {name: value for name, value in fields.items() if value is not None}
    stated = {name: value for name, value in implied.items() if value is not None} | stated
    found = [setting(name, ours, stated[name]) for name, ours in _SAME.items() if name in stated]
    if stated.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ValueError(f"states hidden_act={fields['hidden_act']}; wanted silu")
    if stated.get("partial_rotary_factor", 1.0) != 1:
        raise ValueError("states partial_rotary_factor; wanted positions in all channels")
    if kind == "gpt_oss":
        if stated.get("swiglu_limit", 7.0) != 7:
            raise ValueError(f"states swiglu_limit={fields['swiglu_limit']}; wanted 7")
        found.append(setting("model_type", "experts.activation", "clipped_swiglu"))
    elif "num_local_experts" in stated:
        found.append(setting("model_type", "experts.activation", "swiglu"))
    return [*found, *_of_positions(stated, ROTARY_BASES[kind], setting), *_of_windows(fields)]


def _of_positions(stated: dict[str, Any], base: float, setting: Any) -> list[Setting]:
    # Newer files have one dict, older ones two entries.
    scaling = stated.get("rope_parameters", stated.get("rope_scaling", {}))
    if not isinstance(scaling, dict):
        raise TypeError(f"states rope_scaling={scaling}; wanted an object")
    base = scaling.get("rope_theta", stated.get("rope_theta", base))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    names = {"default": "none", "llama3": "llama3", "yarn": "yarn"}
    if kind not in names:
        raise ValueError(f"states positions of type {kind}; wanted {', '.join(names)}")
    if kind == "yarn" and scaling.get("truncate", True):
        raise ValueError("states yarn that rounds its boundaries; wanted truncate=false")
    for name in ("attention_factor", "mscale", "mscale_all_dim"):
        if scaling.get(name) is not None:
            raise ValueError(f"states {name} of its positions, which is not computed")
    found = [
        setting("rope_theta", "rotary.base", float(base)),
        setting("rope_type", "rotary.scaling", names[kind]),
    ]
    if kind == "default":
        return found
    return found + [
        setting(name, f"rotary.{ours}", int(value) if ours == "original_length" else float(value))
        for name, ours in _SCALED.items()
        if (value := scaling.get(name)) is not None
    ]


def _of_windows(fields: dict[str, Any]) -> list[Setting]:
    if "sliding_window" not in fields:
        return []
    window = fields["sliding_window"] if fields.get("use_sliding_window", True) else None
    kinds = fields.get("layer_types") or ["sliding_attention"]
    windows = [int(window or 0) if kind == "sliding_attention" else 0 for kind in kinds]
    # The shortest turn that gives the same layers.
    size = next(
        n
        for n in range(1, len(windows) + 1)
        if len(windows) % n == 0 and windows[:n] * (len(windows) // n) == windows
    )
    words = f"sliding_window={window}{' and layer_types' if len(kinds) > 1 else ''}"
    return [Setting("windows", tuple(windows[:size]), words)]


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
    if config.normalizes_queries:
        places["blocks/query_norm"] = stacked("self_attn.q_norm.weight")
        places["blocks/key_norm"] = stacked("self_attn.k_norm.weight")
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
