"""Settings of JAX and XLA around a run: pinned, recorded, and the same at each resume."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trained import SMALL

from dawnjax import api
from dawnjax.__main__ import main
from dawnjax.machine import compilation, jax_settings
from dawnjax.runs.directory import RunDirectory, read_record

OTHERS = {
    "jax_enable_x64": True,
    "jax_threefry_partitionable": False,
    "jax_random_seed_offset": 7,
    "jax_default_matmul_precision": "highest",
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_default_prng_impl": "rbg",
}


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(jax_settings, "not_taken", {})
    monkeypatch.setattr(jax_settings, "changed_by_program", set())
    with jax_settings.pinned():
        yield


def test_what_belongs_to_the_mathematics_is_pinned_and_said():
    for name, value in OTHERS.items():
        jax.config.update(name, value)
    jax_settings.prepare()
    now = jax.config.values
    assert all(jax_settings.plain(now[name]) == v for name, v in jax_settings.PINNED.items())
    # Computed with JAX 0.10.2 without any setting: the same draw whatever the surroundings say.
    assert jnp.zeros(1).dtype == np.float32
    np.testing.assert_allclose(jax.random.uniform(jax.random.key(0)), 0.947667, rtol=1e-6)
    said = "\n".join(jax_settings.warnings())
    assert all(f"{name.upper()}=" in said for name in OTHERS)
    assert "JAX_ENABLE_X64=True is not taken: a run computes with jax_enable_x64=False" in said


def test_a_caller_s_own_settings_are_given_back(monkeypatch):
    jax.config.update("jax_enable_x64", True)
    seen = []
    monkeypatch.setattr(
        api, "train_in_process", lambda *args, **_: seen.append(jax.config.values["jax_enable_x64"])
    )
    monkeypatch.setattr(api, "load_run", lambda run_dir: None)
    api.run("digits", run_dir="somewhere")
    assert seen == [False] and jax.config.values["jax_enable_x64"] is True
    assert not jax_settings.warnings()  # a later run, with other settings, says nothing of these


def test_the_record_has_what_was_set_and_says_what_can_change_numbers():
    given = {
        "JAX_PLATFORMS": "cpu",
        "JAX_LOG_COMPILES": "1",
        "JAX_SOFTMAX_CUSTOM_JVP": "1",
        "JAX_ENABLE_X64": "1",
        "XLA_FLAGS": "--xla_dump_to=here --xla_b=2 --xla_a=1",
        "NVIDIA_TF32_OVERRIDE": "0",
        # As JAX itself leaves it on a TPU VM.
        "LIBTPU_INIT_ARGS": " --xla_tpu_use_enhanced_launch_barrier=true",
    }
    settings = jax_settings.recorded(given)
    others = {"jax_platforms", "jax_log_compiles", "XLA_FLAGS", "LIBTPU_INIT_ARGS"}
    assert set(settings["others"]) == others
    assert settings["others"]["XLA_FLAGS"] == "--xla_dump_to=here"
    assert settings["numbers"] == {
        "jax_softmax_custom_jvp": False,
        "XLA_FLAGS": "--xla_a=1 --xla_b=2",  # their order says nothing
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    assert json.loads(json.dumps(settings)) == settings
    with jax_settings.watched():
        jax.config.update("jax_softmax_custom_jvp", True)
    try:
        assert jax_settings.recorded({})["numbers"] == {"jax_softmax_custom_jvp": True}
    finally:
        jax.config.update("jax_softmax_custom_jvp", False)


@pytest.mark.compiles
def test_a_run_is_resumed_with_the_settings_that_it_began_with(
    tmp_path, compile_cache, capsys, monkeypatch
):
    argv = ["train", *SMALL, "--targets.0.value=1.0", compile_cache]
    argv.append(f"--run_dir={tmp_path / 'run'}")
    assert main(argv) == 3
    record = read_record(RunDirectory(tmp_path / "run"))
    assert record is not None and record["settings"] == jax_settings.recorded()
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    (devices,) = [line for line in log if '"event":"devices"' in line]
    assert json.loads(devices)["settings"] == record["settings"]
    capsys.readouterr()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "NVIDIA_TF32_OVERRIDE was not set when the run began and is '0' now" in error
    assert error.count("\n") == 1
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    monkeypatch.setenv("JAX_LOG_COMPILES", "0")  # a message changes no number
    assert main(argv) == 3


@pytest.mark.parametrize("command", ["train", "record", "profile"])
def test_a_run_without_compilation_is_refused_at_once(command, tmp_path, capsys):
    out = "--out" if command == "record" else "--run_dir"
    with jax.disable_jit():
        assert main([command, "--experiment=synthetic_image", f"{out}={tmp_path / 'new'}"]) == 2
    line = capsys.readouterr().err
    assert "JAX_DISABLE_JIT is set" in line and line.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_the_cache_that_jax_was_given_is_taken(tmp_path, monkeypatch):
    before = compilation.directory
    try:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "jax"))
        compilation.configure("")
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "jax")
        compilation.configure(str(tmp_path / "flag"))  # the flag is nearer
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "flag")
        monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "0")
        compilation.configure("")
        assert jax.config.values["jax_enable_compilation_cache"] is False
    finally:
        monkeypatch.undo()
        compilation.configure(str(before) if before else "none")
