"""Language modelling: shards, the network's switches, and the metrics' definitions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.dataset import DataError
from dawnjax.input_pipeline.synthetic_tokens import SyntheticTokens
from dawnjax.input_pipeline.token_shards import TokenShards, shard_of
from dawnjax.models.execution import Execution
from dawnjax.models.language_model import LanguageModel
from dawnjax.tasks.language_modelling import LanguageModelling
from dawnjax.tasks.task import Setting

SEPARATOR = 256
EXECUTION = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)
SMALL = LanguageModel(num_layers=4, width=16, num_heads=2, zero_projections=False)


def write(directory, **streams):
    for name, tokens in streams.items():
        (directory / f"{name}.bin").write_bytes(shard_of(np.asarray(tokens)))
    return TokenShards(data_dir=str(directory), sequence_length=4)


def build(config, **changes):
    arguments = {"vocabulary_size": 257, "sequence_length": 8, "separator": SEPARATOR} | changes
    return config.build(**arguments, execution=EXECUTION, rngs=nnx.Rngs(0))


def test_rows_cross_shards_and_predict_each_token_once(tmp_path):
    data = write(tmp_path, a_train=[256, 1, 2], b_train=range(3, 11), val=[256, 5, 6, 7, 8, 9])
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (2, 2)
    rows = data.load("train")["tokens"][np.array([0, 1])]
    np.testing.assert_array_equal(rows, [[256, 1, 2, 3, 4], [4, 5, 6, 7, 8]])
    evaluated = data.load("eval")
    np.testing.assert_array_equal(
        evaluated["tokens"][np.arange(2)], [[256, 5, 6, 7, 8], [8, 9, 256, 256, 256]]
    )
    np.testing.assert_array_equal(evaluated["num_targets"], [4, 1])
    (tmp_path / "val.bin").write_bytes(shard_of(np.array([256, 5, 6, 7, 8, 10])))
    assert data.spec().fingerprint != spec.fingerprint


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda body: body[:500], "ends at byte 500, within its header of 1024"),
        (lambda body: b"\0" + body[1:], "byte 0: the magic number is 20240384, wanted 20240520"),
        (lambda body: body[:4] + b"\2" + body[5:], "byte 4: the version is 2, wanted 1"),
        (lambda body: body[:-2], "the file would end at byte 1036; it ends at 1034"),
    ],
)
def test_a_damaged_shard_is_refused_by_place(tmp_path, damage, line):
    data = write(tmp_path, train=range(9), val=range(6))
    path = tmp_path / "val.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=line) as error:
        data.spec()
    assert str(path) in str(error.value)


def test_a_token_outside_the_vocabulary_is_named(tmp_path):
    rows = write(tmp_path, train=[256, 1, 2, 300, 4], val=range(6)).load("train")["tokens"]
    with pytest.raises(
        DataError, match=r"train.bin: token 3 is 300, outside the vocabulary of 257"
    ):
        rows[np.array([0])]


def test_gpt2_small_has_its_published_parameters():
    gpt2 = LanguageModel(
        num_heads=12,
        has_biases=True,
        ties_embedding=True,
        positions="learned",
        activation="gelu",
        normalizes_queries=False,
        unet_skips=False,
    )

    def count(config):
        sizes = {"vocabulary_size": 50_257, "sequence_length": 1024}
        params = nnx.state(nnx.eval_shape(lambda: build(config, **sizes)), nnx.Param)
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))

    assert count(gpt2) == 124_439_808  # 124M, of the released checkpoint
    # Two tables of 50,257 x 768, 12 x 12 x 768**2 in the blocks, 6 skip weights.
    assert count(LanguageModel()) == 2 * 38_597_376 + 84_934_656 + 6


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "learned", "has_biases": True, "ties_embedding": True},
        {"value_embeddings": 2, "activation": "gelu", "logit_soft_cap": 0.0},
    ],
)
def test_no_token_sees_the_future_or_another_document(changes):
    module = build(dataclasses.replace(SMALL, **changes))
    tokens = jnp.array([[1, 2, 3, SEPARATOR, 5, 6, 7, 8]])
    logits = module(tokens)
    later = module(tokens.at[0, 6].set(99))
    np.testing.assert_allclose(logits[0, :6], later[0, :6], atol=1e-5)
    before = module(tokens.at[0, 1].set(99))
    np.testing.assert_allclose(logits[0, 3:], before[0, 3:], atol=1e-5)
    assert not np.allclose(logits[0, 1:3], before[0, 1:3], atol=1e-3)


def test_a_window_of_one_sees_the_token_alone():
    module = build(dataclasses.replace(SMALL, window=1))
    tokens = jnp.array([[1, 2, 3, 4]])
    changed = module(tokens.at[0, 0].set(99))
    np.testing.assert_allclose(module(tokens)[0, 1:], changed[0, 1:], atol=1e-5)


def test_the_metrics_are_means_over_tokens_and_bytes(tmp_path):
    data = write(tmp_path, train=range(9), val=[256, 5, 6, 256, 8, 9])
    spec, task = data.spec(), LanguageModelling()
    setting = Setting(model=SMALL, data=data, spec=spec, execution=EXECUTION)
    # Its output layer is zero, so each of 257 tokens has the same probability.
    module = build(dataclasses.replace(SMALL, zero_projections=True))
    examples = data.load("eval")
    batch = {
        "tokens": jnp.asarray(examples["tokens"][np.array([0, 1, 1])]),
        "num_targets": jnp.array([4, 1, 1]),
        "index": jnp.array([0, 1, 1]),
        "mask": jnp.array([True, True, False]),
    }
    totals = task.add_batch(module, batch, task.zero_totals(setting), setting)
    found = task.metrics_of({name: np.asarray(total) for name, total in totals.items()}, setting)
    assert found["loss"] == pytest.approx(math.log(257), rel=1e-6)
    # Five tokens, of which four are bytes.
    assert found["bits_per_byte"] == pytest.approx(5 / 4 * math.log2(257), rel=1e-6)


def test_bits_a_byte_of_gpt2_tokens_are_no_target():
    target = type("T", (), {"metric": "bits_per_byte"})
    spec = SyntheticTokens(vocabulary="gpt2").spec()
    with pytest.raises(ConfigError, match=r"^targets.0.metric=bits_per_byte needs data.vocabulary"):
        LanguageModelling().validate_target("targets.0", target, spec)
