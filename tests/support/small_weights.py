"""Published weights of a small Llama, as files of safetensors with their settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = json.loads("""{
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 257,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "hidden_act": "silu",
    "intermediate_size": 12, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "rope_scaling": null,
    "tie_word_embeddings": false, "attention_bias": false, "max_position_embeddings": 64}""")
STRETCHED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
STRETCHED |= {"original_max_position_embeddings": 8192}


def tensors() -> dict[str, Any]:
    random = np.random.default_rng(0)

    def drawn(*shape):
        return random.normal(size=shape).astype(np.float32)

    made = {"model.embed_tokens.weight": drawn(257, 8), "lm_head.weight": drawn(257, 8)}
    made["model.norm.weight"] = drawn(8)
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{prefix}{name}.weight"] = drawn(8)
        shapes = {"q_proj": (8, 8), "k_proj": (4, 8), "v_proj": (4, 8), "o_proj": (8, 8)}
        for name, shape in shapes.items():
            made[f"{prefix}self_attn.{name}.weight"] = drawn(*shape)
        for name, shape in (("gate_proj", (12, 8)), ("up_proj", (12, 8)), ("down_proj", (8, 12))):
            made[f"{prefix}mlp.{name}.weight"] = drawn(*shape)
    return made


def write(
    folder: str,
    change: Callable[[dict[str, Any]], object] = lambda made: None,
    *,
    file: str = "model.safetensors",
    **settings: Any,
) -> None:
    """Write the weights after a change, and settings with others in their place."""
    from safetensors import numpy as numpy_files

    made = tensors()
    change(made)
    Path(folder).mkdir(exist_ok=True)
    numpy_files.save_file(made, Path(folder, file))
    Path(folder, "config.json").write_text(json.dumps(SETTINGS | settings))
