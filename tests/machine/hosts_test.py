"""The sampler of a host: what a sample says, how often one is taken, and what cannot stop it."""

import mmap
import os
import sys
import threading
import time
from unittest.mock import Mock

import pytest

from dawnjax.machine import hosts
from dawnjax.machine.device_counters import DeviceCounters
from dawnjax.machine.hosts import HostSampler, visible_cores


def test_a_sample_holds_what_this_process_used():
    samples = []
    sampler = HostSampler(samples.append)
    before = sampler.sample()
    # Pages of its own: the heap may have kept as much that other tests freed.
    held = mmap.mmap(-1, 64 << 20)
    for page in range(0, len(held), mmap.PAGESIZE):
        held[page] = 1  # written, so it is resident
    started = time.thread_time()
    while time.thread_time() - started < 0.2:
        pass
    after = sampler.sample()
    assert samples == [before, after]
    assert 0.2 <= after["cpu_seconds"] - before["cpu_seconds"] < 10.0
    assert after["memory_bytes"] - before["memory_bytes"] > 0.9 * len(held)
    assert after["cores"] == visible_cores() == len(os.sched_getaffinity(0))
    assert after["network_bytes"]["machine_wide"] is True
    assert after["device_memory_peak_bytes"] is None


def test_device_memory_is_that_of_the_fullest_device():
    stats = ({"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 7}, None)
    devices = [Mock(**{"memory_stats.return_value": it}) for it in stats]
    sample = HostSampler(lambda _: None, devices=devices).sample()
    assert sample["device_memory_peak_bytes"] == 7


def test_a_full_disk_does_not_end_the_heartbeat():
    recorded = threading.Event()
    calls = 0

    def record(sample):
        nonlocal calls
        calls += 1
        if calls < 3:
            raise OSError(28, "No space left on device")
        recorded.set()

    sampler = HostSampler(record, period_seconds=0.02)
    sampler.start()
    assert recorded.wait(60.0)
    sampler.stop()
    assert calls >= 3


def test_a_summary_is_the_difference_of_two_samples():
    def sample(cpu_seconds, sent, received):
        return {
            "cpu_seconds": cpu_seconds,
            "memory_bytes": 100 * cpu_seconds,
            "cores": 4,
            "network_bytes": {"sent": sent, "received": received, "machine_wide": True},
            "device_memory_peak_bytes": 9,
        }

    sampler = HostSampler(lambda _: None)
    # 6 CPU seconds of the 5 s x 4 cores there were.
    assert sampler.summary(sample(2.0, 10, 70), sample(8.0, 15, 50), 5.0) == {
        "cpu_fraction": pytest.approx(0.3),
        "memory_bytes": 800,
        "cores": 4,
        "device_memory_peak_bytes": 9,
        "network_bytes": {"sent": 5, "received": 0, "machine_wide": True},
    }
    blind = sample(2.0, 0, 0) | {"network_bytes": None}
    assert sampler.summary(blind, sample(3.0, 1, 1), 1.0)["network_bytes"] is None
    assert sampler.summary(blind, blind, 0.0)["cpu_fraction"] is None


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({}, 64),
    ],
)
def test_cores_stay_within_a_container_s_quota(files, cores, tmp_path, monkeypatch):
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(hosts, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert visible_cores() == cores


def test_a_system_that_knows_no_share_has_all_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "CGROUPS", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS has none
    assert visible_cores() == os.cpu_count()


def test_a_driver_s_counter_gives_the_energy_between_two_samples(monkeypatch):
    driver = Mock(**{"nvmlDeviceGetCount.return_value": 1})
    energy = driver.nvmlDeviceGetTotalEnergyConsumption  # in millijoules
    energy.side_effect = [1_000_000, 1_042_000]
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    sampler = HostSampler(lambda sample: None, counters=DeviceCounters("gpu"))
    first = sampler.sample()
    assert first["energy_joules"] == 1000.0
    assert sampler.summary(first, sampler.sample(), 1.0)["energy_joules"] == 42.0
    sampler.stop()
    driver.nvmlShutdown.assert_called_once()
    driver.nvmlDeviceGetCount.return_value = 2
    # One device does not tell: a sum would be too small.
    energy.side_effect = [1_000_000, RuntimeError("Not Supported")] * 2
    partial = HostSampler(lambda sample: None, counters=DeviceCounters("gpu"))
    summary = partial.summary(partial.sample(), partial.sample(), 1.0)
    assert summary["energy_joules"] is None and "does not count" in summary["energy_reason"]


def test_without_a_driver_the_reason_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "not installed" in DeviceCounters("gpu").reason
    sampler = HostSampler(lambda sample: None, counters=DeviceCounters("cpu"))
    sample = sampler.sample()
    assert sample["energy_joules"] is None
    assert "no energy counter" in sampler.summary(sample, sample, 1.0)["energy_reason"]
