"""Hourly price of a system: from the user, or from the dated list of prices."""

from collections.abc import Mapping

from dawnjax.analysis.cost import PRICES
from dawnjax.plan.systems import System


def system_price(system: System, given: Mapping[str, float]) -> tuple[float | None, str]:
    """USD an hour of a whole system and the source of the price; None and the reason.

    Args:
      given: USD an hour of one device, by the system's name.
    """
    accelerator = system.accelerator
    if accelerator.name in given:
        price = given[accelerator.name]
        return price * system.num_devices, f"{price:g} USD an hour and device, as given"
    give = f"give --price_per_device_hour_usd={accelerator.name}:USD"
    listed = [price for price in PRICES if price.name == accelerator.price]
    if not listed:
        return None, f"no price of {accelerator.name} is listed: {give}"
    if accelerator.device.platform == "gpu" and system.num_hosts > 1:
        # A rented p3.16xlarge has 25 Gb/s between hosts, the DGX-1 that is planned has 400.
        return None, f"{accelerator.price} is listed, with a slower network than is planned: {give}"
    newest = max(listed, key=lambda price: price.date)
    return newest.usd_per_hour * system.num_hosts, (
        f"{newest.usd_per_hour:g} USD an hour and host ({newest.name}, {newest.date})"
    )
