"""What an evaluation measures, declared once.

Targets, screen, results, reports and exports read the declaration. Nothing here imports JAX.
"""

import dataclasses
import math
from typing import Any, Literal

Direction = Literal["at_least", "at_most"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One quantity of an evaluation.

    Attributes:
      name: Its key in logs and results, such as `top_1_accuracy`.
      title: Its name on a page, such as `top-1 accuracy`.
      unit: The unit of its values, such as `nats`; `fraction` for values from 0 to 1.
      least: The least value that it can have.
      most: The greatest value that it can have.
      direction: The side on which better values lie: `at_least` where higher is better.
      is_proportion: Whether it is a share of the evaluated examples. Its interval then follows from
        the number of examples, and a page shows it in percent.
      decimals: Digits after the point that are shown.
    """

    name: str
    title: str
    unit: str
    least: float = -math.inf
    most: float = math.inf
    direction: Direction = "at_least"
    is_proportion: bool = False
    decimals: int = 4

    def text(self, value: float | None) -> str:
        """The value with the metric's decimals; `-` for None."""
        return "-" if value is None else f"{value:.{self.decimals}f}"

    def to_json(self) -> dict[str, Any]:
        """The declaration as plain JSON values; an infinite bound becomes null."""
        fields = dataclasses.asdict(self)
        for name in ("least", "most"):
            if math.isinf(fields[name]):
                fields[name] = None
        return fields


def metric_from_json(fields: dict[str, Any]) -> Metric:
    """The metric that `Metric.to_json` described.

    Raises:
      TypeError: A field is unknown or missing.
    """
    bounds: dict[str, Any] = {"least": -math.inf, "most": math.inf}
    given = {name: value for name, value in fields.items() if value is not None}
    return Metric(**(bounds | given))


TOP_1_ACCURACY = Metric(
    name="top_1_accuracy",
    title="top-1 accuracy",
    unit="fraction",
    least=0.0,
    most=1.0,
    is_proportion=True,
)
TOP_5_ACCURACY = Metric(
    name="top_5_accuracy",
    title="top-5 accuracy",
    unit="fraction",
    least=0.0,
    most=1.0,
    is_proportion=True,
)
BLEU = Metric(name="bleu", title="BLEU", unit="BLEU", least=0.0, most=100.0, decimals=2)


def loss_metric(unit: str) -> Metric:
    """The mean loss of an evaluation, in a unit such as `nats an example`."""
    return Metric(name="loss", title="loss", unit=unit, least=0.0, direction="at_most")
