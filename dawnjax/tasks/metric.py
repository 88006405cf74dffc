"""Declarations of the quantities that an evaluation measures, for pages, logs and targets.

Nothing here imports JAX.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from dawnjax import records

Direction = Literal["at_least", "at_most"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One quantity of an evaluation.

    Attributes:
      name: Its key in logs and results, such as `top_1_accuracy`.
      title: Its name on a page, such as `top-1 accuracy`.
      unit: The unit of its values, such as `nats`; `fraction` for values from 0 to 1, which a page
        shows in percent, as it shows `percent`; `1` for a number without a unit.
      least: The least value that it can have.
      most: The greatest value that it can have.
      direction: `at_least` if higher values are better, `at_most` if lower values are.
      is_proportion: Whether it is a share of the evaluated examples. Its unit is then
        `fraction`, and its interval follows from the number of examples.
      decimals: Digits shown after the point.
    """

    name: str
    title: str
    unit: str
    least: float = -math.inf
    most: float = math.inf
    direction: Direction = "at_least"
    is_proportion: bool = False
    decimals: int = 4

    def __post_init__(self) -> None:
        """Refuse what cannot be shown: a declaration may come from a file or a log."""
        for field in ("name", "title", "unit"):
            text = getattr(self, field)
            if not (isinstance(text, str) and text and text.isprintable()):
                raise TypeError(
                    f"Metric has {field}={text!r}; a text is needed, of printable letters"
                )
        if self.direction not in get_args(Direction):
            raise TypeError(
                f"Metric {self.name!r} has direction={self.direction!r}; choose at_least or at_most"
            )
        if type(self.decimals) is not int or not 0 <= self.decimals <= 20:
            raise TypeError(f"Metric {self.name!r} has decimals={self.decimals!r}; choose 0 to 20")
        if self.is_proportion and self.unit != "fraction":
            raise TypeError(
                f"Metric {self.name!r} is a proportion and has unit={self.unit!r}; the unit of a "
                "proportion is 'fraction', with values from 0 to 1"
            )
        if not self.least < self.most:
            raise TypeError(
                f"Metric {self.name!r} has least={self.least!r}, which is not below "
                f"most={self.most!r}"
            )

    def allows(self, value: float) -> bool:
        """True for a value in range, or outside by rounding, as a sum of float32 may be."""
        least, most = self.least, self.most
        below, above = (1e-6 * max(1.0, abs(bound)) for bound in (least, most))
        return least - below <= value <= most + above

    def text(self, value: float | None) -> str:
        return "-" if value is None else f"{value:.{self.decimals}f}"

    def to_json(self) -> dict[str, Any]:
        """Declaration as plain JSON values; an infinite bound becomes null."""
        fields = dataclasses.asdict(self)
        for name in ("least", "most"):
            if math.isinf(fields[name]):
                fields[name] = None
        return fields


def metric_from_json(fields: dict[str, Any]) -> Metric:
    """Metric that `Metric.to_json` described.

    Raises:
      FieldError: A field is unknown, missing or of another kind.
    """
    fields = records.convert(fields, dict[str, Any])
    bounds = {"least": -math.inf, "most": math.inf}  # JSON has no infinity: null stands for it
    given = {name: value for name, value in fields.items() if value is not None}
    return records.convert(bounds | given, Metric)


def fraction(name: str, title: str, *, is_proportion: bool = False) -> Metric:
    """Declaration of a quantity from 0 to 1, the better the higher."""
    return Metric(
        name=name, title=title, unit="fraction", least=0.0, most=1.0, is_proportion=is_proportion
    )


TOP_1_ACCURACY = fraction("top_1_accuracy", "top-1 accuracy", is_proportion=True)
TOP_5_ACCURACY = fraction("top_5_accuracy", "top-5 accuracy", is_proportion=True)
BLEU = Metric(name="bleu", title="BLEU", unit="BLEU", least=0.0, most=100.0, decimals=2)
F1 = fraction("f1_score", "F1 score")


def loss_metric(unit: str) -> Metric:
    """Declaration of the mean loss of an evaluation, in a unit such as `nats an example`."""
    return Metric(name="loss", title="loss", unit=unit, least=0.0, direction="at_most")


KNOWN_METRICS = {
    "top_1_accuracy": TOP_1_ACCURACY,
    "top_5_accuracy": TOP_5_ACCURACY,
    "bleu": BLEU,
    "top1Accuracy": TOP_1_ACCURACY,
    "top5Accuracy": TOP_5_ACCURACY,
    "f1Score": F1,
    "BBOX": fraction("box_ap", "box AP"),
    "SEGM": fraction("mask_ap", "mask AP"),
}
"""Metrics of results that declare none, by their names there, such as official entries."""


def declared_metrics(declarations: Iterable[dict[str, Any]]) -> Mapping[str, Metric]:
    """Metrics of a run by name, from what `Metric.to_json` gave of each.

    Raises:
      FieldError: A declaration has an unknown or missing field, or one of another kind.
    """
    metrics = [metric_from_json(fields) for fields in records.convert(declarations, list[Any])]
    return {metric.name: metric for metric in metrics}
