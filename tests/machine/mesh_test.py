"""Where devices lie in the mesh, and how its shape splits a batch."""

import itertools
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torus_worker
from ports import free_port
from quick_compilation import QUICK
from torus_worker import PODS, Chip

from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import arranged, batch_shards
from dawnjax.machine.mesh_shape import AXES, MeshShape


def torus(rows, columns, num_slices=1):
    places = itertools.product(range(num_slices), range(columns), range(rows))
    return [Chip(number, (x, y, 0), slice_index=part) for number, (part, y, x) in enumerate(places)]


def sizes(**axes):
    return tuple(axes.get(axis, 1) for axis in AXES)


def test_an_axis_of_a_torus_serves_two_of_the_mesh():
    axes = sizes(fsdp=16, expert=4)
    found = arranged(axes, torus(8, 8))
    assert found.shape == axes
    assert {chip.id for chip in found.flat} == {*range(64)}


def test_slices_lie_along_data():
    found = arranged(sizes(data=4, fsdp=8), torus(4, 4, num_slices=2)).reshape(4, 8)
    of_rows = [{chip.slice_index for chip in row} for row in found]
    assert of_rows == [{0}, {0}, {1}, {1}]
    with pytest.raises(ConfigError, match="mesh.data=1 must be a multiple of 2, the number of"):
        arranged(sizes(fsdp=32), torus(4, 4, num_slices=2))
    with pytest.raises(ConfigError, match="no place in the devices' links for this mesh: "):
        arranged(sizes(data=4, fsdp=5), [*torus(4, 4), *torus(2, 2, num_slices=2)[4:]])


def test_gpus_of_several_hosts_lie_in_their_order():
    # JAX numbers the hosts of a GPU cluster as slices, which any axis may cross.
    gpus = [
        Chip(number, (0, 0, 0), slice_index=number // 8, platform="gpu") for number in range(16)
    ]
    found = arranged(sizes(fsdp=16), gpus[::-1])
    np.testing.assert_array_equal([gpu.id for gpu in found.flat], range(16))


def test_a_host_s_rows_of_a_pod_are_not_adjacent():
    def rows_of_first(hosts):
        chips = arranged(sizes(data=4 * hosts), PODS[hosts])
        return [row for row, chip in enumerate(chips.flat) if chip.process_index == 0]

    assert rows_of_first(4) == [0, 1, 6, 15]
    assert rows_of_first(2) == [0, 2, 4, 6]


@pytest.mark.long  # at each change, above: which rows a host has, and that they are not adjacent
@pytest.mark.processes
@pytest.mark.parametrize(
    ("num_processes", "tasks"), [(2, list(torus_worker.TASKS)), (4, ["classification"])]
)
def test_the_order_of_a_torus_changes_no_number(num_processes, tasks):
    address = f"127.0.0.1:{free_port()}"
    request = {"num_processes": num_processes, "address": address, "tasks": tasks}
    workers = [
        subprocess.Popen(
            [sys.executable, torus_worker.__file__, json.dumps({**request, "process_id": number})],
            env={**os.environ, "XLA_FLAGS": QUICK},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(num_processes)
    ]
    found = [json.loads(worker.communicate(timeout=400)[0].splitlines()[-1]) for worker in workers]
    first = found[0]
    for name in tasks:
        plain, along = first[f"{name}, plain"], first[f"{name}, torus"]
        assert along["rows"] != list(range(len(along["rows"]))) == plain["rows"]
        # Devices add their sums in another order.
        np.testing.assert_allclose(along["losses"], plain["losses"], atol=2e-5)
        for metric, value in plain["metrics"].items():
            if isinstance(value, float):
                np.testing.assert_allclose(along["metrics"][metric], value, atol=2e-5)


@pytest.mark.parametrize(
    "shape",
    [
        MeshShape(),
        MeshShape(expert=2, context=2),
        MeshShape(data=2, fsdp=2, model=4),
    ],
)
def test_the_shape_splits_a_batch_as_its_mesh_does(shape):
    mesh: Any = SimpleNamespace(shape=shape.sizes(16))
    assert shape.batch_shards(16) == batch_shards(mesh)


def test_data_takes_what_the_other_axes_leave():
    assert MeshShape(fsdp=2, model=2).sizes(8) == {
        "data": 2, "fsdp": 2, "expert": 1, "context": 1, "model": 2,
    }  # fmt: skip
    assert tuple(MeshShape().sizes(8)) == AXES
