"""Where devices lie in the mesh."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dawnjax.errors import ConfigError
from dawnjax.machine.mesh import arranged
from dawnjax.machine.mesh_shape import AXES


@dataclasses.dataclass(frozen=True)
class Chip:
    id: int
    coords: tuple[int, int, int] = (0, 0, 0)
    slice_index: int = 0
    platform: str = "tpu"
    device_kind: str = "TPU v6 lite"
    core_on_chip: int = 0
    process_index: int = 0


def torus(rows, columns, num_slices=1):
    places = itertools.product(range(num_slices), range(columns), range(rows))
    return [Chip(number, (x, y, 0), part) for number, (part, y, x) in enumerate(places)]


def sizes(**axes):
    return tuple(axes.get(axis, 1) for axis in AXES)


@pytest.mark.parametrize("axes", [{"fsdp": 16, "expert": 4}, {"data": 2, "model": 32}])
def test_an_axis_of_a_torus_serves_two_of_the_mesh(axes):
    found = arranged(sizes(**axes), torus(8, 8))
    assert found.shape == sizes(**axes)
    assert {chip.id for chip in found.flat} == {*range(64)}


def test_neighbours_in_the_mesh_are_neighbours_in_the_torus():
    found = arranged(sizes(data=8, fsdp=8), torus(8, 8)).reshape(8, 8)
    rows, columns = (
        zip(one.flat, other.flat, strict=True)
        for one, other in ((found[:-1], found[1:]), (found[:, :-1], found[:, 1:]))
    )
    for one, other in itertools.chain(rows, columns):
        assert math.dist(one.coords, other.coords) == 1


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
    gpus = [Chip(number, slice_index=number // 8, platform="gpu") for number in range(16)]
    found = arranged(sizes(fsdp=16), gpus[::-1])
    np.testing.assert_array_equal([gpu.id for gpu in found.flat], range(16))
