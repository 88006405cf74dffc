"""Cost of an entry: by its own price, else by a dated list of prices, else unknown."""

import dataclasses
from collections.abc import Sequence

from dawnjax.machine.prices import PRICES, Price, SystemPrice, listed_price, parse_date
from dawnjax.trials.group import Entry

GIVEN = "given by the entry"


def system_price(entry: Entry, prices: Sequence[Price] = PRICES) -> SystemPrice:
    """Price of an entry's whole system on its day: its own, or else the list's."""
    if entry.cost_per_hour_usd is not None:
        return SystemPrice(usd_per_hour=entry.cost_per_hour_usd, basis=GIVEN)
    price = listed_price(
        f"{entry.hardware} | {entry.system}",
        num_hosts=entry.num_hosts,
        num_chips=entry.num_accelerators,
        day=parse_date(entry.date),
        prices=prices,
    )
    if price.listed is not None:
        basis = f"{price.basis} ({price.listed.source})"
        return dataclasses.replace(price, basis=basis)
    why = entry.reasons.get("cost_per_hour_usd", "the entry gives no price")
    return SystemPrice(usd_per_hour=None, basis=f"{why}, and {price.basis}")


def training_cost(
    entry: Entry, seconds: float | None, prices: Sequence[Price] = PRICES
) -> tuple[float | None, str]:
    """Expected cost of a training entry in USD, and the source of its price.

    The expected cost is the cost of all trials over the number that reached, where each trial has
    its own, so that each attempt counts at its own price; else the cost of the ranking time.
    """
    if seconds is not None and (known := entry.figures.expected_cost_usd) is not None:
        return known, GIVEN
    price = system_price(entry, prices)
    return price.cost_usd(seconds), price.basis
