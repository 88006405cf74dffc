"""A run that begins with another's parameters, and datasets of some classes."""

import json
import shutil

import numpy as np
import pytest
from shared_runs import copied_once

from dawnjax.__main__ import main
from dawnjax.analysis import loading
from dawnjax.input_pipeline.datasets.digits import Digits
from dawnjax.input_pipeline.reading import class_subset
from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Split

SMALL = ["--model.stage_sizes=1", "--model.stage_widths=16", "--max_steps=40", "--num_epochs=0"]
SMALL += ["--profile.after_run=false", "--evaluation.every_steps=20", "--schedule=constant"]
SMALL += ["--evaluation.first_epoch=0", "--optimizer.base_learning_rate=0.02"]
AVERAGED = ["--ema_decay=0.5", "--evaluation.weights=ema", "--data.kept_classes=0,1,2,3,4"]
HALVES = ("--data.kept_classes=0,1,2,3,4", "--data.kept_classes=5,6,7,8,9")


def train(run_dir, compile_cache, *flags):
    return main(["train", "digits", *SMALL, *flags, compile_cache, f"--run_dir={run_dir}"])


@pytest.fixture(scope="module")
def source(tmp_path_factory, compile_cache):
    """A run on the first five digits, with EMA weights that it evaluates."""

    def make(folder):
        assert train(folder / "run", compile_cache, *AVERAGED) in (0, 3)

    return copied_once(tmp_path_factory, "source", make) / "run"


def events_of(run_dir):
    lines = (run_dir / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.compiles
def test_other_classes_get_a_fresh_head(source, tmp_path, compile_cache, capsys):
    run_dir = tmp_path / "run"
    flags = [HALVES[1], f"--initialize_from={source}"]
    assert train(run_dir, compile_cache, *flags) in (0, 3)
    assert "made anew: params/classifier/bias, params/classifier/kernel" in capsys.readouterr().err
    events = events_of(run_dir)
    [told] = [event for event in events if event["event"] == "initialized_from"]
    assert told["source_step"] == 40 and told["weights"] == "ema"
    assert told["fresh"] == ["params/classifier/bias", "params/classifier/kernel"]
    assert any(name.startswith("batch_stats/") for name in told["taken"])
    names = [event["event"] for event in events]
    assert names.index("run_start") < names.index("initialized_from")  # it is on the clock
    result = json.loads((run_dir / "result.json").read_text())
    made = json.loads((source / "experiment.json").read_text())
    assert result["initialized_from"].startswith(f"{made['run_id']}, identity {made['identity']}")

    # The same command goes on, or shows what there is, even where the source is gone.
    capsys.readouterr()
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    moved = source.with_name("moved")
    source.rename(moved)
    try:
        assert train(copy, compile_cache, *flags) in (0, 3)
    finally:
        moved.rename(source)
    # A board holds it apart from runs that began anew, with a warning; no export takes it.
    entry = loading.load(str(run_dir))[0]
    assert entry.benchmark == "digits, fine-tuned"
    assert any("began with the parameters of" in warning for warning in entry.warnings)
    out = f"--out={tmp_path / 'export'}"
    assert main(["export", "--format=dawnbench", str(run_dir), "--submitter=a", out]) == 2
    assert "began with the parameters of" in capsys.readouterr().err


@pytest.mark.compiles
def test_the_same_classes_keep_the_head_and_begin_where_the_source_ended(
    source, tmp_path, compile_cache
):
    flags = [HALVES[0], "--evaluation.weights=raw", "--optimizer.base_learning_rate=1e-9"]
    assert train(tmp_path / "run", compile_cache, *flags, f"--initialize_from={source}") in (0, 3)
    before = json.loads((source / "result.json").read_text())["evaluations"][-1]
    after = json.loads((tmp_path / "run" / "result.json").read_text())["evaluations"][0]
    # Nothing is learnt at this rate: the averaged weights of the source answer as they did there.
    # Its statistics move a little with each step.
    assert after["top_1_accuracy"] > before["top_1_accuracy"] - 0.1 > 0.4
    [told] = [e for e in events_of(tmp_path / "run") if e["event"] == "initialized_from"]
    assert told["fresh"] == []


@pytest.mark.compiles
def test_identity_holds_what_was_begun_with(source, tmp_path, compile_cache):
    identities, few = set(), ["--max_steps=2", "--evaluation.every_steps=2"]
    for name, flags in {
        "none": [],
        "source": [f"--initialize_from={source}"],
        "other": [f"--initialize_from={tmp_path / 'from_none'}"],
    }.items():
        run_dir = tmp_path / f"from_{name}"
        assert train(run_dir, compile_cache, *AVERAGED, *few, *flags) in (0, 3)
        identities.add(json.loads((run_dir / "result.json").read_text())["identity"])
    assert len(identities) == 3


@pytest.mark.compiles
def test_a_damaged_source_is_one_line(source, tmp_path, compile_cache, capsys):
    """tests/golden/trained_runs.txt has the others."""
    damaged, late = tmp_path / "damaged", tmp_path / "late"
    shutil.copytree(source, damaged)
    metadata = next(damaged.glob("checkpoints/*/metadata/metadata.json"))
    metadata.write_text(metadata.read_text()[:-40])
    assert train(tmp_path / "run", compile_cache, f"--initialize_from={damaged}") == 2
    error = capsys.readouterr().err
    assert "is damaged" in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()
    # Damage of the arrays is found once the run reads; the source is not to be deleted.
    changed = tmp_path / "changed"
    shutil.copytree(source, changed)
    for file in changed.glob("checkpoints/*/state/**/d/*"):
        file.write_bytes(file.read_bytes()[:-1])
    flags = [HALVES[1], f"--initialize_from={changed}"]
    assert train(late, compile_cache, *flags) == 1
    error = capsys.readouterr().err
    assert "cannot be restored" in error and "restore a copy" in error and "Traceback" not in error


def test_kept_classes_are_numbered_in_their_order():
    whole, some = Digits(), Digits(kept_classes=(7, 2))
    spec = some.spec()
    assert spec.num_classes == 2 and some.classes() == ("7", "2")
    assert spec.fingerprint != whole.spec().fingerprint
    counts: dict[Split, int] = {
        "train": spec.num_train_examples,
        "eval": spec.num_eval_examples,
    }
    for split, count in counts.items():
        everything, kept = whole.load(split), some.load(split)
        assert len(kept["label"]) == count
        rows = np.isin(everything["label"], (7, 2))
        np.testing.assert_array_equal(kept["image"], everything["image"][rows])
        expected = [{7: 0, 2: 1}[label] for label in everything["label"][rows]]
        np.testing.assert_array_equal(kept["label"], expected)


def test_a_subset_of_a_published_set_is_not_that_set():
    spec = DatasetSpec(
        num_train_examples=6,
        num_eval_examples=3,
        image_shape=(1, 1, 1),
        num_classes=3,
        mean=(0.0,),
        std=(1.0,),
        fingerprint="0" * 16,
    )
    counts: dict[Split, tuple[int, ...]] = {"train": (1, 2, 3), "eval": (1, 1, 1)}
    some = class_subset.subset_spec(spec, (2, 0), counts, "a set")
    assert (some.num_train_examples, some.num_eval_examples) == (4, 2)
    assert some.declaration is not None and some.declaration.benchmark == ""
