"""Flags of an experiment: every leaf, typed; what is wrong ends in one line at once."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from dawnjax.__main__ import main
from dawnjax.config import command_line, observations
from dawnjax.config.config_json import from_json, to_json
from dawnjax.config.experiment import Experiment, Muon, Observation, Sgd, WarmupLinear
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import experiment_names, load_experiment
from dawnjax.config.observations import all_observations, observations_of
from dawnjax.models.configs.resnet import ResNet


def request(*argv):
    return parse_request("train", ["--experiment=digits", *argv])[0]


@pytest.mark.compiles
def test_a_leaf_of_each_type_is_set():
    made = request(
        "--optimizer.base_learning_rate=0.2",
        "--global_batch_size=32",
        "--batch_norm_group_size=8",
        "--evaluation.stop_at_target=false",
        "--compute_dtype=bfloat16",
        "--model.stage_sizes=1,2",
        "--targets.0.value=0.5",
        "--seed=7",
        "--run_dir=somewhere",
        "--mesh.data=2",
        "--price_per_hour_usd=1.5",
    )
    experiment = made.experiment
    assert experiment.optimizer.base_learning_rate == 0.2
    assert experiment.global_batch_size == 32
    assert experiment.evaluation.stop_at_target is False
    assert experiment.compute_dtype == "bfloat16"
    assert isinstance(experiment.model, ResNet)
    assert experiment.model.stage_sizes == (1, 2)
    assert experiment.targets[0].value == 0.5
    assert made.seed == 7
    assert made.options.run_dir == "somewhere"
    assert made.options.mesh.data == 2
    assert made.options.price_per_hour_usd == 1.5
    # What was not given is the experiment's own.
    base = load_experiment("digits")
    assert experiment.schedule == base.schedule
    # Nobody measured this recipe, or chose this target by what models reach.
    assert observations_of(base) and observations_of(experiment) == ()
    assert base.target_note and experiment.target_note == ""
    assert request("--seed=7").experiment == base
    assert request("--num_epochs=3").experiment.target_note == base.target_note
    # It speaks of test images of all classes.
    assert request("--data.kept_classes=0,1").experiment.target_note == ""
    assert request("--tiny", "--targets.0.value=0.5").experiment.target_note.startswith("two steps")
    # Only the experiment's own flags are overrides.
    assert made.overrides["optimizer.base_learning_rate"] == 0.2
    assert "mesh.data" not in made.overrides and "seed" not in made.overrides


def test_a_variant_is_chosen_and_has_its_own_flags():
    made = request("--optimizer=muon", "--optimizer.momentum=0.5", "--schedule=warmup_linear")
    assert made.experiment.optimizer == Muon(momentum=0.5)
    assert isinstance(made.experiment.schedule, WarmupLinear)
    assert made.overrides["optimizer"] == "muon"
    for model in ("resnet", "record_net"):
        assert model == request(f"--model={model}").experiment.model.TAG
    # The experiment's own variant keeps the experiment's values.
    kept = request("--optimizer=sgd", "--optimizer.momentum=0.5").experiment.optimizer
    assert isinstance(kept, Sgd)
    base = load_experiment("digits").optimizer
    assert kept == dataclasses.replace(base, momentum=0.5)


def test_help_lists_every_leaf_with_its_default():
    with pytest.raises(command_line.HelpRequested) as caught:
        parse_request("train", ["--experiment=digits", "--help"])
    text = str(caught.value)
    for flag in ("optimizer.base_learning_rate", "evaluation.every_epochs", "mesh.fsdp", "seed"):
        assert f"--{flag} " in text
    assert "Examples per step, over all devices and hosts; rows for packed text" in text


def derived(file, **changes):
    text = ", ".join(f"{name}={value}" for name, value in changes.items())
    file.write_text(
        "import dataclasses\n"
        "from dawnjax.own import Adam, Observation, Target, load_experiment\n"
        f"EXPERIMENT = dataclasses.replace(load_experiment('digits'), {text})\n"
    )
    return str(file)


def test_a_recipe_made_from_another_keeps_nothing_that_was_measured_of_it(tmp_path):
    base, file = load_experiment("digits"), tmp_path / "mine.py"
    same = load_experiment(derived(file, name="'mine'"))
    tiny = load_experiment(str(file), is_tiny=True)
    assert (tiny.name, tiny.model) == ("mine_tiny", base.model.tiny())
    assert observations_of(same) == observations_of(base) == all_observations()["digits"]
    longer = load_experiment(derived(file, name="'digits'", num_epochs="3.0"))
    assert observations_of(longer) == () and longer.target_note == base.target_note
    easier = load_experiment(derived(file, name="'mine'", targets="(Target(value=0.5),)"))
    assert observations_of(easier) == () and easier.target_note == ""
    seen = "(Observation(hardware='a', trials=1, reached=0, quality=0.1, date='',"
    seen += " mean_time_to_accuracy_seconds=None),)"
    changes = {"num_epochs": "3.0", "target_note": "'mine'", "observations": seen}
    own = load_experiment(derived(file, **changes))
    assert [row.hardware for row in observations_of(own)] == ["a"] and own.target_note == "mine"


def test_observations_are_of_experiments_that_are_there():
    assert set(all_observations()) <= set(experiment_names())


def test_a_file_with_the_name_of_a_built_in_experiment_is_told_apart(tmp_path):
    file = tmp_path / "mine.py"
    changes = {"num_epochs": "3.0", "optimizer": "Adam(base_learning_rate=0.1)"}
    argv = ["--experiment=" + derived(file, targets="(Target(value=0.5),)", **changes)]
    overrides = parse_request("train", argv)[0].overrides
    assert overrides["num_epochs"] == 3.0 and overrides["targets.0.value"] == 0.5
    assert overrides["optimizer"] == "adam" and overrides["optimizer.base_learning_rate"] == 0.1
    assert "schedule" not in overrides and "name" not in overrides
    # A flag that undoes a change leaves what was given, and nothing of what it undid.
    overrides = parse_request(
        "train", [*argv, "--optimizer=sgd", "--optimizer.base_learning_rate=0.4"]
    )[0].overrides
    assert overrides["optimizer"] == "sgd" and "optimizer.b1" not in overrides
    tiny = parse_request("train", [*argv, "--tiny"])[0].overrides
    assert tiny["optimizer"] == "adam" and "data" not in tiny
    same = parse_request("train", ["--experiment=" + derived(file)])[0]
    assert same.overrides == {}
    renamed = parse_request("train", ["--experiment=" + derived(file, name="'mine'", **changes)])[0]
    assert renamed.overrides == {}


def test_list_never_cuts_a_name(capsys, monkeypatch, tmp_path):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80  # of a pipe, whose reader's width is not known
    assert [line for line in text.splitlines() if not line.startswith(" ")] == experiment_names()
    facts = {block.split()[0]: " ".join(block.split()) for block in re.split(r"\n(?=\S)", text)}
    digits = facts["digits"]
    assert " task: classification " in digits and "top_1_accuracy >= 0.9915" in digits
    assert "20 of 20 reached" in digits and "final quality 0.99" in digits
    assert main(["list", derived(tmp_path / "mine.py", num_epochs="3.0")]) == 0
    assert "not yet measured" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["list"]) == 0
    table = capsys.readouterr().out
    assert all(f" {name} " in table for name in experiment_names())
    assert max(map(len, table.splitlines())) <= 80


def test_list_says_that_a_trial_missed(capsys, monkeypatch):
    facts = {"mean_time_to_accuracy_seconds": 185.7, "quality": 0.98, "date": "2026-11-26"}
    row = Observation(hardware="two cores", trials=5, reached=4, **facts)
    monkeypatch.setattr(observations, "all_observations", lambda: {"digits": (row,)})
    assert main(["list", "digits"]) == 0
    assert "4 of 5 reached, mean TTA of those 186 s" in " ".join(capsys.readouterr().out.split())


def test_every_experiment_survives_json_and_names_its_module():
    for name in experiment_names():
        experiment = load_experiment(name)
        assert experiment.name == name
        assert parse_request("train", [f"--experiment={name}"])[0].experiment == experiment
        again = from_json(Experiment, json.loads(json.dumps(to_json(experiment))))
        assert to_json(again) == to_json(experiment)
        assert again == experiment


def test_identity_is_the_mathematics():
    base = load_experiment("digits")
    spec = base.data.spec()
    same = dataclasses.replace(base, name="other", num_epochs=float(base.num_epochs))
    assert same.identity(spec) == base.identity(spec)
    smoothed = dataclasses.replace(base, task=dataclasses.replace(base.task, label_smoothing=0.2))
    assert smoothed.identity(spec) != base.identity(spec)
    other_data = dataclasses.replace(spec, fingerprint="0" * 16)
    assert base.identity(other_data) != base.identity(spec)


@pytest.mark.processes
def test_output_that_cannot_be_written_is_one_line():
    argv = [sys.executable, "-m", "dawnjax", "list", "digits"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "dawnjax list: [Errno 28] No space left on device\n",
    )
    # A reader that goes away, such as `head`, has seen enough.
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait()
