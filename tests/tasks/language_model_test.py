"""Language modelling: shards, the network's switches, and the metrics' definitions."""

import dataclasses
import json
import math
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_tokens
from each_change import rows
from first_steps import build as build_recipe
from first_steps import train_text, training
from flax import nnx
from networks import PLAIN, assert_close, count, recipe_of
from task_table import TABLE

from dawnjax.__main__ import main
from dawnjax.config.experiment import Target
from dawnjax.config.experiment_flags import parse_request
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.datasets.synthetic import SyntheticTokens
from dawnjax.input_pipeline.datasets.token_shards import TokenShards
from dawnjax.input_pipeline.reading.token_sources import documents_of
from dawnjax.input_pipeline.reading.token_words import words_file
from dawnjax.models import causal_attention
from dawnjax.models.configs.language_model import LanguageModel
from dawnjax.tasks.language_modelling import LanguageModelling, WindowStages
from dawnjax.tasks.task import Moment, Setting

SEPARATOR = 256
SMALL = LanguageModel(num_layers=4, width=16, num_heads=2, zero_projections=False)


def write(directory, kind: Any = "bytes", **streams):
    small_tokens.write(directory / "tokens", **streams)
    return TokenShards(data_dir=str(directory / "tokens"), sequence_length=4, vocabulary=kind)


def packed(directory, marks, **streams):
    """Rows that lie apart, of which an evaluation counts the tokens that are marked."""
    data = write(directory, mask=marks, **streams)
    return dataclasses.replace(data, rows="apart", masks_prompts=True)


def build(config, **changes):
    arguments = {"vocabulary_size": 257, "sequence_length": 8, "separator": SEPARATOR} | changes
    return config.build(**arguments, execution=PLAIN, rngs=nnx.Rngs(0))


def test_rows_predict_each_token_once(tmp_path):
    streams = {"train": [256, 1, 2, *range(3, 11)], "val": [256, 5, 6, 7, 8, 9]}
    data = write(tmp_path, **streams)
    spec = data.spec()
    assert (spec.num_train_examples, spec.num_eval_examples) == (2, 2)
    rows = data.load("train")["tokens"][np.array([0, 1])]
    np.testing.assert_array_equal(rows, [[256, 1, 2, 3, 4], [4, 5, 6, 7, 8]])
    evaluated = data.load("eval")
    np.testing.assert_array_equal(
        evaluated["tokens"][np.arange(2)], [[256, 5, 6, 7, 8], [8, 9, 256, 256, 256]]
    )
    np.testing.assert_array_equal(evaluated["num_targets"], [4, 1])
    changed = write(tmp_path, **{**streams, "val": [256, 5, 6, 7, 8, 10]})
    assert changed.spec().fingerprint != spec.fingerprint


def test_rows_that_lie_apart_share_no_token_and_count_what_is_marked(tmp_path):
    marks = [False, True, False, True, True, True, False, False, True]
    data = packed(tmp_path, marks, train=range(10), val=range(9))
    spec = data.spec()
    # Two whole rows of four; of a row the last token predicts none.
    assert (spec.num_train_examples, spec.num_eval_examples, spec.targets_a_row) == (2, 2, 3)
    rows = [[0, 1, 2, 3, 256], [4, 5, 6, 7, 256]]
    for split in ("train", "eval"):
        tokens = data.load(split)["tokens"]
        np.testing.assert_array_equal(tokens[np.arange(2)], rows)
        np.testing.assert_array_equal(np.asarray(tokens), rows)
    evaluated = data.load("eval")
    assert spec.example_shapes("eval")["is_target"] == ((4,), "bool")
    np.testing.assert_array_equal(evaluated["num_targets"], [3, 3])
    # Marks are of tokens, targets are the tokens after the first; the fourth has no token.
    np.testing.assert_array_equal(
        evaluated["is_target"], [[True, False, True, False], [True, False, False, False]]
    )
    other = packed(tmp_path, [True] * 9, train=range(10), val=range(9))
    assert spec.fingerprint != other.spec().fingerprint


def test_a_large_vocabulary_has_tokens_of_32_bits(tmp_path):
    tokens = [128_000, 1, 2, 100_000, 4, 5, 6, 7, 8]
    data = write(tmp_path, "llama3", train=tokens, val=[128_000, 70_000, 2])
    spec = data.spec()
    assert (spec.vocabulary_size, spec.separator) == (128_256, 128_000)
    assert spec.example_shapes("train")["tokens"] == ((5,), "uint32")
    rows = data.load("train")["tokens"][np.array([0, 1])]
    np.testing.assert_array_equal(rows, [[128_000, 1, 2, 100_000, 4], [4, 5, 6, 7, 8]])
    evaluated = data.load("eval")["tokens"][np.array([0])]
    np.testing.assert_array_equal(evaluated, [[128_000, 70_000, 2, 128_000, 128_000]])
    # A split of small tokens alone may have 16 bits, as GPT-2's have.
    small = write(tmp_path, "llama3", train=tokens, val=[1, 2, 3])
    np.testing.assert_array_equal(small.load("eval")["tokens"][np.array([0])][0, :3], [1, 2, 3])


def shards(folder, **streams):
    """Prepare shards in llm.c's form; their names say their splits."""
    folder.mkdir(exist_ok=True)
    for name, tokens in streams.items():
        (folder / f"{name}.bin").write_bytes(small_tokens.shard(tokens))
    out = folder.with_name("out")
    return main(["prepare", "--dataset=token_shards", f"--from={folder}", f"--out={out}"])


def test_shards_of_others_are_taken(tmp_path, capsys):
    names = {
        "retrieval_train_1": range(8),
        "a_train": [256, 9],
        "medieval-Valid-2": range(100, 120),
    }
    assert shards(tmp_path / "of_others", **names) == 0
    assert "10 tokens to train on; 20 tokens to evaluate" in capsys.readouterr().out
    data = TokenShards(data_dir=str(tmp_path / "out"), sequence_length=9)
    row = data.load("train")["tokens"][np.array([0])][0]
    assert row.tolist() == [256, 9, *range(8)]  # in the order of the names
    assert data.load("eval")["tokens"][np.array([1])][0].tolist() == list(range(109, 119))
    # A vocabulary beside them comes along.
    (tmp_path / "of_others" / "vocabulary.json").write_bytes(words_file(0, [0, *[1] * 256]))
    assert shards(tmp_path / "of_others") == 1 and "--overwrite" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out")
    assert shards(tmp_path / "of_others") == 0
    spec = dataclasses.replace(data, vocabulary="file").spec()
    assert (spec.vocabulary_size, spec.separator) == (257, 0)


@pytest.mark.compiles
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

    def size(config):
        sizes = {"vocabulary_size": 50_257, "sequence_length": 1024}
        return count(nnx.state(nnx.eval_shape(lambda: build(config, **sizes)), nnx.Param))

    assert size(gpt2) == 124_439_808  # 124M, of the released checkpoint
    # Two tables of 50,257 x 768, 12 x 12 x 768**2 in the blocks, 6 skip weights.
    assert size(LanguageModel()) == 2 * 38_597_376 + 84_934_656 + 6
    # Three more tables, and two weights in each of the six layers that have them.
    assert size(LanguageModel(value_embeddings=3)) == 5 * 38_597_376 + 84_934_656 + 6 + 12


@pytest.mark.compiles
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


@pytest.mark.compiles
@pytest.mark.parametrize("window", rows([0, 1, 5, 100], [0, 5]))
@pytest.mark.parametrize("has_documents", [True, False])
def test_attention_in_blocks_is_that_of_one_product(window, has_documents, monkeypatch):
    monkeypatch.setattr(causal_attention, "BLOCK", 4)
    random = np.random.default_rng(0)
    query, key, value = jnp.asarray(random.normal(size=(3, 2, 19, 2, 8)), jnp.float32)
    ids = np.cumsum(random.random((2, 19)) < 0.2, axis=1) if has_documents else np.zeros((2, 19))
    distance = np.arange(19)[:, None] - np.arange(19)
    mask = (distance >= 0) & (distance < (window or 19)) & (ids[:, :, None] == ids[:, None])

    def plain(query, key, value):
        scores = jnp.einsum("bqhc,bkhc->bhqk", query, key) / math.sqrt(8)
        weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9), axis=-1)
        return jnp.einsum("bhqk,bkhc->bqhc", weights, value)

    def blocks(query, key, value):
        documents = jnp.asarray(ids) if has_documents else None
        return causal_attention.causal_attention(query, key, value, documents, window, PLAIN)

    def with_gradients(attend):
        def total(*arrays):
            mixed = attend(*arrays)
            return (mixed**2).sum(), mixed

        return jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(query, key, value)

    assert_close(with_gradients(blocks), with_gradients(plain), rtol=1e-5, atol=2e-5)


@pytest.mark.compiles
@pytest.mark.parametrize("has_biases", [False, True])
def test_activations_are_in_the_dtype_of_an_accelerators_products(has_biases):
    """The MLP's middle has 64 channels, attention two heads of 8, and logits stay float32."""
    config = dataclasses.replace(SMALL, has_biases=has_biases, value_embeddings=1)
    execution = dataclasses.replace(PLAIN, platform="gpu", compute_dtype="bfloat16")
    module = config.build(
        vocabulary_size=257,
        sequence_length=8,
        separator=SEPARATOR,
        execution=execution,
        rngs=nnx.Rngs(0),
    )
    hidden = jnp.ones((2, 8, 16), jnp.bfloat16)
    assert module.blocks[1](hidden, None, None, 0)[0].dtype == jnp.bfloat16
    program = str(jax.make_jaxpr(module)(jnp.zeros((2, 8), jnp.int32)))
    assert "bf16[2,8,64]" in program and "f32[2,8,64]" not in program
    assert "f32[2,8,257]" in program


@pytest.mark.compiles
def test_a_stage_changes_the_window():
    task = LanguageModelling(window=2, stages=WindowStages(window=(5, 0)))
    assert [task.in_stage(index).stage_values() for index in range(3)] == [
        {"window": 2},
        {"window": 5},
        {"window": 0},
    ]
    tokens = jnp.array([[1, 2, 3, 4]])
    module = build(SMALL)
    changed = module(tokens.at[0, 0].set(99), 1)
    np.testing.assert_allclose(module(tokens, 1)[0, 1:], changed[0, 1:], atol=1e-5)


@pytest.mark.compiles
def test_the_metrics_are_means_over_tokens_and_bytes(tmp_path):
    data = write(tmp_path, train=range(9), val=[256, 5, 6, 256, 8, 9])
    spec, task = data.spec(), LanguageModelling()
    setting = Setting(model=SMALL, data=data, spec=spec, execution=PLAIN)
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


@pytest.mark.compiles
def test_a_mask_decides_which_tokens_count_and_rows_may_weigh_alike(tmp_path):
    marks = [False, True, True, True, False, False, False, True]
    data = packed(tmp_path, marks, train=range(8), val=[256, 1, 2, 3, 4, 5, 256, 7])
    spec, examples = data.spec(), data.load("eval")
    setting = Setting(model=SMALL, data=data, spec=spec, execution=PLAIN)
    module = build(dataclasses.replace(SMALL, masks_documents=False))
    tokens = jnp.asarray(examples["tokens"][np.arange(2)].astype(np.int32))
    logits = np.asarray(module(tokens[:, :-1]), np.float64)
    losses = (
        np.log(np.exp(logits).sum(-1))
        - np.take_along_axis(logits, np.asarray(tokens)[:, 1:, None], -1)[..., 0]
    )
    batch = {"tokens": tokens, "index": jnp.arange(2), "mask": jnp.ones(2, bool)}
    batch |= {name: jnp.asarray(examples[name]) for name in ("num_targets", "is_target")}

    def evaluated(**fields):
        task = LanguageModelling(**fields)
        totals = task.add_batch(module, batch, task.zero_totals(setting), setting)
        found = task.metrics_of({n: np.asarray(x) for n, x in totals.items()}, setting)
        answers = [np.asarray(task.answer(module, batch, setting))]
        again = task.quality(answers, {n: np.asarray(x) for n, x in batch.items()}, setting)
        assert again["loss"] == pytest.approx(found["loss"], rel=1e-5)
        return found["loss"]

    first, second = losses[0, :3], losses[1, 2:3]
    wanted = np.concatenate([first, second]).mean()
    assert evaluated() == pytest.approx(wanted, rel=1e-5)
    assert evaluated(averages="rows") == pytest.approx((first.mean() + second.mean()) / 2, rel=1e-5)
    # The token after a separator: the first of row 0, and the only one of row 1.
    assert evaluated(masks_separators=True) == pytest.approx(first[1:].mean(), rel=1e-5)
    # Training counts every token of a row, but for those after separators where asked.
    moment = Moment(jax.random.key(0), jnp.int32(0), jnp.float32(0))
    for masks, kept in ((False, losses[:, :3].ravel()), (True, [*losses[0, 1:3], *losses[1, :2]])):
        task = LanguageModelling(masks_separators=masks)
        total, count = task.loss(module, {"tokens": tokens}, moment, setting)
        assert int(count) == len(kept) and float(total) == pytest.approx(sum(kept), rel=1e-5)


def test_a_split_of_more_bytes_than_an_int32_counts_is_measured():
    totals = {
        "loss": np.full(3, 1e9, np.float32),
        "tokens": np.full(3, 2**30, np.int32),
        "bytes": np.full(3, 2**30, np.int32),
    }
    setting: Any = None
    found = LanguageModelling().metrics_of(totals, setting)
    assert found["loss"] == pytest.approx(1e9 / 2**30)
    assert found["bits_per_byte"] == pytest.approx(1e9 / 2**30 / math.log(2))


def test_a_metric_outside_its_range_reaches_no_target():
    recipe, _ = build_recipe(1, *FLAGS)
    totals = {"loss": np.array([-8.0]), "tokens": np.array([4]), "bytes": np.array([4])}
    with pytest.raises(RunError, match="an evaluation gave loss=-2, which must lie in 0 to inf"):
        recipe.metrics_of(totals)


def test_experts_are_measured_over_the_whole_split():
    totals = {"loss": np.array([8.0]), "tokens": np.array(4), "bytes": np.array(0)}
    tokens = np.array([[6, 2], [4, 4]])
    totals |= {"expert_tokens": tokens, "expert_probability": np.array([[3.0, 1.0], [2.0, 2.0]])}
    totals["dropped"] = np.array([1, 0])
    setting: Any = None
    found = LanguageModelling().metrics_of(totals, setting)
    # 2 (3/4 3/4 + 1/4 1/4) in the first layer, and 1 in the second.
    assert found == {"loss": 2.0, "expert_balance": 1.125, "dropped_tokens": 1.0}
    target = Target(metric="expert_balance", value=1.0, direction="at_most")
    with pytest.raises(ConfigError, match="targets.0.metric=expert_balance is not a quality"):
        LanguageModelling().validate_target("targets.0", target, SyntheticTokens().spec())


TEXT = (
    "Ein  Satz,\nzwei Zeilen.\n\n\nEin zweites Dokument: \u00fcber 99 \u2192 100.\n \n\tdrittes\n\n"
)


def test_text_becomes_tokens_that_stand_for_its_bytes(tmp_path, capsys):
    source = tmp_path / "text.txt"
    source.write_text(TEXT * 20)
    command = ["prepare", "--dataset=token_shards", f"--from={source}", f"--validation={source}"]
    command += ["--documents=blank_lines", f"--out={tmp_path / 'out'}"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "in 60 documents" in said
    assert "60 of 60 documents of the evaluation split are also in the training split" in said
    data = TokenShards(data_dir=str(tmp_path / "out"), sequence_length=8)
    tokens = np.load(tmp_path / "out" / "train_tokens.npy")
    documents = [
        "Ein  Satz,\nzwei Zeilen.",
        "Ein zweites Dokument: \u00fcber 99 \u2192 100.",
        "\tdrittes",
    ]
    wanted = [token for text in 20 * documents for token in [256, *text.encode()]]
    assert tokens.tolist() == wanted
    assert sum(data.spec().bytes_of_token[token] for token in wanted) == len(wanted) - 60
    with pytest.raises(ValueError, match="was prepared with bytes; give --data.vocabulary=bytes"):
        dataclasses.replace(data, vocabulary="gpt2").spec()


LINES = ("Erster Satz,\u2028noch er.", "Zweiter  Satz.\tEnde")


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("{0}\n\n{1}\n", LINES),
        ("{0}\r\r{1}", LINES),
        ("{0}\u2029{1}\u2029", LINES),
        ("{0}\n\u00a0\u3000 \n{1}", LINES),  # blank to the eye
        ("\ufeff\n{0}\n\u200b\n\n{1}", LINES),
        # One document of two lines keeps what stands between them.
        ("{0}\r\n{1}\r\n", ("\r\n".join(LINES),)),
    ],
)
def test_documents_stand_between_blank_lines_however_a_line_ends(text, documents, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(text.format(*LINES).encode())
    assert documents_of(path, "blank_lines") == list(documents)


def prepared(tmp_path, kind, train, valid, *flags):
    out = tmp_path / "out"
    argv = [f"--documents={kind}", f"--from={train}", f"--validation={valid}", f"--out={out}"]
    status = main(["prepare", "--dataset=token_shards", *argv, *flags])
    return status, TokenShards(
        data_dir=str(out), sequence_length=4, rows="apart", masks_prompts=True
    )


def test_pairs_count_their_completions_alone(tmp_path, capsys):
    pairs = [("ab", "c"), ("de", "fg")]
    source = tmp_path / "pairs.jsonl"
    source.write_text(
        "\n".join(json.dumps({"prompt": p, "completion": c, "id": 3}) for p, c in pairs)
    )
    status, data = prepared(tmp_path, "pairs", source, source)
    assert status == 0
    assert "9 tokens to evaluate in 2 documents, of which 3 count" in capsys.readouterr().out
    evaluated = data.load("eval")
    tokens = [256, *b"abc"], [256, *b"def"]  # the ninth token makes no row
    np.testing.assert_array_equal(evaluated["tokens"][np.arange(2)][:, :4], tokens)
    np.testing.assert_array_equal(
        evaluated["is_target"], [[False, False, True, False], [False, False, True, False]]
    )


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_packed_rows_keep_their_tokens_and_masks(form, tmp_path, capsys):
    """The form of MLPerf's GovReport: rows of `input_ids`, and `labels` with -100."""
    train = {"input_ids": [[1, 5, 6, 7]], "labels": [[1, 5, 6, 7]]}
    valid = {"input_ids": [[1, 5, 6, 7], [8, 9, 2, 1]]}
    valid["labels"] = [[-100, -100, 6, 7], [8, -100, -100, 1]]

    def write_rows(name, columns):
        path = tmp_path / f"{name}.{form}"
        if form == "jsonl":
            rows = zip(columns["input_ids"], columns["labels"], strict=True)
            lines = [json.dumps({"input_ids": ids, "labels": labels}) for ids, labels in rows]
            path.write_text("\n".join(lines))
        else:
            parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
            import pyarrow

            parquet.write_table(pyarrow.table(columns), path)
        return path

    paths = write_rows("train", train), write_rows("valid", valid)
    status, data = prepared(tmp_path, "rows", *paths)
    assert (
        status == 0
        and "8 tokens to evaluate in 2 rows, of which 4 count" in capsys.readouterr().out
    )
    evaluated = data.load("eval")
    np.testing.assert_array_equal(evaluated["tokens"][np.arange(2)][:, :4], valid["input_ids"])
    np.testing.assert_array_equal(
        evaluated["is_target"], [[False, True, True, False], [False, False, True, False]]
    )
    (tmp_path / f"train.{form}").write_bytes(b"PAR1 none")
    assert prepared(tmp_path, "rows", tmp_path / f"train.{form}", paths[1])[0] == 1
    error = capsys.readouterr().err
    assert "train" in error and error.count("\n") == 1


def test_a_vocabulary_beside_the_tokens_is_taken(tmp_path):
    """tests/golden/tokens.txt has damaged ones."""
    words = words_file(0, [0, *[1] * 8])
    spec = write(tmp_path, "file", train=range(9), val=range(6), vocabulary=words).spec()
    assert (spec.vocabulary_size, spec.separator, spec.vocabulary) == (9, 0, "file")


FLAGS = TABLE["language_modelling"].flags


@pytest.mark.compiles
def test_model_flops_hold_attention_whatever_computes_it():
    experiment = parse_request("train", list(FLAGS))[0].experiment
    flops = []
    for attention in ("products", "fused"):
        execution: Any = {"platform": "gpu", "attention": attention}
        recipe = recipe_of(experiment, experiment.data.spec(), **execution)
        flops.append(recipe.train_flops_per_example())
    assert flops[0] == flops[1] > 0


@pytest.mark.long
@pytest.mark.compiles
def test_devices_share_the_matrices_of_a_split_update():
    """Two layers have eight kernels of 128 x 128: of a stack of eight each device has two."""
    whole, split = (
        train_text(training(4, *FLAGS, *flags))
        for flags in ((), ("--weight_update_sharding=true",))
    )
    assert "f32[8,128,128]" in whole and "f32[2,128,128]" not in whole
    assert "f32[2,128,128]" in split
