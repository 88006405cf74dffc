"""Use of the host by a run: CPU, memory, network and device memory, sampled once a second.

A sample is also the event log's heartbeat: it shows to a second when a process ended.
"""

import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from dawnjax.machine.device_counters import DeviceCounters, energy_joules

_LOOPBACK = ("lo", "lo0")


class HostSampler:
    """Samples this process and its host, from a thread and whenever it is asked to.

    A sample holds:
      cpu_seconds: User and system time of this process since its start, all threads.
      memory_bytes: Resident memory of this process.
      cores: CPU cores that this process may run on.
      network_bytes: Bytes `sent` and `received` since the machine's start by all interfaces but
        the loopback one; `machine_wide` is true, as these count for every process of the machine
        and must not be summed over them. Null where the system does not tell.
      device_memory_peak_bytes: The most device memory in use so far, on the fullest device of this
        process; null where the platform does not tell, as on CPU.
      device_counters: One row a device of the machine, as `DeviceCounters.read` gives it; absent
        without a driver that counts.

    Attributes:
      devices: This process's devices, whose memory is sampled; none until they are known, since
        asking JAX for them starts its backend.
      failed_records: Samples that `record` refused, such as on a full disk.
    """

    def __init__(
        self,
        record: Callable[[dict[str, Any]], object],
        *,
        period_seconds: float = 1.0,
        devices: Sequence[Any] = (),
        counters: DeviceCounters | None = None,
    ):
        """Make a sampler that is not yet running.

        `record` takes each sample, in the thread that took it. `stop` closes the counters.
        """
        self._counters = counters
        self.devices = devices
        self.failed_records = 0
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

    def used(self) -> dict[str, Any]:
        """Use since `begin`, as `summary` returns it, and `seconds` since."""
        started, first = self._begun
        last, seconds = self.sample(), time.perf_counter() - started
        return {"seconds": round(seconds, 6), **self.summary(first, last, seconds)}

    def stop(self) -> None:
        """End the thread and close the counters; a second call does nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._counters is not None:
            self._counters.close()

    @property
    def has_counters(self) -> bool:
        return self._counters is not None and bool(self._counters.source)

    def sample(self) -> dict[str, Any]:
        # The thread and a caller may sample at once; records must stay in the order of their
        # values.
        with self._lock:
            sample = {
                "cpu_seconds": round(time.process_time(), 6),
                "memory_bytes": self._process.memory_info().rss,
                "cores": visible_cores(),
                "network_bytes": _network_bytes(),
                "device_memory_peak_bytes": _device_memory_peak_bytes(self.devices),
            }
            if self._counters is not None and self._counters.source:
                sample["device_counters"] = self._counters.read()
            try:
                self._record(sample)
            except Exception:
                self.failed_records += 1
        return sample

    def summary(
        self, first: dict[str, Any], last: dict[str, Any], seconds: float
    ) -> dict[str, Any]:
        """Use between two samples; memory and cores are those of the later one.

        Returns:
          cpu_fraction: CPU time over the time that the visible cores had; 1 is all cores busy.
          network_bytes: `sent` and `received` in between; `machine_wide` is true.
          energy_joules: With counters: of all devices of the machine, whichever processes use them;
          None where no driver counts it, and then `energy_reason` says why.
        """
        cpu_seconds = last["cpu_seconds"] - first["cpu_seconds"]
        network = None
        if first["network_bytes"] is not None and last["network_bytes"] is not None:
            network = {
                # An interface that went away takes its count with it.
                name: max(0, last["network_bytes"][name] - first["network_bytes"][name])
                for name in ("sent", "received")
            } | {"machine_wide": True}
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
        rows = [sample.get("device_counters", []) for sample in (first, last)]
        energy = energy_joules(*rows)
        if energy is not None:
            return {"energy_joules": energy}
        return {
            "energy_joules": None,
            "energy_reason": self._counters.reason or "the driver does not count energy",
        }

    def _run(self) -> None:
        # A tenth is kept for a thread that wakes late, so that the period is the longest gap.
        step = 0.9 * self._period_seconds
        next_sample = time.perf_counter() + step
        while not self._stopped.wait(max(0.0, next_sample - time.perf_counter())):
            # A failing probe (a process table that cannot be read) ends the thread no more than
            # a failing record does.
            with contextlib.suppress(Exception):
                self.sample()
            # After a suspension there is one sample, not one for each period that was missed.
            next_sample = max(next_sample + step, time.perf_counter())


def visible_cores() -> int:
    # Not on macOS. `os.cpu_count` alone ignores a job's or a container's share.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherWork:
    """Share of the visible cores that other work took from this process in a block.

    Attributes:
      fraction: From 0 to 1; 0 too where the system does not tell.
    """

    fraction = 0.0

    def __enter__(self) -> "OtherWork":
        self._before = time.perf_counter(), time.process_time(), _waited_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        started, used, waited = self._before
        cores_seconds = (time.perf_counter() - started) * visible_cores()
        # Threads of this process that outnumber the cores wait for each other: only what this
        # process did not get counts, and only what it waited for.
        not_used = 1 - (time.process_time() - used) / cores_seconds
        self.fraction = max(0.0, min(not_used, (_waited_seconds() - waited) / cores_seconds, 1.0))


def _waited_seconds() -> float:
    """Time that the threads of this process were ready and waited for a core; 0 if not known."""
    total = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread may have ended
            total += int(file.read_text().split()[1])
    return total / 1e9


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
    peaks = []
    for device in devices:
        stats = device.memory_stats()
        if stats and "peak_bytes_in_use" in stats:
            peaks.append(stats["peak_bytes_in_use"])
    return max(peaks, default=None)
