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


@pytest.mark.parametrize("name", ["TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES"])
def test_variables_that_say_where_hardware_is_are_believed(name, monkeypatch):
    monkeypatch.setenv(jax_platforms.VARIABLE, "")
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(jax_platforms, "plugins", lambda: GPU_AND_TPU)
    monkeypatch.setattr(jax_platforms, "has_hardware", lambda: False)
    jax_platforms.choose("train")
    assert os.environ[jax_platforms.VARIABLE] == ""


@pytest.mark.parametrize(
    ("file", "content", "is_there"),
    [
        ("dev/nvidiactl", "", True),
        ("dev/dxg", "", True),
        ("dev/accel0", "", True),
        ("dev/vfio/0", "", True),
        ("dev/vfio/vfio", "", False),
        ("dev/null", "", False),
        ("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n", True),
        ("sys/bus/pci/devices/0000:00:04.0/vendor", "0x8086\n", False),
    ],
)
def test_hardware_is_seen_by_the_files_of_a_machine(file, content, is_there, tmp_path):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    assert jax_platforms.has_hardware(tmp_path) == is_there


def test_a_plan_takes_the_cpu_alone():
    code = (
        "import os, sys; sys.argv = ['dawnjax', 'plan', '--help']; from dawnjax.__main__ import "
        "main; main(); print(os.environ['JAX_PLATFORMS'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert child.stdout.splitlines()[-1] == "cpu"


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
