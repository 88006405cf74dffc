"""The quality that a trial must reach."""

import dataclasses
import math
import struct
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The quality to reach.

    Attributes:
      metric: The suite's own name of it, such as `top5Accuracy` or `eval_accuracy`.
      value: The threshold, in the unit of the evaluations; None if unknown.
      direction: `at_least` or `at_most`.
      unit: `fraction`, `percent`, `bleu` or another that the run declares; empty where the suite
        does not say.
      title: The metric's name on a page, as our run declares it; empty for official entries. It
        tells no targets apart.
      others: Further targets that the same evaluation must reach.
    """

    metric: str = ""
    value: float | None = None
    direction: str = "at_least"
    unit: str = ""
    title: str = dataclasses.field(default="", compare=False)
    others: tuple["Target", ...] = ()

    def words(self) -> str:
        """The target in words, such as `top_1_accuracy at least 0.93`."""
        value = "a value not known" if self.value is None else f"{self.value:g}"
        words = f"{self.metric} {self.direction.replace('_', ' ')} {value}".strip()
        return " and ".join([words, *(other.words() for other in self.others)])

    def parts(self) -> Iterator["Target"]:
        """Each metric's own target: this one, then the others."""
        yield self
        yield from self.others


def reaches(value: float, threshold: float, direction: str = "at_least") -> bool:
    """True if a value reaches a threshold, both as float32.

    An accelerator's 21.8 is logged as 21.799999237060547.
    """
    if direction not in ("at_least", "at_most"):
        raise ValueError(f"direction is {direction!r}; choose at_least or at_most")
    value, threshold = _float32(value), _float32(threshold)
    return value >= threshold if direction == "at_least" else value <= threshold


def _float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
