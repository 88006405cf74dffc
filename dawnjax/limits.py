"""Limits of a config's fields: declared beside each field, checked in one place.

    momentum: FractionBelowOne = 0.9
    price: Annotated[float, Limit(lambda value: 0 <= value < 10, "lie in [0, 10)")] = 1.0

A field without a declaration may hold anything. Limits between fields are a method of the config,
`check_together(prefix)`. Models and input pipeline import this module, so it needs no JAX.
"""

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from dawnjax.errors import ConfigError


class LimitError(ConfigError, ValueError):
    """A field outside its limit: a user sees one line, a caller of `build` a `ValueError`."""


@dataclasses.dataclass(frozen=True)
class Limit:
    """Limit of one field.

    Attributes:
      holds: True for an allowed value; NaN must not be one.
      rule: End of the message, such as `be 1 or more`.
    """

    holds: Callable[[Any], bool]
    rule: str


def within(least: float, most: float) -> Limit:
    """Limit of a number to a range, both ends included."""
    return Limit(lambda value: least <= value <= most, f"lie in {least} to {most}")


Number = TypeVar("Number", int, float)
Positive = Annotated[Number, Limit(lambda value: value > 0, "be above 0")]
NonNegative = Annotated[Number, Limit(lambda value: value >= 0, "be 0 or more")]
OneOrMore = Annotated[Number, Limit(lambda value: value >= 1, "be 1 or more")]
Fraction = Annotated[float, Limit(lambda value: 0 <= value <= 1, "lie in [0, 1]")]
FractionBelowOne = Annotated[float, Limit(lambda value: 0 <= value < 1, "lie in [0, 1)")]
FractionAboveZero = Annotated[float, Limit(lambda value: 0 < value <= 1, "lie in (0, 1]")]
Counts = Annotated[
    tuple[int, ...],
    Limit(lambda values: min(values, default=0) >= 1, "name one value or more, each 1 or more"),
]
NonNegatives = Annotated[
    tuple[float, ...], Limit(lambda values: min(values, default=0) >= 0, "be 0 or more")
]
Ascending = Annotated[
    tuple[float, ...],
    Limit(
        lambda values: list(values) == sorted(values) and min(values, default=0) >= 0,
        "be 0 or more and ascend",
    ),
]


def require(holds: bool, name: str, value: Any, rule: str) -> None:
    """Refuse a value that breaks a rule, such as `be 1 or more`."""
    if not holds:
        raise LimitError(f"{name}={value!r} must {rule}")


def require_as_many(config: Any, field: str, like: str, prefix: str, reason: str = "") -> None:
    """Refuse a tuple that is not as long as the tuple in the field `like`."""
    values, others = getattr(config, field), getattr(config, like)
    rule = f"have as many values as {prefix}{like}={others!r}{reason}"
    require(len(values) == len(others), prefix + field, values, rule)


def check_fields(config: Any, prefix: str = "") -> None:
    """Refuse a config with a field outside its declared limit, also in configs that it holds.

    `prefix` begins the names of its flags, such as `model.`.
    """
    # Without the extras the annotations lose their limits, and every value would pass.
    hints = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for limit in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(limit, Limit):
                require(limit.holds(value), prefix + field.name, value, limit.rule)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_fields(value, f"{prefix}{field.name}.")
    if hasattr(config, "check_together"):
        config.check_together(prefix)
