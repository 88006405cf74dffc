"""Parts of a batch, by the shape of the mesh and by the mesh itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from dawnjax.machine.mesh import batch_shards
from dawnjax.machine.mesh_shape import AXES, MeshShape


@pytest.mark.parametrize(
    "shape",
    [
        MeshShape(),
        MeshShape(data=2, fsdp=8),
        MeshShape(model=4),
        MeshShape(expert=2, context=2),
        MeshShape(data=2, fsdp=2, expert=4),
    ],
)
def test_the_shape_splits_a_batch_as_its_mesh_does(shape):
    sizes = {axis: getattr(shape, axis) for axis in AXES}
    if shape.data == 0:
        sizes["data"] = 16 // (shape.fsdp * shape.expert * shape.context * shape.model)
    mesh: Any = SimpleNamespace(shape=sizes)
    assert shape.batch_shards(16) == batch_shards(mesh)
