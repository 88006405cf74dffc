"""A run as inside the sandbox, handed its data late, and its weights measured by the judge."""

import dataclasses
import json
import subprocess
import sys

import pytest

from dawnjax import records
from dawnjax.checkpointed.judged_weights import measure
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment, Target
from dawnjax.models.resnet import ResNet
from dawnjax.race import tracks
from dawnjax.race.contestant import DONE, GO, READY, Task
from dawnjax.race.handover import Handover


@pytest.mark.compiles
def test_weights_of_a_run_without_examples_to_evaluate_are_measured_apart(tmp_path):
    request = tracks.baseline_request(tracks.read_track("digits"))
    small = dataclasses.replace(
        request.experiment,
        model=ResNet(stage_sizes=(1,), stage_widths=(8,)),
        num_epochs=6.0,
        targets=(Target(value=0.5),),
    )
    experiment: Experiment = from_json(Experiment, to_json(small))
    handover = Handover.prepare(small.data, small.data.spec(), tmp_path / "closed")
    handover.describe(tmp_path / "data")
    task = Task(
        experiment=to_json(small),
        source="",
        seed=7,
        data=str(tmp_path / "data"),
        run_dir=str(tmp_path / "run"),
    )
    command = [sys.executable, "-m", "dawnjax.race.contestant"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as run:
        assert run.stdin and run.stdout
        run.stdin.write(json.dumps(records.plain(task)).encode() + b"\n")
        run.stdin.flush()
        assert run.stdout.readline() == READY + b"\n"
        handover.shuffle()
        handover.hand_over(tmp_path / "data")
        run.stdin.write(GO + b"\n")
        run.stdin.flush()
        assert run.stdout.read() == DONE + b"\n"
    # Whether it takes the ones in place of the examples for its target says nothing.
    assert run.returncode in (0, 3)
    saved, names = tmp_path / "run/checkpoints", handover.names.tolist()
    runs = [(saved, names), (tmp_path / "nowhere", names), (saved, [*names[1:], names[0]])]
    good, missing, remembered = measure(experiment, "label", runs)
    # Far above the 0.1 of chance, and below 1: the real examples were measured.
    assert good.reached and good.quality is not None and 0.5 < good.quality < 1
    assert not missing.reached and missing.fault == "no weights were saved"
    # Who knows other names than those of the round is at chance.
    assert remembered.quality is not None and remembered.quality < 0.3
    other = dataclasses.replace(experiment, model=ResNet(stage_sizes=(1,), stage_widths=(4,)))
    [wrong] = measure(other, "label", [(saved, names)])
    assert not wrong.reached and "in the weights, and float32" in wrong.fault
