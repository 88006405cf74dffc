"""The speed-record network: its whitening and its first values."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dawnjax.models.configs.record_net import RecordNet
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model
from dawnjax.models.record_net import whitening_kernel

pytestmark = pytest.mark.compiles

EXECUTION = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=4)
RECORD = RecordNet()


def model_of(config=RECORD, *, image_shape=(32, 32, 3), execution=EXECUTION):
    return pure_model(
        lambda rngs: config.build(
            image_shape=image_shape, num_classes=10, execution=execution, rngs=rngs
        )
    )


@pytest.fixture(scope="module")
def initial():
    return jax.jit(model_of().init)(jax.random.key(0))


def correlated_images(count=64, size=12, channels=3):
    """Images whose neighbouring pixels and channels are alike."""
    random = np.random.default_rng(0)
    images = random.normal(size=(count, size, size, channels)).cumsum(1).cumsum(2)
    mixing = random.normal(size=(channels, channels)) + 2 * np.eye(channels)
    return (images @ mixing).astype(np.float32) / 10


def test_whitened_patches_are_uncorrelated_and_of_unit_power():
    images = correlated_images()
    kernel = np.asarray(whitening_kernel(jnp.asarray(images), 0.0), np.float64)
    assert kernel.shape == (2, 2, 3, 24)
    windows = np.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 12).astype(np.float64)
    outputs = patches @ kernel.reshape(12, 24)
    power = outputs.T @ outputs / len(outputs)
    # Float32 eigenvectors of second moments that span five orders of magnitude.
    np.testing.assert_allclose(power[:12, :12], np.eye(12), atol=5e-3)
    np.testing.assert_array_equal(kernel[..., 12:], -kernel[..., :12])


def test_whitening_epsilon_holds_weak_directions_down():
    images = correlated_images()
    windows = np.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 12).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(patches.T @ patches / len(patches))
    kernel = np.asarray(whitening_kernel(jnp.asarray(images), 0.1)).reshape(12, 24)
    norms = np.linalg.norm(kernel[:, :12], axis=0)
    np.testing.assert_allclose(norms, 1 / np.sqrt(eigenvalues + 0.1), rtol=1e-3)


def test_initialization_from_data_sets_the_kernel_alone(initial):
    params, _ = initial
    images = jnp.asarray(correlated_images())
    changed = jax.jit(RecordNet().initialize_from_data)(params, images)
    np.testing.assert_allclose(
        changed["whitening"]["kernel"], whitening_kernel(images, 5e-4), atol=1e-3
    )
    restored = {
        **changed,
        "whitening": {**changed["whitening"], "kernel": params["whitening"]["kernel"]},
    }
    jax.tree.map(np.testing.assert_array_equal, restored, params)


def test_the_whitening_kernel_gets_no_gradient_and_all_else_does(initial):
    params, batch_stats = initial
    model = model_of()
    images = jax.random.normal(jax.random.key(1), (4, 32, 32, 3))

    @jax.jit
    @jax.grad
    def gradient(params):
        return jnp.square(model.apply(params, batch_stats, images, train=True)[0] - 1).sum()

    gradients = gradient(params)
    assert not np.asarray(gradients["whitening"].pop("kernel")).any()
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.abs(leaf).max() > 0, path


def test_convolutions_start_by_copying_their_input(initial):
    kernel = np.asarray(initial[0]["groups"]["group_1"]["conv_1"]["kernel"])
    copied = kernel[..., :24]
    np.testing.assert_array_equal(copied[1, 1], np.eye(24))
    assert np.count_nonzero(copied) == 24
    drawn = kernel[..., 24:]
    # Uniform in +-1 / sqrt(9 * 24): standard deviation bound / sqrt(3), to 2 % with 8,640 draws.
    bound = 1 / np.sqrt(9 * 24)
    assert np.abs(drawn).max() <= bound
    np.testing.assert_allclose(drawn.std(), bound / np.sqrt(3), rtol=0.03)


def test_the_classifier_starts_with_unit_variance(initial):
    np.testing.assert_allclose(np.std(initial[0]["classifier"]["kernel"]), 1, rtol=0.05)


def logits_and_gradients(config, execution):
    """Of the sum of squared logits, for four images with an odd side."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(4, 23, 16, 3)), jnp.float32)
    model = model_of(config, image_shape=images.shape[1:], execution=execution)
    params, stats = model.init(jax.random.key(0))

    def loss(params):
        logits = model.apply(params, stats, images, train=True)[0]
        return jnp.square(logits).sum(), logits

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_a_gpus_network_is_the_same_function(activation):
    config = RecordNet(group_widths=(25, 8, 8), activation=activation)
    ours, plain = (
        logits_and_gradients(config, dataclasses.replace(EXECUTION, platform=platform))
        for platform in ("gpu", "tpu")
    )
    for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
