"""The order in which a device runs the ops of a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from dawnjax.plan.heap import TPU_ALIGNED
from dawnjax.plan.inlining import GRADIENT
from dawnjax.plan.liveness import peak_of
from dawnjax.plan.ops import COPY, NAMED, SUMMED, Op, bytes_of
from dawnjax.plan.scheduling import in_list_order, with_late_sums, with_late_tables

MATRIX = jax.ShapeDtypeStruct((512, 512), jnp.float32)
SIZE = 512 * 512 * 4


def op(primitive, inputs, outputs):
    return Op(primitive, inputs, outputs, "")


def names(ops):
    return [found.outputs[0] for found in ops]


def test_that_op_comes_next_which_frees_most():
    # 0 and 1 are arguments. 2 and 3 are large products, 4 and 5 small ones of them.
    ops = [
        op("dot_general", [0], [2]),
        op("dot_general", [1], [3]),
        op("sin", [2], [6]),
        op("dot_general", [6], [4]),
        op("dot_general", [3], [5]),
    ]
    sizes = {2: 100.0, 3: 50.0, 4: 1.0, 5: 1.0}

    def size(name):
        return sizes[name]

    found = in_list_order(ops, {2, 3, 4, 5}, [4, 5], size)
    # The smaller is made first, and freed before the larger, whose sine its reader computes.
    assert names(found) == [3, 5, 2, 6, 4]
    # A result is not freed, so that another comes before its reader.
    sizes[5] = 90.0 + 50.0
    assert names(in_list_order(ops, {2, 3, 4, 5}, [4, 5], size)) == [3, 5, 2, 6, 4]
    assert names(in_list_order(ops, {2, 3, 4, 5}, [4, 5, 3], size)) == [3, 2, 6, 4, 5]
    assert in_list_order([], set(), [], size) == []


def test_what_nothing_reads_and_slices_of_stacks_are_kept():
    ops = [op(COPY, [0], [1]), op("sin", [0], [2]), op("dot_general", [1], [3])]
    found = in_list_order(ops, {3}, [3], lambda name: 1.0)
    assert sorted(names(found)) == [1, 2, 3]
    assert names(found).index(1) < names(found).index(3)


def test_rows_of_a_copied_table_are_gathered_where_a_kernel_reads_them():
    ops = [
        op(NAMED, [0], [1]),
        op("sin", [1], [2]),
        op("dot_general", [9], [3]),
        op("dot_general", [2], [4]),
    ]
    assert names(with_late_tables(ops, {0})) == [3, 1, 2, 4]
    assert names(with_late_tables(ops, set())) == [1, 2, 3, 4]


def test_sums_of_what_a_loop_stacked_wait_for_the_sums_of_devices():
    loop, product = op("scan", [9], [7, 0]), op("dot_general", [0], [3])
    loop.num_carried = 1
    ops = [loop, op("reduce_sum", [0], [1]), product, op(SUMMED, [1], [2])]
    assert names(with_late_sums(ops)) == [7, 3, 1, 2]
    # Without a gradient there is nothing to wait for, nor do other ops or sums of carries.
    assert names(with_late_sums(ops[:-1])) == [7, 1, 3]
    assert names(with_late_sums([loop, op("sin", [0], [1]), *ops[2:]])) == [7, 1, 3, 2]
    assert names(with_late_sums([loop, op("reduce_sum", [7], [1]), *ops[2:]])) == [7, 1, 3, 2]
    # A sum that a product needs, if only through others, cannot wait.
    product.inputs.append(4)
    needed = [*ops[:2], op("sin", [1], [4]), *ops[2:]]
    assert names(with_late_sums(needed)) == [7, 1, 4, 3, 2]


def test_a_layer_runs_so_that_little_is_alive():
    stack = jax.ShapeDtypeStruct((6, 512, 512), jnp.float32)

    def layers(x, stack):
        def layer(carry, part):
            firsts = [jnp.dot(carry, part * by) for by in (1, 2)]
            seconds = [jnp.sum(jnp.dot(first, part), axis=1) for first in firsts]
            return carry, (seconds[0], seconds[1])

        return sum(map(jnp.sum, jax.lax.scan(layer, x, stack)[1]))

    found = peak_of(jax.make_jaxpr(layers)(MATRIX, stack), bytes_of).num_bytes
    # In JAX's order both first products are alive at once; one result after the other needs one,
    # beside its second product.
    stacks = 2 * 6 * 512 * np.dtype("float32").itemsize
    assert found == pytest.approx(2 * SIZE + stacks, abs=12 * TPU_ALIGNED)


@pytest.mark.parametrize(
    ("side", "dtype", "is_late"),
    [(3, "float32", True), (1, "float32", True), (3, "bfloat16", True), (1, "bfloat16", False)],
)
def test_gradients_of_kernels_wait_for_the_last_sum_that_any_of_them_needs(side, dtype, is_late):
    def step(kernels, x):
        def loss(kernels, x):
            axes = ("NHWC", "HWIO", "NHWC")
            for kernel in kernels:
                kernel = kernel.astype(dtype)
                x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=axes)
                x = x - jnp.sin(x).sum((0, 1, 2))
            return jnp.sum(x.astype(jnp.float32))

        gradients = jax.grad(loss)(kernels, x)
        return jax.tree.map(lambda k, g: k - checkpoint_name(g, GRADIENT), kernels, gradients)

    x = jax.ShapeDtypeStruct((64, 32, 32, 8), dtype)
    kernels = [jax.ShapeDtypeStruct((side, side, 8, 8), jnp.float32)] * 4
    # Four results, three arrays that the next layers take, and a cotangent. Late: these three with
    # their cotangents, and the first layer's result, its cotangent, and what that becomes.
    traced = jax.make_jaxpr(step)(kernels, x)
    held = peak_of(traced, bytes_of, on_gpu=True).num_bytes
    num_arrays = held / bytes_of(x.shape, x.dtype)
    assert num_arrays == pytest.approx(9 if is_late else 8, rel=0.01)
