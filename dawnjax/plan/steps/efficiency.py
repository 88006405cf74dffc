"""Fraction of a device's peaks that a program reaches, fitted on measured runs.

Four numbers for a kind of device:

    products        part of the peak FLOP/s that matrix products and convolutions reach
    memory          part of the memory's peak bandwidth that ops reach
    kernel_seconds  launch cost of each kernel
    host_seconds    waiting for the slowest host, for each doubling of the hosts

An op takes the longer of its products' time and its memory's time, plus its kernel's cost. The fit
is least squares on log(measured / predicted). A weak prior on each number keeps few observations
near known hardware. Observations of the planned device weigh more than others of its platform. The
spread of the residuals gives the interval of a prediction, with a least width for what no residual
shows: other programs, and systems of a size that nobody measured.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import least_squares

from dawnjax.errors import RunError
from dawnjax.machine.hardware import Device
from dawnjax.plan.compiling.extract import Extract
from dawnjax.plan.epochs.interval import octaves_outside

_PRIORS = {
    "tpu": ((0.6, 0.4), (0.7, 0.4), (1e-6, 0.7), (3e-4, 1.0)),
    "gpu": ((0.6, 0.4), (0.7, 0.4), (3e-6, 0.7), (3e-4, 1.0)),
}
"""Centre, and standard deviation of the logarithm, of the four numbers: products reach 40 to 80 %
of the peak and streams 60 to 90 % of the bandwidth on accelerators (Austin et al. 2025, "How to
scale your model"; our profiles of an H200), and a kernel starts in some microseconds."""

SAME_DEVICE, OTHER_DEVICE = 0.1, 0.25
"""Standard deviations of the logarithm of an observation: of the planned device, and of another."""

SMALLEST_SPREAD = 0.2
"""No prediction is claimed to be closer, whatever the residuals. Observations are of other programs
than the planned one: our steps on an H200, predicted from the official programs on V100, are off by
0.00, 0.01, 0.21 and 0.22 in the logarithm, 0.15 as root of the mean square."""

OUTSIDE = 0.1
"""Standard deviation of the logarithm for each doubling of the devices beyond the largest observed
system, or below the smallest. Fitted on single hosts alone, steps of 512 and 640 GPUs, five
doublings away, are off by 0.51 and 0.53; of 32 TPU cores, two doublings away, by 0.21."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Fitted efficiency of one kind of device, as the module describes.

    Attributes:
      spread: Standard deviation of the logarithm of a time, predicted for a system as large as some
        observation.
      fitted_on: Names of the observations.
      sizes: Numbers of devices of the observations.
      scale: Factor of all parts of a step.
      knows_overlap: Whether that factor accounts for communication that computation hides.
      hides_all: Whether computation is taken to hide all communication.
    """

    products: float
    memory: float
    kernel_seconds: float
    host_seconds: float
    spread: float
    fitted_on: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    scale: float = 1.0
    knows_overlap: bool = False
    hides_all: bool = False

    @property
    def at_best(self) -> "Efficiency":
        """Hidden communication at an interval's lower end: all of it, unless more is known."""
        return self if self.knows_overlap else dataclasses.replace(self, hides_all=True)

    def octaves_outside(self, num_devices: int) -> float:
        """Doublings from the sizes of the observations to a system; 0 within them."""
        return octaves_outside(self.sizes, num_devices) if self.sizes else 0.0

    def spread_at(self, num_devices: int) -> float:
        """Standard deviation of the logarithm of a predicted time on a system of a size."""
        return math.hypot(self.spread, OUTSIDE * self.octaves_outside(num_devices))


def peak_flops(device: Device, dtype: str) -> float:
    """Peak FLOP/s of products of a dtype as XLA names it; RunError if the data sheet has none."""
    name = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}.get(dtype, dtype)
    if name == "pred":  # the matrix units take no bits: they are converted first
        name = "bfloat16"
    if name == "float32":
        # At default precision neither platform multiplies float32 in full.
        name = "bfloat16" if device.platform == "tpu" else "tensorfloat32"
    peak = device.peak(name) or (device.peak("float32") if name == "tensorfloat32" else None)
    if peak is None:
        others = ", ".join(device.peak_flops_per_second)
        raise RunError(f"{device.name} has no known peak for {name}; it has {others}")
    return peak


def compute_seconds(extract: Extract, device: Device, efficiency: Efficiency) -> dict[str, float]:
    """Seconds that a program computes on a device, by class of op, without communication."""
    parts: dict[str, float] = dict.fromkeys(CLASSES, 0.0)
    bandwidth = device.memory_bytes_per_second * efficiency.memory
    for work in extract.work:
        memory = work.num_bytes / bandwidth
        products = 0.0
        if work.flops:
            rate = peak_flops(device, work.dtype) * efficiency.products
            if not work.has_even_rows and _on_tensor_cores(device, work.dtype):
                rate *= UNEVEN_ROWS
            products = work.flops / rate
        if not work.flops:
            name = OTHER_OPS
        else:
            name = PRODUCTS if products >= memory else PRODUCTS_AT_MEMORY
        parts[name] += max(products, memory)
        parts[LAUNCHES] += work.runs * efficiency.kernel_seconds
    return parts


def _on_tensor_cores(device: Device, dtype: str) -> bool:
    if dtype == "f32":  # unknown to a V100's
        return device.peak("tensorfloat32") is not None
    return device.platform == "gpu"


UNEVEN_ROWS = 0.3
"""Speed of tensor cores with rows of no multiple of 16 bytes, as a part of their speed with others;
bfloat16 of an odd vocabulary has such rows, and the fast kernels cannot read them.

Source: m87-labs/kestrel, pull request 143, of a Hopper GPU: 3.53 times as long with rows of 588
elements of bfloat16 as with 592. Netflix Technology Blog, "Scaling LLM post-training at Netflix"
(2026): three times as long for the last layer of a language model.
"""

PRODUCTS = "products, bound by arithmetic"
PRODUCTS_AT_MEMORY = "products, bound by memory"
OTHER_OPS = "other ops, bound by memory"
LAUNCHES = "kernel launches"
CLASSES = (PRODUCTS, PRODUCTS_AT_MEMORY, OTHER_OPS, LAUNCHES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One observation to fit on.

    Attributes:
      chip: Device, as the compiler calls it.
      num_devices: Devices of its system.
      predicted: Function from an efficiency to the seconds that it predicts.
    """

    name: str
    chip: str
    num_devices: int
    seconds: float
    predicted: Callable[[Efficiency], float]


def fit(platform: str, chip: str, measured: Sequence[Measured]) -> Efficiency:
    """Efficiency fitted to the observations; the priors without observations.

    Args:
      platform: `tpu` or `gpu`.
      chip: The device, as the compiler calls it.
    """
    # Fit logarithms: errors are relative, and no number can become negative.
    centres = np.log([centre for centre, _ in _PRIORS[platform]])
    deviations = np.array([deviation for _, deviation in _PRIORS[platform]])
    residual = [SAME_DEVICE if row.chip == chip else OTHER_DEVICE for row in measured]

    def of(logarithms: np.ndarray, spread: float = 0.0) -> Efficiency:
        products, memory, kernel_seconds, host_seconds = np.exp(logarithms).tolist()
        return Efficiency(
            products=products,
            memory=memory,
            kernel_seconds=kernel_seconds,
            host_seconds=host_seconds,
            spread=spread,
            fitted_on=tuple(row.name for row in measured),
            sizes=tuple(row.num_devices for row in measured),
        )

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        efficiency = of(logarithms)
        errors = [math.log(row.predicted(efficiency) / row.seconds) for row in measured]
        return np.array(errors)

    def weighed(logarithms: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [residuals(logarithms) / residual, (logarithms - centres) / deviations]
        )

    bounds = (np.log([0.05, 0.05, 1e-7, 1e-6]), np.log([1.0, 1.0, 1e-4, 1e-1]))
    found = least_squares(weighed, centres, bounds=bounds).x
    if not measured:
        return of(found, math.log(2))  # a factor of two: nothing was measured
    errors = residuals(found)
    weights = (min(residual) / np.array(residual)) ** 2  # those of the fit
    freedom = max(1.0, float(weights.sum()) - 2)
    spread = math.sqrt(float(weights @ errors**2) / freedom)
    # Nothing measured on this device: the fit's own residuals would claim too much.
    if SAME_DEVICE not in residual:
        spread = max(spread, OTHER_DEVICE)
    return of(found, max(SMALLEST_SPREAD, spread))
