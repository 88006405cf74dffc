"""Bytes that programs hold at once, by the rules of `liveness`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from dawnjax.models.causal_attention import causal_attention
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import Execution
from dawnjax.models.sharding import gathered
from dawnjax.plan.heap import TPU_ALIGNED, heap_bytes, outside
from dawnjax.plan.inlining import GRADIENT
from dawnjax.plan.liveness import peak_of
from dawnjax.plan.ops import bytes_of
from dawnjax.plan.split_sums import num_parts
from dawnjax.plan.tables import LOOP_TABLES

MATRIX = jax.ShapeDtypeStruct((256, 256), jnp.float32)
SIZE = 256 * 256 * 4
SMALL = 3 * TPU_ALIGNED
"""Bytes of small arrays and tables on a TPU, which begin at multiples of this number's third."""


def peak(function, *arguments):
    return peak_of(jax.make_jaxpr(function)(*arguments), bytes_of).num_bytes


def test_products_are_kept_until_their_last_reader():
    # Two products are alive while the second is made, and arguments do not count.
    assert peak(lambda x: jnp.sum((x @ x) @ x), MATRIX) == pytest.approx(2 * SIZE, abs=8)
    # The first is read again at the end: three are alive.
    three = peak(lambda x: jnp.sum((first := x @ x) * ((first @ x) @ x)), MATRIX)
    assert three == pytest.approx(3 * SIZE, abs=8)


def test_what_is_elementwise_is_computed_where_it_is_read():
    # Neither the sine nor the double is ever in memory: a sum reads them.
    assert peak(lambda x: jnp.sum(2 * jnp.sin(x)), MATRIX) == pytest.approx(0, abs=8)
    # A GPU's product reads its operand from memory, and a TPU's makes it.
    assert on_gpu(lambda x: jnp.sum(jnp.sin(x) @ x), MATRIX) == pytest.approx(2 * SIZE, abs=8)
    assert peak(lambda x: jnp.sum(jnp.sin(x) @ x), MATRIX) == pytest.approx(SIZE, abs=8)


def test_a_gradient_keeps_what_the_backward_pass_reads():
    def loss(weight, x):
        for _ in range(4):
            x = jnp.sin(x @ weight)
        return x.sum()

    kept = peak(jax.grad(loss), MATRIX, MATRIX)
    # Four products, three of their sines as operands, and some cotangents and gradients.
    assert 7 * SIZE <= kept <= 11 * SIZE
    again = peak(jax.grad(jax.checkpoint(loss)), MATRIX, MATRIX)
    assert again <= kept + 2 * SIZE


def test_a_heap_has_holes_between_arrays_that_live_at_different_times():
    spans = [(512, 3, 3), (384, 0, 2), (384, 1, 3), (384, 1, 2)]
    # At most 9 x 128 bytes are alive. The largest lies first, the next two at its start and at its
    # end, and the last fits into no hole.
    assert heap_bytes(spans) == 10 * 128
    # Each begins at a multiple of 128 bytes.
    assert heap_bytes([(4, 0, 1)] * 3) == 3 * 128
    assert heap_bytes([]) == 0


def test_memory_that_an_argument_leaves_free_takes_arrays_before_the_heap():
    slots = [(1024, 2, 9), (512, 0, 9)]
    spans = [(512, 1, 4), (512, 3, 5), (1024, 2, 3), (256, 5, 6), (768, 6, 7), (2048, 8, 9)]
    # The first takes the smaller slot and the second the larger, free from place 3 on; the third
    # is there earlier, and the last is too large. The rest comes when these are gone.
    assert outside(slots, spans) == [2, 5]
    assert outside([], spans) == [*range(6)]
    # The update writes there from place 5 on: it may read the first array, not the second.
    assert outside([(1024, 2, 5)], [(512, 3, 5), (512, 6, 7), (256, 4, 6)]) == [1, 2]


def on_gpu(function, *arguments):
    return peak_of(jax.make_jaxpr(function)(*arguments), bytes_of, on_gpu=True).num_bytes


def test_products_with_one_operand_are_one_on_a_gpu():
    def summed(x, first, second):
        return jnp.sum(x @ first) + jnp.sum(x @ second)

    matrices = (MATRIX,) * 3
    assert peak(summed, *matrices) == pytest.approx(SIZE, abs=SMALL)
    assert on_gpu(summed, *matrices) == pytest.approx(2 * SIZE, abs=256)
    # Too large to join.
    large = (jax.ShapeDtypeStruct((2048, 2048), jnp.float32),) * 3
    assert on_gpu(summed, *large) == pytest.approx(2048 * 2048 * 4, abs=256)

    def chained(x, first, second):
        found = jnp.sum(x @ first)
        return found + jnp.sum(x @ jnp.sin(second @ (second * found)))

    # The second waits for another product, so it does not begin with the first.
    assert on_gpu(chained, *matrices) == pytest.approx(peak(chained, *matrices), abs=SMALL)


def test_a_product_copies_an_operand_whose_summed_axis_lies_between_others_on_a_gpu():
    values = jax.ShapeDtypeStruct((16, 8, 64, 32), jnp.float32)
    size = 16 * 8 * 64 * 32 * 4

    def needed(axis):
        weights = jax.ShapeDtypeStruct((16, 8, values.shape[axis]), jnp.float32)

        def summed(values, weights):
            # A sort lies in memory as it is.
            axes = ((axis,), (2,)), ((0,), (0,))
            return jnp.sum(jax.lax.dot_general(jax.lax.sort(values), weights, axes))

        return on_gpu(summed, values, weights)

    assert needed(2) == pytest.approx(2 * size + size / 64 * 8, abs=256)
    assert needed(3) == pytest.approx(size + size / 32 * 8, abs=256)


def test_a_ragged_product_on_a_gpu_holds_its_rows_for_each_group():
    weights = jax.ShapeDtypeStruct((4, 256, 256), jnp.float32)
    sizes = jax.ShapeDtypeStruct((4,), jnp.int32)

    def loss(weights, rows, sizes):
        return jnp.sum(jax.lax.ragged_dot(rows, weights, sizes))

    def grown(function):
        traced = jax.make_jaxpr(function)(weights, MATRIX, sizes)
        plain, expanded = (
            peak_of(traced, bytes_of, expands).num_bytes for expands in (False, True)
        )
        return expanded - plain

    assert grown(loss) == pytest.approx(4 * SIZE, abs=8)
    # Of a weight's gradient both factors have rows; without copies another op has the peak.
    assert 6 * SIZE < grown(jax.grad(loss)) <= 2 * 4 * SIZE


@pytest.mark.parametrize("bytes_on", [peak, on_gpu])
def test_the_condition_of_a_loop_counts_and_an_empty_loop_holds_nothing(bytes_on):
    def until_large(x):
        return lax.while_loop(lambda c: jnp.sum(c @ c) < 3, lambda c: c + 1, x)[0, 0]

    assert bytes_on(until_large, MATRIX) == pytest.approx(2 * SIZE, abs=SMALL)
    assert bytes_on(lambda: lax.while_loop(lambda c: False, lambda c: c, ())) == 0


def test_a_sum_of_one_element_each_is_the_result_of_the_loop_that_it_reads():
    def summed(x):
        [made], _ = lax.scan(lambda carry, _: (carry + x, None), x[None], length=2)
        return jnp.sum(jnp.sin(made))

    def renamed(x):
        made, _ = lax.scan(lambda carry, _: (carry + x, None), x[None], length=2)
        return jnp.sum(jnp.sin(made.sum(0)))

    assert peak(renamed, MATRIX) == pytest.approx(peak(summed, MATRIX), abs=SMALL)


def test_a_gradient_that_a_loop_carries_is_whole_on_a_tpu_until_devices_sum_it():
    def step(weight, x):
        gradient, _ = lax.scan(lambda carry, _: (carry + x @ x, None), x, length=2)
        others = (x @ x) @ x
        return weight - checkpoint_name(gradient, GRADIENT), others.sum()

    def quarter(shape, dtype):
        return bytes_of(shape, dtype) / 4

    closed = jax.make_jaxpr(step)(MATRIX, MATRIX)
    on_tpu, on_a_gpu = (
        peak_of(closed, quarter, on_gpu=is_gpu, whole=bytes_of).num_bytes
        for is_gpu in (False, True)
    )
    # Beside two products.
    assert on_tpu == pytest.approx(3 * SIZE, abs=2 * SMALL)
    assert on_a_gpu == pytest.approx(2.25 * SIZE, abs=SMALL)


def test_a_number_that_is_named_a_gradient_holds_nothing():
    assert peak(lambda x: jnp.sum(x) + checkpoint_name(1.0, GRADIENT), MATRIX) <= SMALL


def test_a_loop_counts_its_stacked_results_and_one_round():
    def scanned(x):
        return jax.lax.scan(lambda carry, _: (carry @ carry, carry @ carry), x, length=5)

    traced = jax.make_jaxpr(lambda x: jnp.sum(scanned(x)[1] ** 2))(MATRIX)
    found = peak_of(traced, bytes_of)
    assert 6 * SIZE <= found.num_bytes <= 10 * SIZE
    # The round's own arrays are listed beside the stacked results.
    shapes = {buffer.shape for buffer in found.buffers}
    assert shapes >= {(5, 256, 256), (256, 256)}
    tables = LOOP_TABLES * TPU_ALIGNED
    assert sum(buffer.num_bytes for buffer in found.buffers) + tables == found.num_bytes


def test_arrays_that_are_joined_for_a_sum_lie_in_memory():
    def joined(x):
        return jnp.sum(jnp.sin(jnp.concatenate([x @ x, x])))

    assert peak(joined, MATRIX) == pytest.approx(3 * SIZE, abs=8)

    def masked(x):
        return jnp.sum(jnp.where(jnp.concatenate([x > 0, x > 1], axis=1)[:, :256], x, 0.0))

    # A mask has a byte for each of its elements, twice as many as the matrix has; no TPU writes it.
    assert on_gpu(masked, MATRIX) == pytest.approx(2 * SIZE / 4, abs=8)
    assert peak(masked, MATRIX) == pytest.approx(0, abs=8)


def test_what_goes_through_a_barrier_lies_in_memory_and_is_not_known_behind_it():
    def summed(barrier):
        def function(x):
            first = jnp.sin(x)
            return jnp.sum(first) + jnp.sum(jnp.cos(barrier(barrier(first))))

        return peak(function, MATRIX)

    assert summed(lambda x: x) <= SMALL
    # With the barrier's own table.
    assert SIZE <= summed(jax.lax.optimization_barrier) <= SIZE + SMALL + TPU_ALIGNED


def test_a_gpu_writes_what_takes_longer_to_compute_again():
    def needed(function, rows):
        def sums(x):
            made = function(x)
            return jnp.sum(made) + jnp.sum(jnp.square(made))

        return on_gpu(sums, jax.ShapeDtypeStruct((rows, 1024), jnp.float32))

    # Two kernels with 467 cycles for each of 2**22 elements take 59 us at 66.9e12 a second. One and
    # two that read 17 MB at 3.35e12 bytes a second, take 29 + 10 us and a launch.
    assert needed(jnp.tanh, 4096) == pytest.approx(4096 * 1024 * 4, rel=0.01)
    # Doubling takes less time than reading, and few elements less than a launch.
    assert needed(lambda x: 2 * x, 4096) < 1e4
    assert needed(jnp.tanh, 16) < 1e4

    def of_parts(count):
        return lambda x: functools.reduce(jnp.maximum, jnp.split(x, count))

    # The largest of 16 parts is read in a sixteenth of the time; one part is only read.
    assert needed(of_parts(16), 65536) == pytest.approx(4096 * 1024 * 4, rel=0.01)
    assert needed(lambda x: jnp.split(x, 16)[0], 65536) < 1e4


def test_a_gpu_writes_a_result_over_the_product_that_nothing_else_reads():
    def sums(x):
        made = jnp.tanh(x @ x)
        return jnp.sum(made) + jnp.sum(jnp.square(made))

    shape = jax.ShapeDtypeStruct((2048, 2048), jnp.float32)
    assert on_gpu(sums, shape) == pytest.approx(2048**2 * 4, rel=0.01)


def test_a_gpu_joins_arrays_where_they_are_read_and_writes_them_for_a_sum():
    def joined(x):
        return jnp.concatenate([x, jnp.sin(x)])

    assert on_gpu(lambda x: jnp.sum(joined(x)), MATRIX) == pytest.approx(2 * SIZE, rel=0.01)
    # The operand of a product is written, with twice the rows, and so is its result.
    multiplied = on_gpu(lambda x: jnp.sum(jnp.maximum(joined(x), 0) @ x), MATRIX)
    assert multiplied == pytest.approx(4 * SIZE, rel=0.01)


def test_the_sum_of_gradients_where_a_block_is_skipped_is_written():
    def loss(x, wide, weights):
        x = jnp.sin(x @ wide) @ wide.T
        for weight in weights:
            branch = x @ weight
            x = jax.nn.relu(x + branch * jnp.sin(branch.sum(0)))
        return jnp.sum(x)

    def needed(blocks):
        wide = jax.ShapeDtypeStruct((256, 16 * 256), jnp.float32)
        return on_gpu(jax.grad(loss), MATRIX, wide, (MATRIX,) * blocks)

    # The forward pass needs most: the wide product, what is computed of it, a transposed
    # weight, and the narrow product. Were the sums computed again, the last cotangent would read
    # products of all blocks.
    assert needed(2) == needed(6) == pytest.approx(49 * SIZE, rel=0.001)


def test_a_convolutions_kernel_lies_in_another_layout_until_the_update():
    shapes = (3, 3, 64, 64), (1, 8, 8, 64)
    kernel, images = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)

    def convolved(kernel, images):
        axes = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=axes)

    def step(kernel, images):
        gradient = jax.grad(lambda kernel: jnp.sum(jnp.sin(convolved(kernel, images))))(kernel)
        return kernel - checkpoint_name(gradient, GRADIENT)

    # The copy, and what devices sum; the gradient lies where the kernel was.
    size = bytes_of(kernel.shape, kernel.dtype)
    assert on_gpu(step, kernel, images) == pytest.approx(2 * size, rel=0.01)


def test_a_loop_holds_what_it_carries_once_and_slices_where_a_product_reads_them():
    stack = jax.ShapeDtypeStruct((6, 256, 256), jnp.float32)

    def summed(x, stack):
        # The first value of the loop is a product that nothing else reads.
        found = jax.lax.scan(lambda carry, part: (carry + jnp.sin(part), None), x @ x, stack)
        return jnp.sum(found[0])

    assert peak(summed, MATRIX, stack) == pytest.approx(SIZE, abs=2 * SMALL)

    def multiplied(x, stack):
        found = jax.lax.scan(lambda carry, part: (carry @ part, None), x, stack)
        return jnp.sum(found[0])

    # What the loop carries, its next value, and the slice that a GPU's product reads.
    assert on_gpu(multiplied, MATRIX, stack) == pytest.approx(3 * SIZE, abs=8)
    assert peak(multiplied, MATRIX, stack) == pytest.approx(2 * SIZE, abs=2 * SMALL)


def test_an_op_for_each_platform_counts_as_the_planned_one_has_it():
    def chosen(x):
        return jnp.sum(jax.lax.platform_dependent(x, cpu=lambda x: (x @ x) @ x, default=jnp.sin))

    traced = jax.make_jaxpr(chosen)(MATRIX)
    assert peak_of(traced, bytes_of, on_gpu=True).num_bytes == pytest.approx(0, abs=8)


def test_a_gradient_of_which_a_device_keeps_a_part_is_whole_where_it_is_made():
    def step(weight, x):
        gradient = checkpoint_name(jax.grad(lambda weight: jnp.sum(x @ weight))(weight), GRADIENT)
        return weight - gradient

    def split(shape, dtype):
        return bytes_of(shape, dtype) / (4 if shape == MATRIX.shape else 1)

    rows = jax.ShapeDtypeStruct((8, 256), jnp.float32)
    traced = jax.make_jaxpr(step)(MATRIX, rows)
    assert SIZE <= peak_of(traced, split).num_bytes <= 1.1 * SIZE


def test_attention_by_shapes_keeps_no_scores():
    execution = Execution(
        platform="gpu", compute_dtype="bfloat16", batch_norm_group_size=0, attention="shapes"
    )
    heads = jax.ShapeDtypeStruct((2, 256, 4, 64), jnp.bfloat16)

    def loss(attention, query, key, value):
        how = dataclasses.replace(execution, attention=attention)
        return jnp.square(causal_attention(query, key, value, None, 0, how)).sum()

    def needed(attention):
        gradient = jax.grad(functools.partial(loss, attention), argnums=(0, 1, 2))
        return peak(gradient, heads, heads, heads)

    each, sums = 2 * 256 * 4 * 64 * 2, 2 * 4 * 256 * 4
    # The result, its gradient, the sums of the softmax; gradients are outputs.
    assert needed("shapes") == pytest.approx(2 * each + sums, abs=SMALL)
    assert needed("products") > 2 * needed("shapes")


def test_what_is_the_same_is_computed_once_unless_it_is_to_be_computed_again():
    def loss(weight, x):
        narrow = weight.astype(jnp.bfloat16)
        first = x @ narrow
        return jnp.sum((first @ first) @ weight.astype(jnp.bfloat16))

    rows = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16)
    # A GPU keeps the narrow weight for its second product, beside two products.
    assert on_gpu(loss, MATRIX, rows) == pytest.approx(3 * SIZE / 2, abs=8)
    assert peak(loss, MATRIX, rows) == pytest.approx(SIZE, abs=SIZE / 2)

    def layers(layer):
        def loss(weight, x):
            for _ in range(4):
                x = layer(x, weight)
            return jnp.sum(x)

        return peak(jax.grad(loss, argnums=1), MATRIX, MATRIX)

    def layer(x, weight):
        for _ in range(4):
            x = jnp.sin(x @ weight)
        return x

    assert layers(jax.checkpoint(layer)) < 0.75 * layers(layer)


def test_random_words_of_dropout_are_kept_for_the_backward_pass():
    key = jax.random.key(0)

    def loss(x, dropped):
        x = x @ x
        x = Dropout(key)(x, 0.1) if dropped else x
        return jnp.sum(x @ x)

    def grown(measured):
        kept, nothing = (
            measured(jax.grad(lambda x, dropped=dropped: loss(x, dropped)), MATRIX)
            for dropped in (True, False)
        )
        return kept - nothing

    words = 2 * SIZE // 4  # 16 bits a value
    assert words <= grown(on_gpu) <= words + SIZE
    # A TPU keeps a byte for each value, where dropout chooses values.
    assert grown(peak) == pytest.approx(words / 2, abs=256)


def test_a_gathered_weight_is_whole_from_its_gather_on():
    execution = Execution(
        platform="gpu", compute_dtype="bfloat16", batch_norm_group_size=0, counts_gathers=True
    )

    def product(weight, x):
        whole = gathered(weight, ("embed", "mlp"), execution, jnp.bfloat16)
        return jnp.sum(x @ whole.astype(jnp.bfloat16))

    rows = jax.ShapeDtypeStruct((8, 256), jnp.bfloat16)
    # Once: rounding what was rounded changes nothing.
    assert peak(product, MATRIX, rows) == pytest.approx(SIZE / 2 + 8 * 256 * 2, abs=SMALL)


def test_a_gpu_makes_zeros_for_the_stacks_of_all_loops_before_the_first():
    def loops(*lengths):
        def function(x):
            for length in lengths:
                stack = jax.lax.scan(lambda carry, _: (carry, carry @ carry), x, length=length)[1]
                x = stack.sum(0)
            return jnp.sum(x)

        return function

    def more(bytes_on):
        return bytes_on(loops(4, 4, 4), MATRIX) - bytes_on(loops(4), MATRIX)

    assert more(on_gpu) == pytest.approx(2 * 4 * SIZE, abs=SMALL)
    assert on_gpu(loops(4, 5), MATRIX) < on_gpu(loops(5, 5), MATRIX)
    # On a TPU each loop has its own, beside a sum of the stack before.
    assert more(peak) == pytest.approx(SIZE, abs=4 * SMALL)


def test_an_h100_splits_the_sum_of_a_small_product():
    def parts(rows, length, columns):
        shapes = ((rows, length), (length, columns))
        sides = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
        [product] = jax.make_jaxpr(jnp.dot)(*sides).eqns
        return num_parts(product)

    # Those of XLA's compiled program of wikipedia_bytes_small.
    assert parts(256, 128, 128) == 4 and parts(256, 257, 128) == parts(256, 512, 128) == 8
    assert parts(256, 128, 512) == 1 and parts(4096, 4096, 4096) == 1

    traced = jax.make_jaxpr(lambda x, y: jnp.sum(jnp.sin(x @ y)))(
        jax.ShapeDtypeStruct((256, 128), jnp.float32), jax.ShapeDtypeStruct((128, 128), jnp.float32)
    )
    found = [peak_of(traced, bytes_of, splits_sums=splits).num_bytes for splits in (False, True)]
    assert found == pytest.approx([SIZE // 2, 5 * SIZE // 2 - SIZE // 2], abs=8)


def test_parts_of_a_product_wait_for_all_that_compute_their_sum_and_joined_products_have_none():
    left = jax.ShapeDtypeStruct((256, 128), jnp.float32)
    right = jax.ShapeDtypeStruct((128, 128), jnp.float32)

    def on_h100(function, *arguments):
        traced = jax.make_jaxpr(function)(*arguments)
        return peak_of(traced, bytes_of, on_gpu=True, splits_sums=True).num_bytes

    def read_late(x, y, z):
        product = x @ y
        return jnp.sum(jnp.sin(product)) + jnp.sum(z @ z) + jnp.sum(jnp.cos(product))

    large = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    # Four parts of half the size lie beside the second product, which is not split.
    needed = on_h100(read_late, left, right, large)
    assert needed == pytest.approx(16 * SIZE + 2 * SIZE, rel=0.01)

    def summed(x, *weights):
        return sum(jnp.sum(jnp.sin(x @ weight)) for weight in weights)

    # One product with 384 columns is not split: three results.
    assert on_h100(summed, left, right, right, right) == pytest.approx(3 * SIZE // 2, rel=0.01)


def test_a_conversion_there_and_back_is_none_on_a_gpu():
    def rounded(x):
        product = x @ x
        narrow = product.astype(jnp.bfloat16)
        return jnp.sum(narrow @ narrow) + jnp.sum(jnp.sin(narrow.astype(jnp.float32)))

    # The sine reads the product, which waits beside its rounded copy and the product of that.
    assert on_gpu(rounded, MATRIX) == pytest.approx(2 * SIZE, abs=256)
    # A TPU's sine reads the rounded copy, and the product is gone.
    assert peak(rounded, MATRIX) == pytest.approx(3 * SIZE / 2, abs=SMALL)


def test_the_gradient_of_a_table_that_is_read_twice_is_one_scatter():
    def loss(table, first, second):
        return jnp.sum(jnp.sin(table[first])) + jnp.sum(jnp.cos(table[second]))

    def step(table, first, second):
        return table - checkpoint_name(jax.grad(loss)(table, first, second), GRADIENT)

    def thrice(table, first, second, third):
        def sums(table):
            return loss(table, first, second) + jnp.sum(jnp.tan(table[third]))

        return table - checkpoint_name(jax.grad(sums)(table), GRADIENT)

    tokens = jax.ShapeDtypeStruct((2,), jnp.int32)
    # The scatter, and its sum over devices.
    assert peak(step, MATRIX, tokens, tokens) == pytest.approx(2 * SIZE, abs=3 * SMALL)
    # Together as many rows as the table has: XLA makes both.
    many = jax.ShapeDtypeStruct((128,), jnp.int32)
    assert on_gpu(step, MATRIX, many, many) == pytest.approx(3 * SIZE, rel=0.05)
    # And a third is made on the sum of the first two, which it takes over.
    assert on_gpu(thrice, MATRIX, many, many, many) == pytest.approx(3 * SIZE, rel=0.05)


def test_zeros_of_a_scatter_are_there_before_what_its_rows_are_made_of():
    def loss(x, weight, rows):
        return jnp.sum(jnp.sin((jnp.sin(x @ weight) @ weight)[rows]))

    arguments = MATRIX, MATRIX, jax.ShapeDtypeStruct((2,), jnp.int32)
    # A product, its sine, and what the rows are taken of; the zeros are a fourth array.
    assert peak(jax.grad(loss), *arguments) == pytest.approx(3 * SIZE, abs=SMALL)
    assert on_gpu(jax.grad(loss), *arguments) == pytest.approx(4 * SIZE, rel=0.02)
    # The loss comes first: all of the forward pass is needed before the zeros.
    assert on_gpu(jax.value_and_grad(loss), *arguments) == pytest.approx(3 * SIZE, rel=0.02)


def test_a_large_gradient_is_summed_where_it_lies_before_it_is_scaled():
    large = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
    rows = jax.ShapeDtypeStruct((8, 4096), jnp.float32)

    def step(weight, x, scale):
        gradient = jax.grad(lambda weight: jnp.sum(jnp.sin(x @ weight)))(weight)
        return weight - checkpoint_name(scale * gradient, GRADIENT)

    scale = jax.ShapeDtypeStruct((), jnp.float32)
    assert peak(step, large, rows, scale) == pytest.approx(4096 * 4096 * 4, rel=0.05)


def test_rows_for_each_group_are_made_at_once_for_the_gradients_of_gate_and_up():
    weights = jax.ShapeDtypeStruct((4, 256, 256), jnp.float32)
    sizes = jax.ShapeDtypeStruct((4,), jnp.int32)

    def loss(gate, up, rows, sizes):
        products = [jax.lax.ragged_dot(rows, weight, sizes) for weight in (gate, up)]
        return jnp.sum(jnp.square(products[0] * products[1]))

    traced = jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(weights, weights, MATRIX, sizes)
    found = peak_of(traced, bytes_of, on_gpu=True).buffers
    # Those of the rows, and of both gradients.
    assert [buffer.shape for buffer in found].count((4, 256, 256)) == 3
