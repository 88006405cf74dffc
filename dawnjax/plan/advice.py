"""What to rent: the cheapest and the fastest of several plans, and what changes the order."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dawnjax.machine import prices
from dawnjax.machine.prices import Price
from dawnjax.page import words
from dawnjax.plan.epochs.interval import DEVIATIONS, Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """A plan that fits.

    Attributes:
      step: Seconds of a train step.
      seconds: To the target.
      price: Listed price that the cost is by; None where the user gave it.
    """

    system: str
    batch: int
    step: Interval
    seconds: Interval
    cost_usd: Interval
    price: Price | None

    @property
    def name(self) -> str:
        return f"{self.system} batch {self.batch:,}"


def options(rows: Iterable[Any]) -> list[Option]:
    """Options of predictions, or of arrangements, that have a time and a cost."""
    return [
        Option(
            system=row.system,
            batch=row.global_batch,
            step=row.step_seconds,
            seconds=row.time_to_accuracy_seconds,
            cost_usd=row.cost_usd,
            price=row.price,
        )
        for row in rows
        if row.time_to_accuracy_seconds and row.cost_usd
    ]


def advice(options: Sequence[Option]) -> list[str]:
    """Lines on the cheapest and the fastest option; none of a single system."""
    if len({option.system for option in options}) < 2:
        return []
    cheapest = min(options, key=lambda option: option.cost_usd.value)
    fastest = min(options, key=lambda option: option.seconds.value)
    dearer = _next(options, cheapest, lambda option: option.cost_usd.value)
    slower = _next(options, fastest, lambda option: option.seconds.value)
    more_usd = dearer.cost_usd.value / cheapest.cost_usd.value
    longer = slower.seconds.value / fastest.seconds.value
    return [
        f"cheapest: {cheapest.name}, {_range(cheapest.cost_usd, words.usd)}; {dearer.name} costs "
        f"{words.times(more_usd)} as much. {_by_chance(dearer, cheapest, more_usd)}",
        _by_price(dearer, cheapest),
        f"fastest: {fastest.name}, {_range(fastest.seconds, words.about)}; {slower.name} takes "
        f"{words.times(longer)} as long. {_by_chance(slower, fastest, longer)}",
    ]


def _next(options: Sequence[Option], best: Option, value: Callable[[Option], float]) -> Option:
    """The best option on another system."""
    return min((option for option in options if option.system != best.system), key=value)


def _range(interval: Interval, in_words: Callable[[float], str]) -> str:
    return f"{in_words(interval.value)} ({in_words(interval.low)} to {in_words(interval.high)})"


def _by_chance(other: Option, best: Option, ratio: float) -> str:
    """Whether the intervals leave the order open.

    At one batch both systems take the same number of epochs, so that their steps alone decide.
    """
    parts = [
        option.step if other.batch == best.batch else option.seconds for option in (other, best)
    ]
    spread = math.hypot(*(math.log(part.high / part.value) / DEVIATIONS for part in parts))
    least = math.exp(DEVIATIONS * spread)
    if ratio < least:
        return (
            f"The intervals leave the order open: a ratio of {words.times(least)} would settle it"
        )
    return "The order holds within the intervals"


def _by_price(other: Option, best: Option) -> str:
    """The price at which the other system costs as much, and what the lowest listed prices say."""
    ratio = best.cost_usd.value / other.cost_usd.value
    if other.price is None:
        return f"{other.system} would cost as much at {words.percent(ratio)} of its price"
    taken = other.price.usd_per_accelerator_hour
    lowest = _lowest(other.price)
    line = (
        f"{other.system} would cost as much at {taken * ratio:.3g} USD per accelerator-hour "
        f"instead of {taken:.3g}; the lowest listed is {lowest.usd_per_accelerator_hour:.3g} "
        f"({lowest.described})"
    )
    if best.price is None:
        return line
    costs = {
        option.system: option.cost_usd.value
        * _lowest(price).usd_per_accelerator_hour
        / price.usd_per_accelerator_hour
        for option, price in ((other, other.price), (best, best.price))
    }
    cheaper, dearer = sorted(costs, key=lambda system: costs[system])
    more = words.times(costs[dearer] / costs[cheaper])
    return f"{line}. At the lowest listed prices of both, {cheaper} is cheaper, {more}"


def _lowest(price: Price) -> Price:
    """The lowest listed price of the same device, on whatever terms."""
    return min(prices.of_device(price.device), key=lambda other: other.usd_per_accelerator_hour)
