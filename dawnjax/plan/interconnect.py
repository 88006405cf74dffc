"""Seconds of a collective on a torus of chips, behind a switch, and between hosts.

An all-reduce sends every byte out of each device twice, on all devices at once, so it lasts
2 (n - 1) / n times its bytes over the bandwidth out of a device; a gather or a scatter once. On a
torus a group has the links of the axes along which it lies, one of three axes a third of them. An
axis that does not wrap has half of that bandwidth. Devices behind one switch, of a host or of a
rack, share the network out of it. Each hop of a ring, or each level of a tree, adds a latency.

All of it counts as exposed. A compiler may hide some behind computation, so a step can be faster
than predicted by at most this share.

Source: Thakur et al. 2005, "Optimization of Collective Communication Operations in MPICH", for the
factors; Austin et al. 2025, "How to scale your model", chapter on sharding, for tori and the hop of
a microsecond.
"""

import itertools
import math

from dawnjax.plan.extract import Exchange
from dawnjax.plan.systems import System

TORUS_HOP_SECONDS = 1e-6
SWITCH_HOP_SECONDS = 5e-6
"""Of a step of NCCL's trees within a host, launch included; its own tests show 10 to 20 us for a
small all-reduce of 8 GPUs."""
NETWORK_HOP_SECONDS = 10e-6

LINK_EFFICIENCY = 0.8
"""Part of a link's rate that long messages reach: NCCL's tests show 360 of 450 GB/s on an H100."""

_ROUNDS = {"all-reduce": 2}
"""Times that each byte leaves a device; once for kinds that are not listed."""


def exchange_seconds(exchange: Exchange, system: System) -> float:
    """Seconds that the collectives of one kind take in a step if computation hides none."""
    if exchange.group_size < 2:
        return 0.0
    rounds = _ROUNDS.get(exchange.kind, 1)
    share = (exchange.group_size - 1) / exchange.group_size
    moved = rounds * share * exchange.num_bytes
    accelerator = system.accelerator
    # Data sheets add up both directions; a ring is bound by one.
    out = accelerator.device.link_bytes_per_second / 2 * LINK_EFFICIENCY
    if accelerator.device.platform == "tpu":
        axes, wraps = _torus_axes(exchange.group_size, system)
        out *= len(axes) / accelerator.topology_axes
        if not wraps:
            out /= 2
        hops = sum(axis - 1 for axis in axes)
        return moved / out + exchange.runs * rounds * hops * TORUS_HOP_SECONDS
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
        groups = min(exchange.group_stride, accelerator.domain)
        network = accelerator.domain_bytes_per_second * LINK_EFFICIENCY / groups
        seconds += rounds * (1 - 1 / domains) * exchange.num_bytes / network
        seconds += exchange.runs * rounds * math.log2(domains) * NETWORK_HOP_SECONDS
    return seconds


def _torus_axes(group_size: int, system: System) -> tuple[tuple[int, ...], bool]:
    """Axes of the torus along which a group lies, and whether all of them are rings.

    JAX lays an axis of the mesh along whole axes of the torus where their sizes allow it: the
    fewest whose product holds the group. A group has the links of these axes alone.
    """
    chips = math.ceil(group_size / system.accelerator.devices_per_chip)
    sizes = [axis for axis in system.shape if axis > 1]
    choices = [
        chosen
        for count in range(1, len(sizes) + 1)
        for chosen in itertools.combinations(sizes, count)
        if math.prod(chosen) >= chips
    ]
    if chips == 1 or not choices:  # the devices of one chip
        return (1,) * system.accelerator.topology_axes, False
    chosen = min(choices, key=lambda axes: (math.prod(axes) != chips, len(axes), math.prod(axes)))
    is_whole = math.prod(chosen) == chips
    return chosen, is_whole and all(axis >= system.accelerator.wraps_from for axis in chosen)
