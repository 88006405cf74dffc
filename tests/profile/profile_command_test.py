"""From a run to where its time went: the result's fields, `dawnjax profile`, and a straggler."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from first_steps import train_text
from shared_runs import copied_once

from dawnjax.__main__ import main
from dawnjax.capture import twin
from dawnjax.commands.check import check_run
from dawnjax.config.experiment_flags import parse_request
from dawnjax.feed import TrainFeed, input_shapes
from dawnjax.machine.hardware import MeasuredPeaks
from dawnjax.machine.measured_peaks import measured_peaks
from dawnjax.machine.mesh import make_mesh, place, replicated
from dawnjax.profile.captured import captures_of
from dawnjax.profile.host_profile import SIMULATED, read_profile
from dawnjax.profile.trace import find_trace
from dawnjax.programs import compile_training
from dawnjax.runs.log import read_events
from dawnjax.train_step import PRNG_IMPLEMENTATION, make_recipe

pytestmark = pytest.mark.compiles

ROOT = Path(__file__).parents[2]

SMALL = [
    "--experiment=synthetic_image",
    "--data.num_train_examples=96",
    "--data.num_eval_examples=32",
    "--num_epochs=2",
    "--global_batch_size=16",
    "--batch_norm_group_size=4",
    "--model.stage_sizes=1",
    "--model.stage_widths=16",
    "--targets.0.value=1.0",
]


@pytest.fixture(scope="module")
def profiled_run(tmp_path_factory) -> tuple[Path, dict]:
    """A run on four devices and the profile after it."""
    steady = MeasuredPeaks(1e12, 1e10, spread=0.02)

    def make(folder: Path) -> None:
        flags = [f"--run_dir={folder / 'run'}", "--tensorboard=false", "--profile.seconds=0.1"]
        with pytest.MonkeyPatch.context() as patch:  # other tests run on this machine
            patch.setattr("dawnjax.capture.trace.measured_peaks", lambda *args, **_: steady)
            assert main(["train", *SMALL, *flags]) == 3

    run_dir = copied_once(tmp_path_factory, "profiled", make) / "run"
    return run_dir, json.loads((run_dir / "result.json").read_text())


def test_a_result_says_for_each_host_where_its_time_went(profiled_run):
    run_dir, result = profiled_run
    (host,) = result["hosts"]
    communication, used = host["communication"], host["utilization"]
    # Simulated devices share the cores: only the bytes are known.
    for name in ("seconds_per_step", "exposed_fraction", "skew_fraction"):
        assert communication[name] is None and communication["reasons"][name] == SIMULATED
    # Every parameter's gradient, the running statistics and the loss, in float32.
    recipe = recipe_of(4)
    state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
    reduced = sum(leaf.size for leaf in jax.tree.leaves((state.params, state.batch_stats))) + 1
    assert communication["bytes_per_step"] == 4 * reduced
    assert 0 < used["busy_fraction"] <= 1 and 0 < used["attributed_fraction"] <= 1
    assert sum(used["parts_fraction"].values()) == pytest.approx(1, abs=0.01)
    assert used["mfu"] > 0 and used["hfu"] > 0 and used["window"] == "after_run"
    assert used["input_wait_fraction"] == host["input_wait_fraction"]
    for name in ("tensor_core_fraction", "memory_bandwidth_fraction"):
        assert used[name] is None and used["reasons"][name]
    assert result["phases"]["profile"] > 0
    assert check_run(run_dir)[0] == []


def test_the_profile_s_own_steps_are_none_of_the_run_s(profiled_run):
    run_dir, result = profiled_run
    (host,) = result["hosts"]
    events = read_events(run_dir / "log.jsonl")
    waited = [e for e in events if e["event"] == "train"][-1]["input_wait_seconds"]
    stepping = host["step_seconds"]["mean"] * result["steps"]
    assert host["input_wait_fraction"] == pytest.approx(waited / stepping, rel=1e-3)
    phases = [(e["name"], e["t"]) for e in events if e["event"] == "phase"]
    run_start = next(e["t"] for e in events if e["event"] == "run_start")
    # Measured after the last save, and before the profile; files are written in between.
    profile = [name for name, _ in phases].index("profile")
    (saving, earliest), (_, latest) = phases[profile - 1 : profile + 1]
    assert saving == "checkpoint"
    assert earliest - 0.1 <= host["seconds"] + run_start <= latest + 0.1


def test_the_command_shows_a_run_and_writes_tables(profiled_run, capsys):
    run_dir, _ = profiled_run
    assert main(["profile", str(run_dir)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("profiled steps ")
    assert output.splitlines()[1] == SIMULATED
    assert "exposed wire" in output and "loses most" in output
    (folder,) = captures_of(run_dir)
    assert folder.name == "after_run"
    rows = (folder / "ops.csv").read_text().splitlines()
    assert rows[0].startswith("name,kind,seconds") and len(rows) > 20


def test_an_op_of_a_simulated_device_can_have_the_whole_machine(profiled_run):
    run_dir, _ = profiled_run
    (folder,) = captures_of(run_dir)
    profile = read_profile(folder)
    peak, used = profile.capture.measured_peaks.flops_per_second, profile.utilization_json()
    assert profile.peaks[0] == peak and profile.capture.machine_devices == 4
    assert used["peak_flops_per_second"] == peak / 4
    assert used["peak_source"].endswith("shared by its devices")
    products = [op for op in profile.ops if op.product_flops]
    assert products
    for op in products:
        assert op.peak_fraction == pytest.approx(op.product_flops / op.seconds / peak)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ({"spread": 3.1}, "took 310% longer"),
        ({"other_work": 0.5}, "other work took 50% of the cores"),
        ({"flops_per_second": 1e3}, "of the measured peak's"),
    ],
)
def test_a_peak_that_other_work_disturbed_gives_no_utilization(
    measured, why, profiled_run, tmp_path, capsys
):
    shutil.copytree(profiled_run[0] / "profile", tmp_path / "profile")
    (folder,) = captures_of(tmp_path)
    capture = json.loads((folder / "capture.json").read_text())
    calm = {"spread": 0.0, "other_work": 0.0}  # as the run was measured, others may have worked
    capture["measured_peaks"] |= calm | measured
    (folder / "capture.json").write_text(json.dumps(capture))
    profile = read_profile(folder)
    used = profile.utilization_json()
    for name in ("mfu", "hfu", "peak_flops_per_second"):
        assert used[name] is None
    assert why in used["reasons"]["mfu"] and why in used["reasons"]["hfu"]
    assert "`dawnjax profile --experiment=NAME` measures it again" in used["reasons"]["mfu"]
    known = [op.peak_fraction is not None for op in profile.ops]
    # A low peak alone spoils no op without a product; none with one is above its peak.
    assert any(known) == ("flops_per_second" in measured)
    assert all(op.peak_fraction is None for op in profile.ops if op.product_flops)
    assert profile.roofline_json()["peak_use_cdf"] == []
    assert main(["profile", str(tmp_path)]) == 0
    assert f"host 0: model FLOP utilization is not known: {used['reasons']['mfu']}" in (
        capsys.readouterr().out
    )


def test_a_damaged_trace_is_a_reason_and_no_number(profiled_run, capsys):
    run_dir, _ = profiled_run
    (folder,) = captures_of(run_dir)
    trace = find_trace(folder)
    whole = trace.read_bytes()
    try:
        for content, reason in ((b"", "holds no plane"), (whole[: len(whole) // 2], "cut off")):
            trace.write_bytes(content)
            profile = read_profile(folder)
            communication, used = profile.communication_json(), profile.utilization_json()
            assert communication["seconds_per_step"] is None
            assert reason in communication["reasons"]["exposed_fraction"]
            assert used["busy_fraction"] is None and reason in used["reasons"]["busy_fraction"]
            assert used["mfu"] is not None  # needs no trace
            assert main(["profile", str(run_dir)]) == 0
            assert reason in capsys.readouterr().out
    finally:
        trace.write_bytes(whole)


def test_fresh_steps_are_profiled_without_a_run(tmp_path, capsys):
    flags = [f"--run_dir={tmp_path}", "--profile.seconds=0.1"]
    assert main(["profile", *SMALL, *flags, "--twin"]) == 0
    assert "% less by the twin" in capsys.readouterr().out
    (folder,) = captures_of(tmp_path)
    assert folder.name == "fresh"
    twin_times = read_profile(folder).capture.twin
    assert twin_times is not None and len(twin_times.real) == len(twin_times.twin) == 6
    assert main(["profile", *SMALL, *flags]) == 2
    assert "choose another --run_dir" in capsys.readouterr().err


def test_flops_are_divided_by_the_devices_also_where_several_share_a_batch(tmp_path):
    flags = ["--experiment=wikipedia_llama_small", "--tiny", "--model.num_kv_heads=2"]
    quick = ["--profile.seconds=0.05", "--profile.measured_peaks=false"]
    assert main(["profile", *flags, *quick, f"--run_dir={tmp_path}", "--mesh.model=2"]) == 0
    (folder,) = captures_of(tmp_path)
    used, recipe = read_profile(folder).utilization_json(), recipe_of(1, small=flags)
    batch = recipe.experiment.global_batch_size
    assert used["model_flops_per_step"] == recipe.train_flops_per_example() * batch / 4
    assert used["model_flops_per_step"] <= used["executed_flops_per_step"]


def recipe_of(num_devices: int, *flags: str, small: list[str] = SMALL):
    request, _ = parse_request("train", [*small, *flags])
    experiment = request.experiment
    mesh = make_mesh(request.options.mesh, jax.devices()[:num_devices])
    return make_recipe(experiment, experiment.data.spec(), mesh)


def test_the_twin_makes_the_same_step_without_communication():
    recipe = recipe_of(4)
    mesh = recipe.mesh
    request, _ = parse_request("train", SMALL)
    shapes = input_shapes(recipe.experiment, recipe.spec, request.options, mesh)
    programs = compile_training(recipe, shapes, 2, lambda *_: None)
    make_key = jax.jit(
        lambda: jax.random.key(0, impl=PRNG_IMPLEMENTATION), out_shardings=replicated(mesh)
    )
    key = make_key()
    feed = TrainFeed(shapes, mesh, recipe.experiment.data.load("train"), 0, 2)
    state, inputs = programs.initialize(key), feed.inputs(0, 2)
    assert twin.why_not(recipe) == ""
    ablation_twin = twin.make_twin(recipe, 2, 2, state, feed.resident, inputs)
    alone = np.asarray(ablation_twin.call(inputs))
    assert alone.shape == (4, 2) and np.isfinite(alone).all()
    two = place(np.array(2, np.int32), replicated(mesh))
    _, metrics = programs.train(state, feed.resident, inputs, two, key)
    # Same parameters, same examples: the first loss of all is the mean of the devices' own. From
    # the second step on each device follows its own gradient.
    together = np.asarray(metrics.losses)
    np.testing.assert_allclose(alone[:, 0].mean(), together[0], rtol=1e-5)
    assert len(set(alone[:, 1].tolist())) == 4
    text = ablation_twin.program.as_text()
    assert "all-reduce" in train_text(programs) and "all-reduce" not in text


def test_where_there_is_no_twin_the_reason_is_said():
    assert "one device" in twin.why_not(recipe_of(1))
    assert "sharded" in twin.why_not(recipe_of(4, "--mesh.fsdp=4"))
    assert "span devices" in twin.why_not(recipe_of(4, "--batch_norm_group_size=16"))


def test_measured_peaks_are_kept_while_they_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("dawnjax.machine.measured_peaks.CPU_SIZES", (256, 2**20))
    path, device = tmp_path / "deep" / "peaks.json", jax.devices()[0]
    monkeypatch.setattr("dawnjax.machine.measured_peaks.CACHE", str(path))

    def measured(at_least: float = 0.0) -> float:
        return measured_peaks(device, at_least=at_least).flops_per_second

    assert measured() > 1e8
    ((key, kept),) = json.loads(path.read_text()).items()
    assert jax.__version__ in key and kept["bytes_per_second"] > 1e8
    good = {"flops_per_second": 123.0, "spread": 0.0, "other_work": 0.0}
    # A program was faster than a kept peak, or other work disturbed it: it is measured again.
    for change, at_least, holds in (
        ({}, 0.0, True),
        ({}, 124.0, False),
        ({"other_work": 0.5}, 0.0, False),
        ({"spread": 9.0}, 0.0, False),
    ):
        path.write_text(json.dumps({key: {**kept, **good, **change}}))
        assert (measured(at_least) == 123.0) == holds
    path.write_text("no json")
    assert measured() > 1e8


@pytest.mark.long
@pytest.mark.faults
def test_a_process_that_is_slow_is_named_with_what_it_costs(tmp_path, compile_cache):
    """At each change communication_test.py finds a straggler, with its cost by hand."""
    flags = [
        *(f"--experiment={ROOT / 'tests' / 'support' / 'slow_inputs.py'}", f"--run_dir={tmp_path}"),
        "--profile.measured_peaks=false",
        compile_cache,
    ]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dawnjax", "launch", "--processes=2"),
            *("--devices_per_process=1", "--", "profile", *SMALL[1:], "--steps_per_call=1", *flags),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DAWNJAX_TEST_SLOW": "1:0.2",
        },
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "host 1 delays the others: each waits" in done.stdout
    folder = tmp_path / "profile" / "plugins" / "profile" / "fresh"
    hosts = ["process_00000.xplane.pb", "process_00001.xplane.pb"]
    assert sorted(file.name for file in folder.glob("*.xplane.pb")) == hosts
    slow, waiting = (read_profile(captures_of(tmp_path)[index]) for index in (1, 0))
    # Host 0 waits about the 200 ms of each call, longer beside other work; host 1 for nobody.
    waits = waiting.wait_seconds_per_step or 0.0
    assert 0.1 < waits < 2.0 and (slow.wait_seconds_per_step or 0.0) < waits / 2
