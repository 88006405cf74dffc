"""Weights in the form of Hugging Face: written by the table that also reads them."""

import dataclasses

import jax
import numpy as np
import pytest

from dawnjax.checkpointed.exported_weights import DescribedExperiment, write_tensors
from dawnjax.checkpointed.published_form import form_of, model_of
from dawnjax.checkpointed.published_weights import PublishedWeights
from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import make_mesh
from dawnjax.models.llama import SIZES
from dawnjax.models.published_llama import published_config
from dawnjax.train_step import make_recipe

FLAGS = (
    *("--experiment=wikipedia_llama_small", "--data=synthetic_tokens", "--model.width=8"),
    *("--model.num_layers=2", "--model.num_heads=2", "--model.num_kv_heads=1"),
    *("--model.head_width=4", "--model.mlp_width=12"),
)
EXPERTS = ("--model.experts.count=2", "--model.experts.chosen=1")
GPT_OSS = (*EXPERTS, "--model.has_biases", "--model.has_sinks", "--model.windows=8,0")
CLIPPED = "--model.experts.activation=clipped_swiglu"


def recipe_of(*flags):
    request, _ = parse_request("train", [*FLAGS, *flags])
    mesh = make_mesh(request.options.mesh, jax.devices()[:1])
    return make_recipe(request.experiment, request.experiment.data.spec(), mesh)


def described(experiment):
    told = to_json(experiment)
    names = [field.name for field in dataclasses.fields(DescribedExperiment)]
    return DescribedExperiment(**{name: told[name] for name in names})


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ((), "llama"),
        (("--model.ties_embedding", "--model.rotary.scaling=llama3"), "llama"),
        (EXPERTS, "mixtral"),
        ((*GPT_OSS, CLIPPED), "gpt_oss"),
    ],
)
def test_written_weights_are_read_back_bit_for_bit(flags, kind, tmp_path):
    pytest.importorskip("safetensors", reason="the extra `weights` is not installed")
    recipe = recipe_of(*flags)
    random = np.random.default_rng(0)
    state = jax.tree.map(
        lambda leaf: random.normal(size=leaf.shape).astype(leaf.dtype), recipe.abstract_state
    )
    leaves = jax.tree_util.tree_leaves_with_path(state.params)
    arrays = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in leaves}
    experiment = described(recipe.experiment)
    tensors, config = form_of(model_of(experiment), experiment, arrays)
    assert config["model_type"] == kind and config["vocab_size"] == 257
    write_tensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    weights = PublishedWeights(tmp_path)
    weights.check(recipe)
    zeros = jax.tree.map(np.zeros_like, state)
    read, taken, fresh = weights.take(recipe, zeros)
    assert not fresh and len(taken) == len(arrays)
    jax.tree.map(np.testing.assert_array_equal, read.params, state.params)


def test_the_config_of_llama_3_1_is_the_published_one():
    config = published_config(
        SIZES["llama_3_1_8b"], vocabulary_size=128_256, length=131_072, window=0, dtype="bfloat16"
    )
    # https://huggingface.co/meta-llama/Llama-3.1-8B, config.json
    assert config["rope_scaling"] == {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    published = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32}
    published |= {"num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 500000.0}
    published |= {"rms_norm_eps": 1e-05, "tie_word_embeddings": False, "attention_bias": False}
    assert {name: config[name] for name in published} == published


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--model.windows=8,0",), "transformers has no network with its parts"),
        (("--task.window=8",), "transformers has no network with its parts"),
        (GPT_OSS, "transformers has no network with its parts"),
        (("--model=language_model",), "no published checkpoint is known for model="),
    ],
)
def test_a_network_that_transformers_does_not_have_is_refused(flags, line):
    sizes = FLAGS if "--model=" not in flags[0] else FLAGS[:2]
    request, _ = parse_request("train", [*sizes, *flags])
    with pytest.raises(ConfigError, match=line):
        model_of(described(request.experiment))
