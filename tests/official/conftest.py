"""Fixtures of the tests of official."""

from pathlib import Path

import pytest
from retold_runs import cifar10, export, on_data, retold
from shared_runs import made_once

from dawnjax.__main__ import main


@pytest.fixture(scope="session")
def made_up(tmp_path_factory, compile_cache) -> Path:
    """Trains a stand-in for ImageNet on made-up images, from its flag on."""

    def make(folder: Path) -> None:
        argv = ["train", "--experiment=imagenet_resnet_tiny", "--profile.after_run=false"]
        argv += [f"--run_dir={folder / 'run'}", compile_cache]
        argv += ["--model.stage_sizes=1", "--model.stage_widths=16"]
        assert main([*argv, "--seed=3", "--price_per_hour_usd=2.5", "--notensorboard"]) == 0

    return made_once(tmp_path_factory, "made_up", make) / "run"


@pytest.fixture(scope="session")
def trained(made_up, tmp_path_factory) -> Path:
    """Retells the run as one on ImageNet, which no test has."""
    target = tmp_path_factory.mktemp("export") / "trained"
    return retold(made_up, target, 3, on_data(name="ImageNet", benchmark="ImageNet"))


@pytest.fixture(scope="module")
def dawnbench(trained, tmp_path_factory) -> tuple[Path, Path]:
    """Makes a run of CIFAR-10 and exports it."""
    folder = tmp_path_factory.mktemp("dawnbench")
    # As float32 gives 94 %: below 0.94 as a float64.
    run = retold(trained, folder / "run", 5, cifar10([0.5, 0.93999, 0.9399999976158142, 0.92]))
    argv = ["--format=dawnbench", str(run), "--submitter=A. Person", "--name=person_resnet_cpu_jax"]
    assert export(*argv, f"--out={folder / 'out'}") == 0
    return run, folder / "out"
