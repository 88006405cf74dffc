"""Groups of devices that take part in a collective, in XLA's notations."""

import math
import re
from collections.abc import Mapping

import numpy as np

_MESH = r"@?mesh\w*\[([^\]]*)\](?:, device_ids=\(([^{]*)\))?\s*\{([^}]*)\}"
"""Sizes of a mesh's axes, its devices in order where they are not numbered along it, and axes."""


def group_size(text: str, num_devices: int) -> int:
    """Number of devices in one group of a collective; all devices where no group is listed.

    `text` is XLA's `replica_groups`: `{{0,1},{2,3}}`, `[16,4]<=[64]T(1,0)` (16 groups of 4),
    `mesh['x'=16,'y'=4] {'y'}` (groups along the named axes) or the same of devices in another
    order, `mesh['x'=16,'y'=4], device_ids=([4,16]T(1,0)) {'y'}`.
    """
    text = text.strip()
    mesh = re.match(_MESH, text)
    if mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", mesh[1])}
        # A sub-axis is printed as 'x':(2)4: size 4 after a prefix of size 2.
        total = 1
        for name, part in re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", mesh[3]):
            total *= int(part) if part else sizes.get(name, 1)
        return total
    tiled = re.match(r"\[(\d+),(\d+)\]<=", text)
    if tiled:
        return int(tiled[2])
    groups = re.findall(r"\{([\d,\s]+)\}", text)
    if groups:
        return max(len(group.split(",")) for group in groups)
    return num_devices


def group_stride(text: str, pairs: str = "") -> int:
    """Mean distance between neighbours in a collective's group, rounded down; 1 without groups."""
    first = passed_along(pairs) or _first_group(text.strip())
    return max(1, (max(first) - min(first)) // (len(first) - 1)) if len(first) > 1 else 1


def passed_along(pairs: str) -> list[int]:
    """Devices that XLA's `source_target_pairs` pass along, from the first pair on, in order.

    Of a ring they are all its devices; empty without pairs.
    """
    found = [(int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", pairs)]
    following = dict(found)
    order: dict[int, None] = {}
    device = next((a for a, b in found if a != b), None)
    while device is not None and device not in order:
        order[device] = None
        device = following.get(device)
    return list(order)


def mesh_axes(groups: str, pairs: str, mesh: Mapping[str, int]) -> str:
    """Axes of a mesh that a collective's groups run along, such as `fsdp` or `data, fsdp`.

    `groups` and `pairs` are XLA's `replica_groups` and `source_target_pairs`; devices are counted
    along the last axis of the mesh first. Without groups all devices take part.
    """
    size = math.prod(mesh.values())
    together = passed_along(pairs) or _first_group(groups.strip()) or list(range(size))
    if max(together) >= size:
        return "unknown"
    places = np.array(np.unravel_index(together, tuple(mesh.values()))).T
    varies = (places != places[0]).any(axis=0)
    return ", ".join(name for name, does in zip(mesh, varies, strict=True) if does)


def _first_group(text: str) -> list[int]:
    tiled = re.match(r"\[(\d+),(\d+)\]<=(.*)", text)
    if tiled:
        return _in_order(tiled[3]).reshape(-1)[: int(tiled[2])].tolist()
    mesh = re.match(_MESH, text)
    if mesh:
        axes = re.findall(r"'([^']*)'=(\d+)", mesh[1])
        along = set(re.findall(r"'([^']*)'", mesh[3]))
        sizes = [int(size) for _, size in axes]
        devices = _in_order(mesh[2] or f"[{math.prod(sizes)}]").reshape(sizes)
        place = tuple(slice(None) if name in along else 0 for name, _ in axes)
        return devices[place].reshape(-1).tolist()
    listed = re.search(r"\{([\d,\s]+)\}", text)
    return [int(device) for device in listed[1].split(",")] if listed else []


def _in_order(text: str) -> np.ndarray:
    """Devices in XLA's iota form, `[4,16]T(1,0)`: number, reshape, transpose; or as a list."""
    iota = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    sizes, order = (
        [int(number) for number in (part or "").split(",") if number]
        for part in (iota.groups() if iota else (None, None))
    )
    if not sizes:
        return np.array([int(device) for device in re.findall(r"\d+", text)])
    devices = np.arange(math.prod(sizes)).reshape(sizes)
    return devices.transpose(order) if len(order) == devices.ndim else devices
