"""Memory of a train step from shapes alone, beside XLA's own figure for the compiled program.

    DAWNJAX_DATA=data python -m benchmarks plan_memory [--on=h100] [EXPERIMENT ...]

It needs `pip install -e '.[plan]'` and no accelerator. Each experiment's step, of the stage that
needs most, is compiled for devices that are not here, as a plan does it. Experiments whose data are
neither here nor published, and those that the compiler refuses, get a row with the reason. Rows
that the file has of other experiments stay. `--predict_only` keeps XLA's figures and predicts anew.
"""

import argparse
import contextlib
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from benchmarks.result_tables.programs import plan_memory_cells
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.plan import compiled
from dawnjax.plan.systems import parse_system

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

PACKAGES = ("jax", "libtpu", "jax-cuda12-plugin")


def main() -> int:
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--on", default="h100", help="accelerator, as of dawnjax plan")
    parser.add_argument("--predict_only", action="store_true")
    arguments = parser.parse_args()
    name = f"plan_memory_{arguments.on}"
    rows = {known: {"experiment": known, "system": "", "flags": []} for known in experiment_names()}
    rows |= earlier_rows(name)
    results = harness.Results(name, packages=packages())
    for experiment in arguments.experiments or experiment_names():
        devices, flags = ARRANGED.get(experiment, (DEVICES, ()))
        row = predicted(experiment, f"{arguments.on}:{devices}", flags)
        if arguments.predict_only:
            earlier = rows[experiment]
            if "reason" in row and "xla" in earlier:
                print(f"{experiment}: row left as it was: {row['reason']}", file=sys.stderr)
                continue
            same = earlier.get("stage") == row.get("stage")
            kept = ("xla", "reason") if same else ()
            row = {name: earlier[name] for name in kept if name in earlier} | row
        elif "reason" not in row:
            row |= of_compiler(row)
        rows[experiment] = row
        results.add(rows=[rows[known] for known in sorted(rows)])
        print(*plan_memory_cells(row), sep="  ", flush=True)
    print(results.path)
    return 0


def earlier_rows(name: str) -> dict[str, dict[str, Any]]:
    """Rows of the result file by experiment; none where other versions compiled them."""
    path = harness.folder() / f"{name}.json"
    if not path.exists():
        return {}
    record = json.loads(path.read_text())
    rows = record["rows"] if record["packages"] == packages() else []
    return {row["experiment"]: row for row in rows}


def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def predicted(experiment: str, devices: str, flags: Sequence[str]) -> dict[str, Any]:
    """What is predicted of an experiment's step on devices, such as `h100:8`, or why nothing is."""
    from dawnjax.plan.memory import step_memory

    system = parse_system(devices)
    argv = [f"--experiment={experiment}", *flags]
    row = {"experiment": experiment, "system": system.name, "flags": list(flags)}
    try:
        request, _ = parse_request("plan", argv)
        spec, _ = compiled.spec_of(request.experiment.data)
        memory = step_memory(request.experiment, spec, request.options.mesh, system)
    # Whatever ends one experiment must not cost the rows of the others.
    except (ConfigError, RunError, DataError, ValueError, ImportError) as error:
        return {**row, "reason": str(error)}
    stage = request.experiment.in_stage(memory.stage)
    # The step alone: no data set beside it, and no call that makes examples.
    parts = {
        "state": memory.parameters + memory.optimizer + memory.averages + memory.made,
        "inputs": memory.inputs,
        "results": memory.results,
        "gathered": memory.gathered,
    }
    return {
        **row,
        "global_batch_size": stage.global_batch_size,
        "stage": memory.stage,
        "predicted": {"num_bytes": sum(parts.values()), **parts},
    }


def of_compiler(row: dict[str, Any]) -> dict[str, Any]:
    """XLA's figure of the step, or the reason for none."""
    argv = [f"--experiment={row['experiment']}", *row["flags"]]
    try:
        answer = compiled.answer_of_compiler(argv, parse_system(row["system"]), part=row["stage"])
    except RunError as error:
        return {"reason": str(error)}
    if "reason" in answer:
        return answer
    extract = {"num_bytes": answer["memory_bytes"], "recomputed": answer.get("recomputed", 0)}
    return {"xla": extract}


if __name__ == "__main__":
    sys.exit(main())
