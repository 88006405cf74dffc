"""Peaks and prices of devices: known ones by JAX's own names, and a source in each row."""

from pathlib import Path
from typing import Any

import pytest

import dawnjax
from dawnjax import records
from dawnjax.errors import ConfigError
from dawnjax.machine import hardware, prices
from dawnjax.machine.hardware import devices, executed_dtype, find_device
from dawnjax.machine.prices import PRICES, TERMS, UNITS


@pytest.mark.parametrize(
    ("kind", "dtype", "tera_flops", "gb_per_second"),
    [
        # A chip's published figures, halved where a chip is two JAX devices.
        ("TPU v2", "bfloat16", 23, 350),
        ("TPU v3", "bfloat16", 61.5, 450),
        ("TPU v4", "bfloat16", 275, 1200),
        ("TPU v5 lite", "bfloat16", 197, 819),
        ("TPU v5 lite", "int8", 393, 819),
        ("TPU v5", "bfloat16", 459, 2765),
        ("TPU v6 lite", "bfloat16", 918, 1638),
        ("TPU7x", "bfloat16", 1153.5, 3690),
        ("TPU7x", "float8", 2307, 3690),
        ("TPU v6 lite", "float8", 918, 1638),
        ("Tesla V100-SXM2-16GB", "float16", 125, 900),
        ("Tesla T4", "float16", 65, 320),
        ("NVIDIA A100-SXM4-40GB", "tensorfloat32", 156, 1555),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312, 2039),
        ("NVIDIA L4", "bfloat16", 121, 300),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4, 3350),
        ("NVIDIA H100 PCIe", "bfloat16", 756, 2000),
        ("NVIDIA H200", "float8", 1979, 4800),
        ("NVIDIA B200", "bfloat16", 2250, 7700),
        ("NVIDIA GB200", "bfloat16", 2500, 8000),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4, 4000),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2, 1008),
        ("NVIDIA GeForce RTX 5090", "bfloat16", 209.5, 1792),
        ("NVIDIA RTX 6000 Ada Generation", "bfloat16", 364.2, 960),
        ("AMD Instinct MI300X", "bfloat16", 1307.4, 5300),
        ("AMD Instinct MI325X", "float8", 2614.9, 6000),
        ("AMD Instinct MI355X", "bfloat16", 2516.6, 8000),
        # Of a chip: JAX 0.12, `tpu_info`, one core a chip and two.
        ("TPU8t", "bfloat16", 996.1, 6400),
        ("TPU8i", "float8", 4404, 4300),
    ],
)
def test_a_device_has_the_numbers_of_its_data_sheet(kind, dtype, tera_flops, gb_per_second):
    device, reason = find_device(kind)
    assert device is not None and reason == ""
    assert device.peak(dtype) == pytest.approx(tera_flops * 1e12)
    assert device.memory_bytes_per_second == pytest.approx(gb_per_second * 1e9)
    assert device.source


@pytest.mark.parametrize(
    ("kind", "cores", "multiply_adds_a_clock", "giga_hertz", "gb_per_second"),
    [
        # Multiply-adds of bfloat16 (float16 on Volta) that a core makes in a clock, and the clock
        # of the matrix units; the memory's bandwidth as the driver's clock and width give it.
        # Source: OpenXLA, `xla/backends/gpu/target_config/specs/*.txtpb`; for Volta and Ampere
        # NVIDIA's architecture papers (8 units of 64, 4 of 256) and the boost clock of the specs.
        ("Tesla V100-SXM2-16GB", 80, 8 * 64, 1.53, 898.048),
        ("NVIDIA A100-SXM4-80GB", 108, 4 * 256, 1.41, 2039.04),
        ("NVIDIA H100 PCIe", 114, 4 * 512, 1.62162, 2039.04),
        ("NVIDIA H100 80GB HBM3", 132, 4 * 512, 1.8295201, 3352.32),
        ("NVIDIA H200 141GB HBM3e", 132, 4 * 512, 1.8295201, 4800),
        ("NVIDIA B200", 148, 4 * 1024, 1.8353101, 7672.32),
        ("NVIDIA GB200", 152, 4 * 1024, 1.9259081, 7928.064),
    ],
)
def test_a_data_sheet_agrees_with_what_the_cores_do_in_a_clock(
    kind, cores, multiply_adds_a_clock, giga_hertz, gb_per_second
):
    device: Any = find_device(kind)[0]
    peak = device.peak("bfloat16") or device.peak("float16")
    # Within 5 %: data sheets round, and the GB200's is for a higher clock than the driver's. A
    # figure for sparse matrices would be twice as much.
    computed = 2 * cores * multiply_adds_a_clock * giga_hertz * 1e9
    assert computed == pytest.approx(peak, rel=0.05)
    assert device.memory_bytes_per_second == pytest.approx(gb_per_second * 1e9, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "num_bytes"),
    [
        # What XLA, CUDA or the driver reports of a GPU, and what libtpu leaves a program of a TPU.
        ("NVIDIA A100-SXM4-40GB", 42_331_013_120),
        ("NVIDIA A100-SXM4-80GB", 85.17e9),
        ("NVIDIA H100 80GB HBM3", 84_942_979_072),
        ("NVIDIA H200", 143_771 * 2**20),
        ("NVIDIA B200", 191_514_411_008),
        ("NVIDIA GB200", 197_897_748_480),
        ("NVIDIA GB300", 284_208 * 2**20),
        ("NVIDIA L4", 23_034 * 2**20),
        ("AMD Instinct MI300X", 206_141_652_992),
        ("TPU v3", 15.48 * 2**30),
        ("TPU v5 lite", 15.75 * 2**30),
        ("TPU v6 lite", 31.25 * 2**30),
        ("TPU7x", 94.75 * 2**30),
    ],
)
def test_a_memory_is_what_programs_are_given_and_no_decimal_of_a_data_sheet(kind, num_bytes):
    device, _ = find_device(kind)
    assert device is not None and "memory: " in device.source
    assert device.memory_bytes == pytest.approx(num_bytes, rel=1e-4)


def test_what_nobody_publishes_is_null_with_the_reason():
    chip, _ = find_device("Apple M4 Pro")
    assert chip is not None and chip.memory_bytes_per_second == 273e9
    assert chip.memory_bytes is None and chip.peak("float32") is None
    assert "memory: sold in several sizes" in chip.unknown and "no FLOP/s" in chip.unknown
    for device in devices():
        figures = (
            device.memory_bytes,
            device.memory_bytes_per_second,
            device.link_bytes_per_second,
        )
        assert device.unknown or None not in figures, device.name


@pytest.mark.parametrize("kind", ["NVIDIA H300", "TPU v9", "NVIDIA GeForce RTX 4080", "", "cpu"])
def test_an_unknown_device_has_no_numbers_but_a_reason(kind):
    device, reason = find_device(kind)
    assert device is None and reason
    assert "\n" not in reason


def test_float32_is_multiplied_in_what_the_device_multiplies_in():
    assert executed_dtype("tpu", "f32", "TPU v4") == "bfloat16"
    assert executed_dtype("gpu", "f32", "NVIDIA H200") == "tensorfloat32"
    assert executed_dtype("gpu", "f32", "Tesla V100-SXM2-16GB") == "float32"
    assert executed_dtype("cpu", "f32") == "float32"
    assert executed_dtype("gpu", "bf16", "NVIDIA H200") == "bfloat16"
    assert executed_dtype("gpu", "f8e4m3fn", "NVIDIA H200") == "float8"


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


PACKAGE = Path(dawnjax.__file__).parent
TABLES = sorted(path for path in PACKAGE.rglob("*.csv"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_every_row_names_its_source(path):
    rows = [row for _, row in records.csv_rows(path, ("source",))]
    assert rows
    # No row twice: of two prices or peaks for one thing only one can be right.
    assert len({tuple(row.values()) for row in rows}) == len(rows)


def test_a_fault_names_the_file_and_the_line(tmp_path):
    path = tmp_path / "made.csv"
    path.write_text("name,value,source\na,1,here\n\nb,2,\n")
    rows = records.csv_rows(path, ("name", "source"))
    assert next(rows) == (f"{path}:2", {"name": "a", "value": "1", "source": "here"})
    with pytest.raises(ConfigError, match=r"made\.csv:4: source is empty"):
        next(rows)
    path.write_text("name,value\na,1\n")
    with pytest.raises(ConfigError, match="lacks the column source"):
        list(records.csv_rows(path, ("name", "source")))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        list(records.csv_rows(path, ("name",)))


def test_a_pattern_takes_whole_names_of_devices():
    # A space or a hyphen may stand before a GPU's name, nothing before a TPU's.
    assert find_device("TPU v5e")[0] == find_device("TPU v5 lite")[0] is not None
    assert find_device("Cloud TPU v5e")[0] is None and find_device("TPU v5e pod")[0] is None
    assert find_device("GB200")[0] is not None and find_device("XB200")[0] is None
