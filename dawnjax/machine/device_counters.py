"""Optional counters of a driver (`nvidia-ml-py`, libtpu): energy, power, activity."""

import contextlib
import importlib
from collections.abc import Callable
from typing import Any


class DeviceCounters:
    """Counters of this machine's devices: `source` is `nvml`, `libtpu`, or empty for a `reason`."""

    def __init__(self, platform: str):
        """Open the counters of a platform, `gpu` or `tpu`; others have none."""
        self.source, self.reason = "", ""
        self._library: Any = None
        try:
            if platform == "gpu":
                self._library = importlib.import_module("pynvml")
                self._library.nvmlInit()
                self.source = "nvml"
            elif platform == "tpu":
                self._library = importlib.import_module("libtpu.sdk").tpumonitoring
                self.source = "libtpu"
            else:
                self.reason = f"a {platform} has no device counters here"
        except Exception as error:  # whatever the driver has against it, the run continues
            line = (str(error).splitlines() or [type(error).__name__])[0]
            self.reason = f"the driver gives no counters: {line}"
            if isinstance(error, ImportError) and platform == "gpu":
                self.reason = "nvidia-ml-py is not installed (the extra `nvml` has it)"

    def read(self) -> list[dict[str, Any]]:
        """One row a device; a counter that its driver does not have is absent.

        A row of a GPU holds `energy_joules` (since the driver was loaded), `power_watts`,
        `active_fraction` (a kernel ran, over the driver's last sample period), `memory_bytes`. A
        row of a TPU holds `tensor_core_active_fraction` and `duty_cycle_fraction`.
        """
        if self.source == "nvml":
            nvml = self._library
            count = nvml.nvmlDeviceGetCount()
            return [_nvml_row(nvml, nvml.nvmlDeviceGetHandleByIndex(n)) for n in range(count)]
        return _tpu_rows(self._library.get_metric) if self.source else []

    def close(self) -> None:
        if self.source == "nvml":
            self.source = ""
            with contextlib.suppress(Exception):
                self._library.nvmlShutdown()


def _nvml_row(nvml: Any, handle: Any) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, read in (
        # Millijoules, milliwatts and percent, as the driver counts them.
        ("energy_joules", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
        ("power_watts", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        ("active_fraction", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        ("memory_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
    ):
        with contextlib.suppress(Exception):  # older devices lack some counters
            row[name] = read()
    return row


def _tpu_rows(get_metric: Callable[[str], Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, metric in (
        ("tensor_core_active_fraction", "tensorcore_util"),
        ("duty_cycle_fraction", "duty_cycle_pct"),
    ):
        with contextlib.suppress(Exception):  # a metric that this libtpu does not know
            values = [float(v) / 100 for v in get_metric(metric).data()]
            rows += [{} for _ in range(len(values) - len(rows))]
            for row, value in zip(rows, values, strict=False):
                row[name] = value
    return rows


def energy_joules(first: list[dict[str, Any]], last: list[dict[str, Any]]) -> float | None:
    """Joules of all devices between two readings; None where a device counts none."""
    pairs = list(zip(first, last, strict=False))
    if not pairs or any("energy_joules" not in row for pair in pairs for row in pair):
        return None
    return round(sum(b["energy_joules"] - a["energy_joules"] for a, b in pairs), 3)
