"""Axes of a study: a field with its values, or with a distribution that a search draws from."""

import dataclasses
import math
import re

from dawnjax.errors import ConfigError

DISTRIBUTIONS = "log(a,b), uniform(a,b), int(a,b)"

_DISTRIBUTION = re.compile(r"(log|uniform|int)\(([^,()]+),([^,()]+)\)")


@dataclasses.dataclass(frozen=True)
class Axis:
    """A field of the experiment with its possible values.

    Attributes:
      field: Name of a flag, such as `optimizer.base_learning_rate`.
      values: The values, as the command line has them; empty for a distribution.
      distribution: `log`, `uniform` or `int`; empty for values.
      low: Lower end of a distribution.
      high: Upper end, included.
    """

    field: str
    values: tuple[str, ...] = ()
    distribution: str = ""
    low: float = 0.0
    high: float = 0.0

    @property
    def size(self) -> float:
        """Number of different values; infinite for real numbers."""
        if self.values:
            return len(self.values)
        return self.high - self.low + 1 if self.distribution == "int" else math.inf

    @property
    def ends(self) -> tuple[str, ...]:
        """All values, or the two ends of a distribution."""
        return self.values or (self.text(self.low), self.text(self.high))

    def text(self, value: float | str) -> str:
        """A drawn value as the flag has it: four digits of a real number, within the ends."""
        if isinstance(value, str):
            return value
        if self.distribution == "int":
            return str(int(value))
        return repr(min(max(float(f"{value:.4g}"), self.low), self.high))


def axis_of(text: str) -> Axis:
    """Axis that `FIELD=VALUE,VALUE` or `FIELD=log(0.01,1)` names.

    Raises:
      ConfigError: The text is neither.
    """
    field, equals, listed = text.lstrip("-").partition("=")
    listed = listed.strip()
    if field and equals and re.match(r"\w+\(", listed):
        return _distribution(text, field, listed)
    values = tuple(value.strip() for value in listed.split(","))
    if not field or not equals or not all(values):
        form = "FIELD=VALUE,VALUE, such as global_batch_size=32,64"
        raise ConfigError(f"axis {text!r} must be {form}")
    if len(set(values)) < len(values):
        raise ConfigError(f"axis {text!r} repeats a value")
    return Axis(field, values)


def _distribution(text: str, field: str, listed: str) -> Axis:
    found = _DISTRIBUTION.fullmatch(listed)
    ends: list[float] = []
    if found:
        number = int if found[1] == "int" else float
        try:
            ends = [number(end) for end in found.groups()[1:]]
        except ValueError:
            found = None
    # NaN is not below the bound; beyond it whole numbers are no longer exact as real ones.
    if not found or not all(abs(end) < 2**53 for end in ends):
        raise ConfigError(f"axis {text!r} is not a distribution: {DISTRIBUTIONS}, or VALUE,VALUE")
    low, high = ends
    if not low < high or (found[1] == "log" and low <= 0):
        above = ", and above 0" if found[1] == "log" else ""
        raise ConfigError(f"axis {text!r} must have its lower end first{above}")
    axis = Axis(field, (), found[1], low, high)
    if len(set(axis.ends)) == 1:
        raise ConfigError(f"axis {text!r} is narrower than the four digits of drawn values")
    return axis
