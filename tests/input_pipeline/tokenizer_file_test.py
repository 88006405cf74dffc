"""Text in the tokens of a user's tokenizer.json: shards, their vocabulary, and what is refused."""

import json

import numpy as np
import pytest

from dawnjax.__main__ import main
from dawnjax.input_pipeline.datasets.token_shards import TokenShards

tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")

DOCUMENTS = ["der erste Text, und mehr", "ein  zweiter <|begin|>\tText: äöü 漢字"]
TEXT = "\n\n".join(DOCUMENTS)


def byte_level(path, **changes):
    """Write a small tokenizer of the kind of Llama 3's: bytes, merges, and a marker that begins."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280,
        initial_alphabet=letters,
        special_tokens=["<|begin|>", "<|end|>"],
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    if changes.get("begins", True):
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
    if changes.get("normalizer"):
        made.normalizer = changes["normalizer"]
    made.save(str(path))
    return made


def command(tmp_path, *flags):
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    argv = ["prepare", "--dataset=token_shards", f"--from={source}", f"--validation={source}"]
    argv += ["--documents=blank_lines", f"--tokenizer={tmp_path / 'tokenizer.json'}"]
    return [*argv, f"--out={tmp_path / 'out'}", *flags]


def shards(tmp_path):
    return TokenShards(data_dir=str(tmp_path / "out"), vocabulary="file", sequence_length=8)


def test_documents_become_the_tokenizers_own_tokens(tmp_path, capsys):
    made = byte_level(tmp_path / "tokenizer.json")
    assert main(command(tmp_path)) == 0
    told = capsys.readouterr().out
    assert "280 tokens, separator 0; bytes of a token are known" in told
    data = shards(tmp_path)
    spec = data.spec()
    assert (spec.vocabulary_size, spec.separator) == (280, 0)
    made.encode_special_tokens = True  # a marker that a document holds is text
    rows = [made.encode(text, add_special_tokens=False).ids for text in DOCUMENTS]
    wanted = [token for row in rows for token in [0, *row]]
    rows = np.asarray(data.load("train")["tokens"][:])
    stream = np.concatenate([rows[:, :-1].reshape(-1), rows[-1, -1:]])
    assert stream.tolist() == wanted[: len(stream)] and len(wanted) - len(stream) < 8
    counts = np.array(spec.bytes_of_token)
    assert counts[wanted].sum() == sum(len(text.encode()) for text in DOCUMENTS)
    text = data.token_text()
    assert text.decode(text.encode(DOCUMENTS[1])) == DOCUMENTS[1]
    fields = json.loads((tmp_path / "out" / "vocabulary.json").read_text())
    assert len(fields["tokenizer_sha256"]) == 64
    assert main(command(tmp_path)) == 0  # done again it changes nothing
    # A model whose table is longer than the tokenizer's has tokens that no text has.
    assert main(command(tmp_path, "--vocabulary_size=300", "--overwrite")) == 0
    assert shards(tmp_path).spec().vocabulary_size == 300
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    with pytest.raises(
        Exception, match="tokenizer.json: is not a tokenizer.json, or a damaged one"
    ):
        shards(tmp_path).token_text()
    byte_level(tmp_path / "out" / "tokenizer.json", begins=False)
    with pytest.raises(Exception, match="is not the tokenizer that vocabulary.json names"):
        shards(tmp_path).token_text()


@pytest.mark.parametrize("documents", ["blank_lines", "pairs"])
def test_documents_may_follow_each_other_without_a_separator(documents, tmp_path):
    made = byte_level(tmp_path / "tokenizer.json")
    made.encode_special_tokens = True
    flags = ["--separator=", f"--documents={documents}"]
    argv = command(tmp_path, *flags)
    if documents == "pairs":
        rows = [json.dumps({"prompt": text[:9], "completion": text[9:]}) for text in DOCUMENTS]
        (tmp_path / "text.txt").write_text("\n".join(rows))
    assert main(argv) == 0
    rows = [made.encode(text, add_special_tokens=False).ids for text in DOCUMENTS]
    wanted = sum(rows, [])
    assert np.load(tmp_path / "out" / "train_tokens.npy").tolist() == wanted
    assert shards(tmp_path).spec().separator == 0  # fills the last row
    if documents == "pairs":
        counted = np.load(tmp_path / "out" / "eval_mask.npy")
        prompts = [len(made.encode(text[:9], add_special_tokens=False).ids) for text in DOCUMENTS]
        assert len(counted) == len(wanted) and (~counted).sum() == sum(prompts)


@pytest.mark.parametrize(
    "normalizer",
    [
        tokenizers.normalizers.Replace("e", ""),
        # As many bytes, but of another text.
        tokenizers.normalizers.Lowercase(),
    ],
)
def test_a_tokenizer_that_changes_its_text_has_no_bytes(normalizer, tmp_path, capsys):
    byte_level(tmp_path / "tokenizer.json", normalizer=normalizer)
    assert main(command(tmp_path)) == 0
    assert "not known, so there is no bits_per_byte" in capsys.readouterr().out
    spec = shards(tmp_path).spec()
    assert spec.bytes_of_token == () and spec.vocabulary_size == 280


def test_a_separator_is_chosen_for_a_tokenizer_that_begins_no_text(tmp_path):
    byte_level(tmp_path / "tokenizer.json", begins=False)
    assert main(command(tmp_path, "--separator=<|end|>")) == 0
    assert shards(tmp_path).spec().separator == 1


def test_a_tokenizer_that_panics_is_one_line(tmp_path, capfd):
    byte_level(tmp_path / "tokenizer.json")
    fields = json.loads((tmp_path / "tokenizer.json").read_text())
    fields["post_processor"]["special_tokens"]["<|begin|>"]["ids"] = [2**32]
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    assert main(command(tmp_path)) == 1
    error = capfd.readouterr().err
    assert "is not a tokenizer.json, or a damaged one" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
