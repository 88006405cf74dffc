"""LSTM layers that run over packed rows as one scan.

Several sequences may share a row. Each token has a segment, counted from 1; 0 marks padding. The
state starts from zero in each segment, and padding leaves it as it is.

Source: Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", with the forget gate of Gers et
al. 2000, "Learning to Forget"; the gates stand in the order input, forget, cell, output, as in
PyTorch's `torch.nn.LSTM`, whose two biases are one here.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from dawnjax.models.arithmetic import Arithmetic, linear


class State(NamedTuple):
    """State of an LSTM between two times: the last output [rows, width], and a float32 cell."""

    hidden: jax.Array
    cell: jax.Array


class LSTM(nnx.Module):
    """One layer in one direction: from [batch, length, in] to [batch, length, width]."""

    def __init__(
        self,
        in_width: int,
        width: int,
        arithmetic: Arithmetic,
        initial_bound: float,
        rngs: nnx.Rngs,
    ):
        self.width, self.arithmetic = width, arithmetic
        self.input_kernel = uniform((in_width, 4 * width), initial_bound, rngs)
        self.state_kernel = uniform((width, 4 * width), initial_bound, rngs)
        self.bias = uniform((4 * width,), initial_bound, rngs)

    def __call__(
        self, inputs: jax.Array, segments: jax.Array, *, is_reversed: bool = False
    ) -> jax.Array:
        """Outputs [batch, length, width] of inputs [batch, length, in]; those of padding are 0.

        Segments are int [batch, length]; `is_reversed` reads each from its last token to its first.
        """
        sides, kept = ((0, 1), slice(1, None)) if is_reversed else ((1, 0), slice(-1))
        before = jnp.pad(segments[:, kept], ((0, 0), sides))
        real = segments > 0
        starts = real & (segments != before)
        # The products of the inputs of all times are one, before the scan.
        outputs: jax.Array = _recur(
            self.project(inputs).swapaxes(0, 1),
            self.state_kernel[...],
            starts.T[..., None],
            real.T[..., None],
            self.arithmetic,
            is_reversed,
        )
        return outputs.swapaxes(0, 1)

    def project(self, inputs: jax.Array) -> jax.Array:
        """Inputs' part of the gates: [..., in] to [..., 4 x width]."""
        product: jax.Array = linear(inputs, self.input_kernel[...], self.arithmetic)
        return product + self.bias[...].astype(product.dtype)

    def start(self, rows: int) -> State:
        """State of `rows` sequences before the first token."""
        shape = (rows, self.width)
        return State(jnp.zeros(shape, self.arithmetic.activations), jnp.zeros(shape, jnp.float32))

    def step(self, inputs: jax.Array, state: State) -> State:
        """State after one more token, of inputs [rows, in]; its `hidden` is the output."""
        kernel = self.state_kernel[...]
        gates = _gates(self.project(inputs), state.hidden, kernel, self.arithmetic)
        hidden, cell = _after(gates, state.cell)
        return State(hidden.astype(state.hidden.dtype), cell)


class BidirectionalLSTM(nnx.Module):
    """Two layers over the same inputs, one in each direction, side by side."""

    def __init__(
        self,
        in_width: int,
        width: int,
        arithmetic: Arithmetic,
        initial_bound: float,
        rngs: nnx.Rngs,
    ):
        self.forward = LSTM(in_width, width, arithmetic, initial_bound, rngs)
        self.backward = LSTM(in_width, width, arithmetic, initial_bound, rngs)

    def __call__(self, inputs: jax.Array, segments: jax.Array) -> jax.Array:
        directions = (
            self.forward(inputs, segments),
            self.backward(inputs, segments, is_reversed=True),
        )
        return jnp.concatenate(directions, axis=-1)


def uniform(shape: tuple[int, ...], bound: float, rngs: nnx.Rngs) -> nnx.Param:
    values = jax.random.uniform(rngs.params(), shape, jnp.float32, minval=-bound, maxval=bound)
    return nnx.Param(values)


def _after(gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Output and next cell, float32 [rows, width], of gates before their sigmoids and tanh."""
    write, keep, value, read = jnp.split(gates.astype(jnp.float32), 4, axis=-1)
    cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(value)
    return jax.nn.sigmoid(read) * jnp.tanh(cell), cell


def _gates(
    projected: jax.Array, hidden: jax.Array, kernel: jax.Array, arithmetic: Arithmetic
) -> jax.Array:
    product: jax.Array = linear(hidden, kernel, arithmetic, "io", jnp.dtype("float32"))
    return projected.astype(jnp.float32) + product


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _recur(
    projected: jax.Array,
    kernel: jax.Array,
    starts: jax.Array,
    real: jax.Array,
    arithmetic: Arithmetic,
    is_reversed: bool,
) -> jax.Array:
    """Outputs [length, batch, width]; `starts` and `real` are bool [length, batch, 1].

    `projected` is the inputs' part of the gates, [length, batch, 4 x width].
    """
    return _recur_forward(projected, kernel, starts, real, arithmetic, is_reversed)[0]


def _recur_forward(projected, kernel, starts, real, arithmetic, is_reversed):
    rounded = kernel.astype(arithmetic.products)
    dtype = arithmetic.activations

    def advance(state, now):
        projected, start, is_real = now
        hidden, cell = (jnp.where(start, jnp.zeros((), part.dtype), part) for part in state)
        gates = _gates(projected, hidden, rounded, arithmetic)
        output, next_cell = _after(gates, cell)
        output = output.astype(dtype)
        following = State(jnp.where(is_real, output, hidden), jnp.where(is_real, next_cell, cell))
        return following, (jnp.where(is_real, output, 0), (gates.astype(dtype), hidden, cell))

    shape = (*projected.shape[1:-1], kernel.shape[0])
    state = State(jnp.zeros(shape, dtype), jnp.zeros(shape, jnp.float32))
    _, (outputs, kept) = jax.lax.scan(
        advance, state, (projected, starts, real), reverse=is_reversed
    )
    return outputs, (kernel, starts, real, kept)


def _recur_backward(arithmetic, is_reversed, saved, gradient):
    kernel, starts, real, (gates, hidden, cells) = saved
    rounded = kernel.astype(arithmetic.products)

    def retreat(ahead, now):
        to_hidden, to_cell = ahead
        gradient, gates, cell, start, is_real = now
        to_output = jnp.where(is_real, to_hidden + gradient.astype(jnp.float32), 0)
        _, pull = jax.vjp(_after, gates, cell)
        to_gates, to_earlier = pull((to_output, jnp.where(is_real, to_cell, 0)))
        back: jax.Array = linear(to_gates, rounded, arithmetic, "oi", jnp.dtype("float32"))
        # Padding hands the state on as it is; a start takes none.
        before = jnp.where(is_real, back, to_hidden), jnp.where(is_real, to_earlier, to_cell)
        return tuple(jnp.where(start, 0, part) for part in before), to_gates

    nothing = jnp.zeros(cells.shape[1:], jnp.float32)
    _, to_gates = jax.lax.scan(
        retreat, (nothing, nothing), (gradient, gates, cells, starts, real), reverse=not is_reversed
    )
    rows, columns = hidden, to_gates
    if arithmetic.execution.batch_shards > 1:
        # Times and rows are joined to one axis: with times first, devices would gather all rows.
        rows, columns = rows.swapaxes(0, 1), columns.swapaxes(0, 1)
    # One product over all times. JAX's own gradient would sum it up in the scan, and over the
    # devices in every round.
    _, pull = jax.vjp(lambda kernel: linear(rows, kernel, arithmetic), kernel)
    return to_gates, pull(columns)[0], None, None


_recur.defvjp(_recur_forward, _recur_backward)
