"""One token after another with the keys of earlier ones: the same logits as of the whole row."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from each_change import rows
from flax import nnx
from networks import PLAIN

from dawnjax.models.configs.experts import Experts
from dawnjax.models.configs.language_model import LanguageModel
from dawnjax.models.configs.llama import Llama
from dawnjax.models.configs.lora import Lora
from dawnjax.models.configs.rotary import Rotary
from dawnjax.tasks.language_modelling import LanguageModelling
from dawnjax.tasks.task import Setting

SEPARATOR, VOCABULARY, LENGTH = 0, 13, 24
MODEL = LanguageModel(num_layers=4, width=16, num_heads=2, zero_projections=False)
GPT_2 = dataclasses.replace(
    MODEL,
    positions="learned",
    has_biases=True,
    ties_embedding=True,
    activation="gelu",
    normalizes_queries=False,
    unet_skips=False,
    masks_documents=False,
)
LLAMA = Llama(
    num_layers=4,
    width=16,
    num_heads=4,
    num_kv_heads=2,
    head_width=4,
    mlp_width=24,
    initial_std=0.3,
)
MODELS = {
    "nanogpt": MODEL,
    "value_embeddings": dataclasses.replace(MODEL, value_embeddings=2),
    "gpt_2": GPT_2,
    "llama": LLAMA,
    "documents": dataclasses.replace(LLAMA, masks_documents=True, remat="full"),
    "gpt_oss": dataclasses.replace(
        LLAMA,
        windows=(5, 0),
        has_biases=True,
        has_sinks=True,
        normalizes_queries=True,
        rotary=Rotary(scaling="yarn", original_length=8, high=32.0),
        experts=Experts(count=4, activation="clipped_swiglu"),
    ),
    "adapters": dataclasses.replace(LLAMA, lora=Lora(rank=2), ties_embedding=True),
}
AT_NIGHT = [("nanogpt", 0), ("llama", 6), ("documents", 0), ("adapters", 0)]


def build(config):
    sizes = {"vocabulary_size": VOCABULARY, "sequence_length": LENGTH, "separator": SEPARATOR}
    module = config.build(**sizes, execution=PLAIN, rngs=nnx.Rngs(0))
    # Biases, sinks and adapters begin at 0, and would hide what reads them.
    state = nnx.state(module, nnx.Param)
    leaves, tree = jax.tree.flatten(state)
    random = np.random.default_rng(1)
    leaves = [leaf + 0.3 * random.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    nnx.update(module, jax.tree.unflatten(tree, leaves))
    return module


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("name", "window"),
    [
        *(("value_embeddings", 6), ("gpt_2", 0), ("documents", 6), ("gpt_oss", 6)),
        *(pytest.param(*row, marks=pytest.mark.long) for row in AT_NIGHT),
    ],
)
def test_logits_of_a_token_are_those_of_the_whole_row(name, window):
    module = build(MODELS[name])
    tokens = np.random.default_rng(0).integers(1, VOCABULARY, (2, LENGTH))
    tokens[1, 4] = SEPARATOR  # the second row's prompt holds two documents
    tokens = jnp.asarray(tokens, jnp.int32)
    whole = jax.jit(lambda tokens: module(tokens, window))(tokens)
    places = jnp.array([3, 9], jnp.int32)
    # Whatever lies behind the prompt is not seen.
    hidden = jnp.where(jnp.arange(LENGTH) < places[:, None], tokens, SEPARATOR)
    logits, past = jax.jit(lambda *row: module.begin(*row, window))(hidden, places)
    extend = jax.jit(lambda *row: module.extend(*row, window))
    both = jnp.arange(2)
    for _ in range(8):
        # Where a layer's input nearly vanishes its norm magnifies rounding, on jax 0.12 to 1.3e-4.
        np.testing.assert_allclose(logits, whole[both, places - 1], atol=5e-4)
        logits, past = extend(tokens[both, places], places, past)
        places = places + 1
    assert np.abs(np.diff(whole, axis=1)).max() > 0.1  # places differ by more than the tolerance


@pytest.mark.compiles
@pytest.mark.parametrize("name", rows(["value_embeddings", "gpt_oss"], ["gpt_oss"]))
def test_a_continuation_has_the_same_tokens_with_keys_and_without(name):
    module = build(MODELS[name])
    spec = SimpleNamespace(separator=SEPARATOR)
    setting = Setting(model=None, data=None, spec=spec, execution=PLAIN)
    tokens = np.random.default_rng(2).integers(1, VOCABULARY, (3, LENGTH))
    lengths = jnp.array([2, 7, LENGTH - 1], jnp.int32)
    inputs = {"tokens": jnp.asarray(tokens, jnp.int32), "length": lengths}
    task = LanguageModelling()
    answer = np.asarray(task.answer(module, inputs, setting))

    def without_keys(tokens, window):  # as a user's own model has none
        return module(tokens, window)

    np.testing.assert_array_equal(answer, task.answer(without_keys, inputs, setting))
    assert (answer >= 0).any()
