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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--dataset is missing; known: cifar10"),
        (("--datset=cifar10",), "unknown flag --datset; did you mean --dataset?"),
        (("--dataset=cifar",), "--dataset=cifar is not known; did you mean cifar10?"),
        (("--dataset=digits",), "needs no preparation: its images come with DawnJAX"),
        (("--dataset=cifar10", "a.zip"), "unexpected argument 'a.zip'; give the source as"),
        (("--dataset=cifar10", "--from=x", "--overwrite=maybe"), "--overwrite=maybe"),
        (
            ("--from", "x", "--dataset", "cifar10", "--image_side=64"),
            "unknown flag --image_side; --help lists the flags",
        ),
        (("--dataset=squad", "--from=x"), "--eval_from is missing"),
        (("--dataset=images", "--from=x"), "--name is missing: name the images"),
        (("--dataset=images", "--from=x", "--name=cifar10"), "is the name of another dataset"),
        (("--dataset=images", "--from=x", "--name=../x"), "--name=../x must be up to 80 letters"),
        (
            ("--dataset=images", "--from=x", "--name=x", "--image_side=2"),
            "--image_side=2 must lie in [8, 1024]",
        ),
        (
            ("--dataset=imagenet", "--from=x", "--form=photographs", "--image_side=64"),
            "--image_side needs squares",
        ),
        (
            ("--dataset=images", "--from=x.npz", "--name=x", "--image_side=64"),
            "--image_side needs photographs",
        ),
        (
            ("--dataset=images", "--from=x", "--name=x", "--eval_fraction=1"),
            "--eval_fraction=1.0 must lie between 0 and 1",
        ),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], message: str, capsys) -> None:
    status, text, errors = run(capsys, *arguments)
    assert (status, text) == (2, "")
    assert errors.startswith("dawnjax prepare: ") and errors.count("\n") == 1
    assert message in errors


def test_bad_source_is_one_line_and_leaves_nothing(tmp_path: pathlib.Path, capsys) -> None:
    (tmp_path / "source").write_text("hello")
    out = tmp_path / "out"
    for path, expected in ((tmp_path / "source", 1), (tmp_path / "nowhere", 2)):
        status, text, errors = run(capsys, "--dataset=cifar10", f"--from={path}", f"--out={out}")
        assert (status, text) == (expected, "")
        assert errors.startswith(f"dawnjax prepare: {path}: ") and errors.count("\n") == 1
        assert not out.exists()
    # Nor the folders above it, which are made with it.
    below = tmp_path / "data" / "cifar10"
    nowhere = f"--from={tmp_path / 'nowhere'}"
    assert run(capsys, "--dataset=cifar10", nowhere, f"--out={below}")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


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
