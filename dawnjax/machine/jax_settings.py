"""JAX's own settings: those of the mathematics are pinned, all others that were set are recorded.

JAX reads a variable `JAX_<NAME>` for each setting, and XLA a few more. A recipe says what is
computed, so none of them may change it unseen.
"""

import contextlib
import enum
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from dawnjax.errors import ConfigError

PINNED: dict[str, Any] = {
    "jax_enable_x64": False,
    "jax_enable_custom_prng": False,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
    "jax_high_dynamic_range_gumbel": False,
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
}
"""Settings with which every run computes: JAX's defaults from 0.10 to 0.12."""

_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE", "TF_CUDNN_DETERMINISTIC")
"""Variables of the compilers and libraries below JAX that can change how numbers are rounded."""

_SAME_NUMBERS = (
    *("jax_compilation_cache", "jax_enable_compilation_cache", "jax_persistent_cache"),
    *("jax_raise_persistent_cache", "jax_share_binary", "jax_platform", "jax_num_cpu_devices"),
    *("jax_cuda_visible", "jax_rocm_visible", "jax_log", "jax_debug_log", "jax_dump"),
    *("jax_explain", "jax_trace", "jax_include", "jax_distributed", "jax_transfer_guard"),
    "jax_enable_preemption",
    *("--xla_dump", "--xla_hlo_profile", "--xla_force_host_platform_device_count"),
    *("--xla_gpu_cuda_data_dir", "--xla_gpu_enable_command_buffer", "--xla_gpu_graph"),
    # JAX adds it itself on a TPU VM (`jax/_src/cloud_tpu_init.py`).
    "--xla_tpu_use_enhanced_launch_barrier",
)
"""Beginnings of settings without a part in the numbers: caches, devices, messages."""

not_taken: dict[str, Any] = {}
"""Pinned settings that were asked for otherwise, with the value that was asked for."""


def prepare() -> None:
    """Pin the settings for a run; ConfigError where JAX was told to compile nothing."""
    if jax.config.values["jax_disable_jit"]:
        raise ConfigError(
            "JAX_DISABLE_JIT is set, and a run consists of compiled programs: unset it"
        )
    pin()


def pin() -> None:
    """Set the settings of the mathematics."""
    values = jax.config.values
    for name, value in PINNED.items():
        if name in values and plain(values[name]) != value:
            not_taken[name] = plain(values[name])
            jax.config.update(name, value)


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Pin the settings in a block, and give the caller's own back after it."""
    before = {name: plain(v) for name, v in jax.config.values.items() if name in PINNED}
    try:
        pin()
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        not_taken.clear()  # another run's surroundings may be others


def warnings() -> list[str]:
    """Lines on settings that were asked for and are not taken."""
    return [
        f"{name.upper()}={value} is not taken: a run computes with {name}={PINNED[name]}, "
        "whatever its surroundings say"
        for name, value in not_taken.items()
    ]


def recorded(environment: Mapping[str, str] = os.environ) -> dict[str, dict[str, Any]]:
    """Settings that are not JAX's defaults, as JSON: `numbers`, which may round otherwise, and
    `others`.
    """
    values = jax.config.values
    numbers: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name in sorted(values.keys() - PINNED.keys()):
        if name.upper() in environment or name in changed_by_program:
            kept = others if name.startswith(_SAME_NUMBERS) else numbers
            kept[name] = plain(values[name])
    for name in _VARIABLES:
        for flag in sorted(environment.get(name, "").split()):
            kept = others if flag.startswith(_SAME_NUMBERS) else numbers
            kept[name] = f"{kept.get(name, '')} {flag}".strip()
    return {"numbers": numbers, "others": others}


changed_by_program: set[str] = set()
"""Settings that a user's file changed."""


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Note the settings that a block of a user's code changes."""
    before = jax.config.values
    try:
        yield
    finally:
        after = jax.config.values
        changed_by_program.update(name for name in after if after[name] != before.get(name))


def plain(value: Any) -> Any:
    value = value.value if isinstance(value, enum.Enum) else value
    return value if isinstance(value, bool | int | float | str | None) else str(value)
