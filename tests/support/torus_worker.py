"""One process of a group whose devices are numbered along a TPU's torus, as JAX numbers them.

It trains on data that the host feeds, with the devices in that order and in the plain one, and
prints the losses and metrics of both as JSON. Run it as `python torus_worker.py REQUEST`.
"""

import dataclasses
import itertools
import json
import os
import sys
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NPROC"] = "16"

import jax
import numpy as np

from dawnjax.machine import mesh as meshes

TASKS = {
    "classification": ("--global_batch_size=32", "--batch_norm_group_size=2"),
    "translation": ("--global_batch_size=16",),
    "llama": ("--mesh.model=2", "--compute_dtype=float32"),
}
"""Rows of `task_table`, and their flags for 16 devices."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """What `mesh_utils` asks of a TPU."""

    id: int
    coords: tuple[int, int, int]
    process_index: int = 0
    device_kind: str = "TPU v6 lite"
    slice_index: int = 0
    platform: str = "tpu"
    core_on_chip: int = 0


def pod(kind: str, shape: tuple[int, int, int], host: tuple[int, int, int]) -> list[Chip]:
    """Chips of a slice, host by host, each with a block of the torus of the shape `host`."""
    blocks = itertools.product(*(range(0, shape[i], host[i]) for i in (2, 1, 0)))
    inside = [*itertools.product(*(range(host[i]) for i in (2, 1, 0)))]
    places = [
        (process, (x + dx, y + dy, z + dz))
        for process, (z, y, x) in enumerate(blocks)
        for dz, dy, dx in inside
    ]
    return [Chip(number, at, process, kind) for number, (process, at) in enumerate(places)]


PODS = {
    2: pod("TPU v4", (2, 2, 2), (2, 2, 1)),  # v4-16
    4: pod("TPU v5 lite", (4, 4, 1), (2, 2, 1)),  # v5e-16
}
"""Slices by their number of hosts; each host has four chips."""


def main(request: dict[str, Any]) -> None:
    count, process_id = request["num_processes"], request["process_id"]
    jax.config.update("jax_num_cpu_devices", 4)
    jax.distributed.initialize(request["address"], count, process_id)
    import first_steps
    from task_table import TABLE

    plain = meshes.arranged

    def along_the_torus(sizes: Any, devices: Any) -> Any:
        # JAX numbers simulated devices process by process, as `PODS` does its chips.
        chips = plain(sizes, PODS[count])
        return np.vectorize(lambda chip: devices[chip.id], otypes=[object])(chips)

    results = {}
    for name in request["tasks"]:
        flags = (*TABLE[name].flags, *TASKS[name], "--data_placement=host", "--steps_per_call=1")
        for order, arranged in (("plain", plain), ("torus", along_the_torus)):
            meshes.arranged = arranged
            for cached in ("build", "training", "generating", "evaluation"):
                getattr(first_steps, cached).cache_clear()
            recipe, _ = first_steps.build(4 * count, *flags)
            rows = meshes.local_rows(meshes.batch_sharding(recipe.mesh, 0), 16).tolist()
            losses, metrics = first_steps.run_steps(4 * count, *flags, steps=3)
            results[f"{name}, {order}"] = {"rows": rows, "losses": losses, "metrics": metrics}
    print(json.dumps(results))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
