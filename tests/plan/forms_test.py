"""Padded shapes of a TPU's arrays, beside those in XLA's buffer assignments for a v5p."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from dawnjax.plan.forms import form_of_columns, form_of_rows, forms_of_images


def convolved(images, kernel):
    return lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def kernel_for(images, size):
    return jnp.zeros((size, size, images[-1], images[-1]))


@pytest.mark.parametrize(
    ("shape", "elements"),
    [
        ((16, 32, 32, 16), 32 * 32 * 16 * 128),
        # Of fewer channels than images these lie in rows of images.
        ((192, 31, 31, 64), 31 * 31 * 64 * 256),
        ((192, 15, 15, 256), 15 * 15 * 192 * 256),
        # 4 images are 32 parts, of 5 columns each.
        ((4, 38, 38, 256), 38 * 5 * 32 * 256),
        ((7, 32, 32, 64), 32 * 5 * 56 * 128),
        ((5, 64, 64, 32), 64 * 9 * 32 * 128),
    ],
)
def test_images_of_a_convolution_lie_with_batch_and_channels_in_tiles(shape, elements):
    traced = jax.make_jaxpr(jax.jit(convolved))(jnp.zeros(shape), kernel_for(shape, 3))
    assert math.prod(forms_of_images(traced.jaxpr)[shape]) == elements


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((2, 104, 168, 256), 3, (3, 104, 22, 16, 256)),
        ((2, 104, 168, 256), 1, None),
        ((16, 32, 32, 16), 3, None),
        ((2, 104, 168, 3), 3, None),
    ],
)
def test_the_gradient_of_a_kernel_reads_few_images_once_for_each_of_its_columns(
    shape, size, expected
):
    def loss(kernel, images):
        return jnp.sum(jnp.square(convolved(images, kernel)))

    traced = jax.make_jaxpr(jax.grad(loss))(kernel_for(shape, size), jnp.zeros(shape))
    found = [form_of_columns(eqn) for eqn in traced.jaxpr.eqns]
    assert next((form for form in found if form is not None), None) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((5000, 4), (104, 128)), ((5000, 200), (104, 256)), ((50, 32, 32, 3), None), ((5000,), None)],
)
def test_rows_of_a_table_lie_one_after_another_and_images_of_a_table_do_not(shape, expected):
    def taken(table, places):
        return table[places]

    traced = jax.make_jaxpr(taken)(jnp.zeros(shape), jnp.zeros(101, jnp.int32))
    found = [form_of_rows(eqn) for eqn in traced.jaxpr.eqns]
    assert next((form for form in found if form is not None), None) == expected
