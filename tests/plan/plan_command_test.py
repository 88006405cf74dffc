"""`dawnjax plan`: its table, what it keeps, and wrong use."""

import dataclasses
import os
import signal
import sys

import pytest
from made_reports import entry
from told import told

from dawnjax import records
from dawnjax.__main__ import main
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compiling import compiled, compilers
from dawnjax.plan.epochs import sources
from dawnjax.plan.epochs.observations import observations, observed_programs
from dawnjax.plan.hardware.systems import parse_system
from dawnjax.trials.group import write_entries


@pytest.fixture
def kept_programs(monkeypatch):
    """The programs that were compiled for the observations, in the compiler's place."""
    rows = [row for row in observations() if row.experiment == "imagenet_resnet50_mlperf"]
    by_system = {row.system.name: observed_programs()[row.name] for row in rows}

    def compile(argv, identity, system, watch):
        if system.name not in by_system:
            raise RunError("the compiler refuses: no such topology")
        return by_system[system.name]

    monkeypatch.setattr(compiled, "compiled", compile)


@pytest.mark.compiles
def test_a_plan_sorts_its_systems_and_keeps_those_that_fail_as_lines(kept_programs, capsys):
    command = ["plan", "imagenet_resnet50_mlperf", "--on=v3:8,v3:512,v4:8,k80:1,v100:8"]
    command += ["--price_per_device_hour_usd=v3:2", "--global_batch_size=4096"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["v3:512", "v100:8", "v3:8"]
    assert "v4:8 batch 4096: the compiler refuses: no such topology" in lines
    assert any(line.startswith("k80:1: ") for line in lines)
    [cuda] = [line for line in lines if "CUDA" in line]
    assert cuda.startswith("v100:8") and "a run needs JAX with CUDA 12" in cuda
    found = told(capsys, *command)
    assert found["overrides"] == {"global_batch_size": 4096}
    first = found["rows"][0]
    assert first["cost_usd"]["value"] == pytest.approx(
        first["time_to_accuracy_seconds"]["value"] * 1024 / 3600
    )


@pytest.mark.compiles
def test_epochs_say_where_they_are_not_those_of_the_plan(kept_programs, capsys):
    command = ["plan", "imagenet_resnet50_mlperf", "--on=v3:512"]
    assert main([*command, "--optimizer.trust_coefficient=0.002"]) == 0
    text = capsys.readouterr().out
    assert "to 0.749 and 12 reference points of later rounds to 0.759" in text
    assert "own target" not in text  # the reference points are to it
    assert "with another optimizer.trust_coefficient: the interval is widened" in text
    # The recipe's 72 epochs lie inside the interval for a batch of 16,384: nothing says too few.
    assert "the budget is 72 epochs: a run that needs more" in text
    assert main([*command, "--epochs=30"]) == 0
    text = capsys.readouterr().out
    assert "the first evaluation is after 40 epochs" in text
    assert "own target" not in text and "widened" not in text and "budget" not in text


@pytest.mark.compiles
def test_epochs_to_another_target_alone_are_named(kept_programs):
    from dawnjax.plan.epochs.caveats import caveats

    experiment = load_experiment("wmt_transformer_big")
    targets = (dataclasses.replace(experiment.targets[0], value=28.4),)
    other = dataclasses.replace(experiment, targets=targets)
    known = sources.of_official_results(other, 96, 1)
    [line] = [line for line in caveats(other, known) if "own target" in line]
    assert "own target, bleu at least 28.4" in line


@pytest.mark.compiles
def test_epochs_from_runs_are_of_the_same_experiment(kept_programs, capsys, tmp_path):
    resnet = {"suite": "dawnjax", "benchmark": "imagenet_resnet50_mlperf"}
    runs = [
        entry("tpu", [100.0, None, 110.0], **resnet),
        entry("cpu", [1.0], suite="dawnjax", benchmark="digits"),
    ]
    write_entries(tmp_path / "runs.jsonl", runs)
    write_entries(tmp_path / "digits.jsonl", runs[1:])
    command = ["plan", "imagenet_resnet50_mlperf", "--on=v3:512", "--batches=1024"]
    [row] = told(capsys, *command, f"--epochs_from={tmp_path / 'runs.jsonl'}")["rows"]
    # The made trials take 4, 5 and 4 epochs of batch 256; the second did not reach. Four times the
    # batch takes (3 x 256 + 1,024) / (4 x 256) times as many, as where no slope is known.
    assert row["epochs"]["value"] == 7
    assert row["epochs"]["low"] < 4.1 and row["epochs"]["high"] > 12
    assert "mean of 2 of 3 trials" in row["epochs_basis"] and "widened" in row["epochs_basis"]
    assert main([*command, f"--epochs_from={tmp_path / 'digits.jsonl'}"]) == 2
    error = capsys.readouterr().err
    assert "found no run of imagenet_resnet50_mlperf, but of digits" in error
    assert error.count("\n") == 1


@pytest.mark.compiles
def test_two_tori_of_one_size_are_two_rows(monkeypatch, capsys):
    monkeypatch.setattr(compiled, "compiled", lambda *_: observed_programs()["tpu v3-32 resnet"])
    rows = told(capsys, "plan", "imagenet_resnet50_mlperf", "--on=v3:4x4,v3:32,v3:2x8")["rows"]
    assert sorted(row["system"] for row in rows) == ["v3:2x8", "v3:32"]
    assert parse_system("v3:2x8").name == "v3:2x8" and parse_system("v3:4x4").name == "v3:32"


def test_epochs_from_runs_are_of_one_experiment(tmp_path):
    digits = {"suite": "dawnjax", "benchmark": "digits"}
    file = tmp_path / "runs.jsonl"

    def epochs_at(batch, *runs):
        write_entries(file, runs)
        return sources.of_runs(str(file), load_experiment("digits"))(batch, 900)

    small = entry("a", [10.0, 10.0, 10.0], identity="1", **digits)  # 4, 5 and 4 epochs
    assert epochs_at(256, small).mean == pytest.approx(13 / 3)
    # The slope is taken from other benchmarks.
    assert epochs_at(800, small).mean == pytest.approx(13 / 3 * (3 * 256 + 800) / (4 * 256))
    # Trials that all reached at one evaluation leave room for the next.
    alike = entry("e", [10.0, 10.0], identity="5", global_batch_size=1024, **digits)
    alike = dataclasses.replace(
        alike,
        trials=tuple(dataclasses.replace(trial, epochs_to_target=4.0) for trial in alike.trials),
    )
    assert epochs_at(1024, alike).interval().high == pytest.approx(5)
    missed = epochs_at(256, entry("f", [10.0, None], **digits)).basis
    assert missed.endswith("; time and cost leave out the 1 that did not reach it")
    twice = epochs_at(256, small, small).basis
    assert "3 of 3 trials" in twice and "left out: 1 (`dawnjax report` says why)" in twice
    with pytest.raises(ConfigError, match="differ in recipe, batch or target"):
        epochs_at(256, small, entry("c", [10.0], identity="3", **digits))


STUB = """
import ctypes, json, os, sys
request, number = json.load(sys.stdin), ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
in_folder = os.environ["TMPDIR"] == request["folder"]
alone = os.getpgid(0) == os.getpid()
print(json.dumps({"seen": [request["system"], number.value, alone, in_folder]}))
"""


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone ends children")
def test_a_compiler_ends_with_its_parent(monkeypatch, tmp_path):
    package = tmp_path / "dawnjax" / "plan" / "compiling"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilers, "environment", lambda _: dict(os.environ))
    (package / "worker.py").write_text(STUB)
    answer = compiled.answer_of_compiler({}, parse_system("v3:8"))
    assert answer["seen"] == ["v3:2x2", signal.SIGKILL, True, True]
    (package / "worker.py").write_text("import os; os.abort()")
    with pytest.raises(RunError, match="^SIGABRT ended the compiler's process$"):
        compiled.answer_of_compiler({}, parse_system("v3:8"))


def test_keys_in_a_ring_are_another_program():
    flags = ["--experiment=c4_llama31_8b", "--mesh.context=2"]
    apart, ring = (
        parse_request("plan", argv)[0] for argv in (flags, [*flags, "--context_keys=ring"])
    )
    spec, _ = compiled.spec_of(apart.experiment.data)
    assert compiled.identity_of(apart, spec) != compiled.identity_of(ring, spec)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("system", "other"),
    [
        ("v5e:4", "v5e:8"),
        ("h100:8", ""),
        pytest.param("h100:8", "h100:16", marks=pytest.mark.long),
    ],
)
def test_digits_compiles_for_what_is_not_here(monkeypatch, capsys, tmp_path, system, other):
    """A plan and the memory of another system, by the compilers themselves."""
    try:
        compilers.environment(parse_system(system).accelerator.device.platform)
    except RunError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(compiled, "CACHE_DIR", str(tmp_path))
    [row] = told(capsys, "plan", "digits", f"--on={system}", "--epochs=11")["rows"]
    assert row["time_to_accuracy_seconds"]["value"] > 0
    [kept] = tmp_path.iterdir()
    programs = records.read_json(kept, compiled.Programs)
    [stage] = programs.stages
    executed = stage.train.flops * parse_system(system).num_devices / stage.examples_per_step
    # Multiply-adds by hand, as in tests/profile/utilization_test.py, and with the zeros around an
    # image: of an 8x8 image the stem, two 3x3 convolutions, then at half the size three more.
    forward = 24**2 * 32 * (1 + 2 * 32) + 12**2 * 64 * (32 + 64) + 16 * 32 * 64 + 64 * 10
    assert executed == pytest.approx(3 * 2 * forward, rel=0.02)
    if not other:
        return
    [row] = told(capsys, "plan", "digits", "--memory", f"--on={other}")["rows"]
    assert row["fits"] == "yes" and row["largest"]["is_all"]
    buffers = row["memory"]["programs"]["train step"]["buffers"]
    assert any("state.params/" in name for name, _, _ in buffers)
