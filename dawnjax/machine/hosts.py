"""Use of the host by a run: CPU, memory, network and device memory, sampled once a second.

A sample is also the event log's heartbeat: it shows to a second when a process ended.
"""

import contextlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from dawnjax.machine import load
from dawnjax.machine.device_counters import DeviceCounters

_LOOPBACK = ("lo", "lo0")


class HostSampler:
    """Samples this process and its host, once a second in a thread of its own and when asked.

    A sample holds:
      cpu_seconds: User and system time of this process since its start, all threads.
      memory_bytes: Resident memory of this process.
      cores: CPU cores that this process may use.
      network_bytes: Bytes `sent` and `received` since the machine's start by all interfaces but
        the loopback one; `machine_wide` is true, as these count for every process of the machine
        and must not be summed over them. Null where the system does not tell.
      device_memory_peak_bytes: The most device memory in use so far, on the fullest device of this
        process; null where the platform does not tell, as on CPU.
      energy_joules: Of all devices of the machine, since the driver was loaded; null where no
        driver counts it.
    """

    def __init__(
        self,
        record: Callable[[dict[str, Any]], object],
        *,
        period_seconds: float = 1.0,
        devices: Sequence[Any] = (),
        counters: DeviceCounters | None = None,
    ):
        """Make a sampler that is not yet running; `record` takes each sample in its thread."""
        self._counters = counters
        self._devices = devices
        self._record = record
        self._period_seconds = period_seconds
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host_sampler", daemon=True)

    def start(self) -> None:
        self.begin()
        self._thread.start()

    def begin(self) -> None:
        """Take the sample from which `used` sums up."""
        self._begun = time.perf_counter(), self.sample()
        self._load = load.use()

    def used(self) -> dict[str, Any]:
        """Use since `begin`, as `summary` returns it, and `seconds` since."""
        started, first = self._begun
        last, seconds = self.sample(), time.perf_counter() - started
        return {"seconds": round(seconds, 6), **self.summary(first, last, seconds)}

    def processors_used(self) -> load.Use | None:
        """Use of the machine's processors since `begin`; None where the system does not tell."""
        now = load.use()
        return now and self._load and now.since(self._load)

    def stop(self) -> None:
        """End the thread and close the counters; a second call does nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._counters is not None:
            self._counters.close()

    def sample(self) -> dict[str, Any]:
        # The thread and a caller may sample at once: records stay in the order of their values.
        with self._lock:
            sample = {
                "cpu_seconds": round(time.process_time(), 6),
                "memory_bytes": self._process.memory_info().rss,
                "cores": visible_cores(),
                "network_bytes": _network_bytes(),
                "device_memory_peak_bytes": _device_memory_peak_bytes(self._devices),
                "energy_joules": self._counters and self._counters.energy_joules(),
            }
            with contextlib.suppress(Exception):  # a full disk costs a sample and not the run
                self._record(sample)
        return sample

    def summary(
        self, first: dict[str, Any], last: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """Use between two samples; memory and cores are those of the later one.

        `cpu_fraction` is the CPU time over the time that the visible cores had: 1 is all cores
        busy. A network or energy that is not counted is None; `energy_reason` says why.
        """
        cpu_seconds = last["cpu_seconds"] - first["cpu_seconds"]
        before, after, network = first["network_bytes"], last["network_bytes"], None
        if before is not None and after is not None:
            # An interface that went away takes its count with it.
            sent, received = (max(0, after[name] - before[name]) for name in ("sent", "received"))
            network = {"sent": sent, "received": received, "machine_wide": True}
        return {
            "cpu_fraction": round(cpu_seconds / (seconds * last["cores"]), 6) if seconds else None,
            "memory_bytes": last["memory_bytes"],
            "cores": last["cores"],
            "device_memory_peak_bytes": last["device_memory_peak_bytes"],
            "network_bytes": network,
            **self._energy(first, last),
        }

    def _energy(self, first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        if self._counters is None:
            return {}
        before, after = first["energy_joules"], last["energy_joules"]
        if before is None or after is None:
            return {"energy_joules": None, "energy_reason": self._counters.reason}
        return {"energy_joules": round(after - before, 3)}

    def _run(self) -> None:
        while not self._stopped.wait(self._period_seconds):
            with contextlib.suppress(Exception):
                self.sample()


def visible_cores() -> int:
    """Cores that this process may use: those it may run on, within its container's quota."""
    # Not on macOS. `os.cpu_count` alone ignores a job's share.
    has_share = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_share else os.cpu_count() or 1
    return max(1, min(cores, round(_quota_cores())))


CGROUPS = Path("/sys/fs/cgroup")
"""As a container sees its own limits, which Kubernetes and Docker set there."""


def _quota_cores() -> float:
    """Seconds of all cores together that a container may use in a second.

    Source: Linux, `admin-guide/cgroup-v2`, cpu.max; `scheduler/sched-bwc`, cpu.cfs_quota_us.
    """
    try:
        if (CGROUPS / "cpu.max").exists():
            quota, period = (CGROUPS / "cpu.max").read_text().split()
        else:
            files = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
            quota, period = ((CGROUPS / name).read_text() for name in files)
        return int(quota) / int(period) if int(quota) > 0 else sys.maxsize
    except (OSError, ValueError):  # no container, or no limit: `max`
        return sys.maxsize


def processor_name() -> str:
    """Name of the host's processor; empty where the system has none."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _network_bytes() -> dict[str, Any] | None:
    try:
        interfaces = psutil.net_io_counters(pernic=True, nowrap=False)
    except (OSError, RuntimeError):
        return None
    counters = [counter for name, counter in interfaces.items() if name not in _LOOPBACK]
    return {
        "sent": sum(counter.bytes_sent for counter in counters),
        "received": sum(counter.bytes_recv for counter in counters),
        "machine_wide": True,
    }


def _device_memory_peak_bytes(devices: Sequence[Any]) -> int | None:
    stats = (device.memory_stats() or {} for device in devices)
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)
