"""Fixtures of the tests of official."""

from pathlib import Path

import pytest
from retold_runs import Event, cifar10, export, on_data, retold
from shared_runs import small_run


@pytest.fixture(scope="session")
def trained(tmp_path_factory, compile_cache) -> Path:
    """A short run of `digits` retold as MLPerf's ResNet on ImageNet, which no test has."""
    of_imagenet = on_data(name="ImageNet", benchmark="ImageNet", evidence="")

    def change(events: list[Event]) -> list[Event]:
        for event in events:
            if event["event"] == "experiment":
                event["run_options"]["price_per_hour_usd"] = 2.5
        return of_imagenet(events)

    run = small_run(tmp_path_factory, compile_cache)
    return retold(run, tmp_path_factory.mktemp("export") / "trained", 3, change)


@pytest.fixture(scope="module")
def dawnbench(trained, tmp_path_factory) -> tuple[Path, Path]:
    """Makes a run of CIFAR-10 and exports it."""
    folder = tmp_path_factory.mktemp("dawnbench")
    # As float32 gives 94 %: below 0.94 as a float64.
    run = retold(trained, folder / "run", 5, cifar10([0.5, 0.93999, 0.9399999976158142, 0.92]))
    argv = ["--format=dawnbench", str(run), "--submitter=A. Person", "--name=person_resnet_cpu_jax"]
    assert export(*argv, f"--out={folder / 'out'}") == 0
    return run, folder / "out"
