"""`dawnjax prepare` as a user meets it: what it prints, and what it exits with."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dawnjax.__main__ import main
from dawnjax.commands import prepare
from dawnjax.input_pipeline.datasets.cifar10 import Cifar10

RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.integers(0, 256, (20, 32, 32, 3), np.uint8)
TEST = RANDOM.integers(0, 256, (10, 32, 32, 3), np.uint8)


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    path, labels = tmp_path / "cifar10.npz", np.arange(20) % 10
    np.savez(path, train_x=TRAIN, train_y=labels, test_x=TEST, test_y=labels[:10])
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["prepare", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return status, captured.out, captured.err


def test_default_place_is_where_a_run_looks(source: pathlib.Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("DAWNJAX_DATA", str(source.parent / "all data"))
    status, text, _ = run(capsys, "--dataset=cifar10", f"--from={source}")
    assert status == 0 and text.startswith(f"{source.parent / 'all data' / 'cifar10'}: written")
    assert Cifar10().spec().num_train_examples == 20


def test_help(capsys) -> None:
    status, text, _ = run(capsys, "--help")
    assert status == 0 and text.startswith("usage: dawnjax prepare ")
    for flag in ("--dataset", "--from", "--out", "--overwrite"):
        assert flag in text
    # It lists what there is; a dataset's own flags come with its name.
    for name in prepare.PREPARATIONS:
        assert f"--dataset={name} " in text and f"\n{name}:\n" in text
    assert "--row_length  <int>" not in text


@pytest.mark.processes
def test_help_loads_no_decoder() -> None:
    script = "import sys; from dawnjax.__main__ import main; main(['prepare', '--help']); "
    script += "print([name for name in ('cv2', 'jax', 'sentencepiece') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_text_without_a_second_one_is_divided_by_its_documents(tmp_path, capsys) -> None:
    documents = [f"document number {number}" for number in range(200)]
    (tmp_path / "text").write_text("\n\n".join([*documents, documents[0]]))
    flags = ["--dataset=token_shards", f"--from={tmp_path / 'text'}", f"--out={tmp_path / 'out'}"]
    flags.append("--eval_fraction=0.25")
    assert run(capsys, *flags)[0] == 2  # the text is one document
    status, said, _ = run(capsys, *flags, "--documents=blank_lines")
    assert status == 0
    parts = {
        split: np.load(tmp_path / "out" / f"{split}_tokens.npy") for split in ("train", "eval")
    }
    found = {
        split: "".join(chr(token) if token < 256 else "|" for token in tokens).split("|")[1:]
        for split, tokens in parts.items()
    }
    assert sorted(found["train"] + found["eval"]) == sorted([*documents, documents[0]])
    assert not set(found["train"]) & set(found["eval"]) and 30 < len(found["eval"]) < 70
    assert f"tokens to evaluate in {len(found['eval'])} documents" in said
    both = ["--documents=blank_lines", f"--validation={tmp_path / 'text'}"]
    assert "give only one of them" in run(capsys, *flags, *both)[2]
