"""Origin and system of a run. Whatever pools runs as trials asks `Made.difference` first.

Trials of one entry agree in their origin (the experiment's identity and every run option that can
change a time) and in their system. They differ in their seed, and in nothing else.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dawnjax.config.config_json import to_json
from dawnjax.config.run_options import RunOptions
from dawnjax.runs.directory import flatten

_NOT_TIMED = (
    "run_dir",
    "mesh",  # what came of it is compared
    "checkpoint.directory",
    "price_per_hour_usd",
    "compile_cache_dir",
    "processes",
    "profile.after_run",
    "profile.seconds",
    "profile.twin",  # of earlier versions
    "profile.measured_peaks",
    "chooses",  # read by itself: such a run is in no entry
)
"""Run options, or groups of them, that change no time on the run's clock: names, deadlines, and
what happens before the clock or after it."""


class Origin(NamedTuple):
    """What made a run, but for its seed and its system.

    Attributes:
      identity: Hash of the mathematics, data, evaluation, target and code of a user's classes.
      options: Run options that can change a time and are not the default, as `name=value`.
    """

    identity: str
    options: tuple[str, ...] = ()

    def difference(self, other: "Origin") -> str:
        """Difference of a run of this origin from one of the other, in words; empty without one."""
        if self.identity != other.identity:
            return f"its experiment has the identity {self.identity}, not {other.identity}"
        changed = sorted({*self.options} ^ {*other.options})
        return f"its run options differ: {', '.join(changed[:4])}" if changed else ""


class System(NamedTuple):
    """Devices of a run's newest attempt, and the run's division among them.

    Attributes:
      kind: What the devices call themselves.
      mesh: Its axes with their sizes, by name.
      cores: Cores open to process 0 where the devices are a CPU's; None for others, or if unknown.
    """

    platform: str
    kind: str
    num_devices: int
    num_processes: int
    num_hosts: int
    mesh: tuple[tuple[str, int], ...]
    cores: int | None

    @property
    def layout(self) -> dict[str, Any]:
        """Division of the run among devices, by name, whatever machines they are in."""
        mesh = " x ".join(f"{size} {axis}" for axis, size in self.mesh)
        return {"devices": self.num_devices, "processes": self.num_processes, "mesh": mesh}

    @property
    def hardware(self) -> str:
        """Kind of the devices, with a CPU's cores where they are known."""
        if self.cores is None:
            return self.kind
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{self.kind} ({cores}{' a host' if self.num_hosts > 1 else ''})"

    def __str__(self) -> str:
        hosts = f" on {self.num_hosts} hosts" if self.num_hosts > 1 else ""
        return f"{self.num_devices} x {self.hardware}{hosts}"

    def difference(self, other: "System") -> str:
        """Difference of a run on this system from one on the other, in words; empty without one."""
        if self == other:
            return ""
        if str(self) != str(other):
            return f"it ran on {self}, not on {other}"
        mine, theirs = ({"platform": it.platform, **it.layout} for it in (self, other))
        name = next(name for name in mine if mine[name] != theirs[name])
        return f"it ran with {name}={mine[name]}, not {theirs[name]}"


class Made(NamedTuple):
    """What made a run, and on what."""

    origin: Origin
    system: System

    def difference(self, other: "Made") -> str:
        """Reason why two runs are not trials of one entry, in words; empty where they are."""
        return self.origin.difference(other.origin) or self.system.difference(other.system)


def origin_of(identity: str, options: Mapping[str, Any]) -> Origin:
    """Origin of a run by its identity and its options that can be timed."""
    named = tuple(f"{name}={value}" for name, value in sorted(options.items()))
    return Origin(identity, named)


def timed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings that can change the numbers."""
    numbers = settings.get("numbers")
    return dict(numbers) if isinstance(numbers, dict) else {}


def timed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Run options that can change the time and are not the default.

    A log from before an option existed ran as its default says.
    """
    default = flatten(to_json(RunOptions()))
    return {
        name: value
        for name, value in flatten(options).items()
        if not any(name == prefix or name.startswith(f"{prefix}.") for prefix in _NOT_TIMED)
        and (name not in default or value != default[name])
    }
