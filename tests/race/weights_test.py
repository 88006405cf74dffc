"""A run as inside the sandbox, handed its data late, and its weights measured by the judge."""

import dataclasses
import json
import subprocess
import sys

import pytest

from dawnjax.checkpointed.judged_weights import measure
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment, Target
from dawnjax.input_pipeline.reading.renamed import new_names
from dawnjax.models.configs.resnet import ResNet
from dawnjax.race import tracks
from dawnjax.race.contestant import DONE, GO, READY
from dawnjax.race.handover import Handover
from dawnjax.tasks.classification import Classification


@pytest.mark.compiles
def test_weights_of_a_run_without_examples_to_evaluate_are_measured_apart(tmp_path, monkeypatch):
    small = dataclasses.replace(
        tracks.baseline(tracks.read_track("digits")),
        model=ResNet(stage_sizes=(1,), stage_widths=(8,)),
        num_epochs=8.0,
        targets=(Target(value=0.5),),
    )
    experiment: Experiment = from_json(Experiment, to_json(small))
    handover = Handover(small.data, small.data.spec(), tmp_path / "closed")
    names = handover.new_round()
    handover.describe(tmp_path / "data")
    command = [sys.executable, "-m", "dawnjax.race.contestant"]
    command += [str(tmp_path / "data"), str(tmp_path / "run"), "7", ""]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as run:
        run.stdin.write(json.dumps(to_json(small)).encode() + b"\n")
        run.stdin.flush()
        assert run.stdout.readline() == READY + b"\n"
        handover.hand_over(tmp_path / "data")
        run.stdin.write(GO + b"\n")
        run.stdin.flush()
        assert run.stdout.read() == DONE + b"\n"
    # Whether it takes the ones in place of the examples for its target says nothing.
    assert run.returncode in (0, 3)
    good, missing = measure(
        experiment, {tmp_path / "run/checkpoints": names, tmp_path / "nowhere": names}
    )
    # Far above the 0.1 of chance, and below 1: the real examples were measured.
    assert good.reached and good.quality is not None and 0.5 < good.quality < 1
    assert not missing.reached and missing.fault == "no weights were saved"
    # Weights that learnt other names are at chance: whoever remembers gains nothing.
    (tmp_path / "later").symlink_to(tmp_path / "run")
    learnt = new_names(small.data.spec(), names)[1]
    drawn = ((seed, new_names(small.data.spec(), seed)[1]) for seed in range(100))
    others = next(seed for seed, new in drawn if not (new == learnt).any())
    [stale] = measure(experiment, {tmp_path / "later/checkpoints": others})
    assert not stale.reached and stale.quality is not None and stale.quality < 0.3
    # A device whose metric is another than that of the logits is not believed.
    with monkeypatch.context() as here:
        here.setattr(Classification, "metrics_of", lambda *_: {"top_1_accuracy": 1.0, "loss": 0.0})
        [wrong] = measure(experiment, {tmp_path / "run/checkpoints": names})
    assert not wrong.reached and "by float64" in wrong.fault
    other = dataclasses.replace(experiment, model=ResNet(stage_sizes=(1,), stage_widths=(4,)))
    [wrong] = measure(other, {tmp_path / "run/checkpoints": names})
    assert not wrong.reached and "in the weights, and float32" in wrong.fault
