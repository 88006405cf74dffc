"""The prepared form of a dataset: written whole or not at all, and every damage is named."""

import fcntl
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import zlib

import numpy as np
import pytest

from dawnjax.input_pipeline.preparation import image_writer
from dawnjax.input_pipeline.preparation.image_writer import Examples
from dawnjax.input_pipeline.reading import image_set, manifest
from dawnjax.input_pipeline.reading.dataset import DataError

FILES = ("train_images.npy", "train_labels.npy", "eval_images.npy", "eval_labels.npy")
CLASSES = ("cat", "dog", "frog")


def some_examples(seed: int = 0, num_train: int = 20, num_eval: int = 7) -> Examples:
    random = np.random.default_rng(seed)
    counts = {"train": num_train, "eval": num_eval}
    return Examples(
        classes=CLASSES,
        images={
            split: random.integers(0, 256, (count, 4, 5, 3), np.uint8)
            for split, count in counts.items()
        },  # type: ignore[arg-type]
        labels={split: np.arange(count) % 3 for split, count in counts.items()},  # type: ignore[arg-type]
        source={"kind": "a test"},
    )


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    image_writer.write(tmp_path / "data", some_examples, dataset="pets")
    return tmp_path / "data"


def read_all(directory: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
    description = image_set.read(directory)
    return {
        "train": image_set.read_split(directory, description, "train"),
        "eval": image_set.read_split(directory, description, "eval"),
    }


def failure(directory: pathlib.Path) -> str:
    """Message of reading a damaged directory, which must be one line."""
    with pytest.raises(DataError) as error:
        read_all(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_written_is_read(directory: pathlib.Path) -> None:
    examples = some_examples()
    splits = read_all(directory)
    for split in ("train", "eval"):
        assert (splits[split]["image"] == examples.images[split]).all()
        assert (splits[split]["label"] == examples.labels[split]).all()
        assert splits[split]["image"].dtype == np.uint8
        assert splits[split]["label"].dtype == np.int32
        # Mapped, so a large dataset takes no memory of its own, and cannot be changed by mistake.
        assert isinstance(splits[split]["image"], np.memmap)
        assert not splits[split]["image"].flags.writeable
    description = image_set.read(directory)
    assert image_set.image_shape(description) == (4, 5, 3)
    assert description.facts.classes == CLASSES
    assert description.facts.num_examples == {"train": 20, "eval": 7}
    assert description.facts.class_counts == {"train": (7, 7, 6), "eval": (3, 2, 2)}
    mean, std = description.facts.statistics["train"]
    pixels = examples.images["train"] / 255
    # They are stored to six digits.
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 1, 2)), atol=1e-6)
    np.testing.assert_allclose(std, pixels.std(axis=(0, 1, 2)), atol=1e-6)


def test_the_files_are_plain(directory: pathlib.Path) -> None:
    """Nothing of DawnJAX is needed to read them, and no leftovers stay."""
    assert sorted(path.name for path in directory.iterdir()) == sorted([*FILES, "dataset.json"])
    images = np.load(directory / "train_images.npy", allow_pickle=False)
    assert (images == some_examples().images["train"]).all()
    body = json.loads((directory / "dataset.json").read_text())
    assert body["schema_version"] == 1
    assert body["files"]["train_images.npy"]["shape"] == [20, 4, 5, 3]
    assert body["facts"]["num_examples"] == {"train": 20, "eval": 7}
    content = (directory / "eval_images.npy").read_bytes()
    assert body["files"]["eval_images.npy"]["num_bytes"] == len(content)
    assert body["algorithm"] == "crc32"
    assert body["files"]["eval_images.npy"]["checksums"] == [f"{zlib.crc32(content):08x}"]
    assert str(directory.parent) not in json.dumps(body)


def test_checksums_cover_files_of_several_blocks(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setattr(manifest, "BLOCK_BYTES", 256)
    image_writer.write(tmp_path, some_examples, dataset="pets")
    path = tmp_path / "train_images.npy"
    content = bytearray(path.read_bytes())
    assert len(content) == 128 + 20 * 60
    stated = image_set.read(tmp_path).files["train_images.npy"].checksums
    assert stated == tuple(
        f"{zlib.crc32(content[start : start + 256]):08x}" for start in range(0, len(content), 256)
    )
    content[1000] ^= 4
    path.write_bytes(content)
    assert "train_images.npy: damaged between bytes 768 and 1,024" in failure(tmp_path)


def test_missing_directory(tmp_path: pathlib.Path) -> None:
    message = failure(tmp_path / "nowhere")
    assert message == (
        f"{tmp_path / 'nowhere'}: no prepared images there; `dawnjax prepare --dataset=images` "
        "makes them (--data.data_dir names another place)"
    )
    assert not image_set.KIND.is_begun(tmp_path / "nowhere")


def test_missing_description_is_half_converted(directory: pathlib.Path) -> None:
    (directory / "dataset.json").unlink()
    message = failure(directory)
    assert message.startswith(f"{directory}: half-converted") and "run `dawnjax prepare`" in message


@pytest.mark.parametrize("name", FILES)
def test_missing_file(directory: pathlib.Path, name: str) -> None:
    (directory / name).unlink()
    assert failure(directory).startswith(f"{directory / name}: missing")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("num_bytes", [0, 1, 100, 130])
def test_truncated_file(directory: pathlib.Path, name: str, num_bytes: int) -> None:
    os.truncate(directory / name, num_bytes)
    assert failure(directory).startswith(f"{directory / name}: truncated ({num_bytes} of ")


@pytest.mark.parametrize("name", FILES)
def test_longer_file(directory: pathlib.Path, name: str) -> None:
    with (directory / name).open("ab") as file:
        file.write(b"\0")
    assert failure(directory).startswith(f"{directory / name}: too long")


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_found(directory: pathlib.Path, name: str) -> None:
    """In every byte of the file, header included, one bit at a time."""
    whole = (directory / name).read_bytes()
    for position in range(0, len(whole), 1 if len(whole) < 300 else 7):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        (directory / name).write_bytes(changed)
        assert failure(directory).startswith(f"{directory / name}: ")
    (directory / name).write_bytes(whole)
    read_all(directory)


def test_every_flipped_bit_of_the_description_is_found(directory: pathlib.Path) -> None:
    path = directory / "dataset.json"
    whole = path.read_bytes()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        assert failure(directory).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"sha256": 1}', '{"kind": 1}', "\x00" * 50, "[" * 99999]
)
def test_description_that_is_none(directory: pathlib.Path, text: str) -> None:
    (directory / "dataset.json").write_text(text)
    assert failure(directory).startswith(f"{directory / 'dataset.json'}: damaged")


def rewrite(directory: pathlib.Path, name: str, array: np.ndarray) -> None:
    """Replaces a file and makes the description's checksums fit, as a faulty converter might."""
    np.save(directory / name, array)
    content = (directory / name).read_bytes()
    body = json.loads((directory / "dataset.json").read_text())
    body["files"][name]["checksums"] = [f"{zlib.crc32(content):08x}"]
    body["files"][name]["num_bytes"] = len(content)
    save(directory, body)


def save(directory: pathlib.Path, body: dict) -> None:
    body = {name: value for name, value in body.items() if name != "sha256"}
    sha256 = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (directory / "dataset.json").write_text(json.dumps({**body, "sha256": sha256}))


def test_wrong_shape_and_dtype(directory: pathlib.Path) -> None:
    images = np.load(directory / "train_images.npy")
    rewrite(directory, "train_images.npy", images.reshape(20, 5, 4, 3))
    message = failure(directory)
    assert (
        "train_images.npy: holds uint8 (20, 5, 4, 3), but should hold uint8 (20, 4, 5, 3)"
        in message
    )
    rewrite(directory, "train_images.npy", images.view(np.int8))
    assert "train_images.npy: holds int8" in failure(directory)


@pytest.mark.parametrize("label", [3, -1, 2**31 - 1])
def test_label_out_of_range(directory: pathlib.Path, label: int) -> None:
    labels = np.load(directory / "eval_labels.npy")
    labels[5] = label
    rewrite(directory, "eval_labels.npy", labels)
    assert failure(directory) == (
        f"{directory / 'eval_labels.npy'}: label {label} of example 5 is out of range 0 to 2"
    )


def test_description_of_a_later_program(directory: pathlib.Path) -> None:
    body = json.loads((directory / "dataset.json").read_text())
    save(directory, {**body, "schema_version": 2})
    assert "schema version 2, but this program reads 1" in failure(directory)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("facts", "classes"), [1, 2, 3], "facts.classes[0]: Expected str, got int"),
        (("facts", "classes"), ["cat"], "the facts of the train split contradict its files"),
        (("facts", "num_examples", "eval"), "7", "num_examples[...]: Expected int, got str"),
        (("facts", "num_examples", "eval"), 8, "the facts of the eval split contradict its files"),
        (("facts", "name"), "pets", "facts.name"),
        (("files", "eval_labels.npy", "num_bytes"), -1, "files.eval_labels.npy"),
        (("files", "eval_labels.npy", "checksums"), [], "files.eval_labels.npy"),
        (("files", "../x.npy"), {"num_bytes": 0, "checksums": []}, "files.../x.npy"),
        (("files",), {}, "lacks"),
        (("algorithm",), "md5", "algorithm"),
        (("kind",), "movielens", "describes pets, not images; choose another directory"),
    ],
)
def test_a_forged_description_ends_in_one_line(directory: pathlib.Path, path, value, line) -> None:
    """Its hash fits: a stranger can make one, and no type or count is taken on trust."""
    body = json.loads((directory / "dataset.json").read_text())
    part = body
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    save(directory, body)
    assert line in failure(directory)


def test_nothing_is_unpickled(directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    trap = np.array([Trap()] * 20, dtype=object)
    np.save(directory / "train_labels.npy", trap, allow_pickle=True)
    assert str(directory / "train_labels.npy") in failure(directory)
    assert not (tmp_path / "sprung").exists()


def test_same_content_is_left_alone(directory: pathlib.Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    for overwrite in (False, True):
        _, outcome = image_writer.write(
            directory, some_examples, dataset="pets", overwrite=overwrite
        )
        assert outcome == "unchanged"
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_other_content_is_refused_without_overwrite(directory: pathlib.Path) -> None:
    with pytest.raises(DataError, match="holds other content .pets, 20 . 7 .*--overwrite"):
        image_writer.write(directory, lambda: some_examples(1), dataset="pets")
    assert (read_all(directory)["train"]["image"] == some_examples().images["train"]).all()
    assert sorted(path.name for path in directory.iterdir()) == sorted([*FILES, "dataset.json"])
    _, outcome = image_writer.write(
        directory, lambda: some_examples(1), dataset="pets", overwrite=True
    )
    assert outcome == "written"
    assert (read_all(directory)["train"]["image"] == some_examples(1).images["train"]).all()


def test_damaged_content_is_replaced_with_overwrite(directory: pathlib.Path) -> None:
    os.truncate(directory / "train_images.npy", 500)
    with pytest.raises(DataError, match="train_images.npy: truncated .*--overwrite"):
        image_writer.write(directory, some_examples, dataset="pets")
    image_writer.write(directory, some_examples, dataset="pets", overwrite=True)
    read_all(directory)


def test_other_files_are_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    def read_examples() -> Examples:
        raise AssertionError("the directory is refused before anything is read")

    with pytest.raises(DataError, match="holds other files .thesis.tex"):
        image_writer.write(tmp_path, read_examples, dataset="pets")
    image_writer.write(tmp_path, some_examples, dataset="pets", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    read_all(tmp_path)


def test_a_failing_source_leaves_no_trace(tmp_path: pathlib.Path, directory: pathlib.Path) -> None:
    def read_examples() -> Examples:
        raise DataError("the source is broken")

    with pytest.raises(DataError, match="the source is broken"):
        image_writer.write(tmp_path / "new", read_examples, dataset="pets")
    assert not (tmp_path / "new").exists()
    with pytest.raises(DataError, match="the source is broken"):
        image_writer.write(directory, read_examples, dataset="pets", overwrite=True)
    assert sorted(path.name for path in directory.iterdir()) == sorted([*FILES, "dataset.json"])
    read_all(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((3, 4, 5, 3), np.float32)}, "images float32"),
        ({"images": np.zeros((3, 4, 5), np.uint8)}, "wanted uint8"),
        ({"labels": np.arange(4)}, "labels .4,."),
        ({"labels": np.array([0, 1, 3])}, "label 3 of example 2"),
        ({"images": np.zeros((0, 4, 5, 3), np.uint8), "labels": np.arange(0)}, "no images"),
    ],
)
def test_impossible_examples_are_refused(tmp_path: pathlib.Path, change, message: str) -> None:
    part = {"images": np.zeros((3, 4, 5, 3), np.uint8), "labels": np.arange(3), **change}
    whole = some_examples()
    examples = Examples(
        classes=CLASSES,
        images={**whole.images, "train": part["images"]},
        labels={**whole.labels, "train": part["labels"]},
        source={},
    )
    with pytest.raises(DataError, match=message):
        image_writer.write(tmp_path / "new", lambda: examples, dataset="pets")
    assert not (tmp_path / "new").exists()


def test_one_writer_at_a_time(directory: pathlib.Path) -> None:
    with (directory / "prepare_unfinished").open("ab") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is writing to it"):
            image_writer.write(directory, some_examples, dataset="pets")


CHILD = textwrap.dedent("""
    import os, pathlib, resource, signal, sys
    from dawnjax.input_pipeline.preparation import image_writer, writing
    from dataset_test import some_examples

    directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    write, done = writing.write_synced, 0

    def kill_in_the_middle(path, blocks):
        global done
        if done == count:
            path.write_bytes(next(iter(blocks))[:200])
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        write(path, blocks)

    def read_examples():
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return some_examples(2)

    if count < 100:
        image_writer.write_synced = writing.write_synced = kill_in_the_middle
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))
    image_writer.write(directory, read_examples, dataset="pets", overwrite=True)
""")


def run_child(directory: pathlib.Path, count: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(directory), str(count)],
        cwd=pathlib.Path(__file__).parent,  # from which it imports this file
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.faults
@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 4])
def test_killed_while_reading_or_in_any_file(tmp_path: pathlib.Path, count: int) -> None:
    """-1 is while the source is read; 0 to 3 an array; 4 the description."""
    for directory in (tmp_path / "new", tmp_path / "old"):
        if directory.name == "old":
            image_writer.write(directory, some_examples, dataset="pets")
        assert run_child(directory, count).returncode == -signal.SIGKILL
        if directory.name == "old" and count < 0:
            # Nothing was replaced yet.
            assert (read_all(directory)["eval"]["image"] == some_examples().images["eval"]).all()
        else:
            assert "half-converted" in failure(directory)
        # The lock died with its holder, and the directory is known as ours.
        image_writer.write(directory, lambda: some_examples(2), dataset="pets", overwrite=count < 0)
        assert (read_all(directory)["eval"]["image"] == some_examples(2).images["eval"]).all()
        assert sorted(path.name for path in directory.iterdir()) == sorted([*FILES, "dataset.json"])


@pytest.mark.faults
def test_no_room_on_the_disk(tmp_path: pathlib.Path) -> None:
    """A limit on the size of files stops the first array, as a full disk would."""
    child = run_child(tmp_path, 1000)
    assert child.returncode == 1
    last = child.stderr.strip().splitlines()[-1]
    assert "DataError" in last and "train_images.npy: cannot be written (File too large)" in last
    assert "half-converted" in failure(tmp_path)


def test_directory_that_cannot_be_made(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file: is not a directory"):
        image_writer.write(tmp_path / "file", some_examples, dataset="pets")
    with pytest.raises(DataError, match="cannot be written .Not a directory"):
        image_writer.write(tmp_path / "file" / "below", some_examples, dataset="pets")
