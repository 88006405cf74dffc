"""Optional counters of a driver (`nvidia-ml-py`, libtpu): energy, power, activity."""

import contextlib
import importlib
from typing import Any


class DeviceCounters:
    """Counters of this machine's devices: `source` is `nvml`, `libtpu`, or empty for a `reason`."""

    def __init__(self, platform: str):
        """Open the counters of a platform, `gpu` or `tpu`; others have none."""
        self.source, self.reason = "", ""
        self._nvml: Any = None
        self._tpu: Any = None
        self._handles: list[Any] = []
        if platform == "gpu":
            self._open_nvml()
        elif platform == "tpu":
            self._open_libtpu()
        else:
            self.reason = f"a {platform} has no device counters here"

    def read(self) -> list[dict[str, Any]]:
        """One row a device; a counter that its driver does not have is absent.

        A row of a GPU holds `energy_joules` (since the driver was loaded), `power_watts`,
        `active_fraction` (a kernel ran, over the driver's last sample period), `memory_bytes`. A
        row of a TPU holds `tensor_core_active_fraction` and `duty_cycle_fraction`.
        """
        if self._nvml is not None:
            return [self._nvml_row(handle) for handle in self._handles]
        return self._tpu_rows() if self._tpu is not None else []

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()
            self._nvml = None

    def _open_nvml(self) -> None:
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
            self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except ImportError:
            self.reason = "nvidia-ml-py is not installed (the extra `nvml` has it)"
        except Exception as error:  # whatever the driver has against it, the run continues
            self.reason = f"NVIDIA's driver gives no counters: {_first_line(error)}"
        else:
            self._nvml, self.source = nvml, "nvml"

    def _nvml_row(self, handle: Any) -> dict[str, Any]:
        nvml, row = self._nvml, {}
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

    def _open_libtpu(self) -> None:
        try:
            sdk = importlib.import_module("libtpu.sdk")
            self._tpu, self.source = sdk.tpumonitoring, "libtpu"
        except (ImportError, AttributeError) as error:
            self.reason = f"libtpu gives no counters: {_first_line(error)}"

    def _tpu_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name, metric in (
            ("tensor_core_active_fraction", "tensorcore_util"),
            ("duty_cycle_fraction", "duty_cycle_pct"),
        ):
            with contextlib.suppress(Exception):  # a metric that this libtpu does not know
                values = [float(v) for v in self._tpu.get_metric(metric).data()]
                rows += [{} for _ in range(len(values) - len(rows))]
                for row, value in zip(rows, values, strict=False):
                    row[name] = value / 100
        return rows


def energy_joules(first: list[dict[str, Any]], last: list[dict[str, Any]]) -> float | None:
    """Joules of all devices between two readings; None where a device counts none."""
    pairs = list(zip(first, last, strict=False))
    if not pairs or any("energy_joules" not in row for pair in pairs for row in pair):
        return None
    return round(sum(b["energy_joules"] - a["energy_joules"] for a, b in pairs), 3)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
