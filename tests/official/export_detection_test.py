"""Runs of MLPerf's SSD and Mask R-CNN in MLPerf's form, through its own rules, and back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import write_run
from retold_runs import Event, error_of, export, only_entry, retold

from dawnjax.__main__ import main
from dawnjax.analysis import loading
from dawnjax.models.configs.mask_rcnn import MaskRCNN
from dawnjax.models.configs.ssd import SSD
from dawnjax.official.export_mlperf import BENCHMARKS
from dawnjax.tasks import coco_scores
from dawnjax.trials.from_log import BACKBONE

DECLARED = [
    metric.to_json() for kind in ("box", "mask") for metric in coco_scores.metrics_of_kind(kind)
]
TARGETS = {"ssd": {"box_ap": 0.23}, "maskrcnn": {"box_ap": 0.377, "mask_ap": 0.339}}
BOTH = "BBOX at least 0.377 and SEGM at least 0.339"
VALUES = {"box_ap": (0.1, 0.38), "mask_ap": (0.09, 0.345)}
TAKEN = ["params/stem/kernel", "params/blocks/stage_1_block_1/conv_1/kernel"]


def detector(
    benchmark: str, data: str = "COCO 2017", taken: tuple[str, ...] = (), model: str = "resnet"
) -> Callable[[list[Event]], list[Event]]:
    """Makes a run one of a detector that begins with another run's arrays."""
    targets = TARGETS[benchmark]

    def change(events: list[Event]) -> list[Event]:
        for event in events:
            if event["event"] == "experiment":
                event["metrics"] = DECLARED
                event["data"] |= {"name": data, "benchmark": data}
                experiment = event["experiment"]
                experiment |= {"mlperf_benchmark": benchmark, "optimizer": {"tag": "sgd"}}
                experiment["targets"] = [
                    {"metric": name, "value": value, "direction": "at_least"}
                    for name, value in targets.items()
                ]
                experiment["initial_state"] = "another run" if taken else ""
            if event["event"] == "evaluation":
                reached = bool(event["reached"])
                event["metrics"] = {name: VALUES[name][reached] for name in targets}
        begin = next(n for n, event in enumerate(events) if event["event"] == "run_start")
        told = {**events[begin], "event": "initialized_from", "source": "x", "source_step": 7}
        told |= {"source_model": model, "taken": list(taken), "fresh": ["params/heads/kernel"]}
        return [*events[: begin + 1], *([told] if taken else ()), *events[begin + 1 :]]

    return change


@pytest.fixture
def run(tmp_path) -> Path:
    return write_run(tmp_path / "made", seconds=15.0)


@pytest.fixture(params=["ssd", "maskrcnn"])
def exported(request, run, tmp_path) -> tuple[str, Path]:
    """Five trials of a detector with a trained backbone."""
    change = detector(request.param, taken=tuple(TAKEN))
    runs = [retold(run, tmp_path / f"s{seed}", seed, change) for seed in range(5)]
    argv = ["--format=mlperf", *map(str, runs), "--submitter=Example Lab", "--system=box_1"]
    assert export(*argv, f"--out={tmp_path / 'out'}") == 0
    return request.param, tmp_path / "out"


def test_mlperfs_checker_accepts_every_log(exported, capsys):
    pytest.importorskip("mlperf_logging", reason="mlperf-logging is not installed")
    benchmark, out = exported
    capsys.readouterr()
    assert main(["check", f"--ruleset={BENCHMARKS[benchmark].ruleset}", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all(line.endswith(": ok") for line in lines)


def test_it_comes_back_as_the_same_result(exported):
    benchmark, out = exported
    entry = only_entry(out)
    assert (entry.benchmark, entry.division) == (benchmark, "open")
    assert entry.figures.reached == 5
    assert entry.figures.score_seconds is not None
    boxes = [evaluation.value for evaluation in entry.trials[0].evaluations]
    assert boxes[-1] == 0.38 and set(boxes) <= set(VALUES["box_ap"])
    words = "eval_accuracy at least 0.23" if benchmark == "ssd" else BOTH
    assert entry.target.words() == words
    log = (out / "results" / "box_1" / benchmark / "result_0.txt").read_text()
    lines = [json.loads(line.split(" ", 1)[1]) for line in log.splitlines()]
    [*_, last] = [line["value"] for line in lines if line["key"] == "eval_accuracy"]
    assert last == (0.38 if benchmark == "ssd" else {"BBOX": 0.38, "SEGM": 0.345})


def slow_start(events: list[Event]) -> list[Event]:
    for event in detector("ssd")(events):
        event["t"] += 0 if event["event"] == "attempt_start" else 31 * 60
    return events


@pytest.mark.parametrize(
    "change,reason",
    [
        (slow_start, "the open division allows 1800"),
        (detector("ssd", taken=(*TAKEN, "params/heads/kernel")), "began with the parameters of"),
        (detector("ssd", taken=tuple(TAKEN), model="mask_rcnn"), "began with the parameters of"),
        (detector("ssd", data="blood_cells"), "the benchmark's are COCO 2017"),
    ],
)
def test_what_a_detector_may_not_do_is_refused(run, tmp_path, capsys, change, reason):
    other = retold(run, tmp_path / "run", 5, change)
    out = tmp_path / "out"
    argv = ["--format=mlperf", str(other), "--submitter=L", f"--out={out}"]
    assert reason in error_of(capsys, *argv)
    assert not out.exists()


def test_two_devices_of_a_tpu_v3_are_one_accelerator(run, tmp_path):
    def on_tpu(events: list[Event]) -> list[Event]:
        fields = {"platform": "tpu", "device_kind": "TPU v3", "num_devices": 16, "num_hosts": 2}
        changed = detector("ssd")(events)
        return [event | (fields if event["event"] == "devices" else {}) for event in changed]

    other = retold(run, tmp_path / "run", 5, on_tpu)
    argv = ["--format=mlperf", str(other), "--submitter=L", f"--out={tmp_path / 'out'}"]
    assert export(*argv) == 0
    [ours] = loading.load(str(other))
    theirs = only_entry(tmp_path / "out")
    assert (ours.num_accelerators, theirs.num_accelerators, theirs.num_hosts) == (8, 8, 2)


def test_a_board_names_the_beginning(run, tmp_path):
    for model, words in (("resnet", "from a trained backbone"), ("ssd", "fine-tuned")):
        change = detector("ssd", taken=tuple(TAKEN), model=model)
        [entry] = loading.load(str(retold(run, tmp_path / model, 5, change)))
        assert entry.benchmark == f"x, {words}"
        assert (entry.official, entry.published) == ("ssd", "COCO 2017")
        assert any("began with the parameters of" in warning for warning in entry.warnings)


def test_the_backbone_is_what_detectors_take():
    assert set(SSD.pretrained_parts) == set(MaskRCNN.pretrained_parts) == BACKBONE


def test_a_run_to_another_rounds_target_is_no_export(run, tmp_path, capsys, monkeypatch):
    """As `coco_ssd_resnet34_v05`, whose 0.212 is v0.5's."""
    monkeypatch.setitem(TARGETS, "ssd", {"box_ap": 0.212})
    made = retold(run, tmp_path / "v05", 3, detector("ssd"))
    argv = ["--format=mlperf", str(made), "--submitter=A", f"--out={tmp_path / 'out'}"]
    error = error_of(capsys, *argv)
    assert "its target is box_ap at least 0.212, and ssd of ruleset 1.1.0 asks for" in error
    assert "eval_accuracy at least 0.23" in error and not (tmp_path / "out").exists()
