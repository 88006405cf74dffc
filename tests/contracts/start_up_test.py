"""Modules that a command loads at its start; the benchmark `start_up` measures seconds."""

import json
import subprocess
import sys
from importlib import metadata

import jax
import pytest

from dawnjax.__main__ import main
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError
from dawnjax.machine import compilation
from dawnjax.runs.log import log_path

SLOW = ("jax", "flax", "optax", "orbax", "cv2", "sklearn", "scipy", "pandas", "matplotlib", "torch")


def loaded_by(script: str) -> set[str]:
    """Runs a script in a fresh process; returns the top-level modules that it loaded."""
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.processes
def test_help_loads_nothing_but_the_standard_library():
    script = "from dawnjax.__main__ import main; main(['--help'])"
    others = {"dawnjax"} | sys.stdlib_module_names
    # What a `.pth` file of the environment loads at every start is there without us too.
    assert loaded_by(script) - loaded_by("") <= others


def test_the_version_is_said_with_those_of_the_libraries(capsys):
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    assert main([]) == 0 and "commands:" in capsys.readouterr().out
    for name in ("dawnjax", "jax", "flax", "optax"):
        assert f"{name} {metadata.version(name)}" in said


@pytest.mark.processes
def test_analysis_recipes_and_help_load_nothing_slow():
    script = "import dawnjax.analysis; from dawnjax.__main__ import main; main(['list'])\n"
    script += "assert main(['train', '--experiment=digit']) == 2\n"
    for command in ("check", "report", "import", "export", "profile", "launch"):
        script += f"main(['{command}', '--help'])\n"
    for name in experiment_names():
        script += f"main(['train', '{name}', '--help'])\n"
    loaded = loaded_by(script)
    assert "dawnjax" in loaded and not loaded & set(SLOW)


@pytest.mark.processes
def test_the_log_loads_no_pytorch_where_there_is_one(tmp_path):
    (tmp_path / "torch.py").write_text("is_loaded = True")
    loaded = loaded_by(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path; from dawnjax.runs.scalars import ScalarWriter\n"
        f"writer = ScalarWriter(Path({str(tmp_path / 'scalars')!r}), print)\n"
        "writer.write(1, {'train/loss': 1.0}); writer.close()"
    )
    assert "tensorboardX" in loaded and "torch" not in loaded
    assert list((tmp_path / "scalars").iterdir())


@pytest.mark.processes
def test_a_second_run_reads_every_program_from_the_cache(tmp_path):
    flags = ["--experiment=synthetic_image", "--data.num_train_examples=32", "--num_epochs=1"]
    flags += ["--data.num_eval_examples=16", "--global_batch_size=16", "--batch_norm_group_size=4"]
    flags += ["--schedule.warmup_epochs=0", "--model.stage_sizes=1", "--model.stage_widths=4"]
    flags += ["--tensorboard=false", "--profile.after_run=false"]
    flags += [f"--compile_cache_dir={tmp_path / 'compiled'}"]
    caches = []
    for run in ("first", "second"):
        # A process each, as a user starts them.
        command = [sys.executable, "-m", "dawnjax", "train", *flags]
        command.append(f"--run_dir={tmp_path / run}")
        subprocess.run(command, capture_output=True)
        lines = log_path(tmp_path / run).read_text().splitlines()
        events = [json.loads(line) for line in lines]
        caches.append({e["program"]: e["cache"] for e in events if e["event"] == "compiled"})
    assert set(caches[0]) == set(caches[1]) >= {"initialize", "train", "evaluate"}
    assert set(caches[0].values()) == {"cold"}
    assert set(caches[1].values()) == {"warm"}


@pytest.mark.compiles
def test_each_command_of_a_process_has_the_cache_that_it_names(compile_cache, tmp_path):
    def state_with(directory: str) -> str:
        compilation.configure(directory)
        with compilation.watch_cache() as cache:
            jax.jit(lambda x: 191 * x).lower(1.0).compile()
        return cache.state

    first, second = str(tmp_path / "one"), str(tmp_path / "other")
    states = [state_with(directory) for directory in (first, "none", first, second, first)]
    compilation.configure(compile_cache.partition("=")[2])
    assert states == ["cold", "off", "warm", "cold", "warm"]


@pytest.mark.compiles
def test_a_home_that_cannot_be_written_means_no_cache(compile_cache, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(compilation, "DEFAULT_CACHE_DIR", f"{tmp_path}/file/compiled")
    compilation.configure("")
    error = capsys.readouterr().err
    assert "dawnjax: warning: cannot keep compiled programs" in error and error.count("\n") == 1
    with compilation.watch_cache() as cache:
        jax.jit(lambda x: 193 * x).lower(1.0).compile()
    assert cache.state == "off"
    compilation.configure(compile_cache.partition("=")[2])


@pytest.mark.compiles
def test_a_cache_that_cannot_be_is_refused_in_one_line(compile_cache, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot keep compiled programs: .* or none$"):
        compilation.configure(str(tmp_path / "file" / "compiled"))
    compilation.configure(compile_cache.partition("=")[2])


@pytest.mark.compiles
def test_programs_are_kept_in_a_bucket(compile_cache):
    fsspec = pytest.importorskip("fsspec")
    in_memory = fsspec.get_filesystem_class("memory")
    fsspec.register_implementation("s3", in_memory, clobber=True)
    compilation.configure("s3://bucket/compiled")
    states = []
    for _ in range(2):
        with compilation.watch_cache() as cache:
            jax.jit(lambda x: 197 * x).lower(1.0).compile()
        states.append(cache.state)
    compilation.configure(compile_cache.partition("=")[2])
    assert states == ["cold", "warm"]
