"""Memory of each experiment's train step on a device, as XLA assigns it for absent hardware.

    DAWNJAX_DATA=data python -m benchmarks plan_memory [--on=h100] [EXPERIMENT ...]

It needs `pip install "dawnjax[plan]"` and no accelerator. An experiment whose data are neither here
nor published, or that the compiler refuses, gets a row with the reason. Rows that the file has of
other experiments stay, if the same versions compiled them.
"""

import argparse
import contextlib
import importlib.metadata
import json
import sys
from typing import Any

from benchmarks import harness
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError, RunError
from dawnjax.plan.compiling import memory
from dawnjax.plan.hardware.systems import parse_system

DEVICES = 8
ARRANGED = {
    "c4_llama31_8b": (64, ("--mesh.fsdp=64", "--global_batch_size=64")),
    "gpt_oss_20b": (64, ("--mesh.fsdp=16", "--mesh.expert=4", "--global_batch_size=64")),
    "imagenet_resnet50_mlperf": (64, ()),
    "llama2_70b_lora": (8, ("--mesh.fsdp=8",)),
    # The opponent's weights have no say in a train step.
    "minigo_9x9_v06": (8, ("--data.made_up",)),
    "nuclei_mask_rcnn_small": (1, ()),  # 5 images
}
"""Devices and flags of experiments that 8 devices, or a mesh of data alone, do not hold."""

PACKAGES = ("jax", "libtpu", "jax-cuda13-plugin")


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--on", default="h100", help="accelerator, as of dawnjax plan")
    arguments = parser.parse_args()
    name = f"plan_memory_{arguments.on}"
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    results = harness.Results(name, packages=versions)
    rows = _earlier(name, versions)
    for experiment in arguments.experiments or experiment_names():
        rows[experiment] = row = _row(experiment, arguments.on)
        results.add(rows=[rows[known] for known in sorted(rows)])
        print(row, flush=True)
    print(results.path)
    return 0


def _earlier(name: str, versions: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Rows of the result file by experiment; none where other versions compiled them."""
    path = harness.folder() / f"{name}.json"
    record = json.loads(path.read_text()) if path.exists() else {"packages": {}}
    rows = record["rows"] if record["packages"] == versions else []
    return {row["experiment"]: row for row in rows}


def _row(experiment: str, chip: str) -> dict[str, Any]:
    devices, flags = ARRANGED.get(experiment, (DEVICES, ()))
    system = parse_system(f"{chip}:{devices}")
    row = {"experiment": experiment, "system": system.name, "flags": list(flags)}
    try:
        found = memory.of_experiment([f"--experiment={experiment}", *flags], system)
    except (ConfigError, RunError) as error:
        return {**row, "reason": str(error)}
    # The step of the stage that needs most, and nothing of what makes examples between steps.
    steps = [p for name, p in found.programs.items() if name.startswith("train step")]
    step = max(steps, key=lambda program: program.num_bytes)
    return {**row, "num_bytes": step.num_bytes, "recomputed": step.recomputed}


if __name__ == "__main__":
    sys.exit(main())
