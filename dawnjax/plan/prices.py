"""Price of a system an hour: as the user says, or by the dated list of prices."""

from collections.abc import Mapping

from dawnjax.analysis.cost import PRICES
from dawnjax.plan.targets import Target


def system_price(target: Target, given: Mapping[str, float]) -> tuple[float | None, str]:
    """USD an hour of a whole system, and what that is from; None with the reason.

    Args:
      target: The system.
      given: USD an hour of one device, by the system's name.
    """
    system = target.system
    if system.name in given:
        price = given[system.name]
        return price * target.num_devices, f"{price:g} USD an hour and device, as given"
    give = f"give --price_per_device_hour_usd={system.name}:USD"
    listed = [price for price in PRICES if price.name == system.price]
    if not listed:
        return None, f"no price of {system.name} is listed: {give}"
    if system.device.platform == "gpu" and target.num_hosts > 1:
        # A rented p3.16xlarge has 25 Gb/s between hosts, the DGX-1 that is planned has 400.
        return None, f"{system.price} is listed, with a slower network than is planned: {give}"
    newest = max(listed, key=lambda price: price.date)
    return newest.usd_per_hour * target.num_hosts, (
        f"{newest.usd_per_hour:g} USD an hour and host ({newest.name}, {newest.date})"
    )
