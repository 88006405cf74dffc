"""Parts of a batch, by the shape of the mesh and by the mesh itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import batch_shards
from dawnjax.machine.mesh_shape import AXES, MeshShape


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


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (MeshShape(fsdp=48), "mesh.fsdp=48 does not divide 8 devices"),
        (MeshShape(fsdp=2, model=3), "mesh.fsdp=2 x mesh.model=3 does not divide 8 devices"),
        (MeshShape(data=2, fsdp=2), "mesh.data=2 x mesh.fsdp=2 is 4, but there are 8 devices"),
        (MeshShape(context=0), "has an axis below 1"),
        (MeshShape(data=-1), "has an axis below 1"),
    ],
)
def test_axes_that_do_not_divide_the_devices_are_refused(shape, line):
    with pytest.raises(ConfigError, match=line):
        shape.sizes(8)


def test_data_takes_what_the_other_axes_leave():
    assert MeshShape(fsdp=2, model=2).sizes(8) == {
        "data": 2, "fsdp": 2, "expert": 1, "context": 1, "model": 2,
    }  # fmt: skip
    assert tuple(MeshShape().sizes(8)) == AXES
