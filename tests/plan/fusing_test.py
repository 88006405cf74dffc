"""Bytes that a TPU's programs hold, by the rules of `fusing` and of tables in tiles."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from dawnjax.plan.heap import TPU_ALIGNED
from dawnjax.plan.inlining import GRADIENT
from dawnjax.plan.liveness import peak_of
from dawnjax.plan.ops import bytes_of
from dawnjax.plan.tiles import tiled_bytes_of

MATRIX = jax.ShapeDtypeStruct((512, 512), jnp.float32)
SIZE = 512 * 512 * 4

SMALL = 10 * TPU_ALIGNED
"""More than tables of kernels, rows and scalars take beside matrices."""


def peak(function, *arguments, size=bytes_of, is_wide=False):
    closed = jax.make_jaxpr(function)(*arguments)
    return peak_of(closed, size, whole=size, is_wide=is_wide).num_bytes


def test_a_mask_is_computed_again_for_the_gradient():
    def loss(x):
        return jnp.sum(jax.nn.relu(x @ x))

    # The product waits beside both products of its gradient, without a mask of a byte a value.
    assert peak(jax.grad(loss), MATRIX) == pytest.approx(3 * SIZE, abs=SMALL)


@pytest.mark.parametrize(
    ("shape", "is_wide", "is_written"),
    [
        ((48, 64, 64), False, False),
        ((96, 64, 64), False, True),
        ((96, 64, 64), True, False),
        ((2, 4096, 4096), True, False),
        ((2, 8192, 4096), True, True),
        ((2, 8192, 4096), False, False),
    ],
)
def test_a_softmax_is_written_for_many_pairs_or_by_wide_units_for_many_weights(
    shape, is_wide, is_written
):
    scores = jax.ShapeDtypeStruct(shape, jnp.float32)
    values = jax.ShapeDtypeStruct((shape[0], shape[2], 8), jnp.bfloat16)

    def attended(scores, values):
        weights = jax.nn.softmax(scores).astype(jnp.bfloat16)
        return jnp.sum(jnp.einsum("bqk,bkc->bqc", weights, values))

    found = peak(attended, scores, values, is_wide=is_wide)
    assert (found > math.prod(shape) * 2) == is_written


@pytest.mark.parametrize(("function", "arrays"), [(jax.lax.erf, 3), (jax.lax.abs, 2)])
def test_an_error_function_is_written_for_two_readers(function, arrays):
    def products(x):
        first = x @ x
        made = function(first)
        return jnp.sum(made @ x) + jnp.sum(x @ made) + jnp.sum(first @ first)

    # Of so large a matrix in few bytes it takes longer to compute than to read.
    large = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    assert peak(products, large) == pytest.approx(arrays * 4096 * 4096 * 2, rel=0.01)


def test_what_is_gathered_lies_in_memory():
    def taken(x, places):
        return jnp.sum(jnp.take_along_axis(jnp.sin(x), places, axis=1))

    places = jax.ShapeDtypeStruct((512, 1), jnp.int32)
    assert peak(taken, MATRIX, places) >= SIZE

    def converted(x, places):
        return jnp.sum(jnp.take_along_axis(x.astype(jnp.bfloat16), places, axis=1))

    assert peak(converted, MATRIX, places) < SIZE / 2


def test_rows_of_a_table_lie_in_lanes_where_they_are_gathered_and_summed():
    table = jax.ShapeDtypeStruct((4096, 82), jnp.float32)
    places = jax.ShapeDtypeStruct((2,), jnp.int32)

    def taken(table, places):
        return jnp.sum(table[places])

    # XLA's copy f32[2040000,82]{1,0:T(8,128)} of minigo_9x9 has 128 lanes a row.
    rows = 4096 * 128 * 4
    assert peak(taken, table, places, size=tiled_bytes_of) == pytest.approx(rows, rel=0.01)
    wide = jax.ShapeDtypeStruct((4096, 256), jnp.float32)
    assert peak(taken, wide, places, size=tiled_bytes_of) < rows / 8

    def step(table, places):
        gradient = jax.grad(lambda table: jnp.sum(jnp.sin(table[places])))(table)
        return table - checkpoint_name(gradient, GRADIENT)

    found = peak(step, table, places, size=tiled_bytes_of)
    assert found == pytest.approx(rows + 4096 * 88 * 4, rel=0.05)


def test_gradients_that_are_summed_in_place_take_their_memory_once():
    x = jax.ShapeDtypeStruct((8, 512), jnp.float32)

    def step(weights, x):
        def loss(weights):
            return sum(jnp.sum(jnp.sin(x @ weight)) for weight in weights)

        gradients = jax.grad(loss)(weights)
        return [w - checkpoint_name(g, GRADIENT) for w, g in zip(weights, gradients, strict=True)]

    assert peak(step, [MATRIX, MATRIX], x) == pytest.approx(2 * SIZE, abs=2 * SMALL)


def test_rows_of_a_table_are_gathered_where_they_are_read():
    tables = [jax.ShapeDtypeStruct((rows, 82), jnp.float32) for rows in (4096, 8192)]
    places = jax.ShapeDtypeStruct((2,), jnp.int32)

    def read_later(first, second, places):
        taken = first[places], second[places]
        return [jnp.sum(jnp.sin(rows)) for rows in taken]

    # The larger copy begins where the smaller lay, whose rows are summed by then.
    copy = 8192 * 128 * 4
    found = peak(read_later, *tables, places, size=tiled_bytes_of)
    assert found == pytest.approx(copy, abs=SMALL)


def test_what_is_stacked_or_padded_between_its_rows_lies_in_memory():
    def stacked(x):
        return jnp.sum(jnp.stack([jnp.sin(x), x]))

    assert peak(stacked, MATRIX) == pytest.approx(2 * SIZE, abs=SMALL)

    def padded(x):
        zeros = jax.lax.pad(jnp.sin(x), 0.0, [(0, 1, 1), (0, 1, 1)])
        return jnp.sum(jnp.cos(zeros))

    # What is padded is written beside the result.
    assert peak(padded, MATRIX) == pytest.approx(5 * SIZE, abs=SMALL)


def test_a_convolution_writes_on_what_it_adds_to():
    images = jax.ShapeDtypeStruct((8, 32, 32, 128), jnp.float32)
    kernels = [jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.float32)] * 2
    axes = ("NHWC", "HWIO", "NHWC")

    def added(x, *kernels):
        made = [
            jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes)
            for kernel in kernels
        ]
        return jnp.sum(jnp.sin(made[0] + made[1]))

    assert peak(added, images, *kernels) == pytest.approx(8 * 32 * 32 * 128 * 4, abs=SMALL)


def test_a_product_of_an_update_adds_and_converts_in_its_kernel():
    def step(weight):
        gradient = checkpoint_name(weight @ weight, GRADIENT).astype(jnp.bfloat16)
        update = (gradient @ gradient + gradient).astype(jnp.float32)
        return [jnp.sum(jnp.sin(update[:half])) for half in (256, 512)]

    # The gradient, and the update in the dtype that it is read in.
    assert peak(step, MATRIX) == pytest.approx(2 * SIZE, abs=SMALL)


def test_sums_and_results_of_an_update_keep_their_products():
    def step(is_result):
        def update(weight):
            gradient = checkpoint_name(weight @ weight, GRADIENT).astype(jnp.bfloat16)
            products = [gradient @ gradient, gradient @ gradient.T, gradient.T @ gradient]
            jax.debug.callback(print, gradient[0, 0])  # an op without outputs
            made = (products[0] + products[1] + products[2]).astype(jnp.float32)
            return [jnp.sum(jnp.sin(made[:half])) for half in (256, 512)], (
                products[0] if is_result else 0
            )

        return update

    # Beside the gradient and the sum lie two products of two bytes a value.
    assert peak(step(False), MATRIX) == pytest.approx((2 + 1) * SIZE, abs=SMALL)
    # One that is a result has its own memory, and is not made in the sum's kernel.
    assert peak(step(True), MATRIX) == pytest.approx((2 + 0.5) * SIZE, abs=SMALL)


def test_a_norm_of_all_gradients_lets_none_wait_but_those_that_are_stacked():
    def step(weights, others):
        gradients = [checkpoint_name(w @ w, GRADIENT) for w in (*weights, *others)]
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(one)) for one in gradients))
        update = jnp.stack([one / norm for one in gradients[:2]]).astype(jnp.bfloat16)
        for _ in range(2):
            update = jnp.einsum("bij,bjk->bik", update, update)
        return [jnp.sum(jnp.sin(part)) for part in update]

    few, many = (peak(step, [MATRIX] * 2, [MATRIX] * count) for count in (1, 4))
    # At most all gradients lie there at once, and not beside the stack and its products.
    assert many == pytest.approx(6 * SIZE, rel=0.1)
    assert few == pytest.approx((2 + 2 + 1) * SIZE, rel=0.1)


def test_gradients_that_an_update_stacks_wait_for_it():
    def step(weights):
        gradients = [checkpoint_name(weight @ weight, GRADIENT) for weight in weights]
        update = jnp.stack(gradients).astype(jnp.bfloat16)
        update = jnp.einsum("bij,bjk->bik", update, update)
        return [jnp.sum(jnp.sin(part)) for part in update]

    # Four gradients lie beside their stack and its product of two bytes a value.
    assert peak(step, [MATRIX] * 4) == pytest.approx((4 + 4 + 2) * SIZE, abs=SMALL)
