"""Memory of a train step from shapes alone, beside XLA's own figure for the compiled program.

    DAWNJAX_DATA=data python -m benchmarks plan_memory [--on=h100] [EXPERIMENT ...]

It needs `pip install -e '.[plan]'` and no accelerator. Each experiment's step, of the stage that
needs most, is compiled for devices that are not here, up to the assignment of memory: making the
kernels takes most of the time and changes no byte. Experiments whose data are neither here nor
published, and those that the compiler refuses, get a row with the reason. Rows that the file has of
other experiments stay. `--predict_only` keeps XLA's figures and predicts anew.
"""

import argparse
import contextlib
import importlib.metadata
import json
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import harness, workers
from benchmarks.result_tables.programs import plan_memory_cells
from dawnjax.config.experiment_flags import parse_request
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.errors import ConfigError, RunError
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.plan import compilers, worker
from dawnjax.plan.compiled import spec_of
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
    parser.add_argument("--limit_seconds", type=float, default=600, help="of one compilation")
    parser.add_argument("--predict_only", action="store_true")
    parser.add_argument("--compile", metavar="REQUEST", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compile:
        print(json.dumps(_compiled(**json.loads(arguments.compile))), flush=True)
        return 0
    name = f"plan_memory_{arguments.on}"
    rows = {known: {"experiment": known, "system": "", "flags": []} for known in experiment_names()}
    rows |= earlier_rows(name)
    results = harness.Results(name, packages=packages())
    for experiment in arguments.experiments or experiment_names():
        row = _row(experiment, arguments.on)
        if arguments.predict_only:
            earlier = rows[experiment]
            row["xla"] = earlier.get("xla") if earlier.get("stage") == row.get("stage") else None
        elif "reason" not in row:
            row |= _of_compiler(row, arguments.limit_seconds)
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


def _row(experiment: str, accelerator: str) -> dict[str, Any]:
    """What is predicted of an experiment's step, or why nothing is."""
    from dawnjax.plan.memory import step_memory

    devices, flags = ARRANGED.get(experiment, (DEVICES, ()))
    system = parse_system(f"{accelerator}:{devices}")
    argv = [f"--experiment={experiment}", *flags]
    row = {"experiment": experiment, "system": system.name, "flags": list(flags)}
    try:
        request, _ = parse_request("plan", argv)
        spec, _ = spec_of(request.experiment.data)
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
    predicted = {"num_bytes": sum(parts.values()), **parts}
    return {
        **row,
        "global_batch_size": stage.global_batch_size,
        "stage": memory.stage,
        "predicted": predicted,
    }


def _of_compiler(row: dict[str, Any], limit_seconds: float) -> dict[str, Any]:
    """XLA's figures, from a process with the compiler's environment; or the reason for none."""
    environment = compilers.environment(parse_system(row["system"]).accelerator.device.platform)
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "argv": [f"--experiment={row['experiment']}", *row["flags"]],
            "system": row["system"],
            "stage": row["stage"],
            "folder": folder,
        }
        asked = f"--compile={json.dumps(request)}"
        dumps = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=single"
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {dumps}"
        command = [sys.executable, "-m", "benchmarks.plan_memory", asked]
        try:
            started = workers.Worker(command, limit_seconds=limit_seconds, environment=environment)
        except workers.SideFailed as failure:
            return {"reason": worker.reason_of(str(failure))}
        started.close()
    return {"xla": started.ready}


def _tell_assigned(folder: str) -> None:
    """Print the memory that XLA assigned, as soon as its report is there."""
    while not list(Path(folder).glob("*memory-usage-report.txt")):
        time.sleep(0.2)
    [assigned] = Path(folder).glob("*-buffer-assignment.txt")
    print(json.dumps(assigned_bytes(assigned.read_text())), flush=True)


def assigned_bytes(text: str) -> dict[str, int]:
    """Bytes on a device by XLA's text of a buffer assignment, as `memory_analysis` counts them."""
    found = {"num_bytes": 0, "arguments": 0, "outputs": 0, "temporaries": 0}
    for size, kind in re.findall(r"^allocation \d+: size (\d+), (.*):$", text, re.MULTILINE):
        name = {"para": "arguments", "prea": "temporaries"}.get(kind[:4], "outputs")
        # A constant belongs to the code; what is local to a thread lies in registers.
        if not kind.startswith(("constant", "thread-local")):
            found["num_bytes"] += int(size)
            found[name] += int(size)
    return found


def _compiled(argv: list[str], system: str, stage: int, folder: str) -> dict[str, int]:
    """Bytes that XLA says that a step needs on a device.

    A compiler that says so before it is done is not waited for: the reader of the line ends it.
    """
    from dawnjax.feed import InputShapes

    threading.Thread(target=_tell_assigned, args=(folder,), daemon=True).start()

    recipes, batch, _ = worker.recipes_of(argv, parse_system(system))
    recipe = recipes[stage]
    shapes = InputShapes(recipe.experiment, recipe.spec, "host", batch)
    program = worker.train_program(recipe, shapes)
    memory = program.memory_analysis()
    return {
        "num_bytes": worker.memory_bytes(program),
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "shared": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
    }


if __name__ == "__main__":
    sys.exit(main())
