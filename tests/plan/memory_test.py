"""Memory of the steps of experiments, and what `plan --memory` says of it."""

import dataclasses
import json

import pytest

from dawnjax.__main__ import main
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import load_experiment
from dawnjax.errors import ConfigError
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.plan import compiled
from dawnjax.plan import memory as memory_module
from dawnjax.plan.compiled import spec_of
from dawnjax.plan.fits import ERROR, TPU_ERROR, Fit, smaller_batch
from dawnjax.plan.memory import Memory, largest_batch, step_memory
from dawnjax.plan.observations import EXTRACTS, observations, observed_programs
from dawnjax.plan.systems import parse_system


def needs(size):
    return Memory(parameters=size, optimizer=0, averages=0, inputs=0, results=0, tensors=())


@pytest.mark.compiles
def test_a_step_of_resnet_50_needs_what_xla_says():
    """26 images of 224 pixels on a V100; XLA's figure is kept with the observation."""
    row = next(row for row in observations() if row.name == "80 x DGX-1 resnet")
    request, _ = parse_request("plan", row.argv)
    spec, _ = spec_of(request.experiment.data)
    found = step_memory(request.experiment, spec, request.options.mesh, row.system)
    train = observed_programs()[row.name].stages[-1].train
    assert found.num_bytes == pytest.approx(train.memory_bytes, rel=0.05)
    assert found.parameters == 4 * observed_programs()[row.name].parameters
    assert found.optimizer == pytest.approx(found.parameters, rel=0.01)  # LARS has a momentum
    assert found.tensors[0].shape == (26, 112, 112, 64)


@pytest.mark.compiles
def test_fsdp_splits_the_state():
    flags = ["--experiment=synthetic_image", "--mesh.fsdp=4", "--model.stage_widths=128,256"]
    request, _ = parse_request("plan", flags)
    spec, _ = spec_of(request.experiment.data)
    whole, split = (
        step_memory(request.experiment, spec, mesh, parse_system("v5e:4"))
        for mesh in (type(request.options.mesh)(), request.options.mesh)
    )
    assert split.parameters < 0.5 * whole.parameters and split.optimizer < 0.5 * whole.optimizer
    assert split.inputs == whole.inputs


@pytest.mark.parametrize(
    ("system", "size", "verdict"),
    [
        ("h100:8", 79e9 / ERROR, "yes"),
        ("h100:8", 79e9, "close"),
        ("h100:8", 81e9 * ERROR, "no"),
        ("v5p:8", 79e9 / ERROR, "close"),
        ("v5p:8", 79e9 / TPU_ERROR, "yes"),
        ("v5p:8", 81e9 * ERROR, "close"),
        ("v5p:8", 81e9 * TPU_ERROR, "no"),
    ],
)
def test_an_estimate_near_the_limit_is_close(system, size, verdict):
    fit = Fit(
        system=system,
        num_devices=8,
        global_batch=64,
        limit_bytes=80 * 10**9,
        memory=needs(size),
    )
    assert fit.verdict == verdict


@pytest.mark.compiles
def test_the_command_says_whether_it_fits_and_what_fills_it(capsys):
    command = ["plan", "digits", "--memory", "--on=v5e:8,h100:8,k80:1"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["v5e:8", "64", "yes"]
    assert any(line.startswith("largest arrays, ") for line in lines)
    assert any(line.startswith("k80:1: ") for line in lines)
    assert any(f"{ERROR:g} or {TPU_ERROR:g} (on a TPU) times" in line for line in lines)
    assert main([*command[:3], "--on=h100:8", "--json"]) == 0
    [small] = json.loads(capsys.readouterr().out)["rows"]
    assert small["fits"] == "yes"
    parts = ("parameters", "optimizer", "averages", "inputs", "results", "data")
    assert small["memory"]["num_bytes"] == sum(small["memory"][part] for part in parts)


@pytest.mark.compiles
def test_a_batch_that_does_not_fit_names_about_the_largest_that_does():
    request, _ = parse_request("plan", ["--experiment=digits"])
    spec, _ = spec_of(request.experiment.data)
    step = (spec, request.options.mesh, parse_system("h100:8"))
    large = dataclasses.replace(request.experiment, global_batch_size=512)
    own = step_memory(large, *step)
    half = step_memory(dataclasses.replace(large, global_batch_size=256), *step)
    found = largest_batch(large, *step, False, half.num_bytes, own)
    assert found == pytest.approx(256, rel=0.15) and found % 8 == 0
    assert largest_batch(large, *step, False, 1e5, own) == 0
    # A split update saves memory at any batch.
    own = step_memory(large, *step, True)
    half = step_memory(dataclasses.replace(large, global_batch_size=256), *step, True)
    found = largest_batch(large, *step, True, half.num_bytes, own)
    assert found == pytest.approx(256, rel=0.15)


@pytest.mark.compiles
def test_a_compiled_program_that_does_not_fit_names_a_batch_that_does(monkeypatch, capsys):
    answer = json.loads(EXTRACTS.read_text())["programs"]["DGX-1 resnet"]
    answer["stages"][0]["train"]["memory_bytes"] = 2**37
    monkeypatch.setattr(compiled, "answer_of", lambda *_: answer)
    command = ["plan", "digits", "--on=v5e:1", "--global_batch_size=512"]
    assert main(command) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("use more devices or a smaller --global_batch_size")  # it fits by shapes
    monkeypatch.setattr(memory_module, "step_memory", lambda *_: needs(1e12))
    monkeypatch.setattr(memory_module, "largest_batch", lambda *_: 384)
    assert main(command) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("; by the estimate of --memory a train step of about 384 fits")
    monkeypatch.setattr(memory_module, "largest_batch", lambda *_: 1 // 0)
    assert main(command) == 1
    assert capsys.readouterr().out.endswith("smaller --global_batch_size\n")
    monkeypatch.setattr(memory_module, "largest_batch", lambda *_: 0)
    assert main(command) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("; by the estimate of --memory a train step of no batch fits")


@pytest.mark.parametrize(("state", "fits"), [(90e9, "close"), (300e9, "no")])
def test_a_state_that_leaves_no_room_names_the_mesh_that_splits_it(
    monkeypatch, capsys, state, fits
):
    monkeypatch.setattr(memory_module, "step_memory", lambda *_: needs(state))
    monkeypatch.setattr(memory_module, "largest_batch", lambda *_: 0)
    command = ["plan", "digits", "--memory", "--on=h100:8"]
    hint = f"parameters and optimizer take {state / 1e9:.0f} GB of it, which --mesh.fsdp=N splits"
    # What is close by the estimate does not fit by the estimate alone.
    it = "by the estimate it" if fits == "close" else "it"
    assert main(command) == 0
    text = capsys.readouterr().out
    assert f"h100:8 batch 64: {it} does not fit, nor does the smallest: {hint}" in text
    assert main([*command, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["fits"] == fits and row["hint"] == hint
    request, _ = parse_request("plan", ["--experiment=digits"])
    line = smaller_batch(request, parse_system("h100:8"), 64)
    assert line.endswith(f"a train step of no batch fits: {hint}")
    assert main([*command, "--mesh.fsdp=8"]) == 0
    assert "--mesh.fsdp=N" not in capsys.readouterr().out


@pytest.mark.compiles
def test_a_mesh_or_batch_that_does_not_divide_gets_one_line(capsys):
    assert main(["plan", "digits", "--memory", "--on=h100:24", "--json"]) == 1
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert "is no multiple of" in row["reason"] and row["memory"] is None
    assert main(["plan", "digits", "--memory", "--on=h100:8", "--mesh.fsdp=3"]) == 1
    assert "mesh.fsdp=3" in capsys.readouterr().out


@pytest.mark.compiles
def test_the_window_and_the_trees_of_a_search_count(capsys):
    pytest.importorskip("pgx", reason="needs pgx and mctx (pip install -e '.[selfplay]')")
    assert main(["plan", "connect_four_selfplay", "--memory", "--on=h100:1,h100:8", "--json"]) == 0
    one, eight = (row["memory"] for row in json.loads(capsys.readouterr().out)["rows"])
    # 8 x 2,048 positions, each of 84 bits, 7 probabilities, a value, a flag and a player. The rest
    # is games.
    window = 8 * 2048 * (11 + 4 * 7 + 4 + 1 + 1)
    assert window < one["made"] < 1.1 * window
    assert eight["made"] == one["made"]
    assert one["call"] == pytest.approx(8 * eight["call"])
    # A node of each of 128 trees has six numbers for each of 7 moves, and the position.
    assert one["call"] > 128 * 17 * 4 * 6 * 7
    assert one["num_bytes"] >= one["made"] + max(one["inputs"] + one["results"], one["call"])


def test_the_fullest_stage_and_the_parts_of_a_batch_count(monkeypatch):
    experiment = load_experiment("imagenet_resnet50_progressive", is_tiny=True)
    spec, _ = spec_of(experiment.data)
    seen = []

    def of_stage(stage, *_):
        seen.append(stage.global_batch_size)
        sizes = dict.fromkeys(("parameters", "optimizer", "averages", "inputs"), 0.0)
        return Memory(**sizes, results=float(stage.global_batch_size), tensors=())

    monkeypatch.setattr(memory_module, "memory_of_stage", of_stage)
    found = step_memory(experiment, spec, MeshShape(), parse_system("h100:8"))
    assert len(seen) == 2 and found.num_bytes == max(seen) and found.stage == seen.index(max(seen))


def test_parts_that_do_not_divide_a_device_are_refused():
    experiment = dataclasses.replace(load_experiment("digits"), accumulation_steps=4)
    spec, _ = spec_of(experiment.data)
    with pytest.raises(ConfigError, match="accumulation_steps=4 does not divide the 1 examples"):
        step_memory(experiment, spec, MeshShape(), parse_system("v5e:64"))
