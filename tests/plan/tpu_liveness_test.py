"""Bytes that a TPU's programs hold at once, where its rules are not those of a GPU."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dawnjax.plan.heap import TPU_ALIGNED, heap_bytes, tpu_heap_bytes
from dawnjax.plan.inlining import GRADIENT
from dawnjax.plan.liveness import peak_of
from dawnjax.plan.ops import CONVOLUTION, SUMMED, Op, bytes_of
from dawnjax.plan.tables import LOOP_TABLES, bytes_of_tables
from dawnjax.plan.tiles import tiled_bytes_of

MATRIX = jax.ShapeDtypeStruct((256, 256), jnp.float32)
SIZE = 256 * 256 * 4
SMALL = 3 * TPU_ALIGNED
"""Bytes of small arrays and tables, which begin at multiples of this number's third."""


def peak(function, *arguments, size=bytes_of):
    return peak_of(jax.make_jaxpr(function)(*arguments), size, whole=size).num_bytes


def on_gpu(function, *arguments):
    return peak_of(jax.make_jaxpr(function)(*arguments), bytes_of, on_gpu=True).num_bytes


def test_a_tpu_places_arrays_in_the_order_that_they_are_made_in():
    place = TPU_ALIGNED
    spans = [(2 * place, 0, 1), (2 * place, 1, 3), (4 * place, 2, 4), (2 * place, 3, 4)]
    # The third does not fit below the second, where the fourth fits. The largest first, it would.
    assert tpu_heap_bytes(spans) == 8 * place
    assert heap_bytes(spans) == 8 * place
    # Of the first two the second dies first and lies below, where the third does not fit.
    assert tpu_heap_bytes([(2 * place, 0, 1), (2 * place, 0, 0), (3 * place, 1, 2)]) == 7 * place


def test_a_tpu_computes_the_operands_of_a_convolution_in_its_kernel():
    images = jax.ShapeDtypeStruct((8, 32, 32, 128), jnp.float32)
    size = bytes_of(images.shape, images.dtype)

    def convolved(x, kernel):
        x = lax.conv_general_dilated(
            jnp.sin(x), kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.sum(x)

    kernel = jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.float32)
    assert peak(convolved, images, kernel) == pytest.approx(size, rel=0.01)
    # cuDNN reads them: they and the kernel's other layout lie there too.
    assert on_gpu(convolved, images, kernel) == pytest.approx(2.14 * size, rel=0.01)


def test_a_tpu_writes_a_sum_in_place_of_the_convolution_that_only_it_reads():
    def convolved(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def summed(x, kernel):
        for _ in range(6):
            x = x + convolved(x, kernel)
        return jnp.sum(convolved(x, kernel))

    images = jax.ShapeDtypeStruct((8, 32, 32, 128), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.float32)
    size = bytes_of(images.shape, images.dtype)
    # Were no sum written, the last would be made of six convolutions.
    assert peak(summed, images, kernel) == pytest.approx(2 * size, abs=SMALL)


def test_a_tpu_keeps_few_images_for_the_gradient_of_a_kernel_once_for_each_of_its_columns():
    def loss(kernels, x):
        for kernel in kernels:
            x = jnp.tanh(
                lax.conv_general_dilated(
                    x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        return jnp.sum(x)

    def needed(count, size):
        kernels = [jax.ShapeDtypeStruct((size, size, 128, 128), jnp.float32)] * count
        images = jax.ShapeDtypeStruct((4, 64, 64, 128), jnp.float32)
        return peak(jax.grad(loss), kernels, images)

    each = 64 * 9 * 32 * 128 * 4  # 8 parts of 9 columns
    # A layer keeps its own result, and three times what the kernel of the next reads.
    assert needed(9, 3) - needed(5, 3) == pytest.approx(4 * 4 * each, rel=0.1)
    assert needed(9, 1) - needed(5, 1) == pytest.approx(4 * each, rel=0.1)


def test_a_tpu_compares_again_where_a_mask_is_read():
    def loss(x):
        made = x @ x
        mask = jnp.tanh(jnp.tanh(made)) > 0
        sums = [jnp.sum(jnp.where(mask, made + number, 0)) for number in range(8)]
        return sum(sums)

    large = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
    size = 4096 * 4096 * 4
    assert on_gpu(loss, large) == pytest.approx(size + size / 4, rel=0.001)
    assert peak(loss, large) == pytest.approx(size, abs=16 * TPU_ALIGNED)


def test_a_tpu_sums_gradients_where_they_lie_and_in_the_dtype_that_they_are_made_in():
    def step(weight, x):
        product = (x @ x).astype(jnp.float32)
        return weight - checkpoint_name(product, GRADIENT)

    rows = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16)
    assert peak(step, MATRIX, rows) == pytest.approx(SIZE / 2, abs=SMALL)
    # A GPU packs the wide gradient.
    assert on_gpu(step, MATRIX, rows) >= 1.5 * SIZE


def test_a_tpu_scatters_on_rows_before_it_copies_them_into_the_layout_of_the_result():
    def scattered(places):
        return jnp.sum(jnp.zeros((5000, 4)).at[places].add(1.0)[:, :1])

    places = jax.ShapeDtypeStruct((100,), jnp.int32)
    # Beside the zeros and the result each row of 4 takes 128 lanes.
    rows = 5000 * (4 + 4 + 128) * 4
    assert peak(scattered, places) == pytest.approx(rows, rel=0.05)


def test_a_tpu_writes_the_rows_that_a_gather_takes():
    def taken(table, places):
        return jnp.sum(table[places])

    table = jax.ShapeDtypeStruct((5000, 4), jnp.float32)
    places = jax.ShapeDtypeStruct((40, 100), jnp.int32)
    # Each row of 4 takes a tile's 128 lanes, in the table too.
    assert peak(taken, table, places) == pytest.approx((4000 + 5000) * 128 * 4, abs=SMALL)


def test_a_tpu_writes_zeros_between_rows_and_computes_zeros_around_them_where_they_are_read():
    def between(x):
        return lax.pad(x, 0.0, ((0, 0, 1), (0, 1, 0))) + lax.pad(x, 0.0, ((0, 0, 1), (1, 0, 0)))

    def around(x):
        return lax.pad(x, 0.0, ((0, 255, 0), (0, 1, 0))) + lax.pad(x, 0.0, ((255, 0, 0), (1, 0, 0)))

    padded = 511 * 257 * 4
    assert peak(lambda x: jnp.sum(between(x)), MATRIX) == pytest.approx(2 * padded, rel=0.03)
    assert peak(lambda x: jnp.sum(around(x)), MATRIX) == pytest.approx(0, abs=8)


def test_a_tpu_stacks_matrices_as_each_lies_in_tiles():
    def states(x):
        return jnp.sum(lax.scan(lambda carry, _: (jnp.sin(carry), carry), x, length=128)[1])

    small = jax.ShapeDtypeStruct((4, 32), jnp.float32)
    # 4 x 32 take a tile of 4 x 128, and 128 of them as many; the axes of the stack could take less.
    assert tiled_bytes_of((128, 4, 32), jnp.dtype("float32")) == 128 * 4 * 32 * 4
    assert peak(states, small, size=tiled_bytes_of) >= 128 * 4 * 128 * 4


def test_a_tpu_copies_a_table_into_rows_once_for_all_that_is_gathered_of_it():
    table = jax.ShapeDtypeStruct((8192, 48), jnp.float32)
    places = [jax.ShapeDtypeStruct((8,), jnp.int32)] * 2
    rows = 8192 * 128 * 4
    matrix = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)

    def gathered(table, matrix, first, last):
        between = jnp.sum((matrix @ matrix) * jnp.sum(table[first]))
        return between + jnp.sum(table[last] * between)

    # The copy lives on beside the product between its readers.
    found = peak(gathered, table, matrix, *places, size=tiled_bytes_of)
    assert found == pytest.approx(rows + 1024 * 1024 * 4, abs=2 * SMALL)


def test_a_tpu_copies_a_table_as_it_is_gathered_from():
    places = jax.ShapeDtypeStruct((8,), jnp.int32)
    narrow = jax.ShapeDtypeStruct((512, 16, 48), jnp.float32)
    rows = 8192 * 128 * 4

    def gathered(table, places):
        return jnp.sum(table.reshape(8192, 48)[places])

    assert peak(gathered, narrow, places, size=tiled_bytes_of) == pytest.approx(rows, rel=0.01)

    def of_parts(table, places):
        return jnp.sum(table.reshape(8192, 6, 8, 1)[places])

    flat = jax.ShapeDtypeStruct((8192, 48), jnp.float32)
    assert peak(of_parts, flat, places, size=tiled_bytes_of) < rows / 8


def test_a_tpu_scatters_on_rows_when_two_scatters_are_one():
    table = jax.ShapeDtypeStruct((8192, 48), jnp.float32)
    places = [jax.ShapeDtypeStruct((8,), jnp.int32)] * 2

    def step(table, *places):
        read_twice = jax.grad(lambda table: sum(jnp.sum(jnp.sin(table[at])) for at in places))
        return table - checkpoint_name(read_twice(table), GRADIENT)

    rows, result = 8192 * 128 * 4, 8192 * 48 * 4
    found = peak(step, table, *places, size=tiled_bytes_of)
    assert found == pytest.approx(rows + result, rel=0.05)


def test_columns_of_few_images_are_cut_and_laid_out_before_they_are_joined():
    images = jax.ShapeDtypeStruct((4, 64, 64, 128), jnp.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 128, 128), jnp.float32)

    def loss(kernel, x):
        axes = ("NHWC", "HWIO", "NHWC")
        return jnp.sum(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes))

    each = 64 * 9 * 32 * 128 * 4  # 8 parts of 9 columns
    # Two are cut. The first is laid out above them, the second in place of the first, and all
    # three are joined above that.
    assert peak(jax.grad(loss), kernel, images) == pytest.approx(6 * each, rel=0.02)


def test_a_round_of_a_loop_has_holes():
    stack = jax.ShapeDtypeStruct((6, 256, 256), jnp.float32)

    def rounds(x, stack):
        def layer(carry, part):
            wide = jnp.concatenate([part] * 2) @ carry
            # The half lies above the wide, so that the wider does not fit below it.
            half = wide[:128] @ part
            wider = jnp.concatenate([part] * 3) @ jnp.sin(carry + jnp.sum(wide))
            return carry, jnp.sum(wider) + jnp.sum(half)

        return jnp.sum(lax.scan(layer, x, stack)[1])

    found = peak_of(jax.make_jaxpr(rounds)(MATRIX, stack), bytes_of)
    tables = LOOP_TABLES * TPU_ALIGNED
    alive = sum(buffer.num_bytes for buffer in found.buffers)
    assert found.num_bytes - tables > alive + SMALL


def test_stacks_of_gradients_wait_for_the_sums_of_devices():
    def step(x):
        sums = []
        for _ in range(2):
            stack = lax.scan(lambda carry, _: (carry, carry @ carry), x, length=6)[1]
            sums.append(stack.sum(0))
            x = x + stack[0]
        return [checkpoint_name(one, GRADIENT) for one in sums]

    assert peak(step, MATRIX) >= 12 * SIZE


def test_tables_of_a_loop_lie_beside_those_of_the_program():
    def rounds(x, count):
        def layer(carry, _):
            sums = [jnp.sum(carry @ (by * carry)) for by in range(count)]
            return carry * sum(sums), None

        return lax.scan(layer, x, length=2)[0].sum()

    small = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    more = peak(lambda x: rounds(x, 6), small) - peak(lambda x: rounds(x, 2), small)
    assert more == 2 * TPU_ALIGNED


def test_a_loop_has_a_table_for_each_shape_of_which_it_writes_several_stacks():
    def rounds(x, shapes):
        def layer(carry, _):
            return carry, [
                carry[: rows * columns].reshape(rows, columns) for rows, columns in shapes
            ]

        _, stacks = lax.scan(layer, x, length=2)
        return [stack.sum() for stack in stacks]

    row = jax.ShapeDtypeStruct((64,), jnp.float32)
    alike, unlike = [(4, 16), (4, 16), (8, 8), (8, 8)], [(4, 16), (16, 4), (8, 8), (2, 32)]
    found = [peak(lambda x, shapes=shapes: rounds(x, shapes), row) for shapes in (alike, unlike)]
    assert found[0] - found[1] == 2 * TPU_ALIGNED


def test_kernels_of_several_results_have_tables():
    def tables(*primitives, shape=(4,), num_updates=0):
        # Each reads what the one before it makes; the last result is not read.
        ops = [Op(p, [place], [place + 1], p) for place, p in enumerate(primitives)]
        avals = [jax.ShapeDtypeStruct(shape, jnp.float32)] * (len(ops) + 1)
        return bytes_of_tables(ops, avals, num_updates) / TPU_ALIGNED

    sums = ["reduce_sum"] * 5
    # Two updates, and two pairs of sums.
    assert tables(SUMMED, SUMMED, *sums) == 2 + 2
    assert tables(SUMMED, SUMMED, *sums, num_updates=3) == 3 + 2
    assert tables("scan", *sums) == LOOP_TABLES + 2
    assert tables(CONVOLUTION, *sums) == 5
    # Barriers of one shape are one, and of words without a reader nothing is computed.
    assert tables(*["optimization_barrier"] * 3) == 1
    words = "random_fold_in", "random_split", "random_bits"
    assert tables(*words, "add") == 5 + 3 + 1
    assert tables(*words) == 5 + 3
    assert tables(*words, "add", shape=(1,)) == 0
