"""What is on this machine, does it work, and how fast: one finding for each part.

Each part is a process of its own with a time limit, because a broken driver ends or blocks the
process that asks it.
"""

import dataclasses
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from dawnjax import records
from dawnjax.cluster import node_devices
from dawnjax.errors import ConfigError, install
from dawnjax.machine import hardware
from dawnjax.page import words
from dawnjax.profile.captured import captures_of
from dawnjax.profile.host_profile import read_profile

LIMIT_SECONDS = 300.0
"""For all parts together."""

LEAST_OF_PEAK = 0.4
"""Least fraction of the data sheet's product. A card with a low power limit reaches half."""

LEAST_OF_BANDWIDTH = 0.6
LEAST_OF_FASTEST = 0.85
"""The slowest device over the fastest of one machine."""

_SIDE, _ELEMENTS = 8192, 2**27
"""Sides of the product's matrices, and float32 elements of the copy."""

_STEPS = 20

RUN = (
    *("--experiment=wikipedia_llama_small", "--data=synthetic_tokens", "--data.vocabulary=bytes"),
    # Rows that 1 to 6, 8, 10, 12, 15, 16 and more devices share evenly.
    *("--data.sequence_length=16", "--global_batch_size=480", "--data.num_train_tokens=65536"),
    *(f"--max_steps={_STEPS}", f"--evaluation.every_steps={_STEPS}", "--model.num_layers=2"),
    *("--weight_update_sharding", "--tensorboard=false", "--compile_cache_dir=none"),
)
"""A small decoder on made-up text, whose optimizer's state every device has a part of."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A part of the machine that was tried.

    Attributes:
      state: `unknown` where there is nothing to compare with.
      text: The figure, and beside it what it should be or what to do.
      figures: The numbers in it, by name.
    """

    part: str
    state: Literal["right", "wrong", "unknown"]
    text: str
    figures: dict[str, float] = dataclasses.field(default_factory=dict)


def findings() -> Iterator[Finding]:
    """Each part's finding as soon as it is known."""
    end = time.monotonic() + LIMIT_SECONDS
    answer, failure = _answer(["-c", "from dawnjax import doctor; doctor.print_devices()"], end)
    if failure:
        yield Finding("devices", "wrong", f"JAX does not start: {failure}")
        return
    devices = records.load_json(answer)
    yield of_devices(devices, os.environ)
    yield of_memory(devices)
    yield of_products(devices)
    yield of_bandwidth(devices)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        _, failure = _answer(["-m", "dawnjax", "train", *RUN, f"--run_dir={run_dir}"], end, (0, 3))
        if failure:
            yield Finding("step", "wrong", f"a small run failed: {failure}")
            return
        if not run_dir.is_dir():
            yield Finding("step", "unknown", "host 0 shows the run that this host took part in")
            return
        trial = records.read_json(run_dir / "result.json", dict[str, Any])
        yield of_step(trial)
        yield of_profile(run_dir)
        yield of_checkpoint(
            trial, *_answer(["-m", "dawnjax", "evaluate", "--json", str(run_dir)], end)
        )


def _answer(arguments: list[str], end: float, statuses: tuple[int, ...] = (0,)) -> tuple[str, str]:
    """The last line that a Python process prints, and why it failed; one of them is empty."""
    left = max(1.0, end - time.monotonic())
    try:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=left
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {left:.0f} s"
    if done.returncode not in statuses:
        told = [line for line in done.stderr.splitlines() if line.strip()]
        return "", told[-1][:300] if told else f"it ended with status {done.returncode}"
    return (done.stdout.splitlines() or [""])[-1], ""


def print_devices() -> None:
    """Print as JSON what JAX's devices of this host are, and how fast each is."""
    # Imported here: the caller must stay free of JAX, whose devices may not start.
    import jax

    from dawnjax.cluster import processes
    from dawnjax.cluster.options import ProcessOptions

    processes.join(ProcessOptions())
    print(records.json_text([_measured(device) for device in jax.local_devices()]))
    processes.leave(0)


def _measured(device: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    facts = {
        "platform": device.platform,
        "kind": device.device_kind,
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
    }
    if device.platform == "cpu":
        from dawnjax.machine.measured_peaks import measured_peaks

        peaks = measured_peaks(device)
        rates = peaks.flops_per_second, peaks.bytes_per_second
        return facts | {"dtype": "float32", "rates": rates, "fault": peaks.fault}
    known, _ = hardware.find_device(device.device_kind)
    dtype = "float16" if known is not None and known.peak("bfloat16") is None else "bfloat16"
    with jax.default_device(device):
        matrix = jnp.ones((_SIDE, _SIDE), dtype)
        # A second operand that depends on nothing else keeps the product from being simplified.
        multiply = jax.jit(lambda a, b: a @ b)
        product = _best_seconds(lambda _: multiply(matrix, matrix), matrix)
        copy = _best_seconds(
            jax.jit(lambda a: a + 1, donate_argnums=0), jnp.ones(_ELEMENTS, jnp.float32)
        )
    return facts | {"dtype": dtype, "rates": (2 * _SIDE**3 / product, 8 * _ELEMENTS / copy)}


def _best_seconds(call: Callable[[Any], Any], value: Any, calls: int = 10) -> float:
    """Shortest mean time of some calls in a row, each on what the one before it returned."""
    import jax

    times = []
    for _ in range(6):
        started = time.perf_counter()
        for _ in range(calls):
            value = call(value)
        jax.block_until_ready(value)
        times.append((time.perf_counter() - started) / calls)
    return min(times[1:])  # the first compiles


def of_devices(
    devices: list[dict[str, Any]], environment: Mapping[str, str], root: Path = node_devices.ROOT
) -> Finding:
    """Whether JAX has all devices that the machine's files show."""
    platform, kind = devices[0]["platform"], devices[0]["kind"]
    gpus, chips = len(node_devices.given_gpus(environment, root)), node_devices.tpu_chips(root)
    has = f"{len(devices)} x {kind}"
    for name, shown, extra in (("gpu", gpus, "gpu"), ("tpu", chips, "tpu")):
        if shown and platform != name:
            what = "NVIDIA GPUs" if name == "gpu" else "TPU chips"
            hint = f"this machine shows {shown} {what}, and JAX has {has}: {install(extra)}"
            if environment.get("JAX_PLATFORMS"):
                hint = f"{hint}, or unset JAX_PLATFORMS"
            return Finding("devices", "wrong", hint)
    if platform == "gpu" and gpus != len(devices):
        return Finding("devices", "wrong", f"this machine shows {gpus} GPUs, and JAX has {has}")
    return Finding("devices", "right", has, {"devices": len(devices)})


def of_memory(devices: list[dict[str, Any]]) -> Finding:
    """What a program can be given on each device, beside the whole."""
    least = min((d["memory_bytes"] or math.inf) for d in devices)
    known, why = hardware.find_device(devices[0]["kind"])
    if not math.isfinite(least):
        return Finding("memory", "unknown", "the platform does not say how much a program gets")
    figures = {"memory_bytes": least}
    text = f"{words.scaled(least, 'B')} for a program on each device"
    if known is None or known.memory_bytes is None:
        why = why or "its size is not published"
        return Finding("memory", "unknown", f"{text}; {why}", figures)
    share = least / known.memory_bytes
    # JAX takes three quarters of a GPU's memory unless it is told otherwise.
    state = "right" if share >= 0.7 else "wrong"
    text = f"{text}, {share:.0%} of {words.scaled(known.memory_bytes, 'B')}"
    hint = "" if state == "right" else "; another program holds the rest"
    return Finding("memory", state, text + hint, figures)


def of_products(devices: list[dict[str, Any]]) -> Finding:
    """The slowest device's large matrix product beside the data sheet."""
    dtype = devices[0]["dtype"]
    known, why = hardware.find_device(devices[0]["kind"])
    peak = None if known is None else known.peak(dtype)
    return _compared(f"{dtype} product", devices, 0, "FLOP/s", peak, why, LEAST_OF_PEAK)


def of_bandwidth(devices: list[dict[str, Any]]) -> Finding:
    """The slowest device's large copy beside the data sheet."""
    known, why = hardware.find_device(devices[0]["kind"])
    peak = None if known is None else known.memory_bytes_per_second
    return _compared("memory copy", devices, 1, "B/s", peak, why, LEAST_OF_BANDWIDTH)


def _compared(
    part: str,
    devices: list[dict[str, Any]],
    place: int,
    unit: str,
    peak: float | None,
    why: str,
    least: float,
) -> Finding:
    rates = [device["rates"][place] for device in devices]
    slowest = min(range(len(rates)), key=rates.__getitem__)
    rate, of_fastest = rates[slowest], rates[slowest] / max(rates)
    text, figures = words.scaled(rate, unit), {unit: rate}
    if fault := next((d["fault"] for d in devices if d.get("fault")), ""):
        return Finding(part, "unknown", f"{text}; {fault}", figures)
    if of_fastest < LEAST_OF_FASTEST:
        text = f"device {slowest} makes {text}, {of_fastest:.0%} of the fastest device's"
        return Finding(part, "wrong", f"{text}: is another program on it?", figures)
    if peak is None:
        return Finding(part, "unknown", f"{text}; {why or 'its data sheet has no figure'}", figures)
    share = rate / peak
    text = f"{text}, {share:.0%} of the data sheet's {words.scaled(peak, unit)}"
    if share < least:
        hint = "is another program on it, or its power limited?"
        return Finding(part, "wrong", f"{text}: {hint}", figures)
    return Finding(part, "right", text, figures)


def of_step(trial: dict[str, Any]) -> Finding:
    """A run of some steps on all devices, whose loss must fall."""
    losses = trial["first_losses"]  # NaN and infinities are text
    where = words.count(trial["num_devices"], "device")
    where += f" of {words.count(trial['num_hosts'], 'host')}"
    is_finite = losses and not any(isinstance(loss, str) for loss in losses)
    if trial["steps"] != _STEPS or not is_finite or losses[-1] >= losses[0]:
        return Finding("step", "wrong", f"{trial['steps']} steps on {where}: losses {losses}")
    seconds = trial["hosts"][0]["step_seconds"]["p50"]
    compiled = words.duration(trial["compile_seconds"])
    text = f"{_STEPS} steps on {where}, {words.duration(seconds)} each, compiled in {compiled}"
    return Finding("step", "right", text, {"step_seconds": seconds})


def of_profile(run_dir: Path) -> Finding:
    """Whether the run's trace can be read, and how much of a step it explains."""
    try:
        profile = read_profile(captures_of(run_dir)[0])
    except ConfigError as error:
        return Finding("profile", "wrong", str(error))
    if profile.failure:
        return Finding("profile", "wrong", profile.failure)
    share = profile.utilization_json()["attributed_fraction"]
    if share is None:
        return Finding("profile", "wrong", "its trace explains no part of a step")
    text = f"its trace explains {share:.0%} of a step"
    return Finding("profile", "right", text, {"attributed_fraction": share})


def of_checkpoint(trial: dict[str, Any], answer: str, failure: str) -> Finding:
    """Whether another process restores the last save, and measures what the run measured."""
    if failure:
        return Finding("checkpoint", "wrong", f"it cannot be restored: {failure}")
    told = records.load_json(answer)["result"]
    now = {"step": told["step"], **told["own"]["metrics"]}
    then = trial["evaluations"][-1]
    different = [
        f"{name} {then[name]} before and {now[name]} after"
        for name in ("step", "loss")
        if not math.isclose(then[name], now[name], rel_tol=1e-4)
    ]
    if different:
        return Finding("checkpoint", "wrong", f"restored, with {', '.join(different)}")
    seconds = trial["phases"]["checkpoint"]
    text = f"saved and restored with the same loss; the run waited {words.duration(seconds)} for it"
    return Finding("checkpoint", "right", text)
