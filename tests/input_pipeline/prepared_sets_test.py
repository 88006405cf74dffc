"""What holds for each data set that `dawnjax prepare` makes."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coco_sources
import cv2
import no_renames
import numpy as np
import pytest
import small_questions
import small_text

from dawnjax.__main__ import main
from dawnjax.commands.prepare import PREPARATIONS
from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.datasets.cifar10 import Cifar10
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.input_pipeline.datasets.imagenet import ImageNet
from dawnjax.input_pipeline.datasets.images import Images
from dawnjax.input_pipeline.datasets.movielens import MovieLens
from dawnjax.input_pipeline.datasets.parallel_text import ParallelText
from dawnjax.input_pipeline.datasets.squad import Squad
from dawnjax.input_pipeline.datasets.token_shards import TokenShards
from dawnjax.input_pipeline.reading import columns, run_lengths, shards
from dawnjax.input_pipeline.reading.columns import Made
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.preparing import Progress


@dataclasses.dataclass(frozen=True)
class PreparedSet:
    """A set of the command.

    Attributes:
      write: Writes a source into a folder, or another one; returns the flags that prepare it.
      data: The data set that reads what was prepared.
      examples: Training examples of the source.
      shared: Examples to evaluate that are in the training split too, and the name of their unit.
      needs: Packages that it is prepared with.
    """

    write: Callable[[Path, bool], list[str]]
    data: Callable[[Path], Any]
    examples: int = 0
    shared: str = ""
    needs: tuple[str, ...] = ()


def cifar10(folder: Path, other: bool) -> list[str]:
    images = np.random.default_rng(other).integers(0, 256, (20, 32, 32, 3), np.uint8)
    labels = np.arange(20) % 10
    path = folder / "cifar10.npz"
    evaluated = np.concatenate([images[:3], 255 - images[3:10]])
    np.savez(path, train_x=images, train_y=labels, test_x=evaluated, test_y=labels[:10])
    return [f"--from={path}"]


def photographs(folder: Path, other: bool) -> list[str]:
    for number in range(8):
        place = folder / "source" / ("train" if number < 6 else "val") / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        random, shape = np.random.default_rng(number % 6), (40 + other, 50, 3)
        image = random.integers(0, 256, shape, np.uint8)
        (place / f"{number}.png").write_bytes(cv2.imencode(".png", image)[1].tobytes())
    return [f"--from={folder / 'source'}", "--image_side=32"]


def whole_photographs(folder: Path, other: bool) -> list[str]:
    return [*photographs(folder, other)[:1], "--form=photographs"]


def text(folder: Path, other: bool) -> list[str]:
    (folder / "text.txt").write_text("\n\n".join(f"document {n}" for n in range(40 + other)))
    return [f"--from={folder / 'text.txt'}", "--documents=blank_lines", "--eval_fraction=0.3"]


def named_photographs(folder: Path, other: bool) -> list[str]:
    return [*photographs(folder, other), "--name=pets"]


def ratings(folder: Path, other: bool) -> list[str]:
    lines = [f"{user}\t{item + user}\t3\t{item}" for user in range(5) for item in range(4 + other)]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    return [f"--from={folder / 'u.data'}"]


def sentences(folder: Path, other: bool) -> list[str]:
    flags = ["--vocabulary_size=330", "--row_length=24"]
    small_text.write(folder, seed=3 + other)
    for split in ("train", "eval"):
        flags += [f"--{split}_source={folder / split}.a", f"--{split}_target={folder / split}.b"]
    return flags


def questions(folder: Path, other: bool) -> list[str]:
    train = small_questions.TRAIN
    if other:
        train = small_questions.changed(train, "data", 0, title="Another")
        train["data"][0]["paragraphs"][0]["qas"][0]["question"] = "What fell?"
    evaluated = {**small_questions.EVAL}
    evaluated["data"] = [*evaluated["data"], small_questions.TRAIN["data"][0]]
    files = small_questions.write(folder, train, evaluated)
    return [f"--from={files[0]}", f"--eval_from={files[1]}"]


def objects(folder: Path, other: bool) -> list[str]:
    body = coco_sources.body()
    if other:
        body["annotations"][0]["bbox"] = [10, 2, 9, 4]
    twin = cv2.imencode(".png", np.full((20, 30, 3), 20, np.uint8))[1].tobytes()
    source = coco_sources.write_source(
        folder / "source", json.loads(json.dumps(body)), damaged=[("images/012.png", twin)]
    )
    flags = [f"--from={source}", "--name=cells", "--train_annotations=train.json"]
    return [*flags, "--eval_annotations=eval.json"]


def squares(out: Path) -> ImageNet:
    return ImageNet(data_dir=str(out), image_side=32)


IN_BOTH = "2 of 2 images"
SETS: dict[str, PreparedSet] = {
    "cifar10": PreparedSet(cifar10, lambda out: Cifar10(data_dir=str(out)), 20, "3 of 10 images"),
    "imagenet": PreparedSet(photographs, squares, 6, IN_BOTH),
    "photographs": PreparedSet(
        *(whole_photographs, squares, 6, IN_BOTH, ("array_record", "tensorflow_datasets"))
    ),
    "images": PreparedSet(
        named_photographs, lambda out: Images(name="pets", data_dir=str(out)), 6, IN_BOTH
    ),
    "movielens": PreparedSet(
        ratings, lambda out: MovieLens(corpus="few", num_eval_negatives=2, data_dir=str(out)), 15
    ),
    "parallel_text": PreparedSet(
        sentences,
        lambda out: ParallelText(
            corpus="few", vocabulary_size=330, row_length=24, data_dir=str(out)
        ),
        needs=("sentencepiece",),
    ),
    "squad": PreparedSet(questions, lambda out: Squad(data_dir=str(out)), 3, "1 of 3 questions"),
    "token_shards": PreparedSet(
        text, lambda out: TokenShards(sequence_length=16, data_dir=str(out))
    ),
    "coco": PreparedSet(
        objects,
        lambda out: Coco(corpus="cells", height=20, width=30, data_dir=str(out)),
        *(3, "1 of 3 images", ("hotcoco", "array_record", "tensorflow_datasets")),
    ),
}
DATASETS = {name: name for name in SETS} | {"photographs": "imagenet"}
"""What the command calls each set."""


SHARDS = ("photographs", "coco")


@pytest.fixture(params=SETS)
def name(request) -> str:
    for package in SETS[request.param].needs:
        pytest.importorskip(package)
    return request.param


def prepare(name: str, flags: list[str], out: Path) -> int:
    return main(["prepare", f"--dataset={DATASETS[name]}", f"--out={out}", *flags])


def described(out: Path) -> columns.Columns[Any]:
    kind = json.loads((out / columns.FILE).read_text())["kind"]
    return columns.read(out, kind, dict)


def loaded(name: str, out: Path) -> dict[str, np.ndarray]:
    """All arrays of both splits."""
    data = SETS[name].data(out)
    return {
        f"{split}_{part}": np.asarray(array)
        for split in ("train", "eval")
        for part, array in data.load(split).items()
    }


def test_each_set_is_here():
    assert set(DATASETS.values()) == PREPARATIONS.keys()


def test_prepared_twice_it_stays_and_other_content_is_refused(name, tmp_path, capsys):
    out, flags = tmp_path / "out", SETS[name].write(tmp_path, False)
    assert prepare(name, flags, out) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out}: written in ") and "Traceback" not in said
    assert not (tmp_path / "out.partial").exists()
    spec, arrays = SETS[name].data(out).spec(), loaded(name, out)
    if shared := SETS[name].shared:
        assert f"note: {shared} of the evaluation split are also in the training split" in said
        overlap = spec.declaration.overlap
        assert f"{overlap.shared} of {overlap.compared} {overlap.unit}" == shared
    assert spec.num_train_examples == SETS[name].examples or not SETS[name].examples
    for split, count in (("train", spec.num_train_examples), ("eval", spec.num_eval_examples)):
        for part, (shape, dtype) in spec.example_shapes(split).items():
            array = arrays[f"{split}_{part}"]
            assert (array.shape, array.dtype.name) == ((count, *shape), dtype)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    for overwrite in ([], ["--overwrite"]):
        assert prepare(name, [*flags, *overwrite], out) == 0
        assert "already holds this; nothing written" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    flags = SETS[name].write(tmp_path, True)
    assert prepare(name, flags, out) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].endswith(
        f"{out}: holds other content; give --overwrite to replace it"
    )
    assert SETS[name].data(out).spec() == spec
    assert prepare(name, [*flags, "--overwrite"], out) == 0
    assert SETS[name].data(out).spec().fingerprint != spec.fingerprint


def test_damage_is_named_with_its_file(name, tmp_path, capsys):
    out, flags = tmp_path / "out", SETS[name].write(tmp_path, False)
    assert prepare(name, flags, out) == 0
    whole = {path: path.read_bytes() for path in out.iterdir()}
    kind = described(out).kind

    def verify() -> None:
        columns.read(out, kind, dict).verify()

    verify()
    for path, content in whole.items():
        for damaged in (content[:-2] + bytes([content[-2] ^ 1]) + content[-1:], content[:-2]):
            if content:
                path.write_bytes(damaged)
                with pytest.raises(DataError, match=path.name):
                    verify()
        path.unlink()
        with pytest.raises(DataError, match=path.name if path.name != columns.FILE else "there"):
            verify()
        path.write_bytes(content)
    # Prepared again, and in a run, it is the same line.
    arrays = [path for path in whole if path.suffix == ".npy"]
    path = max(arrays, key=lambda path: len(whole[path]))
    path.write_bytes(whole[path][:-1] + bytes([whole[path][-1] ^ 1]))
    assert prepare(name, flags, out) == 1
    assert f"{path}: damaged (its checksum" in capsys.readouterr().err
    with pytest.raises(DataError, match=f"{path}: damaged .its checksum"):
        loaded(name, out)
    path.write_bytes(whole[path][:-2])
    with pytest.raises(DataError, match=path.name):
        SETS[name].data(out).spec()
    # With --overwrite it is made anew.
    assert prepare(name, [*flags, "--overwrite"], out) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: content for path, content in whole.items()
    }


def test_of_another_version_it_is_prepared_anew(name, tmp_path, capsys):
    out, flags = tmp_path / "out", SETS[name].write(tmp_path, False)
    data, command = SETS[name].data(out), f"`dawnjax prepare --dataset={DATASETS[name]}"
    with pytest.raises(DataError, match=f"there.*{command}.*--out="):
        data.spec()
    out.mkdir()
    (out / columns.FILE).write_text(json.dumps({"schema_version": 1, "kind": name}))
    with pytest.raises(DataError, match=f"another version .*{command}"):
        data.spec()
    assert prepare(name, flags, out) == 1 and "another version" in capsys.readouterr().err
    assert prepare(name, [*flags, "--overwrite"], out) == 0
    data.spec()


def test_what_is_there_of_others_stays(name, tmp_path, capsys):
    flags, out = SETS[name].write(tmp_path, False), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    for overwrite in ([], ["--overwrite"]):
        assert prepare(name, [*flags, *overwrite], out) == 1
        assert "out: holds something else; choose another directory" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    (out / "thesis.tex").unlink()
    (tmp_path / "out.partial").mkdir()  # a killed process left it
    (tmp_path / "out.partial" / "train_images.npy").write_text("half")
    assert prepare(name, flags, out) == 0
    assert not (tmp_path / "out.partial").exists()


def test_data_of_another_kind_are_refused(name, tmp_path, capsys):
    other = "movielens" if name == "squad" else "squad"
    (tmp_path / "other").mkdir()
    assert prepare(other, SETS[other].write(tmp_path / "other", False), tmp_path / "out") == 0
    with pytest.raises(DataError, match="dataset.json: describes .*; choose another directory"):
        SETS[name].data(tmp_path / "out").spec()


@pytest.mark.parametrize("name", PREPARATIONS)
def test_help_has_the_sets_own_flags(name, capsys):
    assert main(["prepare", f"--dataset={name}", "--help"]) == 0
    text = capsys.readouterr().out
    for other, preparation in PREPARATIONS.items():
        for flag in preparation.flags:
            is_own = flag.name in {item.name for item in PREPARATIONS[name].flags}
            assert (f"\n  --{flag.name}  <" in text) == is_own
        assert (f"--dataset={other} " in text) == (other == name)
    # Without a name it lists what there is, and the flags that all have.
    assert main(["prepare", "--help"]) == 0
    text = capsys.readouterr().out
    assert f"--dataset={name} " in text and f"\n{name}:\n" in text
    assert "--overwrite" in text and "--row_length  <int>" not in text


@pytest.mark.parametrize("name", [*SHARDS, "imagenet", "images"])
def test_killed_it_goes_on_after_what_is_whole(name, tmp_path, monkeypatch, capsys):
    """After the last whole shard, or the last part of the squares that was on the disk."""
    for package in SETS[name].needs:
        pytest.importorskip(package)
    monkeypatch.setattr(shards, "EXAMPLES", 2)
    monkeypatch.setattr(images, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(columns, "PART_BYTES", 1)
    flags, out, whole = SETS[name].write(tmp_path, False), tmp_path / "out", tmp_path / "whole"
    read: list[int] = []

    def stop(_: Progress, count: int) -> None:
        raise KeyboardInterrupt  # after two examples

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "add", lambda _, count: read.append(count))
        assert prepare(name, flags, whole) == 0
        in_all = sum(read)
        patched.setattr(Progress, "add", stop)
        assert prepare(name, flags, out) == 5
        assert not out.exists()
        # A kill leaves the start of what comes next, too.
        for path in (tmp_path / "out.partial").glob("*.npy"):
            path.write_bytes(path.read_bytes() + b"half")
        patched.setattr(Progress, "add", lambda _, count: read.append(count))
        read.clear()
        assert prepare(name, flags, out) == 0
        assert sum(read) == in_all - 2
    assert described(out) == dataclasses.replace(described(whole), directory=out)
    assert not (tmp_path / "out.partial").exists()
    # Other data begin anew.
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "add", stop)
        assert prepare(name, flags, tmp_path / "next") == 5
    other = SETS[name].write(tmp_path, True)
    assert prepare(name, other, tmp_path / "next") == 0
    assert described(tmp_path / "next").fingerprint() != described(whole).fingerprint()
    # Stopped while it replaces data, it leaves what was there.
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "add", stop)
        assert prepare(name, [*other, "--overwrite"], out) == 5
    stopped = "dawnjax prepare: interrupted; run it again to complete it\n"
    assert capsys.readouterr().err.endswith(stopped)
    described(out).verify()
    assert described(out) == dataclasses.replace(described(whole), directory=out)


@pytest.mark.parametrize("name", SHARDS)
def test_tensorflow_datasets_opens_the_shards(name, tmp_path):
    """As a stranger reads them: whole files, with the labels or objects of each."""
    tfds = pytest.importorskip("tensorflow_datasets")
    for package in SETS[name].needs:
        pytest.importorskip(package)
    out = tmp_path / "out"
    assert prepare(name, SETS[name].write(tmp_path, False), out) == 0
    builder = tfds.builder_from_directory(str(out))
    source = builder.as_data_source("train", decoders={"image": tfds.decode.SkipDecoding()})
    folder = tmp_path / "source" / ("images" if name == "coco" else "train")
    files = {path.read_bytes() for path in folder.rglob("*.png")}
    examples = [source[row] for row in range(len(source))]
    assert len(examples) == SETS[name].examples
    assert {bytes(example["image"]) for example in examples} <= files
    if name == "photographs":
        assert builder.info.features["label"].names == ["cat", "dog"]
        assert sorted(int(example["label"]) for example in examples) == [0, 0, 0, 1, 1, 1]
    else:
        objects = examples[0]["objects"]
        np.testing.assert_allclose(objects["bbox"], [[0.1, 1 / 3, 0.3, 2 / 3]], rtol=1e-6)
        assert builder.info.features["objects"]["label"].names == ["dish", "cell"]
        assert list(objects["label"]) == [1] and not any(objects["is_crowd"])
        mask = run_lengths.unpack(bytes(objects["mask"][0]), 20, 30)
        np.testing.assert_array_equal(mask, coco_sources.MASK)


def test_grain_opens_the_shards(tmp_path):
    grain = pytest.importorskip("grain.python", reason="grain is not installed")
    tfds = pytest.importorskip("tensorflow_datasets")
    out = tmp_path / "out"
    assert prepare("photographs", SETS["photographs"].write(tmp_path, False), out) == 0
    paths = sorted(str(path) for path in out.glob("*-train.array_record-*"))
    raw = grain.ArrayRecordDataSource(paths)
    features = tfds.builder_from_directory(str(out)).info.features
    read = [features.deserialize_example_np(raw[row]) for row in range(len(raw))]
    assert len(read) == 6 and read[0]["image"].dtype == np.uint8


def test_one_process_writes_at_a_time(tmp_path, capsys):
    flags, out = SETS["movielens"].write(tmp_path, False), tmp_path / "out"
    with columns.replacing(out):
        assert prepare("movielens", flags, out) == 1
    assert "out: another process is writing to it" in capsys.readouterr().err


def test_a_set_is_prepared_where_no_folder_can_be_renamed(name, tmp_path, monkeypatch, capsys):
    flags, out = SETS[name].write(tmp_path, False), tmp_path / "out"
    moved = no_renames.mount(monkeypatch, errno.EMFILE, files=False)
    assert prepare(name, flags, out) == 0, capsys.readouterr().err
    # Until the last file is there, the directory holds no data set.
    assert moved[-1] in ("dataset.json", "dataset_info.json")
    assert SETS[name].data(out).spec().num_train_examples
    assert loaded(name, out)
    assert not (tmp_path / "out.partial").exists()
    assert prepare(name, flags, out) == 0
    assert "already holds this" in capsys.readouterr().out


def test_no_room_on_the_disk(tmp_path, capsys, monkeypatch):
    flags, out = SETS["movielens"].write(tmp_path, False), tmp_path / "out"
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert prepare("movielens", flags, out) == 1
    assert "interactions.npy: cannot be written (No space left)" in capsys.readouterr().err
    assert not out.exists() and not (tmp_path / "out.partial").exists()


def test_arrays_larger_than_memory_are_written_in_blocks(tmp_path, monkeypatch):
    """As one array, whatever the blocks are, and read by NumPy alone."""
    monkeypatch.setattr(columns, "BLOCK_BYTES", 256)
    values = np.random.default_rng(0).integers(0, 2**31, (200, 3), np.int32)
    contents = {
        "whole": {"a.npy": values},
        "blocks": {"a.npy": (values[start : start + 7] for start in range(0, 200, 7))},
    }
    written = {}
    for folder, files in contents.items():
        made = Made(directory=tmp_path / folder, kind="test", files=files, facts={"n": 200})
        written[folder], _ = made.write()
    assert written["whole"].files == written["blocks"].files
    assert written["whole"].fingerprint() == written["blocks"].fingerprint()
    for folder in contents:
        np.testing.assert_array_equal(np.load(tmp_path / folder / "a.npy"), values)
        there = columns.read(tmp_path / folder, "test", dict)
        assert there.facts == {"n": 200} and not there.array("a.npy").flags.writeable


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    facts: dict[str, int] = {}
    files = {"a.npy": np.zeros(3)}
    Made(directory=tmp_path / "out", kind="test", files=files, facts=facts).write()
    np.save(tmp_path / "out" / "a.npy", np.array([Trap()] * 3, object), allow_pickle=True)
    with pytest.raises(DataError, match="a.npy: holds Python objects"):
        columns.read(tmp_path / "out", "test", dict)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("folder", ["all data", "data"])
def test_default_place_is_where_a_run_looks(folder, tmp_path, capsys, monkeypatch):
    flags = SETS["cifar10"].write(tmp_path, False)
    monkeypatch.delenv("DAWNJAX_DATA", raising=False)
    if folder != "data":
        monkeypatch.setenv("DAWNJAX_DATA", str(tmp_path / folder))
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "--dataset=cifar10", *flags]) == 0
    assert f"{folder}/cifar10: written" in capsys.readouterr().out
    assert (tmp_path / folder / "cifar10").exists() and Cifar10().spec().num_train_examples == 20


@pytest.mark.processes
def test_help_loads_no_decoder():
    script = "import sys; from dawnjax.__main__ import main; main(['prepare', '--help']); "
    script += "print([name for name in ('cv2', 'jax', 'sentencepiece') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_text_without_a_second_one_is_divided_by_its_documents(tmp_path, capsys):
    documents = [f"document number {number}" for number in range(200)]
    (tmp_path / "text").write_text("\n\n".join([*documents, documents[0]]))
    flags = [f"--from={tmp_path / 'text'}", "--documents=blank_lines", "--eval_fraction=0.25"]
    assert prepare("token_shards", flags, tmp_path / "out") == 0
    found = {}
    for split in ("train", "eval"):
        tokens = np.load(tmp_path / "out" / f"{split}_tokens.npy")
        found[split] = "".join(chr(token) if token < 256 else "|" for token in tokens).split("|")[
            1:
        ]
    assert sorted(found["train"] + found["eval"]) == sorted([*documents, documents[0]])
    assert not set(found["train"]) & set(found["eval"]) and 30 < len(found["eval"]) < 70
    said = f"tokens to evaluate in {len(found['eval'])} documents"
    assert said in capsys.readouterr().out
