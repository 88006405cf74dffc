"""The dtypes in which a network of text is computed, and linear layers, which keep to them."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax.experimental.layout import Layout, with_layout_constraint

from dawnjax.models.execution import Execution
from dawnjax.models.sharding import parts_of

glorot = jax.nn.initializers.glorot_uniform()
"""Uniform with variance 2 / (in + out). Source: Glorot and Bengio 2010, equation 16."""


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """Dtypes of a Transformer; softmax and logits are always float32.

    `activations` is the dtype between layers, `products` that of the factors inside linear layers,
    whose sums are float32. `transposed_copies` asks for one in a kernel's gradient.
    """

    activations: Any
    products: Any
    execution: Execution
    transposed_copies: bool = False


def arithmetic_of(execution: Execution) -> Arithmetic:
    """Dtypes for a platform; on a CPU, products alone are in a lower dtype."""
    compute = jnp.dtype(execution.compute_dtype)
    on_cpu = execution.platform == "cpu"
    # A 2048 x 256 x 1024 product takes 5.9 ms of CPU time with bfloat16 factors, 15.6 ms in float32
    # and 16.0 ms with bfloat16 results. XLA multiplies in bfloat16 only where the sum runs along
    # the left factor's last axis; a kernel's gradient of 256 x 1024 x 1024 takes 1.6 ms with a
    # transposed copy and 3.2 ms without (two cores of an AMD EPYC with avx512_bf16, jax 0.10.2 and
    # 0.12). Several devices would gather the copy first, so they have none.
    return Arithmetic(
        activations=jnp.dtype("float32") if on_cpu else compute,
        products=compute,
        execution=execution,
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
    """Product [..., out] of hidden [..., in] and a kernel [in, out], or [out, in] for "oi".

    Both are rounded to the arithmetic's dtype. The result has that of activations if not given.
    """
    dtype = arithmetic.activations if result is None else result
    return _product(f"...i,{kernel_axes}->...o", hidden, kernel, arithmetic, dtype)


def _linear_forward(hidden, kernel, arithmetic, kernel_axes, result):
    return linear(hidden, kernel, arithmetic, kernel_axes, result), (hidden, kernel)


def _linear_backward(arithmetic, kernel_axes, result, kept, gradient):
    hidden, kernel = kept
    # JAX's own gradient would multiply float32 gradients by lower factors, in float32.
    to_hidden = _product(f"...o,{kernel_axes}->...i", gradient, kernel, arithmetic, hidden.dtype)
    rows = {"i": hidden, "o": gradient}
    if parts_of("tokens", hidden.shape[1] if hidden.ndim == 3 else 1, arithmetic.execution) > 1:
        # Both axes of the rows are split: joined to one, they would be gathered first.
        left, right = (rows[axis] for axis in kernel_axes)
        return to_hidden, _product("bti,bto->io", left, right, arithmetic, kernel.dtype)
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
    # An accelerator sums in float32 and rounds once, whatever the result is. Asked for float32,
    # cuBLAS writes that, and XLA rounds it in another pass; devices that hold parts of a sum
    # exchange float32, and do so for each of several products that are added afterwards.
    on_cpu = arithmetic.execution.platform == "cpu"
    dtype = jnp.dtype("float32") if on_cpu else jnp.dtype(result)
    return jnp.einsum(axes, *factors, preferred_element_type=dtype).astype(result)


linear.defvjp(_linear_forward, _linear_backward)


class Dense(nnx.Module):
    """A linear layer in an arithmetic: `kernel` [in, out] and, if asked for, `bias` [out]."""

    def __init__(
        self,
        in_width: int,
        out_width: int,
        arithmetic: Arithmetic,
        rngs: nnx.Rngs,
        *,
        use_bias: bool = True,
        bias: float = 0.0,
        initializer: jax.nn.initializers.Initializer = glorot,
    ):
        self.arithmetic = arithmetic
        self.kernel = nnx.Param(initializer(rngs.params(), (in_width, out_width), jnp.float32))
        self.bias = nnx.Param(jnp.full(out_width, bias, jnp.float32)) if use_bias else None

    def __call__(self, hidden: jax.Array, result: Any = None) -> jax.Array:
        """Map the last axis; `result` is a dtype in place of that of activations."""
        product: jax.Array = linear(hidden, self.kernel[...], self.arithmetic, "io", result)
        return product if self.bias is None else product + self.bias[...].astype(product.dtype)
