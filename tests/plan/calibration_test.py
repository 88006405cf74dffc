"""`dawnjax plan --calibrate`: what one run of the user's changes, and runs that it refuses."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from dawnjax.config.config_json import to_json
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.config.run_options import RunOptions
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.plan import calibration
from dawnjax.plan.epochs.observations import observed_programs
from dawnjax.plan.hardware.systems import parse_system
from dawnjax.plan.steps.fitted import fitted_efficiency
from dawnjax.plan.steps.predict import step_parts
from dawnjax.runs.directory import flatten
from dawnjax.runs.stages import Stages

RESNET = load_experiment("imagenet_resnet50")
REQUEST = SimpleNamespace(experiment=RESNET, options=RunOptions())
PROGRAMS = observed_programs()["H200 resnet"]


@pytest.fixture
def run(monkeypatch):
    """A run of ResNet-50 on one H200 with steps of 40 ms; fields may be changed before use."""
    trial = SimpleNamespace(
        experiment=RESNET.name,
        device_kind="NVIDIA H200",
        num_devices=1,
        global_batch_size=256,
        hosts=[{"step_seconds": {"p50": 0.04}}],
        run_options={"mesh": to_json(MeshShape())},
        fields=flatten(to_json(RESNET)),
    )
    monkeypatch.setattr(calibration, "read_run", lambda path: trial)
    return trial


def calibrated(on="h200:8"):
    systems = [parse_system(on)]
    request: Any = REQUEST
    return calibration.calibration_of("runs/a", request, systems, lambda system, batch: PROGRAMS)


def seconds(efficiency):
    return sum(step_parts(PROGRAMS.stages[-1].train, parse_system("h200:1"), efficiency).values())


def test_the_run_s_own_step_is_reproduced_and_its_interval_is_narrower(run):
    before = fitted_efficiency("h200")
    assert seconds(before) < 0.037
    found = calibrated()
    assert found.chip == "h200"
    assert seconds(found.efficiency) == pytest.approx(0.04, rel=0.01)
    assert found.efficiency.spread_at(1) < before.spread_at(1)
    # Beyond the run's own size the interval widens.
    assert found.efficiency.spread_at(8) > found.efficiency.spread_at(1)
    assert "its step took 40 ms" in found.note and "lies within a factor of 1.35" in found.note
    assert "your run a" in found.efficiency.fitted_on


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("experiment", "digits", "it is a run of digits, and imagenet_resnet50 is planned"),
        ("device_kind", "NVIDIA H300", "no data sheet is known here for the device kind"),
        ("device_kind", "NVIDIA B200", "it ran on NVIDIA B200, and no system of --on is that"),
        ("device_kind", "cpu", "a CPU has no data sheet here"),
        ("global_batch_size", None, "its batch changes in the run"),
        ("hosts", [], "its log does not say how long a step took"),
        ("hosts", [{"step_seconds": None}], "its log does not say how long a step took"),
        ("run_options", {"mesh": {"fsdp": 2}}, "it ran another program than is planned: mesh"),
        ("run_options", {"weight_update_sharding": True}, "is planned: weight_update_sharding"),
        ("run_options", {"context_keys": "ring"}, "is planned: context_keys"),
    ],
)
def test_a_run_that_says_nothing_of_the_plan_gets_one_line(run, field, value, says):
    setattr(run, field, value)
    with pytest.raises(ConfigError, match=says) as caught:
        calibrated()
    assert "\n" not in str(caught.value) and "--calibrate=runs/a: " in str(caught.value)


def test_another_program_is_named_and_another_batch_or_rate_is_not_one(run):
    other = dataclasses.replace(RESNET, compute_dtype="float32")
    run.fields = flatten(to_json(other))
    with pytest.raises(ConfigError, match="another program than is planned: compute_dtype"):
        calibrated()
    rate = dataclasses.replace(RESNET.optimizer, base_learning_rate=0.5)
    same = dataclasses.replace(RESNET, optimizer=rate, global_batch_size=1024)
    run.fields = flatten(to_json(same))
    assert calibrated().chip == "h200"


def test_a_run_of_several_stages_has_no_one_step(run, monkeypatch):
    staged = dataclasses.replace(RESNET, stages=Stages(boundary_epochs=(1.0,)))
    run.fields = flatten(to_json(staged))
    monkeypatch.setattr(REQUEST, "experiment", staged)
    with pytest.raises(ConfigError, match="its steps change from stage to stage"):
        calibrated()
