"""Hourly price of a system: from the user, or from the dated list of prices."""

import math
from collections.abc import Mapping

from dawnjax.machine import prices
from dawnjax.machine.prices import Price, SystemPrice
from dawnjax.plan.hardware.systems import System


def system_price(system: System, given: Mapping[str, float]) -> SystemPrice:
    """Price of a whole system.

    Args:
      given: USD an hour of one device, by the system's name.
    """
    accelerator = system.accelerator
    if accelerator.name in given:
        price = given[accelerator.name]
        return SystemPrice(
            usd_per_hour=price * system.num_devices,
            basis=f"{price:g} USD an hour and device, as given",
        )
    give = f"give --price_per_device_hour_usd={accelerator.name}:USD"
    listed = [
        price
        for price in prices.of_device(accelerator.device.name)
        if price.name == accelerator.price and price.terms == prices.ON_DEMAND
    ]
    if not listed:
        why = f"no price of {accelerator.name} is listed: {give}"
        return SystemPrice(usd_per_hour=None, basis=why)
    chosen = max(listed, key=lambda price: price.date)
    network = accelerator.network_bytes_per_second if system.num_hosts > 1 else 0.0
    if 0 < chosen.network_bytes_per_second < network:
        # A rented p3.16xlarge has 25 Gb/s between hosts, the DGX-1 that is planned has 400.
        why = f"{chosen.name} is listed, with a slower network than is planned: {give}"
        return SystemPrice(usd_per_hour=None, basis=why)
    chips = system.num_devices / accelerator.devices_per_chip
    units = math.ceil(chips / chosen.accelerators)
    basis = f"{chosen.usd_per_hour:g} USD an hour and {chosen.unit}: {chosen.described}"
    if units * chosen.accelerators > chips:
        basis += f"; a whole host of {chosen.accelerators} is paid"
    if network and not chosen.network_bytes_per_second:
        basis += "; the list names no network between its hosts"
    return SystemPrice(
        usd_per_hour=units * chosen.usd_per_hour,
        basis=basis,
        listed=chosen,
        others=_others(accelerator.device.name, chosen),
    )


def _others(device: str, chosen: Price) -> str:
    """Cheapest and dearest of the other listed prices of one accelerator."""
    others = [price for price in prices.of_device(device) if price != chosen]
    if not others:
        return ""
    others.sort(key=lambda price: price.usd_per_accelerator_hour)
    ends = [f"{price.usd_per_accelerator_hour:.3g} ({price.described})" for price in others]
    span = ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
    return (
        f"other listed prices of one {device}, its host used whole: {span} USD an hour, where "
        f"{chosen.usd_per_accelerator_hour:.3g} is taken"
    )
