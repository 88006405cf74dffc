"""What a plan advises to rent, and what would change the order."""

import pytest

from dawnjax.machine import prices
from dawnjax.plan.advice import Option, advice
from dawnjax.plan.epochs.interval import around


def option(system, hours, usd, *, batch=64, device="", step_spread=0.1):
    """A plan whose epochs are uncertain by much more than its step."""
    on_demand = [p for p in prices.of_device(device) if p.terms == prices.ON_DEMAND]
    return Option(
        system=system,
        batch=batch,
        step=around(hours, step_spread),
        seconds=around(3600 * hours, 0.5),
        cost_usd=around(usd, 0.5),
        price=on_demand[0] if on_demand else None,
    )


def test_one_system_is_no_choice():
    assert advice([option("v5e:8", 1, 10), option("v5e:8", 2, 20, batch=128)]) == []


def test_cheapest_and_fastest_say_by_how_much():
    cheap, _, fast = advice([option("v5e:8", 4, 10), option("h100:8", 1, 25)])
    assert cheap.startswith("cheapest: v5e:8 batch 64, $10.00 ($3.68 to $27.18); h100:8 batch 64")
    assert "costs 2.50× as much" in cheap
    assert fast.startswith("fastest: h100:8 batch 64, 60 min (22 min to 163 min); v5e:8 batch 64")
    assert "takes 4× as long" in fast


@pytest.mark.parametrize(
    ("batch", "step_spread", "holds"),
    [
        (64, 0.1, True),  # 2.5 times, and exp(2 x sqrt(2) x 0.1) = 1.33
        (64, 0.4, False),  # 3.10
        (128, 0.1, False),  # other epochs: exp(2 x sqrt(2) x 0.5) = 4.11
    ],
)
def test_epochs_that_two_systems_share_leave_their_order(batch, step_spread, holds):
    cheap, *_ = advice(
        [
            option("v5e:8", 4, 10, step_spread=step_spread),
            option("h100:8", 1, 25, batch=batch, step_spread=step_spread),
        ]
    )
    assert cheap.endswith("The order holds within the intervals") == holds
    assert ("leave the order open: a ratio of" in cheap) != holds


def test_the_price_that_flips_the_order_stands_beside_the_lowest_listed():
    """55.04 USD of eight H100 are 6.88 each; the lowest listed is 3.85. A v5e's spot is 0.245."""
    options = [
        option("v5e:8", 4, 10, device="Cloud TPU v5e"),
        option("h100:8", 1, 15, device="H100 SXM5"),
    ]
    _, line, _ = advice(options)
    assert line.startswith(
        "h100:8 would cost as much at 4.59 USD per accelerator-hour instead of 6.88; the "
        "lowest listed is 3.85 (Nebius"
    )
    # 10 x 0.24493 / 1.2 = 2.04 and 15 x 3.85 / 6.88 = 8.39.
    assert line.endswith("At the lowest listed prices of both, v5e:8 is cheaper, 4.11×")
    _, line, _ = advice([options[0], option("h100:8", 1, 20)])
    assert line == "h100:8 would cost as much at 50% of its price"
