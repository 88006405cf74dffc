"""Prices of machines for an hour, from `prices.csv`, where each row names its day and source.

A price is that of a list, without commitment or discount, unless its terms say otherwise. Sellers
differ: one H100 costs 3.85 to 12.29 USD in lists of September to November 2026.
"""

import dataclasses
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine.hardware import GIGA

UNITS = ("host", "accelerator")

ON_DEMAND = "on demand"
TERMS = (ON_DEMAND, "spot", "capacity block")
DAYS = ("list", "reading")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Price:
    """Price of a host or accelerator for an hour, on a day, with its source.

    Attributes:
      name: Text in an entry's hardware or system, such as `p3.16xlarge`.
      unit: One of `UNITS`. A TPU's accelerator is a chip.
      date: `YYYY-MM-DD`, the first day on which it is known to hold.
      day_of: One of `DAYS`: that of the `list`, or of our `reading` of a list of unknown age.
      terms: One of `TERMS`.
      seller: Empty where the list does not say.
      device: Its accelerators, as `hardware.csv` names them; empty where that has no row of them.
      accelerators: Of one unit; 0 where the list does not say.
      network_bytes_per_second: Of a host to others, one direction; 0 where the list does not say.
    """

    name: str
    usd_per_hour: float
    unit: str
    date: str
    source: str
    day_of: str = "list"
    terms: str = ON_DEMAND
    seller: str = ""
    device: str = ""
    accelerators: int = 0
    network_bytes_per_second: float = 0.0

    @property
    def usd_per_accelerator_hour(self) -> float:
        return self.usd_per_hour / self.accelerators

    @property
    def described(self) -> str:
        """Seller, name, terms and day."""
        name = self.name if self.name.startswith(self.seller) else f"{self.seller} {self.name}"
        day = self.date if self.day_of == "list" else f"read {self.date}"
        return f"{name}, {self.terms}, {day}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SystemPrice:
    """Price of a whole system for an hour, and its source.

    Attributes:
      usd_per_hour: None where no price is known.
      basis: Source of the price, or why there is none.
      listed: Row of the list that it is from; None where it was given.
      others: Span of the other listed prices of the device; empty without any.
    """

    usd_per_hour: float | None
    basis: str
    listed: Price | None = None
    others: str = ""

    def cost_usd(self, seconds: float | None) -> float | None:
        """Cost of a time; None if the time or the price is unknown."""
        if seconds is None or self.usd_per_hour is None:
            return None
        return seconds * self.usd_per_hour / 3600


def read_prices(path: Path) -> tuple[Price, ...]:
    """Read a list of prices from CSV: name, usd_per_hour, unit, date and source are needed."""
    needed = ("name", "usd_per_hour", "unit", "date", "source")
    return tuple(_price(row, where) for where, row in records.csv_rows(path, needed))


def parse_date(text: str) -> date | None:
    """Day of `YYYY-MM-DD`, with or without leading zeros; None for any other text."""
    match = re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", text, re.ASCII)
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _price(row: dict[str, str], where: str) -> Price:
    def number(column: str) -> float:
        text = row.get(column, "") or "0"
        # float() alone would take "nan", "inf" and digits of other scripts; more make infinity.
        if not re.fullmatch(r"\d{1,20}(\.\d{1,20})?", text, re.ASCII):
            raise ConfigError(f"{where}: {column} is {text[:40]!r}, not a number")
        return float(text)

    terms, day_of = row.get("terms", "") or ON_DEMAND, row.get("day_of", "") or "list"
    chosen = (("unit", row["unit"], UNITS), ("terms", terms, TERMS), ("day_of", day_of, DAYS))
    for column, value, choices in chosen:
        if value not in choices:
            raise ConfigError(f"{where}: {column} is {value!r}; choose one of {choices}")
    day = parse_date(row["date"])
    if day is None:
        raise ConfigError(f"{where}: date is {row['date']!r}, not YYYY-MM-DD")
    return Price(
        name=row["name"],
        usd_per_hour=number("usd_per_hour"),
        unit=row["unit"],
        date=day.isoformat(),
        source=row["source"],
        day_of=day_of,
        terms=terms,
        seller=row.get("seller", ""),
        device=row.get("device", ""),
        accelerators=int(number("accelerators")) or int(row["unit"] == "accelerator"),
        network_bytes_per_second=number("network_gb_per_second") * GIGA,
    )


PRICES = read_prices(Path(__file__).with_name("prices.csv"))
"""Prices that DAWNBench entries give for one machine, with the day of the entry, and list prices.

The prices of p2.8xlarge and g3.16xlarge are left out: the two entries that give them seem to have
exchanged them.
"""


def of_device(name: str) -> tuple[Price, ...]:
    """Listed prices of machines with a device of `hardware.csv`, in the order of the list."""
    return tuple(price for price in PRICES if price.device == name and price.accelerators)


def listed_price(
    text: str,
    *,
    num_hosts: int | None,
    num_chips: int | None,
    day: date | None,
    network_bytes_per_second: float = 0.0,
    prices: Sequence[Price] = PRICES,
) -> SystemPrice:
    """Price of a whole system, from the one item on demand that a text names.

    The newest price up to the day is multiplied by the hosts or chips. The price is None where any
    of these is unknown.

    Args:
      text: Names the item as a whole word.
      network_bytes_per_second: That is needed between hosts, one direction; 0 for any.
    """
    named = [price for price in prices if price.terms == ON_DEMAND and _names(price.name, text)]
    names = sorted({price.name for price in named})
    if not names:
        return _unknown("no listed price names its hardware")
    if len(names) > 1:
        return _unknown(f"the hardware names several listed prices: {', '.join(names)}")
    if day is None:
        return _unknown(f"its date is not known: no date, no price of {names[0]}")
    held = [price for price in named if date.fromisoformat(price.date) <= day]
    if not held:
        first = min(price.date for price in named)
        return _unknown(f"the first listed price of {names[0]} is of {first}, later")
    price = max(held, key=lambda price: price.date)
    if 0 < price.network_bytes_per_second < network_bytes_per_second:
        # A rented p3.16xlarge has 25 Gb/s between hosts, a DGX-1 has 400.
        return _unknown(f"{price.name} is listed, with a slower network than is planned")
    count = num_hosts if price.unit == "host" else num_chips
    if count is None:
        return _unknown(f"how many of {price.name} there were is not known")
    if count == 0:
        return _unknown(f"the price of {price.name} is of one {price.unit}; it had none")
    basis = f"{count:,} x {price.usd_per_hour:g} USD an hour and {price.unit}: {price.described}"
    if num_chips is not None and price.unit == "host" and count * price.accelerators > num_chips:
        basis += f"; a whole host of {price.accelerators} is paid"
    if network_bytes_per_second and not price.network_bytes_per_second:
        basis += "; the list names no network between its hosts"
    return SystemPrice(
        usd_per_hour=price.usd_per_hour * count,
        listed=price,
        basis=basis,
        others=_others(price),
    )


def _unknown(why: str) -> SystemPrice:
    return SystemPrice(usd_per_hour=None, basis=why)


def _names(name: str, text: str) -> bool:
    """True if a text names an item as a whole word: `p3.2xlarge` is not in `p3.24xlarge`."""
    # A dot may follow the name, as at the end of a sentence, but not precede it.
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE) is not None


def _others(chosen: Price) -> str:
    """Cheapest and dearest of the other listed prices of the chosen one's accelerator."""
    others = [price for price in of_device(chosen.device) if price != chosen]
    if not chosen.device or not others:
        return ""
    others.sort(key=lambda price: price.usd_per_accelerator_hour)
    ends = [f"{price.usd_per_accelerator_hour:.3g} ({price.described})" for price in others]
    span = ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
    return (
        f"other listed prices of one {chosen.device}, its host used whole: {span} USD an hour, "
        f"where {chosen.usd_per_accelerator_hour:.3g} is taken"
    )
