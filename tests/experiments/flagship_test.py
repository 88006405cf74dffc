"""The flagship recipes: every switch is one flag, and a ResNet-50's step is compiled once."""

import json

import pytest
from dataset_specs import IMAGENET
from jax import monitoring

from dawnjax.__main__ import main
from dawnjax.attempt import Attempt
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.run_options import RunOptions
from dawnjax.runs.log import read_events


@pytest.mark.parametrize(
    "flag",
    [
        *(f"--compute_dtype={dtype}" for dtype in ("float32", "float16")),
        *("--global_batch_size=4096", "--schedule.warmup_epochs=8", "--task.label_smoothing=0"),
        "--schedule=piecewise_step",
        *("--ema_decay=0.9999", "--batch_norm_group_size=64", "--accumulation_steps=4"),
        "--model.last_scale=1",
        *("--optimizer.nesterov=false", "--optimizer.decay_norm_and_bias=true"),
        *("--task.augmentation.crop_pixels=192", "--task.augmentation.crop_min_area=0.25"),
        *("--xla_options=xla_tpu_enable_latency_hiding_scheduler=true", "--weight_update_sharding"),
    ],
)
def test_each_switch_of_the_reference_recipe_is_one_flag(flag):
    plain, _ = parse_request("train", ["--experiment=imagenet_resnet50"])
    switched, _ = parse_request("train", ["--experiment=imagenet_resnet50", flag])
    switched.experiment.validate(IMAGENET)
    switched.options.validate()
    if switched.options != RunOptions():
        assert switched.experiment == plain.experiment  # the mathematics stays
    else:
        assert switched.experiment.identity(IMAGENET) != plain.experiment.identity(IMAGENET)


@pytest.mark.parametrize("optimizer", ["lars", "rmsprop"])
def test_another_optimizer_is_two_flags_since_its_rate_is_its_own(optimizer):
    flags = [f"--optimizer={optimizer}", "--optimizer.base_learning_rate=1.5"]
    switched, _ = parse_request("train", ["--experiment=imagenet_resnet50", *flags])
    switched.experiment.validate(IMAGENET)
    tag = switched.experiment.optimizer.TAG
    assert tag == optimizer


def test_progressive_resizing_is_switched_off_by_one_flag():
    switched, _ = parse_request(
        "train", ["--experiment=imagenet_resnet50_progressive", "--stages.boundary_epochs="]
    )
    switched.experiment.validate(IMAGENET)
    (span,) = switched.experiment.spans(IMAGENET)
    assert (span.global_batch_size, span.last_step) == (4096, 10948)  # 35 epochs


@pytest.mark.compiles
@pytest.mark.long
def test_a_resnet50_step_is_compiled_once(tmp_path, compile_cache, monkeypatch):
    """The whole network, on images of 32 pixels."""
    compiled_late: list[float] = []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled_late.append(duration_secs)

    start_clock = Attempt.start_clock

    def start_and_count(self):
        start_clock(self)
        monitoring.register_event_duration_secs_listener(note)

    monkeypatch.setattr(Attempt, "start_clock", start_and_count)
    command = ["train", "--experiment=imagenet_resnet50", "--tiny", "--profile.after_run=false"]
    command += ["--model.stage_sizes=3,4,6,3", "--model.stage_widths=256,512,1024,2048"]
    # What takes the time is LLVM, which says nothing about how often it is asked.
    command += ["--xla_options=xla_backend_optimization_level=0", "--checkpoint.every_seconds=0"]
    run_dir = tmp_path / "run"
    try:
        assert main([*command, compile_cache, f"--run_dir={run_dir}"]) in (0, 3)
    finally:
        monitoring.unregister_event_duration_listener(note)
    assert compiled_late == []
    events = read_events(run_dir / "log.jsonl")
    programs = [event["program"] for event in events if event["event"] == "compiled"]
    assert programs.count("train") == programs.count("evaluate") == 1
    made = json.loads((run_dir / "experiment.json").read_text())["experiment"]["model"]
    assert made["stage_sizes"] == [3, 4, 6, 3] and made["block"] == "bottleneck"
