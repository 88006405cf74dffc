"""Memory of each experiment's train step on a device, as XLA assigns it for absent hardware.

    DAWNJAX_DATA=data python -m benchmarks plan_memory [--on=h100,v5p,v6e] [EXPERIMENT ...]

It needs `pip install "dawnjax[plan]"` and no accelerator, and writes `plan_memory_jax_0.10.json` or
that of another JAX. A cell that cannot be compiled, because the data are neither here nor
published or because the compiler refuses, keeps the reason. Cells that the file already has, of the
same versions, are skipped, so a run that was stopped goes on. After a change of models or of steps,
remove the file.

The chips of a platform share a process that has imported everything and starts another for each
cell: on two busy cores the imports took longer than many of the programs.
"""

import argparse
import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from typing import Any, NamedTuple

from benchmarks import harness
from dawnjax.config.experiment_modules import experiment_names
from dawnjax.plan.compiling import compilers
from dawnjax.plan.compiling.assigned import leave
from dawnjax.plan.compiling.compiled import COMPILE_SECONDS
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


FORK = multiprocessing.get_context("fork")
"""No thread of JAX runs yet where a process is forked."""


class Cell(NamedTuple):
    experiment: str
    system: str
    flags: tuple[str, ...]


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
    wanted: dict[str, list[Cell]] = {}
    for experiment in arguments.experiments or experiment_names():
        devices, flags = ARRANGED.get(experiment, (DEVICES, ()))
        for chip in arguments.on.split(","):
            cell = Cell(experiment, f"{chip}:{devices}", flags)
            if cell[:2] not in known:
                platform = parse_system(cell.system).accelerator.device.platform
                wanted.setdefault(platform, []).append(cell)
    rows: Queue[dict[str, Any]] = FORK.Queue()
    for platform, cells in wanted.items():
        FORK.Process(target=_compile_all, args=(platform, cells, rows)).start()
    for _ in range(sum(map(len, wanted.values()))):
        row = rows.get()
        known[row["experiment"], row["system"]] = row
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


def _compile_all(platform: str, cells: Iterable[Cell], rows: "Queue[dict[str, Any]]") -> None:
    """Compile the cells of a platform, in a process with its compiler's environment."""
    os.environ.update(compilers.environment(platform))
    import dawnjax.feed
    import dawnjax.profile.hlo
    import dawnjax.programs
    import dawnjax.train_step  # noqa: F401

    for cell in cells:
        started = time.monotonic()
        answer = _answer_of(cell)
        row = {**cell._asdict(), "seconds": round(time.monotonic() - started, 1)}
        if "reason" in answer:
            rows.put({**row, "reason": answer["reason"]})
            continue
        # The step of the stage that needs most, and nothing of what makes examples between steps.
        found = answer["programs"].items()
        steps = [program for name, program in found if name.startswith("train step")]
        step = max(steps, key=lambda program: program["num_bytes"])
        rows.put({**row, **{name: step[name] for name in ("num_bytes", "recomputed")}})


def _answer_of(cell: Cell) -> dict[str, Any]:
    """Answer of the compiler to a cell, in a process of its own that makes no kernels."""
    here, there = FORK.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        child = FORK.Process(target=_compile, args=(cell, folder, there))
        child.start()
        there.close()
        try:
            return here.recv() if here.poll(COMPILE_SECONDS) else {"reason": "it takes too long"}
        except EOFError:
            return {"reason": "the compiler's process ended"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid or 0, signal.SIGKILL)  # and the assembler of kernels
            child.join()


def _compile(cell: Cell, folder: str, there: Connection) -> None:
    from dawnjax.plan.compiling import worker

    os.setsid()
    os.environ["TMPDIR"] = folder
    argv = [f"--experiment={cell.experiment}", *cell.flags]
    request = {"argv": argv, "is_memory": True, "system": cell.system, "folder": folder}
    there.send(worker.answer_to(request))
    leave()


if __name__ == "__main__":
    sys.exit(main())
