"""Energy of this machine's GPUs, as NVIDIA's driver counts it (`nvidia-ml-py`)."""

import contextlib
import importlib
from typing import Any


class DeviceCounters:
    """Energy counters of this machine's devices; without them `reason` says why."""

    def __init__(self, platform: str):
        """Open the counters of a `gpu`; other platforms have none."""
        self._nvml: Any = None
        self.reason = "the driver does not count energy"
        if platform != "gpu":
            self.reason = f"a {platform} has no energy counter here"
            return
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._nvml = nvml
        except ImportError:
            self.reason = "nvidia-ml-py is not installed (the extra `nvml` has it)"
        except Exception as error:  # whatever the driver has against it, the run continues
            line = (str(error).splitlines() or [type(error).__name__])[0]
            self.reason = f"the driver gives no counters: {line}"

    def energy_joules(self) -> float | None:
        """Energy of all devices since the driver was loaded; None where one of them counts none."""
        if self._nvml is None:
            return None
        nvml, total = self._nvml, 0
        with contextlib.suppress(Exception):  # older devices lack the counter
            for number in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                total += nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            return total / 1000
        return None

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with contextlib.suppress(Exception):
                nvml.nvmlShutdown()
