"""The list of prices: what it holds."""

import pytest

from dawnjax.machine import hardware, prices
from dawnjax.machine.prices import PRICES, TERMS, UNITS


def test_every_price_has_its_source_and_day_and_a_known_device():
    names = {device.name for device in hardware.devices()}
    for price in PRICES:
        assert price.source and prices.parse_date(price.date) and price.usd_per_hour > 0
        assert price.unit in UNITS and price.terms in TERMS and price.seller
        assert price.device in names | {""}
        # A device without its number could not be priced, and would be left out in silence.
        assert bool(price.device) == bool(price.accelerators) or price.unit == "accelerator"


def test_a_chip_of_a_host_costs_its_part():
    by_name = {price.described: price for price in prices.of_device("H100 SXM5")}
    host = by_name["Amazon EC2 p5.48xlarge, on demand, 2026-11-09"]
    assert host.usd_per_accelerator_hour == pytest.approx(55.04 / 8)
    each = [price.usd_per_accelerator_hour for price in by_name.values()]
    assert (min(each), max(each)) == (3.85, 12.29)
    assert {price.terms for price in prices.of_device("Cloud TPU v5e")} == {"on demand", "spot"}
    assert prices.of_device("no such device") == ()
