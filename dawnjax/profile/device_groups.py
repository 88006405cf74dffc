"""Groups of devices that take part in a collective, in XLA's notations."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

_MESH = r"@?mesh\w*\[([^\]]*)\](?:, device_ids=\(([^{]*)\))?\s*\{([^}]*)\}"
"""Sizes of a mesh's axes, its devices in order where they are not numbered along it, and axes."""


def first_group(groups: str, pairs: str, num_devices: int) -> list[int]:
    """Devices of a collective's first group, in order; all devices where no group is listed.

    `groups` is XLA's `replica_groups`: `{{0,1},{2,3}}`, `[16,4]<=[64]T(1,0)` (16 groups of 4),
    `mesh['x'=16,'y'=4] {'y'}` (groups along the named axes) or the same of devices in another
    order, `mesh['x'=16,'y'=4], device_ids=([4,16]T(1,0)) {'y'}`. `pairs` are its
    `source_target_pairs`.
    """
    groups = groups.strip()
    if passed := _passed_along(pairs):
        return passed
    if tiled := re.match(r"\[(\d+),(\d+)\]<=(.*)", groups):
        return _in_order(tiled[3]).reshape(-1)[: int(tiled[2])].tolist()
    if mesh := re.match(_MESH, groups):
        return _along_axes(*mesh.groups(default=""))
    if listed := re.search(r"\{([\d,\s]+)\}", groups):
        return [int(device) for device in listed[1].split(",")]
    return list(range(num_devices))


def group_stride(group: Sequence[int]) -> int:
    """Mean distance between neighbours in a group, rounded down; 1 of a single device."""
    return max(1, (max(group) - min(group)) // (len(group) - 1)) if len(group) > 1 else 1


def mesh_axes(group: Sequence[int], mesh: Mapping[str, int]) -> str:
    """Axes of a mesh that a collective's group runs along, such as `fsdp` or `data, fsdp`.

    Devices are counted along the last axis of the mesh first.
    """
    if max(group) >= math.prod(mesh.values()):
        return "unknown"
    places = np.array(np.unravel_index(group, tuple(mesh.values()))).T
    varies = (places != places[0]).any(axis=0)
    return ", ".join(name for name, does in zip(mesh, varies, strict=True) if does)


def _passed_along(pairs: str) -> list[int]:
    """Devices that pairs pass along, from the first pair on: of a ring all its devices."""
    found = [(int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs)]
    following = dict(found)
    order: dict[int, None] = {}
    device = next((a for a, b in found if a != b), None)
    while device is not None and device not in order:
        order[device] = None
        device = following.get(device)
    return list(order)


def _along_axes(axes: str, order: str, along: str) -> list[int]:
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    shape, place = [], []
    # A part of an axis is printed as 'x':(2)4: size 4 after a prefix of size 2.
    parts = {n: (p, s) for n, p, s in re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", along)}
    for name, size in sizes.items():
        before, part = (int(number or 0) for number in parts.get(name, (1, 1)))
        before, part = before or 1, part or size
        shape += [before, part, size // (before * part)]
        place += [0, slice(None), 0]
    devices = _in_order(order or f"[{math.prod(sizes.values())}]").reshape(shape)
    return devices[tuple(place)].reshape(-1).tolist()


def _in_order(text: str) -> np.ndarray:
    """Devices in XLA's iota form, `[4,16]T(1,0)`: number, reshape, transpose; or as a list."""
    iota = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if iota is None:
        return np.array([int(device) for device in re.findall(r"\d+", text)])
    sizes, order = (
        [int(number) for number in (part or "").split(",") if number] for part in iota.groups()
    )
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    return devices.transpose(order) if len(order) == devices.ndim else devices
