"""What each host of a run saw: the parts of its profiled steps, what they used, their ops.

A log may come from anywhere, and its profile is not part of a result: a host with a field of an
unexpected kind is left out.
"""

import contextlib
import dataclasses
from typing import Annotated

from msgspec import Meta

from dawnjax import records
from dawnjax.records.bounds import Amount, Place
from dawnjax.trials.trial import Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class Op:
    """An op of the profiled steps.

    Attributes:
      layer: Where the program made it, such as `stage_1/block_2/conv`; empty if unknown.
      line: The line of code likewise.
      lost_seconds_per_step: Time beyond the least that its FLOPs and bytes need.
      has_products: Whether it multiplies matrices.
    """

    op: str = ""
    layer: str = ""
    line: str = ""
    seconds_per_step: Amount = 0.0
    lost_seconds_per_step: Amount = 0.0
    flops_per_byte: Amount = 0.0
    flops_per_second: Amount = 0.0
    has_products: bool = False


Part = Annotated[float, Meta(ge=-1e9, le=1e9)]
"""Seconds; what is left of a step may be below 0 by a rounding."""

Distribution = tuple[tuple[Amount, Amount], ...]
"""Ascending values, each with the fraction of the time at or below it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
    """The ops that take longest, and the peaks of one device."""

    ops: tuple[Op, ...] = ()
    peak_flops_per_second: Amount | None = None
    peak_bytes_per_second: Amount | None = None
    peak_source: str | None = None
    peak_use_cdf: Distribution = ()
    throughput_cdf: Distribution = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Utilization:
    """Where the time of a step went, and the fractions of each peak; None with a reason."""

    window: str | None = None
    traced_step_seconds: Amount | None = None
    parts_seconds: dict[str, Part] | None = None
    hfu: Amount | None = None
    mfu: Amount | None = None
    memory_bandwidth_fraction: Amount | None = None
    tensor_core_fraction: Amount | None = None
    busy_fraction: Amount | None = None
    largest_losses: tuple[Op, ...] = ()
    roofline: Roofline | None = None
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Communication:
    """Fractions of a step, and bytes; None with a reason."""

    fraction: Amount | None = None
    exposed_fraction: Amount | None = None
    exposed_skew_fraction: Amount | None = None
    bytes_per_step: Amount | None = None
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """One process, as the last attempt measured it."""

    process_index: Place = 0
    hostname: str = ""
    cpu_fraction: Amount | None = None
    memory_bytes: Amount | None = None
    device_memory_peak_bytes: Amount | None = None
    input_wait_fraction: Amount | None = None
    utilization: Utilization = Utilization()
    communication: Communication = Communication()

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each part of a step; empty without a profile."""
        parts = self.utilization.parts_seconds or {}
        return {name: max(0.0, seconds) for name, seconds in parts.items()}


def hosts_of(trial: Trial) -> list[Host]:
    """Hosts of a trial's last attempt, without those that are damaged."""
    hosts = []
    for record in trial.hosts:
        with contextlib.suppress(records.FieldError):
            hosts.append(records.convert(record, Host, others=True))
    return hosts
