"""Seconds of a collective on a torus of chips, behind a switch, and between hosts.

An all-reduce sends every byte out of each device twice, on all devices at once, so it lasts
2 (n - 1) / n times its bytes over the bandwidth out of a device; a gather or a scatter once. On a
torus a group has the links of the axes along which it lies, one of three axes a third of them. An
axis that does not wrap has half of its bandwidth. A group with both devices of a chip has all links
of the chip, as each byte crosses them once for both; a group with one of them has half. Devices
behind one switch, of a host or of a rack, share the network out of it. Each hop of a ring, or each
level of a tree, adds a latency.

A permute sends all of its bytes to one other device: over one link of a torus, or through its own
part of the network. On a torus the bytes of an all-to-all travel a quarter of each ring.

All of it counts as exposed. A compiler may hide some behind computation, so a step can be faster
than predicted by at most this share.

Source: Thakur et al. 2005, "Optimization of Collective Communication Operations in MPICH", for the
factors; Austin et al. 2025, "How to scale your model", chapter on sharding, for tori and the hop of
a microsecond; Cloud TPU documentation, page "TPU 7x (Ironwood)", for the two devices of a chip,
which reach each other as fast as over six links, all that a chip has.
"""

import itertools
import math
from typing import NamedTuple

from dawnjax.plan.hardware.systems import System

TORUS_HOP_SECONDS = 1e-6
SWITCH_HOP_SECONDS = 5e-6
"""Of a step of NCCL's trees within a host, launch included; its own tests show 10 to 20 us for a
small all-reduce of 8 GPUs."""
NETWORK_HOP_SECONDS = 10e-6

LINK_EFFICIENCY = 0.8
"""Part of a link's rate that long messages reach: NCCL's tests show 360 of 450 GB/s on an H100."""

_ROUNDS = {"all-reduce": 2}
"""Times that each byte leaves a device; once for kinds that are not listed."""

_PERMUTE = "collective-permute"
_ALL_TO_ALL = ("all-to-all", "ragged-all-to-all")
"""Of these and of permutes each device's bytes leave its host, and none stand for its neighbours'.
"""


class Exchange(NamedTuple):
    """Collectives of one kind, on one device; a row of a file.

    Attributes:
      kind: As XLA names it, such as `all-reduce`.
      group_size: Devices of a group.
      num_bytes: Bytes of all of them, counted as `profile.hlo.Collective` does.
      runs: How often they run.
      group_stride: Distance between a group's devices; from a host's size on, each device is on a
        different host.
    """

    kind: str
    group_size: int
    num_bytes: float
    runs: int
    group_stride: int


def exchange_seconds(exchange: Exchange, system: System) -> float:
    """Seconds that the collectives of one kind take in a step if computation hides none."""
    if exchange.group_size < 2:
        return 0.0
    # Data sheets add up both directions; a ring is bound by one.
    out = system.accelerator.device.link_bytes_per_second / 2 * LINK_EFFICIENCY
    share = (exchange.group_size - 1) / exchange.group_size
    moved = _ROUNDS.get(exchange.kind, 1) * share * exchange.num_bytes
    if exchange.kind == _PERMUTE:
        moved = exchange.num_bytes
    if system.accelerator.device.platform == "tpu":
        return _on_torus(exchange, system, moved, out)
    return _behind_switches(exchange, system, moved, out)


def _on_torus(exchange: Exchange, system: System, moved: float, out: float) -> float:
    accelerator = system.accelerator
    together = exchange.group_stride % accelerator.devices_per_chip != 0
    if together:
        out *= accelerator.devices_per_chip
    chips = math.ceil(exchange.group_size / (accelerator.devices_per_chip if together else 1))
    axes, rings = _torus_axes(chips, system)
    hops = sum(axis - 1 for axis in axes)
    of_axis = out / accelerator.topology_axes
    if exchange.kind == _PERMUTE:  # one way along one axis, which has a link each way
        latency = exchange.runs * (1 if all(rings) else hops) * TORUS_HOP_SECONDS
        return moved / (of_axis / 2) + latency
    if exchange.kind in _ALL_TO_ALL:
        moved *= max(1.0, len(axes) * max(axes) / 4)
    bandwidth = of_axis * sum(1 if ring else 0.5 for ring in rings)
    rounds = _ROUNDS.get(exchange.kind, 1)
    return moved / bandwidth + exchange.runs * rounds * hops * TORUS_HOP_SECONDS


def _behind_switches(exchange: Exchange, system: System, moved: float, out: float) -> float:
    accelerator, rounds = system.accelerator, _ROUNDS.get(exchange.kind, 1)
    # Devices of the group behind each of its switches.
    within = max(1, accelerator.domain // exchange.group_stride)
    within = min(exchange.group_size, within)
    seconds = exchange.runs * rounds * math.log2(within) * SWITCH_HOP_SECONDS
    if within > 1:
        seconds += moved / out
    domains = exchange.group_size / within
    if domains > 1:
        # A domain reduces within itself first: over its network goes one copy of the bytes for
        # each group that has devices in it.
        parts = min(exchange.group_stride, accelerator.domain)
        leaving = rounds * (1 - 1 / domains) * exchange.num_bytes
        if exchange.kind == _PERMUTE:
            leaving = exchange.num_bytes
        if exchange.kind in (_PERMUTE, *_ALL_TO_ALL):
            parts = accelerator.domain
        network = accelerator.domain_bytes_per_second * LINK_EFFICIENCY / parts
        seconds += leaving / network
        seconds += exchange.runs * rounds * math.log2(domains) * NETWORK_HOP_SECONDS
    return seconds


def _torus_axes(chips: int, system: System) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Axes of the torus along which a group of chips lies, and whether each is a ring.

    JAX lays an axis of the mesh along whole axes of the torus where their sizes allow it: the
    fewest whose product holds the group. A group has the links of these axes alone.
    """
    axes = [(size, ring) for size, ring in zip(system.shape, system.rings, strict=True) if size > 1]
    choices = [
        chosen
        for count in range(1, len(axes) + 1)
        for chosen in itertools.combinations(axes, count)
        if math.prod(size for size, _ in chosen) >= chips
    ]
    if chips == 1 or not choices:  # the devices of one chip
        return (1,) * len(system.shape), (True,) * len(system.shape)

    def order(chosen: tuple[tuple[int, bool], ...]) -> tuple[bool, int, int]:
        held = math.prod(size for size, _ in chosen)
        return held != chips, len(chosen), held

    chosen = min(choices, key=order)
    sizes, rings = zip(*chosen, strict=True)
    if math.prod(sizes) == chips:
        return sizes, rings
    # A part of the axes, which is no ring.
    return (sizes if len(sizes) > 1 else (chips,)), (False,) * len(sizes)
