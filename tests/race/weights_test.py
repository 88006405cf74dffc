"""A run as inside the sandbox, handed its data late, and its weights measured by the judge."""

import dataclasses
import os
import threading

import pytest

from dawnjax import records
from dawnjax.checkpointed.judged_weights import measure
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment, Target
from dawnjax.models.resnet import ResNet
from dawnjax.race import contestant, tracks
from dawnjax.race.contestant import DONE, GO, READY, Task
from dawnjax.race.handover import Handover


@pytest.mark.compiles
def test_weights_of_a_run_without_examples_to_evaluate_are_measured_apart(tmp_path):
    request = tracks.baseline_request(tracks.read_track("digits"))
    small = dataclasses.replace(
        request.experiment,
        model=ResNet(stage_sizes=(1,), stage_widths=(8,)),
        num_epochs=3.0,
        targets=(Target(value=0.5),),
    )
    experiment: Experiment = from_json(Experiment, to_json(small))
    handover = Handover.prepare(small.data, small.data.spec(), tmp_path / "closed")
    handover.describe(tmp_path / "data")
    said, say = os.pipe()
    hear, tell = os.pipe()
    task = Task(
        experiment=to_json(small),
        source="",
        options={},
        seed=7,
        data=str(tmp_path / "data"),
        run_dir=str(tmp_path / "run"),
        say=say,
        hear=hear,
    )
    records.write_json(tmp_path / "task.json", records.plain(task))
    heard = []

    def judge() -> None:
        heard.append(os.read(said, 1))
        handover.hand_over(tmp_path / "data")
        os.write(tell, GO)
        heard.append(os.read(said, 1))

    judging = threading.Thread(target=judge)
    judging.start()
    # Whether it takes the ones in place of the examples for its target says nothing.
    assert contestant.main([str(tmp_path / "task.json")]) in (0, 3)
    judging.join()
    for number in (said, say, hear, tell):
        os.close(number)
    assert heard == [READY, DONE]
    good, missing = measure(experiment, [tmp_path / "run/checkpoints", tmp_path / "nowhere"])
    # Far above the 0.1 of chance, and below 1: the real examples were measured.
    assert good.reached and good.quality is not None and 0.5 < good.quality < 1
    assert not missing.reached and missing.fault == "no weights were saved"
    other = dataclasses.replace(experiment, model=ResNet(stage_sizes=(1,), stage_widths=(4,)))
    [wrong] = measure(other, [tmp_path / "run/checkpoints"])
    assert not wrong.reached and "in the weights, and float32" in wrong.fault
