"""`dawnjax study`: its arms and their order, trials that are run once, figures, and wrong use."""

import collections
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from made_logs import one_attempt
from made_studies import DIGITS, made_study

import dawnjax
from dawnjax import api
from dawnjax.__main__ import main
from dawnjax.cluster import children
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import experiment_names, load_experiment, load_techniques
from dawnjax.config.techniques import Technique
from dawnjax.errors import ConfigError, ExitStatus, RunError
from dawnjax.runs.clock import RunClock
from dawnjax.runs.log import RunLog, log_path
from dawnjax.study import devices, side_by_side, trials
from dawnjax.study.design import Arm, Study, StudyFolder, arms_of, trials_of
from dawnjax.study.reading import trials_over
from dawnjax.train import Ended
from dawnjax.trials.from_log import trial_of
from dawnjax.trials.origin import Origin

TECHNIQUES = (Technique("a", ("--a=0",)), Technique("b", ("--b=0",)), Technique("c", ("--c=0",)))


def arms(**fields) -> dict[str, tuple[str, ...]]:
    study = Study(experiment="digits", **fields)
    return {arm.name: arm.flags for arm in arms_of(study, TECHNIQUES, DIGITS)}


def test_the_arms_of_each_kind():
    assert arms() == {"all": ()}
    grid = arms(kind="grid", axes=("global_batch_size=32,64", "num_epochs=3,4"))
    assert list(grid)[:2] == [
        "global_batch_size=32 num_epochs=3",
        "global_batch_size=32 num_epochs=4",
    ]
    assert grid["global_batch_size=64 num_epochs=3"] == ("--global_batch_size=64", "--num_epochs=3")
    assert arms(kind="lesion", techniques=("c",)) == {"whole recipe": (), "without c": ("--c=0",)}
    factor = arms(kind="factor")
    assert factor == {
        "without all": ("--a=0", "--b=0", "--c=0"),
        "only a": ("--b=0", "--c=0"),
        "only b": ("--a=0", "--c=0"),
        "only c": ("--a=0", "--b=0"),
        "with a b": ("--c=0",),
        "whole recipe": (),
    }
    scaled = arms(kind="scaling", devices=(1, 4), scales_batch=True)
    assert scaled["4 devices"] == ("--global_batch_size=256",)
    assert arms(kind="threshold", thresholds=(0.9, 0.97)) == {"all": ("--targets.0.value=0.97",)}


def test_a_study_goes_on_with_the_arms_that_it_has(tmp_path):
    study = Study(experiment="digits", kind="lesion", seeds=1)
    old = tuple(Arm(f"no {arm.name}", arm.flags) for arm in arms_of(study, TECHNIQUES, DIGITS))
    folder = StudyFolder(tmp_path)
    folder.write(study, old)
    record = folder.read_same(study)
    assert record and folder.same_arms(record, arms_of(study, TECHNIQUES, DIGITS)) == old
    with pytest.raises(ConfigError, match="its arms were no whole recipe, .* choose another --out"):
        folder.same_arms(record, arms_of(study, TECHNIQUES[:2], DIGITS))


def test_trials_run_in_blocks_of_each_arm_once_in_orders_that_differ():
    study = Study(experiment="digits", kind="grid", axes=("num_epochs=1,2,3,4",), seeds=20)
    of_arms = arms_of(study, (), DIGITS)
    ordered = trials_of(study, of_arms)
    assert [trial.number for trial in ordered] == list(range(80))
    blocks = [ordered[first : first + 4] for first in range(0, 80, 4)]
    for seed, block in enumerate(blocks):
        assert {trial.seed for trial in block} == {seed}
        assert {trial.arm for trial in block} == set(of_arms)
    places = collections.Counter(block[0].arm.name for block in blocks)
    assert len(places) == 4 and max(places.values()) < 12
    assert ordered == trials_of(study, of_arms)


@pytest.mark.parametrize("name", experiment_names())
def test_each_declared_technique_can_be_left_out(name):
    techniques = load_techniques(name)
    whole = load_experiment(name)
    assert len({technique.name for technique in techniques}) == len(techniques)
    for technique in techniques:
        request, _ = parse_request("train", [f"--experiment={name}", *technique.without])
        assert request.experiment.recipe_fields() != whole.recipe_fields(), technique.name


# With one step a call, JAX traces the step once.
TINY = ["study", "--experiment=digits", "--tiny=true", "--tensorboard=false"]
TINY += ["--model.stage_sizes=1", "--model.stage_widths=16", "--steps_per_call=1"]


@pytest.mark.compiles
@pytest.mark.usefixtures("kept_programs")
def test_a_study_from_the_command_line_goes_on_where_it_was(tmp_path, compile_cache, capsys):
    command = [*TINY, "--seeds=2", compile_cache, f"--out={tmp_path / 's'}"]
    started = time.perf_counter()
    assert main([*command, "--axis=optimizer.base_learning_rate=0.1,0.2"]) == 0
    elapsed = time.perf_counter() - started
    shown = capsys.readouterr()
    assert "base_learning_rate=0.2" in shown.out
    assert shown.err.count("seed 0: not reached") == 2
    result = json.loads((tmp_path / "s" / "result.json").read_text())
    assert [arm["trials"] for arm in result["arms"]] == [2, 2]
    runs = sorted((tmp_path / "s" / "trials").glob("*/seed_*"))
    assert len(runs) == 4
    results = [api.load_run(run) for run in runs]
    totals = [result.total_seconds or elapsed for result in results]
    assert sum(totals) < elapsed, "each has its own clock"
    assert len({r.identity for r in results}) == 2 and {r.seed for r in results} == {0, 1}
    before = {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    assert main([*command, "--axis=optimizer.base_learning_rate=0.1,0.2", "--seeds=3"]) == 0
    assert before == {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    assert len(sorted((tmp_path / "s" / "trials").glob("*/seed_*"))) == 6
    assert main([*command, "--axis=optimizer.base_learning_rate=0.1,0.3"]) == 2
    assert "study.json belongs to a study with axes=" in capsys.readouterr().err
    assert main([*command, "--axis=optimizer.base_learning_rate=0.1,0.2"]) == 2
    fewer = capsys.readouterr().err
    assert (
        "belongs to a study with seeds=3, not 2; larger numbers extend it; a smaller one needs "
        "another --out" in fewer
    )
    assert json.loads((tmp_path / "s" / "result.json").read_text())["study"]["seeds"] == 3


def test_a_later_run_of_a_process_has_no_total():
    log = one_attempt()
    assert trial_of(log.events).total_seconds_to_accuracy is not None
    log.events[0]["runs_before"] = 3
    result = trial_of(log.events)
    assert result.total_seconds_to_accuracy is None and result.time_to_accuracy_seconds is not None
    why = result.reasons["total_seconds_to_accuracy"]
    assert why.startswith("an earlier run of the same process")


def test_each_trial_of_a_process_has_its_own_clock(tmp_path, monkeypatch):
    """The first one's total has the imports, as a run alone, and none of the study's own work."""
    study, _, ordered = made_study(tmp_path, {"12": [], "18": []})
    ages = []

    def train_to_target(request, clock, argv, *, shows):
        ages.append(clock.now())
        return Ended(ExitStatus.DONE, tmp_path)

    monkeypatch.setattr("dawnjax.train.train_to_target", train_to_target)
    monkeypatch.setattr(time, "perf_counter", lambda: 1000.0)
    monkeypatch.setattr(dawnjax, "program_start", 993.0)
    set_up_seconds = trials.set_up(study, ordered[0], tmp_path)
    monkeypatch.setattr(time, "perf_counter", lambda: 1050.0)
    for trial in ordered[:2]:
        trials.run_trial(study, trial, tmp_path, set_up_seconds)
    assert ages == [7.0, 0.0]


def test_an_arm_is_bound_to_what_made_its_first_trials(tmp_path):
    study, of_arms, ordered = made_study(tmp_path, {"3": [10.0], "4": [10.0]})
    arm = ordered[0].arm.name
    with pytest.raises(RunError, match="identity identity, not another"):
        trials_over(ordered, tmp_path, {arm: Origin("another")})


MINE = """
import dataclasses
from dawnjax.own import ResNet, load_experiment
EXPERIMENT = dataclasses.replace(
    load_experiment("digits", is_tiny=True), name="mine",
    model=ResNet(stage_sizes=(1,), stage_widths=(16,)),
)
"""


@pytest.mark.compiles
@pytest.mark.usefixtures("kept_programs")
def test_an_edited_experiment_is_another_study(tmp_path, compile_cache, capsys):
    file, out = tmp_path / "mine.py", tmp_path / "s"
    file.write_text(MINE)
    command = ["study", f"--experiment={file}", f"--out={out}", compile_cache]
    command += ["--tensorboard=false"]
    assert main([*command, "--seeds=1"]) == 0
    file.write_text(MINE + "# a remark\n")
    capsys.readouterr()
    assert main([*command, "--seeds=1"]) == 0
    capsys.readouterr()
    file.write_text(MINE + "EXPERIMENT = dataclasses.replace(EXPERIMENT, batch_norm_group_size=8)")
    assert main([*command, "--seeds=2"]) == 2
    line = capsys.readouterr().err
    assert "batch_norm_group_size is" in line and "choose another --out" in line
    assert line.count("\n") == 1
    assert not (out / "trials" / "all" / "seed_1").exists()


@pytest.mark.compiles
@pytest.mark.usefixtures("kept_programs")
def test_a_study_that_is_stopped_goes_on_and_a_trial_that_fails_stays(
    tmp_path, compile_cache, capsys, monkeypatch
):
    out = tmp_path / "s"
    command = [*TINY, "--seeds=3", compile_cache, f"--out={out}"]
    real = trials.run_trial

    def stopped_at_seed_1(study, trial, out, set_up_seconds):
        return ExitStatus.INTERRUPTED if trial.seed == 1 else real(study, trial, out)

    monkeypatch.setattr(trials, "run_trial", stopped_at_seed_1)
    assert main(command) == 5
    assert "dawnjax study: interrupted" in capsys.readouterr().err
    assert json.loads((out / "result.json").read_text())["arms"][0]["trials"] == 1

    def failing_at_seed_1(study, trial, out, set_up_seconds):
        if trial.seed == 1:
            raise RunError("the disk is full")
        return real(study, trial, out)

    monkeypatch.setattr(trials, "run_trial", failing_at_seed_1)
    assert main(command) == 1
    shown = capsys.readouterr().err
    assert "seed 1: failed: the disk is full" in shown and "seed 2: not reached" in shown
    assert json.loads((out / "result.json").read_text())["arms"][0]["trials"] == 2
    monkeypatch.setattr(trials, "run_trial", real)
    assert main(command) == 0
    assert json.loads((out / "result.json").read_text())["arms"][0]["trials"] == 3


@pytest.mark.compiles
@pytest.mark.usefixtures("kept_programs")
def test_one_trial_alone_which_two_processes_do_not_run(tmp_path, compile_cache, capsys):
    out = tmp_path / "s"
    command = [*TINY, "--seeds=2", compile_cache, f"--out={out}"]
    assert main([*command, "--trial=1"]) == 0, "it is over, though its budget is spent"
    assert [path.name for path in out.glob("trials/all/*")] == ["seed_1"]
    capsys.readouterr()
    with StudyFolder(out).locked():
        assert main(command) == 1
        assert "another process is running the study in" in capsys.readouterr().err
    held = RunLog(log_path(out / "trials" / "all" / "seed_0"), RunClock())
    try:
        assert main([*command, "--trial=0"]) == 1
        line = capsys.readouterr().err
        assert "seed_0" in line and line.count("\n") == 1
    finally:
        held.close()


def test_trials_side_by_side_have_devices_of_their_own(monkeypatch):
    monkeypatch.setattr(devices, "gpus", lambda: ["2", "5", "7"])
    places = side_by_side.places(2)
    assert places == [([], {"CUDA_VISIBLE_DEVICES": gpu}) for gpu in ("2", "5")]
    with pytest.raises(ConfigError, match="this machine has 3 GPUs"):
        side_by_side.places(4)
    monkeypatch.setattr(devices, "gpus", list)
    monkeypatch.setattr(devices, "tpu_chips", lambda: 4)
    assert [place[1]["TPU_VISIBLE_CHIPS"] for place in side_by_side.places(2)] == ["0", "1"]
    monkeypatch.setattr(devices, "tpu_chips", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 9})
    assert [place[0][-1] for place in side_by_side.places(2)] == ["0,1", "2,3"]
    with pytest.raises(ConfigError, match="this machine has 5 cores"):
        side_by_side.places(6)


@pytest.mark.processes
def test_a_scaling_study_takes_the_gpus_that_there_are(monkeypatch, tmp_path):
    study = Study(experiment="digits", kind="scaling", devices=(1, 2), seeds=1)
    order = trials_of(study, arms_of(study, (), DIGITS))
    two = next(trial for trial in order if trial.arm.devices == 2)
    monkeypatch.setattr(devices, "gpus", lambda: ["0"])
    with pytest.raises(ConfigError, match="needs 2 GPUs, and this machine has 1"):
        trials.run_trial(study, two, tmp_path)
    monkeypatch.setattr(devices, "gpus", lambda: ["0", "1"])
    commands = []

    def started(command, **_):
        commands.append(command)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(children, "start", started)
    assert trials.run_trial(study, two, tmp_path) == 0
    assert "--platform=gpu" in commands[0] and "--devices_per_process=2" in commands[0]


DOCS = Path(__file__).resolve().parents[2] / "docs" / "studies.md"


def test_the_manifest_of_the_docs_is_a_job_whose_command_runs_one_trial(tmp_path, compile_cache):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate: no schema")
    import yaml

    [text] = [part.partition("```")[0] for part in DOCS.read_text().split("```yaml\n")[1:]]
    job = yaml.safe_load(text)
    validate.validate(job, "1.30", strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    assert program == "dawnjax" and f"--seeds={job['spec']['completions']}" in command
    # What Kubernetes and the mounted claim would put there.
    command = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in command]
    command = [word.replace("/study/", f"{tmp_path}/") for word in command]
    assert main([*command, "--tiny=true", compile_cache]) == 0, "a spent budget is no failed pod"
    assert [path.name for path in tmp_path.glob("digits/trials/all/*")] == ["seed_1"]
    job["spec"]["completion"] = job["spec"].pop("completions")
    with pytest.raises(validate.ValidationError):
        validate.validate(job, "1.30", strict=True)
