"""MLPerf results from small logs; tests/golden/official.txt has more of their traps."""

import json
import math
from pathlib import Path
from typing import Any

import later_logs
import pytest
from later_logs import log_of, record

from dawnjax.official.importer import import_results
from dawnjax.official.mlperf_rounds import model, round_in, target
from dawnjax.official.mlperf_trial import read_trial
from dawnjax.official.outcome import Refused
from dawnjax.trials.group import Entry

START = 1_541_720_000.0


def v05(tag: str, seconds: float, value: Any = None) -> str:
    end = "" if value is None else f": {json.dumps(value)}"
    place = f"train.py:{1 + int(abs(seconds))}"
    return f":::MLPv0.5.0 resnet {START + seconds:.9f} ({place}) {tag}{end}"


def v05_log(*more: str, stop: float = 100.0) -> bytes:
    lines = [
        v05("run_clear_caches", -20),
        v05("run_start", 0),
        v05("input_batch_size", 1, 256),
        v05("eval_target", 2, 0.749),
    ]
    for epoch in range(2):
        lines.append(v05("train_epoch", 5 + 10 * epoch, epoch))
        lines.append(v05("eval_accuracy", 14 + 10 * epoch, {"epoch": epoch, "value": 0.5}))
    lines.append(v05("eval_accuracy", stop - 0.1, {"value": 0.75, "epoch": 1}))
    lines.append(v05("run_stop", stop, {"success": True}))
    lines += more
    return ("\n".join(lines) + "\n").encode()


def epochs_log(train: list[tuple[float, Any]], evals: list[tuple[float, int]]) -> bytes:
    lines = [v05("run_start", 0)]
    lines += [v05("train_epoch", seconds, label) for seconds, label in train]
    lines += [
        v05("eval_accuracy", seconds, {"epoch": label, "value": 0.1}) for seconds, label in evals
    ]
    lines.append(v05("run_stop", 1000, {"success": True}))
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    "name,train,evals,epochs",
    [
        ("evaluations labelled from -1", [(1, 0), (11, 1)], [(10, -1), (20, 0)], 2),
        ("no label of the first epoch", [(11, 0), (21, 1)], [(10, -1), (20, 0), (30, 1)], 3),
        (
            "all at the end, evaluations from 1",
            [(90, 0), (91, 1), (92, "2, but this epoch only has a part")],
            [(10, 1), (20, 2)],
            2,
        ),
        ("once", [(1, 0)], [(40, 3), (80, 7)], 8),
        ("now and then", [(1, 0), (320, 32), (430, 42)], [(310, 32), (420, 42), (480, 48)], 49),
        ("no evaluation", [(1, 0), (2, 1)], [], 2),
        ("no label", [], [], None),
    ],
)
def test_epochs_by_what_the_log_shows(name, train, evals, epochs):
    assert read_trial(epochs_log(train, evals)).epochs == epochs, name


def later_log(*more: str, seconds: float = 60.0, status: Any = "success") -> bytes:
    return log_of(
        "resnet",
        record("submission_org", -8, "Example <b>Corp</b>"),
        record("seed", 0.1, 4242),
        record("global_batch_size", 0.1, 512),
        record("block_start", 0.2, first_epoch_num=1, epoch_count=2),
        record("eval_accuracy", 30, 0.5, epoch_num=2),
        record("block_start", 30.2, first_epoch_num=3, epoch_count=2),
        record("eval_accuracy", seconds - 1, 0.7591, epoch_num=4),
        *more,
        seconds=seconds,
        status=status,
    )


def test_a_log_of_v07_and_later():
    lines = reversed(later_log().splitlines())
    trial = read_trial(b"\n".join(b"[1,0]<stdout>:" + line for line in lines))
    assert (trial.seconds, trial.reached, trial.epochs) == (pytest.approx(60), True, 4)
    assert (trial.global_batch_size, trial.seeds, trial.benchmark) == (512, (4242,), "resnet")
    assert [e.value for e in trial.evaluations] == [0.5, 0.7591]


def test_a_trial_that_was_given_up():
    trial = read_trial(later_log(status="ABORTED"))
    assert (trial.reached, trial.seconds) == (False, pytest.approx(60))
    with pytest.raises(Refused, match="whether the target was reached"):
        read_trial(later_log(status=None))


@pytest.mark.parametrize(
    "value,number",
    [
        ("0.7591", 0.7591),
        ([0.381, 0.342], 0.381),
        ({"BBOX": 0.381, "SEGM": 0.342}, 0.381),
        (float("nan"), None),
    ],
)
def test_shapes_of_an_evaluation(value, number):
    trial = read_trial(later_log(record("eval_accuracy", 61, value, epoch_num=5)))
    values = [e.value for e in trial.evaluations]
    assert values == [0.5, 0.7591] + ([] if number is None else [number])
    assert all(math.isfinite(v) for v in values)
    assert trial.seconds == pytest.approx(60)  # an evaluation after run_stop changes no time


def test_rounds_and_their_targets():
    assert round_in("training_results_v4.1/Org/results/x/bert") == "v4.1"
    assert round_in("Org/results/x/bert") == ""
    assert target("resnet", "", None).value == 0.759
    assert target("bert", "v0.7", None).value == 0.712
    assert target("bert", "", None).value is None  # it changed with the rounds
    assert target("gnmt", "v0.6", 24.1).value == pytest.approx(24.0)
    assert target("gnmt", "v0.7", 0.241).value == pytest.approx(0.24)
    assert target("gpt3", "v3.0", 3.0).direction == "at_most"
    # From v2.0 on another model and data set have the name.
    assert (target("ssd", "v1.1", None).value, target("ssd", "v2.0", None).value) == (0.23, 0.34)
    assert (model("ssd", "v1.1"), model("ssd", "v2.0")) == ("SSD with ResNet-34", "RetinaNet")


SYSTEM = {
    "submitter": "Example <b>Corp</b>",
    "division": "closed",
    "status": "onprem",
    "system_name": "EXAMPLE",
    "number_of_nodes": "4",
    "accelerators_per_node": 8,
    "accelerator_model_name": "NVIDIA A100-SXM4-80GB",
    "host_processor_model_name": "AMD EPYC 7742",
    "framework": "MXNet 1.9",
}


def write_round(top: Path, times: list[tuple[float, str]], system: str | None = None) -> Path:
    """Writes a result folder as rounds from v0.7 on have it."""
    logs = [later_log(seconds=seconds, status=status) for seconds, status in times]
    folder = later_logs.write_round(top, "v2.0", "resnet", logs)
    systems = folder.parents[2] / "systems"
    systems.mkdir()
    (systems / "sys.json").write_text(json.dumps(SYSTEM) if system is None else system)
    return top


def test_a_folder_of_a_later_round(tmp_path):
    times = [(60.0, "success"), (70.0, "success"), (65.0, "success"), (80.0, "success")]
    imported = import_results([write_round(tmp_path, [*times, (30.0, "aborted")])])
    assert not imported.rejections
    (entry,) = imported.entries
    assert (entry.round, entry.benchmark) == ("v2.0", "resnet")
    # The trial that was given up counts as the slowest: of 60, 65, 70, 80 the fastest goes too.
    assert entry.figures.score_seconds == pytest.approx((65 + 70 + 80) / 3)
    assert (entry.figures.trials, entry.figures.reached) == (5, 4)
    assert entry.figures.expected_seconds == pytest.approx((60 + 70 + 65 + 80 + 30) / 4)
    assert (entry.num_accelerators, entry.num_hosts, entry.global_batch_size) == (32, 4, 512)
    assert (entry.submitter, entry.processor_class) == ("Example <b>Corp</b>", "GPU")
    assert (entry.target.value, entry.target.unit) == (0.759, "fraction")
    assert Entry.from_json(json.loads(json.dumps(entry.to_json(), allow_nan=False))) == entry


def test_two_failures_mean_no_score(tmp_path):
    times = [(60.0, "success"), (70.0, "success"), (65.0, "success")]
    times += [(30.0, "aborted"), (31.0, "fail")]
    (entry,) = import_results([write_round(tmp_path, times)]).entries
    assert entry.figures.score_seconds is None
    assert any("2 of 5 trials did not reach" in warning for warning in entry.warnings)


def test_what_is_unknown_has_nulls_and_a_warning(tmp_path):
    """A description that is not JSON, a benchmark of no rules, two seeds of one trial."""
    folder = write_round(tmp_path, [(60.0, "success")], '{"number_of_nodes": 4,,}')
    (log,) = folder.rglob("result_0.txt")
    seeds = "\n".join([record("seed", 0.2, 7), record("seed", 0.3, 9)])
    log.write_bytes(log.read_bytes().replace(b'"resnet"', b'"weather_2031"') + seeds.encode())
    (entry,) = import_results([folder]).entries
    assert (entry.num_hosts, entry.num_accelerators, entry.target.value) == (None, None, None)
    assert entry.reasons["num_hosts"]
    assert (entry.benchmark, entry.trials[0].seed) == ("weather_2031", None)
    assert entry.submitter == "Example <b>Corp</b>"  # the log names it too
    for words in ("is not JSON", "'weather_2031' is unknown"):
        assert any(words in warning for warning in entry.warnings)


def write_v05(top: Path, benchmark: str, framework: str, logs: list[bytes], nodes: int) -> Path:
    """Writes a result folder as v0.5 has it, on servers with 8 accelerators each."""
    system = top / "v0.5.0" / "maker" / "submission" / "results" / "cluster_x"
    folder = system / benchmark
    folder.mkdir(parents=True)
    for number, log in enumerate(logs):
        (folder / f"result_{number}.txt").write_bytes(log)
    node = {"num_nodes": nodes, "cpu": "2x Xeon", "num_accelerators": 8, "accelerator": "V100"}
    fields = {"division": "closed", "hardware": "X-1", "framework": framework, "nodes": [node]}
    (system / "entry.json").write_text(json.dumps({**fields, "status": "on-premise"}))
    submission = system.parent.parent / "submission.json"
    submission.write_text('{"org": "Maker Inc."}')
    return top


def test_servers_of_the_job_are_counted_in_its_log(tmp_path):
    clears = [v05("run_clear_caches", -9 + n) for n in range(3)]
    logs = [v05_log(*clears, stop=100 + n) for n in range(5)]
    (entry,) = import_results([write_v05(tmp_path, "resnet", "MXNet 1.3", logs, 128)]).entries
    # 4 of the cluster's 128 servers; 256 is of one accelerator.
    assert (entry.num_hosts, entry.num_accelerators, entry.global_batch_size) == (4, 32, 8192)
    assert (entry.submitter, entry.system, entry.hardware) == ("maker", "X-1", "V100")
    assert (entry.status, entry.division) == ("onprem", "closed")
    assert entry.reasons["input_batch_size"] == "logged as 256"
    assert entry.figures.score_seconds == pytest.approx(102)
    assert "@" not in json.dumps(entry.to_json())


def test_iterations_an_epoch_tell_the_accelerators_of_the_job(tmp_path):
    def ssd(log: bytes) -> bytes:
        return log.replace(b"0.5.0 resnet", b"0.5.0 ssd").replace(
            b"input_batch_size: 256", b"input_batch_size: 32"
        )

    rates = [
        v05("opt_learning_rate", 6 + n, {"epoch": n // 58, "iteration": n, "value": 0.1})
        for n in range(60)
    ]
    clears = [v05("run_clear_caches", -9 + n) for n in range(15)]
    log = ssd(v05_log(*rates, *clears))
    (entry,) = import_results([write_v05(tmp_path, "ssd", "PyTorch", [log], 36)]).entries
    # 16 servers with 8 accelerators each, but 58 iterations of 2048 images make the epoch.
    assert (entry.num_hosts, entry.num_accelerators, entry.global_batch_size) == (16, 64, 2048)
    assert any("ran on 64 of 128 accelerators" in warning for warning in entry.warnings)


@pytest.mark.parametrize("old", [b"input_batch_size: 256", b""], ids=["batch", "servers"])
def test_zero_is_no_size_of_a_batch_and_no_number_of_servers(tmp_path, old):
    log = v05_log().replace(old, b"input_batch_size: 0") if old else v05_log()
    place = write_v05(tmp_path, "resnet", "MXNet 1.3", [log], 1 if old else 0)
    (entry,) = import_results([place]).entries
    name = "global_batch_size" if old else "num_accelerators"
    assert getattr(entry, name) is None and entry.reasons[name]
