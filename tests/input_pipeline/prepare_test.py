"""`dawnjax prepare` as a user meets it: what it prints, and what it exits with."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dawnjax.__main__ import main
from dawnjax.commands import prepare
from dawnjax.input_pipeline.datasets.cifar10 import Cifar10
from dawnjax.input_pipeline.reading.dataset import DataError

RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.integers(0, 256, (20, 32, 32, 3), np.uint8)
TEST = RANDOM.integers(0, 256, (10, 32, 32, 3), np.uint8)


def write_npz(path: pathlib.Path, repeat: int = 1, shift: int = 0) -> pathlib.Path:
    np.savez(
        path,
        train_x=np.tile(TRAIN + np.uint8(shift), (repeat, 1, 1, 1)),
        train_y=np.arange(20 * repeat) % 10,
        test_x=TEST,
        test_y=np.arange(10),
    )
    return path


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_npz(tmp_path / "cifar10.npz")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["prepare", *arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return status, captured.out, captured.err


def test_converts_and_says_what(source: pathlib.Path, capsys) -> None:
    out = source.parent / "out"
    status, text, errors = run(capsys, "--dataset=cifar10", f"--from={source}", f"--out={out}")
    assert (status, errors) == (0, "")
    first, second = text.splitlines()
    mean = " ".join(f"{value:.4f}" for value in (TRAIN / 255).mean(axis=(0, 1, 2)))
    std = " ".join(f"{value:.4f}" for value in (TRAIN / 255).std(axis=(0, 1, 2)))
    assert re.fullmatch(
        re.escape(f"{out}: written: 20 train and 10 eval images 32x32x3 in 10 classes, from ")
        + r"arrays \(zip\), in \d+\.\d s; "
        + re.escape(f"train mean {mean}, std {std}"),
        first,
    )
    assert second.startswith("note: this is not CIFAR-10, ")
    assert second.endswith("CIFAR-10 has 50,000 images to train on, and these are 20")
    assert (Cifar10(data_dir=str(out)).load("eval")["image"] == TEST).all()


def test_again_changes_nothing(source: pathlib.Path, capsys) -> None:
    arguments = ("--dataset=cifar10", f"--from={source}", f"--out={source.parent / 'out'}")
    run(capsys, *arguments)
    status, text, _ = run(capsys, *arguments)
    assert status == 0
    assert "holds this already, nothing written: 20 train and 10 eval" in text


def test_other_content_needs_overwrite(source: pathlib.Path, capsys) -> None:
    out = source.parent / "out"
    arguments = ("--dataset=cifar10", f"--from={source}", f"--out={out}")
    run(capsys, *arguments)
    write_npz(source, shift=1)
    status, text, errors = run(capsys, *arguments)
    assert (status, text) == (1, "")
    assert errors.startswith(f"dawnjax prepare: {out}: holds other content")
    assert errors.count("\n") == 1 and "--overwrite" in errors
    assert run(capsys, *arguments, "--overwrite")[0] == 0
    assert (Cifar10(data_dir=str(out)).load("train")["image"] == TRAIN + np.uint8(1)).all()


def test_default_place_is_where_a_run_looks(source: pathlib.Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("DAWNJAX_DATA", str(source.parent / "all data"))
    status, text, _ = run(capsys, "--dataset=cifar10", f"--from={source}")
    assert status == 0 and text.startswith(f"{source.parent / 'all data' / 'cifar10'}: written")
    assert Cifar10().spec().num_train_examples == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--dataset is missing; known: cifar10"),
        (("--dataset=cifar10",), "--from is missing: the archive, folder or .npz to convert"),
        (("--datset=cifar10",), "unknown flag --datset; did you mean --dataset?"),
        (("--dataset=cifar",), "--dataset=cifar is not known; did you mean cifar10?"),
        (("--dataset=pascal",), "--dataset=pascal is not known; known: cifar10, imagenet"),
        (("--dataset=digits",), "needs no preparation: its images come with scikit-learn"),
        (("--dataset=synthetic",), "needs no preparation: its images are made from a seed"),
        (("--dataset=cifar10", "a.zip"), "unexpected argument 'a.zip'; the source is given as"),
        (("--dataset=cifar10", "--from=x", "--overwrite=maybe"), "--overwrite=maybe"),
        (
            ("--from", "x", "--dataset", "cifar10", "--image_side=64"),
            "unknown flag --image_side; --help lists the flags",
        ),
        (("--dataset=images", "--from=x"), "--name is missing: what the images shall be called"),
        (("--dataset=images", "--name=x"), "--from is missing"),
        (("--dataset=images", "--from=x", "--name=cifar10"), "is the name of another dataset"),
        (("--dataset=images", "--from=x", "--name=../x"), "--name=../x must be up to 80 letters"),
        (
            ("--dataset=images", "--from=x", "--name=x", "--image_side=2"),
            "--image_side=2 must lie in [8, 1024]",
        ),
        (
            ("--dataset=images", "--from=x.npz", "--name=x", "--image_side=64"),
            "--image_side is for photographs",
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


@pytest.mark.parametrize("name", prepare.PREPARATIONS)
def test_help_of_a_dataset_has_its_own_flags(name: str, capsys) -> None:
    status, text, _ = run(capsys, f"--dataset={name}", "--help")
    assert status == 0
    for other, preparation in prepare.PREPARATIONS.items():
        for flag in preparation.flags:
            is_own = flag.name in {item.name for item in prepare.PREPARATIONS[name].flags}
            assert (f"\n  --{flag.name}  <" in text) == is_own
        assert (f"--dataset={other} " in text) == (other == name)


@pytest.mark.processes
def test_help_loads_no_decoder() -> None:
    script = "import sys; from dawnjax.__main__ import main; main(['prepare', '--help']); "
    script += "print([name for name in ('cv2', 'jax', 'sentencepiece') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.faults
@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 5), (signal.SIGKILL, -9)])
def test_interrupted(tmp_path: pathlib.Path, stop: signal.Signals, status: int) -> None:
    """Stopped while it reads a large source, it leaves what a reader knows is unfinished."""
    source = write_npz(tmp_path / "large.npz", repeat=2000)
    command = [sys.executable, "-m", "dawnjax", "prepare", "--dataset=cifar10", f"--from={source}"]
    attempt = 0
    while True:  # a fast machine may be done before the signal comes
        out = tmp_path / str(attempt)
        process = subprocess.Popen(
            [*command, f"--out={out}"],
            cwd=pathlib.Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 300
        while not (out / "prepare_unfinished").exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(stop)
        text, errors = process.communicate(timeout=300)
        attempt += 1
        if process.returncode != 0 or attempt == 5:
            break
    assert process.returncode == status and text == "", errors
    if stop == signal.SIGINT:
        assert errors.endswith("dawnjax prepare: interrupted; run it again to complete it\n")
    with pytest.raises(DataError, match="half-converted .*; run `dawnjax prepare` again"):
        Cifar10(data_dir=str(out)).spec()
    assert main(["prepare", "--dataset=cifar10", f"--from={source}", f"--out={out}"]) == 0
    assert Cifar10(data_dir=str(out)).spec().num_train_examples == 40_000
