"""Origin of a run: what made it. Studies and entries pool runs of one origin alone."""

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
    "profile.twin",
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


def origin_of(record: Mapping[str, Any], options: Mapping[str, Any]) -> Origin:
    """Origin of a run by the content of its `experiment.json` and its options that can be timed."""
    named = tuple(f"{name}={value}" for name, value in sorted(options.items()))
    return Origin(record["identity"], named)


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
