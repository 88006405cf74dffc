"""A run's checkpoint on other labelled sets, and one example at a time."""

import hashlib
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from shared_runs import copied_once
from small_text import FLAGS, LEARNS, NUM_EVALUATED, prepare_small_text
from told import told
from trained import SMALL

from dawnjax.__main__ import main
from dawnjax.analysis import generalization
from dawnjax.checkpointed import latency
from dawnjax.cluster import processes
from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.datasets.synthetic import Synthetic
from dawnjax.official import dawnbench, export_dawnbench
from dawnjax.tasks.metric import TOP_1_ACCURACY, Metric, loss_metric
from dawnjax.tasks.task import Answering

pytestmark = pytest.mark.compiles

DATA = Synthetic(num_train_examples=200, num_eval_examples=90, image_channels=3)
CLASSES = [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def run(tmp_path_factory, compile_cache) -> Path:
    """A classifier after one epoch of 13 steps: right more often than by chance, and not always."""
    argv = ["train", *SMALL, "--data.num_train_examples=200", "--data.num_eval_examples=90"]
    argv += ["--data.image_channels=3", "--num_epochs=1", "--schedule.warmup_epochs=0.5"]
    argv += ["--model.stage_widths=16", "--targets.0.value=1.0", compile_cache]

    def make(folder: Path) -> None:
        assert main([*argv, f"--run_dir={folder / 'run'}"]) in (0, 3)

    return copied_once(tmp_path_factory, "classifier", make) / "run"


@pytest.fixture(scope="module")
def own(run) -> dict[str, float]:
    row = json.loads((run / "result.json").read_text())["evaluations"][-1]
    return {name: row[name] for name in ("top_1_accuracy", "top_5_accuracy", "loss")}


def state_of(run: Path) -> dict[str, str]:
    """The hash of each file that the run itself wrote."""
    files = [path for path in run.rglob("*") if path.is_file()]
    own_files = [path for path in files if not {"evaluations", "inference"} & set(path.parts)]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in own_files}


def evaluated(run: Path, *argv: str) -> dict:
    """Evaluates another set; gives the record, and checks that the run's own files stay."""
    before = state_of(run)
    known = set((run / "evaluations").glob("*")) if (run / "evaluations").exists() else set()
    assert main(["evaluate", str(run), *argv]) == 0
    assert state_of(run) == before
    (file,) = set((run / "evaluations").glob("*")) - known
    return json.loads(file.read_text())


def test_the_same_images_in_class_folders_give_the_same_metrics(run, own, tmp_path, capsys):
    examples = DATA.load("eval")
    for number, (image, label) in enumerate(zip(examples["image"], examples["label"], strict=True)):
        folder = tmp_path / "again" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        content = cv2.imencode(".png", image[:, :, ::-1])[1].tobytes()
        (folder / f"{number}.JPEG").write_bytes(content)  # misnamed, and read as what it is
    record = evaluated(run, f"--data={tmp_path / 'again'}")
    assert record["other"]["kind"] == "class folders" and record["other"]["examples"] == 90
    assert record["own"]["metrics"] == own and record["own"]["source"] == "recorded by the run"
    metrics = record["other"]["metrics"]
    # The order differs, and with it the order of float32 sums: the last bits of a loss near 1.
    assert metrics["loss"] == pytest.approx(own["loss"], rel=1e-5)
    for name in ("top_1_accuracy", "top_5_accuracy"):
        assert metrics[name] == own[name] and record["drop"][name]["value"] == 0
        low, high = record["drop"][name]["interval_95"]
        assert -0.2 < low < 0 < high < 0.2
    assert record["notes"] == [] and record["step"] == 13 and record["epoch"] == 1.04
    text = capsys.readouterr().out
    assert "synthetic, own evaluation split" in text and "drop of top_1_accuracy: 0.0000" in text
    cut = cv2.imencode(".png", examples["image"][0])[1].tobytes()[:40]
    (tmp_path / "again/0/cut.png").write_bytes(cut)
    assert main(["evaluate", str(run), f"--data={tmp_path / 'again'}"]) == 1
    assert "cut.png: is cut short" in capsys.readouterr().err


def test_classes_are_matched_by_name(run, own, tmp_path):
    examples = DATA.load("eval")
    file = tmp_path / "renamed.npz"
    # The set counts its classes backwards, and has one more that no image is of.
    np.savez(
        file,
        images=examples["image"],
        labels=9 - examples["label"],
        classes=np.array([*CLASSES[::-1], "other"]),
    )
    record = evaluated(run, f"--data={file}")
    assert record["other"]["metrics"] == pytest.approx(own, rel=1e-5)
    # Without names the numbers count, and the note says so: other labels, another accuracy.
    np.save(tmp_path / "numbers_data.npy", examples["image"][:30])
    np.save(tmp_path / "numbers_labels.npy", np.full(30, 3))
    record = evaluated(run, f"--data={tmp_path / 'numbers_data.npy'}", "--name=threes")
    assert record["other"]["name"] == "threes" and record["other"]["examples"] == 30
    assert [note[:7] for note in record["notes"]] == ["the set", "9 of th"]
    answers_of_three = record["other"]["metrics"]["top_1_accuracy"]
    assert record["drop"]["top_1_accuracy"]["value"] == own["top_1_accuracy"] - answers_of_three


def test_without_a_record_the_own_split_is_measured_again(run, own, tmp_path, monkeypatch):
    examples = DATA.load("eval")
    np.savez(tmp_path / "half.npz", images=examples["image"][:45], labels=examples["label"][:45])
    (run / "log.jsonl").rename(tmp_path / "log.jsonl")
    try:
        record = evaluated(run, f"--data={tmp_path / 'half.npz'}")
        # Of several hosts process 0 alone may have the record: then none measures.
        of_first = {"null": json.dumps(own)}
        monkeypatch.setattr(processes, "same_text", lambda text: of_first.get(text, text))
        by_first = evaluated(run, f"--data={tmp_path / 'half.npz'}", "--name=elsewhere")
    finally:
        (tmp_path / "log.jsonl").rename(run / "log.jsonl")
    assert record["own"]["source"] == "measured now"
    assert record["own"]["metrics"] == pytest.approx(own, rel=1e-6)
    assert by_first["own"]["source"] == "recorded by the run"
    assert by_first["own"]["metrics"] == own


@pytest.fixture(scope="module")
def text_run(tmp_path_factory, compile_cache) -> tuple[Path, Path]:
    """A translator that has learnt to translate, and the folder of its text."""
    pytest.importorskip("sentencepiece", reason="the extra `text` is not installed")

    def make(folder: Path) -> None:
        data = prepare_small_text(folder)
        argv = ["train", "--experiment=multi30k_transformer", f"--data.data_dir={data}"]
        flags = [*FLAGS, *LEARNS, "--evaluation.every_epochs=40", "--targets.0.value=100"]
        run_dir = f"--run_dir={folder / 'run'}"
        assert main([*argv, compile_cache, *flags, run_dir]) in (0, 3)

    folder = copied_once(tmp_path_factory, "translator", make)
    return folder / "run", folder


def test_another_test_set_of_a_translator(text_run, tmp_path):
    run, folder = text_run
    sides = [f"--data.source={folder / 'eval.a'}", f"--data.target={folder / 'eval.b'}"]
    record = evaluated(run, *sides, "--name=again")
    recorded, measured = record["own"]["metrics"], record["other"]["metrics"]
    # Of 13 sentences the last bit of a sum moves BLEU by ten and more: 28 to 43 were seen.
    assert recorded["bleu"] > 20 and recorded["loss"] < 1.5
    # The very same sentences, by another way.
    for name in ("bleu", "bleu_signature"):
        assert measured[name] == recorded[name]
    assert measured["loss"] == pytest.approx(recorded["loss"], rel=1e-5)
    assert record["other"]["examples"] == NUM_EVALUATED
    assert record["drop"]["bleu"]["interval_95"] is None and record["drop"]["bleu"]["reason"]
    # Other and longer sentences: another split, whose shapes differ too.
    longer = [" ".join(line.split() * 3) for line in (folder / "train.a").read_text().splitlines()]
    (tmp_path / "long.a").write_text("\n".join(longer[:21]) + "\n")
    (tmp_path / "long.b").write_text("\n".join(longer[:21]) + "\n")
    sides = [f"--data.source={tmp_path / 'long.a'}", f"--data.target={tmp_path / 'long.b'}"]
    record = evaluated(run, *sides)
    assert record["other"]["name"] == "long" and record["other"]["examples"] == 21
    assert record["other"]["metrics"]["loss"] != recorded["loss"]


def test_a_translator_may_search_with_another_beam(text_run, capsys):
    run, folder = text_run
    last = json.loads((run / "result.json").read_text())["evaluations"][-1]
    beam = ["--task.decoding.num_beams=3", "--task.decoding.length_penalty=3"]
    rows = []
    for flags in ([], beam):
        rows.append(told(capsys, "evaluate", str(run), *flags))
    own, wider = rows
    assert own["own"]["metrics"]["bleu"] == last["bleu"] != wider["own"]["metrics"]["bleu"]
    assert own["reached"] is False and own["evaluation_fields"] != wider["evaluation_fields"]
    decoding = {"num_beams": 3, "length_penalty": 3.0, "coverage_penalty": 0.0}
    assert wider["evaluation_fields"] == {
        "decoding": {**decoding, "max_extra_tokens": 4},
        "scoring": {"is_cased": True, "tokenizer": "13a"},
    }
    assert wider["reached"] is None and wider["reasons"]["reached"]
    # The loss is of the references.
    assert wider["own"]["metrics"]["loss"] == pytest.approx(last["loss"], rel=1e-5)
    # Another set beside the own one: both are searched with the beam, and the file is another.
    sides = [f"--data.source={folder / 'eval.a'}", f"--data.target={folder / 'eval.b'}"]
    record = evaluated(run, *sides, "--name=beams", *beam)
    assert (
        run / "evaluations" / f"beams-step{last['step']}-num_beams3-length_penalty3.0.json"
    ).exists()
    assert record["own"]["source"] == "measured now"
    for side in ("own", "other"):
        assert record[side]["metrics"]["bleu"] == wider["own"]["metrics"]["bleu"]


def inferred(run: Path, *argv: str) -> dict:
    assert main(["infer", str(run), "--warm_up=2", *argv]) == 0
    file = max((run / "inference").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    return json.loads(file.read_text())


def test_one_example_at_a_time_is_the_model_that_was_evaluated(run, own, capsys):
    before = state_of(run)
    record = inferred(run, "--examples=120", "--price_per_hour_usd=3.6")
    assert state_of(run) == before
    assert (record["examples"], record["distinct_examples"]) == (120, 90)
    assert record["quality"] == {name: own[name] for name in ("top_1_accuracy", "top_5_accuracy")}
    assert record["reached"] is False and record["reasons"] == {}
    latency = record["latency_seconds"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"] < 60
    assert latency["min"] <= latency["mean"] <= latency["max"]
    # 3.60 USD an hour is a tenth of a cent a second.
    assert record["cost_of_10000_usd"] == pytest.approx(latency["mean"] * 10)
    assert record["examples_per_second"] == pytest.approx(1 / latency["mean"])
    device = record["device"]
    assert device["platform"] == "cpu" and (device["used"], device["present"]) == (1, 4)
    assert device["cores"] == len(os.sched_getaffinity(0)) and record["compute_dtype"] == "float32"
    text = capsys.readouterr().out
    assert "latency of 120 examples after 2: mean" in text and "on 1 of 4 cpu devices" in text


def test_what_is_not_known_is_null_with_its_reason(run, capsys):
    record = inferred(run, "--examples=5")
    assert record["cost_of_10000_usd"] is None and record["reached"] is None
    assert "--price_per_hour_usd" in record["reasons"]["cost_of_10000_usd"]
    assert record["reasons"]["reached"] == "5 of 90 examples were answered"
    assert record["latency_seconds"]["p99"] is None
    assert "needs 100 examples" in record["reasons"]["latency_seconds.p99"]
    printed = capsys.readouterr().out
    assert "p99 - (it needs 100 examples or more, and 5 counted)" in printed
    assert "of 5 of 90 examples: top_1_accuracy" in printed
    # A part of the split replaces no result of the whole one.
    assert (run / "inference" / f"cpu-step{record['step']}-5of90.json").exists()


def test_examples_come_from_all_over_the_split():
    asked: list[int] = []

    def answer(position: int) -> int:
        asked.append(position)
        return position * 10

    model = Answering(
        example=lambda position: position, answer=answer, quality=lambda *_: {}, timed=""
    )
    seconds, answers, positions = latency.measure(model, 100, 30, 5)
    assert (len(seconds), len(asked), len(set(positions))) == (30, 35, 30)
    assert answers == [position * 10 for position in positions] == [p * 10 for p in asked[5:]]
    assert 30 < np.mean(positions) < 70  # of 30 random ones of 0 to 99, four deviations wide
    assert latency.measure(model, 100, 30, 5)[2] == positions
    # All of them and then some: each is answered, and counts once for the quality.
    seconds, answers, positions = latency.measure(model, 100, 130, 0)
    assert (len(seconds), sorted(positions)) == (130, list(range(100)))


def test_latencies_by_hand():
    latencies = latency.statistics([float(number) for number in range(1, 201)])
    assert latencies == {"mean": 100.5, "p50": 100.0, "p99": 198.0, "min": 1.0, "max": 200.0}
    # 99 of 100 were no longer than the 99th; of 99 it would be the longest.
    assert latency.statistics([float(number) for number in range(1, 101)])["p99"] == 99.0
    assert latency.statistics([float(number) for number in range(1, 100)])["p99"] is None
    assert latency.statistics([3.0])["p50"] is None
    assert latency.cost_usd(0.018, 2.0) == pytest.approx(0.1)
    assert latency.cost_usd(0.018, None) is None


def test_an_entry_is_offered_for_data_with_a_table_alone(run, monkeypatch, capsys):
    record = inferred(run, "--examples=90") | {"reached": True, "file": "x.json"}
    for benchmark, is_offered in (("", False), ("CIFAR-10", True)):
        made = record | {"data": record["data"] | {"benchmark": benchmark}}
        monkeypatch.setattr("dawnjax.checkpointed.infer.infer_run", lambda *_, it=made: (it, ""))
        assert main(["infer", str(run)]) == 0
        assert ("to submit: dawnjax export" in capsys.readouterr().out) == is_offered


def test_an_inference_entry_comes_back_as_it_was(run, tmp_path):
    record = inferred(run, "--examples=90", "--price_per_hour_usd=3.6")
    file = tmp_path / "cpu.json"
    cifar10 = record["data"] | {"benchmark": "CIFAR-10"}

    def export(out: str, **changes) -> list[Path]:
        file.write_text(json.dumps(record | changes))
        return export_dawnbench.export([file], tmp_path / out, author="An Author")

    with pytest.raises(ConfigError, match="its data are images made from a seed"):
        export("a")
    with pytest.raises(ConfigError, match="its data are not recorded"):
        export("a", data="cifar10")  # a name is no declaration
    with pytest.raises(ConfigError, match="below the 94 of CIFAR10"):
        export("b", data=cifar10, quality={"top_1_accuracy": 0.9399})
    good = {"data": cifar10, "quality": {"top_1_accuracy": 0.9412}}
    with pytest.raises(ConfigError, match="not the whole evaluation split"):
        export("c", **good, reached=None)
    with pytest.raises(ConfigError, match="an evaluation has no top_5_accuracy"):
        export("c", **good | {"data": {"benchmark": "ImageNet"}}, reached=True)
    (path,) = export("d", **good, reached=True)
    assert path.relative_to(tmp_path).as_posix() == "d/CIFAR10/inference/dawnjax.json"
    entry = dawnbench.read_inference("x", "CIFAR10/inference/x.json", path.read_bytes())
    assert entry.kind == "inference" and entry.benchmark == "CIFAR10" and entry.warnings == ()
    assert entry.inference is not None and entry.inference.quality == pytest.approx(94.12)
    mean = record["latency_seconds"]["mean"]
    assert entry.inference.latency_milliseconds == pytest.approx(1000 * mean)
    assert entry.inference.cost_usd == pytest.approx(record["cost_of_10000_usd"])
    assert main(["export", "--format=dawnbench_inference", str(tmp_path / "no.json"),
                 "--submitter=A", f"--out={tmp_path / 'e'}"]) == 2  # fmt: skip


def test_a_drop_is_positive_where_the_other_set_is_harder():
    metrics = (
        TOP_1_ACCURACY,
        loss_metric("nats"),
        Metric(name="error", title="e", unit="fraction", direction="at_most", is_proportion=True),
    )
    own = {"top_1_accuracy": 0.9, "loss": 0.5, "error": 0.1}
    other = {"top_1_accuracy": 0.8, "loss": 0.75, "error": 0.2}
    shown = generalization.drops(metrics, (own, 100), (other, 100))
    assert {name: drop["value"] for name, drop in shown.items()} == {
        "top_1_accuracy": pytest.approx(0.1),
        "loss": 0.25,
        "error": pytest.approx(0.1),
    }
    assert shown["loss"]["interval_95"] is None and shown["loss"]["reason"]
    # 90 of 100 right and 80 of 100 are 10 of 100 wrong and 20 of 100.
    assert shown["error"]["interval_95"] == pytest.approx(shown["top_1_accuracy"]["interval_95"])
    unknown = generalization.drops(metrics, ({**own, "loss": "NaN"}, 100), (other, 100))["loss"]
    assert (
        unknown["value"] is None and unknown["reason"] == "loss of one set is not a finite number"
    )
