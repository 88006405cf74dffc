"""The dtypes in which a Transformer is computed, and its linear layers, which keep to them."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from dawnjax.models.execution import Execution, Platform


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """How a Transformer is computed; parameters, softmax and logits are float32 whatever it is.

    Attributes:
      activations: The dtype of what passes between layers.
      products: The dtype of the factors inside linear layers; sums are float32.
      platform: What the program is compiled for.
      batch_shards: Over how many devices the examples of a batch are spread in equal runs.
      fused_by: What computes attention as one call; None for products of its own.
      transposed_copies: Whether a kernel's gradient is computed from a transposed copy.
    """

    activations: Any
    products: Any
    platform: Platform
    batch_shards: int = 1
    fused_by: Literal["cudnn", "xla"] | None = None
    transposed_copies: bool = False


def arithmetic_of(execution: Execution) -> Arithmetic:
    """Chooses the dtypes for a platform.

    On a CPU, bfloat16 pays inside products only, with float32 results: there a 2048 x 256 x 1024
    product takes 5.9 ms of CPU time, against 15.6 ms in float32 and 16.0 ms with bfloat16 results.
    XLA multiplies bfloat16 as such only where the sum runs along the left factor's last axis, which
    of a kernel's gradient takes a transposed copy: a 256 x 1024 x 1024 product takes 1.6 ms with it
    and 3.2 ms without (two cores of an AMD EPYC with avx512_bf16, jax 0.10.2 and 0.12). Among
    several devices the copy would be gathered first.
    """
    compute = jnp.dtype(execution.compute_dtype)
    on_cpu = execution.platform == "cpu"
    fused_by = None
    if execution.attention == "fused":
        fused_by = "cudnn" if execution.platform == "gpu" else "xla"
    return Arithmetic(
        activations=jnp.dtype("float32") if on_cpu else compute,
        products=compute,
        platform=execution.platform,
        batch_shards=execution.batch_shards,
        fused_by=fused_by,
        transposed_copies=on_cpu and compute == jnp.bfloat16 and execution.batch_shards == 1,
    )


KernelAxes = Literal["io", "oi"]
"""The order of a kernel's axes, in and out."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def linear(
    hidden: jax.Array,
    kernel: jax.Array,
    arithmetic: Arithmetic,
    kernel_axes: KernelAxes = "io",
    result: Any = None,
) -> jax.Array:
    """Multiplies [..., in] by a kernel.

    The gradients too are products of factors in the arithmetic's dtype; left to itself, JAX would
    multiply float32 gradients by lower factors, in float32.

    Args:
      hidden: [..., in].
      kernel: float32 [in, out], or [out, in] if so said.
      arithmetic: Says which dtype both are rounded to.
      kernel_axes: The order of the kernel's axes.
      result: The dtype of the result; None for that of activations.
    """
    dtype = arithmetic.activations if result is None else result
    return _product(f"...i,{kernel_axes}->...o", hidden, kernel, arithmetic, dtype)


def _linear_forward(
    hidden: jax.Array,
    kernel: jax.Array,
    arithmetic: Arithmetic,
    kernel_axes: KernelAxes,
    result: Any,
) -> Any:
    return linear(hidden, kernel, arithmetic, kernel_axes, result), (hidden, kernel)


def _linear_backward(
    arithmetic: Arithmetic, kernel_axes: KernelAxes, result: Any, kept: Any, gradient: jax.Array
) -> Any:
    del result
    hidden, kernel = kept
    to_hidden = _product(f"...o,{kernel_axes}->...i", gradient, kernel, arithmetic, hidden.dtype)
    rows = {"i": hidden, "o": gradient}
    left, right = (rows[axis].reshape(-1, rows[axis].shape[-1]) for axis in kernel_axes)
    columns = left.astype(arithmetic.products).T
    if arithmetic.transposed_copies:
        # Without a layout that is asked for, XLA joins the transposition to the product again.
        columns = with_layout_constraint(columns, Layout((0, 1)))
    return to_hidden, _product("lr,rk->lk", columns, right, arithmetic, kernel.dtype)


def _product(
    axes: str, left: jax.Array, right: jax.Array, arithmetic: Arithmetic, result: Any
) -> jax.Array:
    factors = (factor.astype(arithmetic.products) for factor in (left, right))
    # A GPU's products sum in float32 and round once, whatever they give; asked for float32, cuBLAS
    # would write that and XLA round it in another pass.
    gives = jnp.dtype(result) if arithmetic.platform == "gpu" else jnp.dtype("float32")
    return jnp.einsum(axes, *factors, preferred_element_type=gives).astype(result)


linear.defvjp(_linear_forward, _linear_backward)
