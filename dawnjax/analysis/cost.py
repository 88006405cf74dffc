"""Cost of an entry: by its own price, else by a dated list of prices, else unknown."""

import re
from collections.abc import Sequence
from datetime import date

from dawnjax.machine.prices import ON_DEMAND, PRICES, Price, SystemPrice, parse_date
from dawnjax.trials.group import Entry

GIVEN = "given by the entry"


def system_price(entry: Entry, prices: Sequence[Price] = PRICES) -> SystemPrice:
    """Price of an entry's whole system on its day.

    The entry's own price wins. Else its hardware or system must name exactly one item of the list.
    The newest price up to the entry's date is multiplied by its hosts or accelerators. The price
    is None where any of these is unknown.
    """
    if entry.cost_per_hour_usd is not None:
        return SystemPrice(usd_per_hour=entry.cost_per_hour_usd, basis=GIVEN)
    text = f"{entry.hardware} | {entry.system}"
    offered = [price for price in prices if price.terms == ON_DEMAND]
    named = [price for price in offered if _names(price.name, text)]
    names = sorted({price.name for price in named})
    if not names:
        why = entry.reasons.get("cost_per_hour_usd", "the entry gives no price")
        return _unknown(f"{why}, and no listed price names its hardware")
    if len(names) > 1:
        return _unknown(f"the hardware names several listed prices: {', '.join(names)}")
    day = parse_date(entry.date)
    if day is None:
        return _unknown(f"the entry has no date, so that no price of {names[0]} holds")
    held = [price for price in named if date.fromisoformat(price.date) <= day]
    if not held:
        first = min(price.date for price in named)
        return _unknown(f"the first listed price of {names[0]} is of {first}, later")
    price = max(held, key=lambda price: price.date)
    count = entry.num_hosts if price.unit == "host" else entry.num_accelerators
    if count is None:
        return _unknown(f"how many of {price.name} there were is not known")
    if count == 0:
        return _unknown(f"the price of {price.name} is of one {price.unit}; it had none")
    return SystemPrice(
        usd_per_hour=price.usd_per_hour * count,
        listed=price,
        basis=f"{count} x {price.usd_per_hour:g} USD an hour and {price.unit} ({price.name}, "
        f"{price.date}, {price.source})",
    )


def _unknown(why: str) -> SystemPrice:
    return SystemPrice(usd_per_hour=None, basis=why)


def training_cost(
    entry: Entry, seconds: float | None, prices: Sequence[Price] = PRICES
) -> tuple[float | None, str]:
    """Expected cost of a training entry in USD, and the source of its price.

    The expected cost is the cost of all trials over the number that reached, where each trial has
    its own, so that each attempt counts at its own price; else that of the time which ranks it.
    """
    if seconds is not None and (known := entry.figures.expected_cost_usd) is not None:
        return known, GIVEN
    price = system_price(entry, prices)
    return price.cost_usd(seconds), price.basis


def _names(name: str, text: str) -> bool:
    """True if a text names an item as a whole word: `p3.2xlarge` is not in `p3.24xlarge`."""
    # A dot may follow the name, as at the end of a sentence, but not precede it.
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE) is not None
