"""Augmentation: values made by hand or by NumPy, and independence of the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.input_pipeline.augmentation import image_augmentation
from dawnjax.input_pipeline.augmentation.image_augmentation import ImageAugmentation

pytestmark = pytest.mark.compiles

EVERYTHING = ImageAugmentation(
    max_translation_pixels=1.5,
    subpixel_translation=True,
    max_scale_fraction=0.2,
    padding="edge",
    flip="random",
    cutout_pixels=3,
    max_brightness_shift=0.2,
    max_contrast_change=0.1,
)
RECORD = ImageAugmentation(max_translation_pixels=2, padding="reflect", flip="alternating")


def augment(config, images, *, seed=0, epochs=0, example_seed=7):
    """Augments with keys drawn from seeds, one an image."""
    count = len(images)
    return np.asarray(
        image_augmentation.augment(
            config,
            jnp.asarray(images, jnp.float32),
            step_keys=jax.random.split(jax.random.key(seed), count),
            example_keys=jax.random.split(jax.random.key(example_seed), count),
            epochs=jnp.full(count, epochs, jnp.int32),
        )
    )


def random_images(count, height=8, width=8, channels=1):
    random = np.random.default_rng(1)
    return random.normal(size=(count, height, width, channels)).astype(np.float32)


def test_normalize_gives_the_defined_value():
    images = np.array([[[[0, 255]]]], np.uint8)
    normalized = image_augmentation.normalize(jnp.asarray(images), (0.5, 0.25), (0.25, 0.5))
    # (0 / 255 - 0.5) / 0.25 and (255 / 255 - 0.25) / 0.5; one float32 rounding each.
    np.testing.assert_allclose(normalized, [[[[-2.0, 1.5]]]], rtol=1e-6)
    assert normalized.dtype == jnp.float32


@pytest.mark.parametrize(
    ("padding", "numpy_mode"), [("zeros", "constant"), ("edge", "edge"), ("reflect", "reflect")]
)
def test_whole_translation_gives_every_crop_of_the_padded_image(padding, numpy_mode):
    image = random_images(1, 6, 5, 2)
    count = 400
    results = augment(
        ImageAugmentation(max_translation_pixels=2, padding=padding), np.repeat(image, count, 0)
    )
    padded = np.pad(image[0], ((2, 2), (2, 2), (0, 0)), mode=numpy_mode)
    crops = np.stack(
        [padded[row : row + 6, column : column + 5] for row in range(5) for column in range(5)]
    )
    matches = (results[:, None] == crops[None]).all((2, 3, 4))
    assert (matches.sum(1) == 1).all()
    # 25 crops, 16 of each on average with a standard deviation of 3.9.
    counts = matches.sum(0)
    assert counts.min() >= 2
    assert counts.max() <= 35


def test_subpixel_translation_moves_a_ramp_by_less_than_the_limit():
    # On a ramp, bilinear interpolation is exact: each result is the ramp minus its shift.
    ramp = np.broadcast_to(np.arange(9, dtype=np.float32)[:, None, None], (200, 9, 9, 1))
    config = ImageAugmentation(max_translation_pixels=1.5, subpixel_translation=True)
    moved = augment(config, ramp)[:, 3:6, 4, 0]
    shifts = np.array([3, 4, 5], np.float32) - moved
    np.testing.assert_allclose(shifts, shifts[:, :1].repeat(3, 1), atol=1e-5)
    assert np.abs(shifts).max() <= 1.5
    # Uniform in [-1.5, 1.5]: standard deviation 3 / sqrt(12) = 0.866, to 5 % with 200 draws.
    assert 0.75 < shifts[:, 0].std() < 0.98


def test_zoom_stretches_a_ramp_about_the_centre():
    ramp = np.broadcast_to(np.arange(9, dtype=np.float32)[None, :, None], (200, 9, 9, 1))
    zoomed = augment(ImageAugmentation(max_scale_fraction=0.25), ramp)[:, 4, :, 0]
    np.testing.assert_allclose(zoomed[:, 4], 4.0, atol=1e-5)
    slopes = zoomed[:, 5] - zoomed[:, 4]
    np.testing.assert_allclose(zoomed[:, 4] - zoomed[:, 3], slopes, atol=1e-5)
    # A zoom by s makes the slope 1 / s.
    assert 1 / 1.25 - 1e-5 <= slopes.min() < 0.84
    assert 1.25 < slopes.max() <= 1 / 0.75 + 1e-5


def test_random_flip_mirrors_half_of_the_images():
    images = random_images(400)
    results = augment(ImageAugmentation(flip="random"), images)
    is_same = (results == images).all((1, 2, 3))
    is_mirrored = (results == images[:, :, ::-1]).all((1, 2, 3))
    assert (is_same ^ is_mirrored).all()
    assert 150 < is_mirrored.sum() < 250


def test_alternating_flip_shows_the_other_side_in_every_second_epoch():
    images = random_images(64)
    config = ImageAugmentation(flip="alternating")
    by_epoch = [augment(config, images, seed=epoch, epochs=epoch) for epoch in range(4)]
    np.testing.assert_array_equal(by_epoch[0], by_epoch[2])
    np.testing.assert_array_equal(by_epoch[1], by_epoch[3])
    np.testing.assert_array_equal(by_epoch[0], by_epoch[1][:, :, ::-1])
    is_mirrored = (by_epoch[0] == images[:, :, ::-1]).all((1, 2, 3))
    assert 16 < is_mirrored.sum() < 48


def test_brightness_and_contrast_shift_and_scale_whole_images():
    images = random_images(400)
    config = ImageAugmentation(max_brightness_shift=0.5, max_contrast_change=0.25)
    results = augment(config, images)
    flat, seen = images.reshape(400, -1), results.reshape(400, -1)
    factors = seen.std(1) / flat.std(1)
    shifts = (seen / factors[:, None] - flat).mean(1)
    expected = (images + shifts[:, None, None, None]) * factors[:, None, None, None]
    np.testing.assert_allclose(results, expected, atol=1e-4)
    for found, middle, largest in ((shifts, 0, 0.5), (factors, 1, 0.25)):
        assert abs(found - middle).max() <= largest + 1e-4
        # Uniform: a standard deviation of largest / sqrt(3), to five standard errors.
        np.testing.assert_allclose(found.std(), largest / np.sqrt(3), rtol=0.12)
        assert abs(found.mean() - middle) < 5 * largest / np.sqrt(3 * 400)
    assert abs(np.corrcoef(shifts, factors)[0, 1]) < 0.25
    # What else is drawn stays as it was.
    plain = ImageAugmentation(flip="random")
    both = ImageAugmentation(flip="random", max_brightness_shift=1e-9)
    np.testing.assert_allclose(augment(plain, images), augment(both, images), atol=1e-6)


def test_cutout_sets_one_clipped_square_to_zero():
    results = augment(ImageAugmentation(cutout_pixels=3), np.ones((300, 8, 8, 2), np.float32))
    sizes = []
    for result in results:
        rows, columns = np.nonzero(result[..., 0] == 0)
        sizes.append((np.ptp(rows) + 1, np.ptp(columns) + 1))
        assert len(rows) == sizes[-1][0] * sizes[-1][1]
        np.testing.assert_array_equal(result[..., 0], result[..., 1])
    # Whole inside, and cut by a border when the centre lies on it.
    assert {size for pair in sizes for size in pair} == {2, 3}


@pytest.mark.parametrize("config", [EVERYTHING, RECORD])
def test_an_image_does_not_depend_on_its_batch(config):
    images = jnp.asarray(random_images(12, 8, 8, 3))
    step_keys = jax.random.split(jax.random.key(3), 12)
    example_keys = jax.random.split(jax.random.key(4), 12)
    epochs = jnp.arange(12, dtype=jnp.int32)

    @jax.jit
    def run(chosen):
        return image_augmentation.augment(
            config,
            images[chosen],
            step_keys=step_keys[chosen],
            example_keys=example_keys[chosen],
            epochs=epochs[chosen],
        )

    whole = np.asarray(run(jnp.arange(12)))
    assert not (whole == images).all()
    chosen = np.array([7, 0, 11, 3])
    # The same draws and pixels; a program for another number of images may round the last bit of a
    # float32 value of order 1 otherwise (some processors do).
    for part in (chosen, np.array([5])):
        np.testing.assert_allclose(run(jnp.asarray(part)), whole[part], rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", [EVERYTHING, RECORD])
def test_a_sharded_batch_needs_no_communication(config):
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    sharded = NamedSharding(mesh, PartitionSpec("data"))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))

    def run(images, step_keys, example_keys, epochs):
        return image_augmentation.augment(
            config, images, step_keys=step_keys, example_keys=example_keys, epochs=epochs
        )

    program = (
        jax.jit(run, in_shardings=sharded, out_shardings=sharded)
        .lower(
            jax.ShapeDtypeStruct((8, 8, 8, 3), jnp.float32),
            keys,
            keys,
            jax.ShapeDtypeStruct((8,), jnp.int32),
        )
        .compile()
        .as_text()
    )
    assert program is not None
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in program


def test_views_have_the_weights_and_places_of_the_recipe():
    image = jnp.arange(9.0).reshape(1, 3, 3, 1)
    assert [weight for weight, _ in image_augmentation.views("none", image)] == [1.0]
    flipped = image_augmentation.views("flip", image)
    assert [weight for weight, _ in flipped] == [0.5, 0.5]
    np.testing.assert_array_equal(flipped[1][1][0, ..., 0], [[2.0, 1, 0], [5, 4, 3], [8, 7, 6]])
    moved = image_augmentation.views("flip_and_translate", image)
    assert [weight for weight, _ in moved] == [0.25, 0.25, 0.125, 0.125, 0.125, 0.125]
    # Reflected by one, [[0, 1, 2], [3, 4, 5], [6, 7, 8]] has 4 3 4 above its upper left corner.
    np.testing.assert_array_equal(moved[2][1][0, ..., 0], [[4.0, 3, 4], [1, 0, 1], [4, 3, 4]])
    np.testing.assert_array_equal(moved[4][1][0, ..., 0], [[4.0, 5, 4], [7, 8, 7], [4, 5, 4]])
    np.testing.assert_array_equal(moved[3][1], np.asarray(moved[2][1])[:, :, ::-1])


@pytest.mark.compiles
def test_a_crop_sees_no_pixel_outside_of_its_rectangle():
    """Shrunk and enlarged, a patch of one colour stays that colour, whatever lies around it."""

    def cut_out(*arrays, size):
        arrays = (jnp.asarray(array) for array in arrays)
        return np.asarray(image_augmentation.resized_rectangles(*arrays, size))

    images = np.full((3, 40, 60, 1), 255, np.float32)
    images[:, 8:32, 12:36] = 100
    rectangle = np.array([12 / 60, 8 / 40, 36 / 60, 32 / 40], np.float32)
    rectangles = np.stack([rectangle] * 3)
    for size in ((5, 7), (50, 31)):
        cut = cut_out(images, rectangles, size=size)
        np.testing.assert_allclose(cut, 100, rtol=1e-5)
    # As if it were cut out before: a ramp, by PyTorch's and PIL's rule of a widened triangle.
    ramp = np.arange(24, dtype=np.float32)
    images[:, 8:32, 12:36, 0] = ramp[:, None]
    cut = cut_out(images, rectangles, size=(6, 4))
    centres = (np.arange(6) + 0.5) * 4
    weights = np.maximum(1 - abs(centres[:, None] - 0.5 - np.arange(24)) / 4, 0)
    wanted = (weights @ ramp) / weights.sum(1)
    np.testing.assert_allclose(cut[0, :, 2, 0], wanted, rtol=1e-5)
