"""Platforms that a command tells JAX to look for."""

import os
import subprocess
import sys

import pytest

from dawnjax.cluster import jax_platforms

GPU_AND_TPU = {"libtpu", "xla_cuda12"}


@pytest.mark.parametrize(
    ("command", "given", "plugins", "has_hardware", "chosen"),
    [
        ("train", "", GPU_AND_TPU, False, "cpu"),
        ("train", "", GPU_AND_TPU, True, ""),
        ("train", "", GPU_AND_TPU | {"another"}, False, ""),
        ("train", "", set(), False, ""),
        ("train", "cuda", GPU_AND_TPU, False, "cuda"),
        ("plan", "", GPU_AND_TPU, True, "cpu"),
        ("plan", "cuda", GPU_AND_TPU, True, "cpu"),
    ],
)
def test_jax_looks_for_no_hardware_that_is_not_there_or_not_needed(
    command, given, plugins, has_hardware, chosen, monkeypatch
):
    monkeypatch.setenv(jax_platforms.VARIABLE, given)
    monkeypatch.setattr(jax_platforms, "plugins", lambda: plugins)
    monkeypatch.setattr(jax_platforms, "has_hardware", lambda: has_hardware)
    monkeypatch.setattr(sys, "platform", "linux")
    jax_platforms.choose(command)
    assert os.environ[jax_platforms.VARIABLE] == chosen


def test_plugins_are_found_as_jax_finds_them(tmp_path):
    """One that is a part of the package `jax_plugins`, and one that names itself."""
    (tmp_path / "jax_plugins" / "first").mkdir(parents=True)
    (tmp_path / "jax_plugins" / "first" / "__init__.py").touch()
    named = tmp_path / "named-1.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1\n")
    (named / "entry_points.txt").write_text("[jax_plugins]\nsecond = named\n")
    code = "from dawnjax.cluster import jax_platforms; print(*jax_platforms.plugins())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert {"first", "second"} <= set(child.stdout.split())
