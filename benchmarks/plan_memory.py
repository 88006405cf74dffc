"""Memory of each experiment's train step on a device, as XLA assigns it for absent hardware.

    DAWNJAX_DATA=data python -m benchmarks plan_memory [--on=h100,v5p,v6e] [EXPERIMENT ...]

It needs `pip install "dawnjax[plan]"` and no accelerator, and writes `plan_memory_jax_0.10.json` or
that of another JAX. A cell that cannot be compiled, because the data are neither here nor
published or because the compiler refuses, keeps the reason. Cells that the file already has, of the
same versions, are skipped, so a run that was stopped goes on. After a change of models or of steps,
remove the file.
"""

import argparse
import contextlib
import importlib.metadata
import json
import sys
import time
from typing import Any

from benchmarks import harness
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import RunError
from dawnjax.plan.compiling import memory
from dawnjax.plan.hardware.systems import parse_system

CHIPS = "h100,v5p,v6e"
DEVICES = 8
ARRANGED = {
    "c4_llama31_8b": (64, ("--mesh.fsdp=64", "--global_batch_size=64")),
    "gpt_oss_20b": (64, ("--mesh.fsdp=16", "--mesh.expert=4", "--global_batch_size=64")),
    "imagenet_resnet50_mlperf": (64, ()),
    "llama2_70b_lora": (8, ("--mesh.fsdp=8",)),
    "nuclei_mask_rcnn_small": (1, ()),  # 5 images
}
"""Devices and flags of experiments that 8 devices, or a mesh of data alone, do not hold."""

PACKAGES = ("jax", "libtpu", "jax-cuda13-plugin")


Rows = dict[tuple[str, str], dict[str, Any]]
"""By experiment and system."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=sys.argv[0], description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--on", default=CHIPS, help="accelerators, as of dawnjax plan")
    arguments = parser.parse_args()
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    name = f"plan_memory_jax_{'.'.join(versions['jax'].split('.')[:2])}"
    results = harness.Results(name, packages=versions)
    known = _earlier(name, versions)
    for experiment in arguments.experiments or experiment_names():
        devices, flags = ARRANGED.get(experiment, (DEVICES, ()))
        for chip in arguments.on.split(","):
            system = f"{chip}:{devices}"
            if (experiment, system) not in known:
                row = known[experiment, system] = _row(experiment, system, flags)
                results.add(rows=[known[cell] for cell in sorted(known)])
                print(row, flush=True)
    print(results.path)
    return 0


def _earlier(name: str, versions: dict[str, str]) -> Rows:
    """Rows of the result file; none where other versions compiled them."""
    path = harness.folder() / f"{name}.json"
    record = json.loads(path.read_text()) if path.exists() else {"packages": {}}
    rows = record["rows"] if record["packages"] == versions else []
    return {(row["experiment"], row["system"]): row for row in rows}


def _row(experiment: str, system: str, flags: tuple[str, ...]) -> dict[str, Any]:
    row: dict[str, Any] = {"experiment": experiment, "system": system, "flags": flags}
    started = time.monotonic()
    try:
        found = memory.of_experiment([f"--experiment={experiment}", *flags], parse_system(system))
    except RunError as error:
        return {**row, "seconds": round(time.monotonic() - started, 1), "reason": str(error)}
    # The step of the stage that needs most, and nothing of what makes examples between steps.
    steps = [program for name, program in found.programs.items() if name.startswith("train step")]
    step = max(steps, key=lambda program: program.num_bytes)
    row["seconds"] = round(time.monotonic() - started, 1)
    return {**row, "num_bytes": step.num_bytes, "recomputed": step.recomputed}


if __name__ == "__main__":
    sys.exit(main())
