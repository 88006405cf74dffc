"""`dawnjax plan` without epochs and prices of the user: its time, its cost, and their sources."""

import pytest
from told import told

from dawnjax.__main__ import main
from dawnjax.machine import prices
from dawnjax.plan.compiling import compiled
from dawnjax.plan.epochs.observations import observed_programs
from dawnjax.plan.hardware.systems import accelerators, parse_system


@pytest.fixture
def kept_program(monkeypatch):
    """One program in place of any that a compiler would make."""
    monkeypatch.setattr(compiled, "compiled", lambda *_: observed_programs()["DGX-1 resnet"])


def rows_of(capsys, *flags):
    return told(capsys, "plan", *flags)["rows"]


@pytest.mark.compiles
def test_time_and_cost_are_numbers_by_default_and_name_their_sources(kept_program, capsys):
    [row] = rows_of(capsys, "digits", "--on=h100:8")
    assert row["time_to_accuracy_seconds"]["value"] > 0 and row["reasons"] == {}
    hours = row["time_to_accuracy_seconds"]["value"] / 3600
    assert row["cost_usd"]["value"] == pytest.approx(55.04 * hours)
    assert row["epochs_source"] == "trials of the experiment"
    price = {name: row["price"][name] for name in ("seller", "terms", "date", "usd_per_hour")}
    assert price == {
        "seller": "Amazon EC2", "terms": "on demand", "date": "2026-11-09", "usd_per_hour": 55.04
    }  # fmt: skip
    assert main(["plan", "digits", "--on=h100:8,a100:8"]) == 0
    text = capsys.readouterr().out
    assert "Amazon EC2 p5.48xlarge, on demand, 2026-11-09" in text
    assert "Amazon EC2 p4de.24xlarge, on demand, 2026-11-09" in text
    assert "mean of 20 of 20 trials that reached the target (2 cores of an AMD EPYC VM" in text
    assert "3.85 (Nebius" in text and "12.3 (Microsoft Azure" in text
    assert " 0 %" not in text and "0.00 " not in text


@pytest.mark.compiles
def test_without_known_epochs_there_is_the_time_of_the_budget_and_no_estimate(kept_program, capsys):
    [row] = rows_of(capsys, "synthetic_image", "--on=h100:8")
    assert row["epochs"] is None and row["time_to_accuracy_seconds"] is None
    assert row["cost_usd"] is None and row["epochs_source"] == ""
    budget = row["budget_seconds"]
    assert 0 < budget["low"] < budget["value"] < budget["high"]
    assert main(["plan", "synthetic_image", "--on=h100:8"]) == 0
    text = capsys.readouterr().out
    assert "a run to the end of its budget takes " in text
    assert "give --epochs" in text and "no cost" not in text


@pytest.mark.compiles
def test_the_user_s_epochs_and_prices_win(kept_program, capsys):
    flags = ["--on=h100:8", "--epochs=7", "--price_per_device_hour_usd=h100:2"]
    [row] = rows_of(capsys, "digits", *flags)
    assert row["epochs"] == {"value": 7, "low": 7, "high": 7} and row["epochs_source"] == "given"
    assert row["price"] is None and row["price_basis"] == "2 USD an hour and device, as given"
    hours = row["time_to_accuracy_seconds"]["value"] / 3600
    assert row["cost_usd"]["value"] == pytest.approx(16 * hours)


def test_a_price_is_that_of_whole_machines_with_a_network_as_fast():
    one, sixteen = (parse_system(f"h100:{n}").price({}) for n in (1, 16))
    assert one.usd_per_hour == 55.04 and "a whole host of 8 is paid" in one.basis
    assert sixteen.usd_per_hour == 2 * 55.04 and "network" not in sixteen.basis
    slower = parse_system("a100:16").price({})
    assert slower.usd_per_hour is None and "slower network than is planned" in slower.basis
    unknown = parse_system("b200:16").price({})
    assert unknown.usd_per_hour and "names no network" in unknown.basis
    # Eight GPUs are rented together, whatever the list states the price of.
    one = parse_system("b200:1").price({})
    assert one.usd_per_hour == 8 * 6.69 and "a whole host of 8 is paid" in one.basis
    # Two JAX devices are a chip of a v3, and four chips a host.
    assert parse_system("v3:8").price({}).usd_per_hour == 4 * 2.0
    assert parse_system("v5e:8").price({}).usd_per_hour == pytest.approx(8 * 1.2)
    assert parse_system("v2:8").price({}).usd_per_hour == 4.595
    assert "no price of v7x is listed" in parse_system("v7x:8").price({}).basis


def test_a_system_s_price_is_in_the_list_and_of_as_many_accelerators_as_its_host_has():
    for accelerator in accelerators().values():
        listed = prices.of_device(accelerator.device.name)
        named = [it for it in listed if (it.name, it.terms) == (accelerator.price, "on demand")]
        assert named or accelerator.price == ""
        chips = accelerator.devices_per_host // accelerator.devices_per_chip
        assert {it.accelerators for it in named if it.unit == "host"} <= {chips}
