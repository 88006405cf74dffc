"""Image models against published counts, and layer by layer against PyTorch."""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import count

from dawnjax.models import amoebanet
from dawnjax.models.configs.amoebanet import AmoebaNetD
from dawnjax.models.configs.preactivation_resnet import PreactivationResNet, wide_resnet
from dawnjax.models.configs.resnet import ResNet, cifar_resnet, imagenet_resnet
from dawnjax.models.execution import Execution, Platform, TrainingMoment
from dawnjax.models.pooling import average_pool, max_pool
from dawnjax.models.pure_model import PureModel, pure_model

pytestmark = pytest.mark.compiles

IMAGENET, CIFAR = (224, 224, 3), (32, 32, 3)


def execution_for(platform: Platform, group_size: int = 1) -> Execution:
    return Execution(platform=platform, compute_dtype="float32", batch_norm_group_size=group_size)


def pure(
    config: Any,
    image_shape: tuple[int, ...],
    num_classes: int,
    group_size: int = 1,
    platform: Platform = "gpu",
) -> PureModel:
    built = execution_for(platform, group_size)
    return pure_model(
        lambda rngs: config.build(
            image_shape=image_shape, num_classes=num_classes, execution=built, rngs=rngs
        )
    )


def drawn(model: PureModel, rng: np.random.Generator) -> tuple[Any, Any]:
    """Moves parameters off their start, so that each scale and bias matters, and statistics."""
    params, stats = jax.eval_shape(model.init, jax.random.key(0))
    return drawn_like(params, rng), drawn_like(stats, rng)


def drawn_like(tree: Any, rng: np.random.Generator) -> Any:
    def draw(leaf: Any) -> np.ndarray:
        if len(leaf.shape) == 1:
            return rng.uniform(0.5, 1.5, leaf.shape).astype(np.float32)
        return (rng.normal(0, 1, leaf.shape) / math.prod(leaf.shape[:-1]) ** 0.5).astype(np.float32)

    return jax.tree.map(draw, tree)


def multiply_adds(jaxpr: Any) -> int:
    """Counts the products of all convolutions and matrix products; padding counts like pixels."""
    total = 0
    for equation in jaxpr.eqns:
        name, result = equation.primitive.name, equation.outvars[0].aval
        if name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            numbers = equation.params["dimension_numbers"]
            out_channels = kernel[numbers.rhs_spec[0]]
            total += math.prod(result.shape) * math.prod(kernel) // out_channels
        elif name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += math.prod(result.shape) * depth
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                total += multiply_adds(getattr(value, "jaxpr", value))
    return total


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def counts(config: Any, image_shape: tuple[int, ...], num_classes: int) -> tuple[int, int]:
    """Counts parameters, and multiply-adds of one image's inference, from shapes alone."""
    # As for a TPU: a GPU's stem adds zeros to its kernel.
    model = pure(config, image_shape, num_classes, platform="tpu")
    params, stats = jax.eval_shape(model.init, jax.random.key(0))
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda *args: model.apply(*args, train=False))(params, stats, image)
    assert jaxpr.out_avals[0].shape == (1, num_classes)
    return count(params), multiply_adds(jaxpr.jaxpr)


# Parameters as PyTorch's torchvision documents them (`num_params` of the weights of
# `resnet18` ... `resnet152`); GMAC as in its `_ops`, rounded there to three digits.
@pytest.mark.parametrize(
    ("depth", "num_params", "giga_multiply_adds"),
    [
        (18, 11_689_512, 1.814),
        (50, 25_557_032, 4.089),
        pytest.param(34, 21_797_672, 3.664, marks=pytest.mark.long),
        pytest.param(101, 44_549_160, 7.801, marks=pytest.mark.long),
        pytest.param(152, 60_192_808, 11.514, marks=pytest.mark.long),
    ],
)
def test_imagenet_resnets_have_the_published_counts(depth, num_params, giga_multiply_adds):
    params, products = counts(imagenet_resnet(depth), IMAGENET, 1000)
    assert params == num_params
    assert round(products / 1e9, 3) == giga_multiply_adds


# He et al. 2015, table 6: 0.27 M, 0.85 M, 1.7 M; He et al. 2016, table 2: 1.7 M; Zagoruyko and
# Komodakis 2016, table 4: 8.9 M, 11.0 M, 36.5 M; the 46.16 M of WRN-34-10 as in Zhang et al. 2019
# (TRADES).
@pytest.mark.parametrize(
    ("config", "num_params", "mega_multiply_adds"),
    [
        # By hand: 1,024 places x 3 x 16 x 9, then 6 x 9 products of each stage's width, whose first
        # convolution has half, and 640: 40.551. The deeper ones have 18 and 36 stages' blocks more.
        (cifar_resnet(20), 269_722, 40.551),
        pytest.param(cifar_resnet(56), 853_018, 125.486, marks=pytest.mark.long),
        pytest.param(cifar_resnet(110), 1_727_962, 252.887, marks=pytest.mark.long),
        pytest.param(PreactivationResNet(), 1_703_258, 247.6, marks=pytest.mark.long),
        # Published as 1.3, 1.55 and 5.2 billion.
        pytest.param(wide_resnet(depth=40, widening=4), 8_949_210, 1_299, marks=pytest.mark.long),
        (wide_resnet(depth=16, widening=8), 10_961_370, 1_548),
        pytest.param(wide_resnet(depth=28, widening=10), 36_479_194, 5_243, marks=pytest.mark.long),
        # A block more in each stage: 2 x 9 x 3 x 160**2 x 1,024 products.
        (wide_resnet(depth=34, widening=10), 46_160_474, 5_243 + 1_415.6),
    ],
)
def test_small_image_networks_have_the_published_counts(config, num_params, mega_multiply_adds):
    params, products = counts(config, CIFAR, 10)
    assert params == num_params
    assert products / 1e6 == pytest.approx(mega_multiply_adds, rel=5e-4)


@pytest.mark.parametrize(
    ("num_cells", "num_filters", "size", "mega_params", "giga_multiply_adds"),
    [
        (6, 256, 224, 46.8, 5.71),
        pytest.param(18, 190, 331, 68.9, 18.1, marks=pytest.mark.long),
    ],
)
def test_amoebanet_d_has_the_published_counts(
    num_cells, num_filters, size, mega_params, giga_multiply_adds
):
    config = AmoebaNetD(num_cells=num_cells, num_filters=num_filters)
    params, products = counts(config, (size, size, 3), 1000)
    assert abs(params / 1e6 - mega_params) < 0.05
    # Published with three digits, whose last differs with what an author counts.
    assert abs(products / 1e9 - giga_multiply_adds) < 0.01


def stem_kernel(model: PureModel, images: Any, params: Any, stats: Any) -> tuple[int, int]:
    """The height and input channels of the first convolution's kernel."""
    jaxpr = jax.make_jaxpr(lambda *args: model.apply(*args, train=False))(params, stats, images)
    first = next(e for e in jaxpr.eqns if e.primitive.name == "conv_general_dilated")
    height, _, channels, _ = first.invars[1].aval.shape
    return height, channels


def test_a_gpus_stem_on_blocks_of_pixels_is_the_plain_function_of_the_same_parameters():
    config = ResNet(stage_sizes=(1,), stage_widths=(16,), stem="imagenet")
    images = np.random.default_rng(0).standard_normal((2, 22, 34, 3)).astype(np.float32)
    params, stats = drawn(pure(config, images.shape[1:], 10), np.random.default_rng(1))
    results, stems = [], []
    platforms: tuple[Platform, ...] = ("cpu", "gpu")
    for platform in platforms:
        model = pure(config, images.shape[1:], 10, platform=platform)
        stems.append(stem_kernel(model, images, params, stats))
        results.append(
            jax.jit(
                jax.value_and_grad(
                    lambda p, m=model: jnp.square(m.apply(p, stats, images, train=False)[0]).sum()
                )
            )(params)
        )
    for want, got in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    # 2x2 blocks of 3 channels, filled up to a multiple of eight.
    assert stems == [(7, 3), (4, 16)]
    odd = images[:, :21]
    model = pure(config, odd.shape[1:], 10, platform="gpu")
    assert stem_kernel(model, odd, params, stats) == (7, 3)


def test_a_zero_last_scale_starts_bottleneck_blocks_as_their_shortcut():
    config = ResNet(stage_sizes=(2,), stage_widths=(16,), block="bottleneck", last_scale=0.0)
    model = pure(config, (8, 8, 3), 10)
    params, stats = jax.jit(model.init)(jax.random.key(0))
    for block in params["blocks"].values():
        assert not block["norm_3"]["scale"].any() and block["norm_2"]["scale"].all()
    # The second block's shortcut is its input: it changes nothing.
    images = jax.random.normal(jax.random.key(1), (4, 8, 8, 3))
    whole, _ = model.apply(params, stats, images, train=False)
    del params["blocks"]["stage_1_block_2"], stats["blocks"]["stage_1_block_2"]
    shorter = pure(dataclasses.replace(config, stage_sizes=(1,)), (8, 8, 3), 10)
    np.testing.assert_array_equal(whole, shorter.apply(params, stats, images, train=False)[0])


def test_a_cpus_forms_are_the_same_network():
    images = np.random.default_rng(0).standard_normal((8, 8, 8, 1)).astype(np.float32)
    params, stats = drawn(pure(DIGITS, (8, 8, 1), 10), np.random.default_rng(1))
    platforms: tuple[Platform, ...] = ("cpu", "tpu")
    by_cpu, plain = (
        pure(DIGITS, (8, 8, 1), 10, 4, platform).apply(params, stats, images, train=True)[0]
        for platform in platforms
    )
    assert_close(by_cpu, np.asarray(plain), 1e-4)


def test_without_normalization_and_relu_the_network_is_linear():
    config = dataclasses.replace(DIGITS, normalizes=False, rectifies=False)
    model = pure(config, (8, 8, 3), 10)
    params, stats = model.init(jax.random.key(0))
    assert not jax.tree.leaves(stats), "nothing keeps statistics"
    first, second = jax.random.normal(jax.random.key(0), (2, 4, 8, 8, 3))
    inputs = (0 * first, first, second, first + second)
    zero, *logits = (model.apply(params, stats, images, train=True)[0] for images in inputs)
    np.testing.assert_allclose(logits[2] - zero, logits[0] + logits[1] - 2 * zero, atol=1e-4)


def test_pooling_ignores_what_lies_outside():
    images = jnp.asarray([[[[1.0], [5.0]], [[3.0], [-9.0]]]])
    np.testing.assert_array_equal(average_pool(images, 3, stride=1), jnp.zeros_like(images))
    np.testing.assert_array_equal(
        average_pool(images, 2, stride=1)[0, :, :, 0], [[0.0, -2.0], [-3.0, -9.0]]
    )
    for platform in typing.get_args(Platform):
        execution = execution_for(platform)
        largest = max_pool(images, (2, 2), strides=(1, 1), execution=execution)
        np.testing.assert_array_equal(largest[0, :, :, 0], [[5, 5], [3, -9]])


@pytest.mark.parametrize(
    ("shape", "window", "strides", "padding"),
    [
        ((9, 8), (3, 3), (2, 2), ((1, 1), (1, 1))),
        ((7, 9), (3, 3), (1, 1), "SAME"),
        ((10, 11), (2, 2), (3, 3), "VALID"),
        ((10, 11), (5, 3), (2, 1), "SAME"),
        ((5, 6), (1, 1), (2, 2), "SAME"),
    ],
)
def test_the_maximum_has_the_gradient_of_xlas(shape, window, strides, padding):
    random = np.random.default_rng(0)
    # Of four values only, so that most windows hold their largest one several times.
    images = jnp.asarray(random.integers(0, 4, (2, *shape, 3)), jnp.float32)

    def pool(platform, images):
        execution = execution_for(platform)
        return max_pool(images, window, strides=strides, padding=padding, execution=execution)

    shape = jax.eval_shape(functools.partial(pool, "tpu"), images).shape
    cotangent = jnp.asarray(random.normal(size=shape), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def pooled(platform, images):
        result, pull_back = jax.vjp(functools.partial(pool, platform), images)
        return result, *pull_back(cotangent)

    (ours, our_gradient), (wanted, wanted_gradient) = (
        pooled("gpu", images),
        pooled("tpu", images),
    )
    np.testing.assert_array_equal(ours, wanted)
    np.testing.assert_allclose(our_gradient, wanted_gradient, atol=1e-6)


# Small networks with each kind of block, stem and shortcut: name, config, image shape.
BOTTLENECK = ResNet(
    stage_sizes=(2, 1), stage_widths=(16, 32), block="bottleneck", stem="imagenet", last_scale=0.0
)
DIGITS = ResNet(stage_sizes=(1, 1), stage_widths=(32, 64))
CASES: dict[str, tuple[Any, tuple[int, int, int]]] = {
    "bottleneck": (BOTTLENECK, (22, 18, 3)),
    "digits": (DIGITS, (8, 8, 1)),
    "zero_padding": (
        ResNet(stage_sizes=(1, 2), stage_widths=(8, 16), shortcut="zero_padding"),
        (9, 11, 3),
    ),
    "preactivation_bottleneck": (
        PreactivationResNet(stem_width=8, stage_sizes=(2, 1), stage_widths=(16, 32)),
        (9, 10, 3),
    ),
    "wide_resnet": (wide_resnet(depth=10, widening=1), (9, 10, 3)),
}


TORCH_FORWARD: dict[str, Callable] = {
    "bottleneck": lambda m, p, x: m.resnet(p, x, pooled_stem=True, bottleneck=True),
    "digits": lambda m, p, x: m.resnet(p, x, pooled_stem=False, bottleneck=False),
    "zero_padding": lambda m, p, x: m.resnet(p, x, pooled_stem=False, bottleneck=False),
    "preactivation_bottleneck": lambda m, p, x: m.preactivation_resnet(p, x, bottleneck=True),
    "wide_resnet": lambda m, p, x: m.preactivation_resnet(p, x, bottleneck=False),
}


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_pytorch_in_float64(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import pytorch_models

    config, image_shape = CASES[name]
    batch = 4
    model = pure(config, image_shape, 7, group_size=batch)
    rng = np.random.default_rng(0)
    params, stats = drawn(model, rng)
    images = rng.standard_normal((batch, *image_shape)).astype(np.float32)
    weights = rng.standard_normal((batch, 7)).astype(np.float32)

    def weighted_sum(params: Any) -> Any:
        logits, _ = model.apply(params, stats, images, train=True)
        return (logits * weights).sum(), logits

    gradients, logits = jax.jit(jax.grad(weighted_sum, has_aux=True))(params)
    twin = pytorch_models.tensors(params)
    wanted = TORCH_FORWARD[name](
        pytorch_models, twin, torch.tensor(images.astype(np.float64)).permute(0, 3, 1, 2)
    )
    (wanted * torch.tensor(weights)).sum().backward()
    assert_close(logits, wanted.detach().numpy(), 1e-4)
    compare_gradients(gradients, pytorch_models.gradients(twin))


@pytest.mark.parity
def test_amoebanet_is_that_of_pytorch_in_float64():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import pytorch_models

    config = AmoebaNetD(num_cells=6, num_filters=16, stem_width=4, dropout_keep=1.0)
    image_shape, batch = (131, 140, 3), 3
    model = pure(config, image_shape, 7, group_size=batch)
    rng = np.random.default_rng(0)
    params, stats = drawn(model, rng)
    images = rng.standard_normal((batch, *image_shape)).astype(np.float32)
    moment = TrainingMoment(jax.random.split(jax.random.key(1), batch), jnp.float32(0.5))
    apply = jax.jit(lambda p: model.apply(p, stats, images, train=True, moment=moment)[0])
    nchw = torch.tensor(images.astype(np.float64)).permute(0, 3, 1, 2)
    with torch.no_grad():
        wanted = pytorch_models.amoebanet_d(pytorch_models.tensors(params), nchw, 6)
    for head, want in zip(apply(params), wanted, strict=True):
        # Sixty normalized layers of three examples; the auxiliary head's last sees three values.
        assert_close(head, want.numpy(), 1e-3)


def assert_close(got: Any, want: np.ndarray, fraction: float, name: str = "") -> None:
    """Holds each difference below a fraction of the largest value, or 1e-4 where all are 0."""
    limit = fraction * np.abs(want).max() + 1e-4
    np.testing.assert_allclose(got, want, rtol=0, atol=limit, err_msg=name)


def compare_gradients(gradients: Any, wanted: Any) -> None:
    assert jax.tree.structure(gradients) == jax.tree.structure(wanted)
    for (path, got), want in zip(
        jax.tree.leaves_with_path(gradients), jax.tree.leaves(wanted), strict=True
    ):
        # Float32 against float64 through normalized layers.
        assert_close(got, want, 2e-3, jax.tree_util.keystr(path))


def test_what_is_dropped_depends_on_the_examples_key_and_keeps_the_mean():
    config = AmoebaNetD(
        num_cells=3, num_filters=16, stem_width=4, has_auxiliary_head=False, drop_path_keep=0.5
    )
    keys = jax.random.split(jax.random.key(0), 512)
    moment = TrainingMoment(keys, jnp.float32(1.0))
    factors = np.asarray(amoebanet.drop_path_draws(config, moment, 7))
    assert set(np.unique(factors)) == {0.0, 2.0}
    assert abs(factors.mean() - 1) < 0.02  # 35,840 draws: standard error 0.005
    some = amoebanet.drop_path_draws(config, TrainingMoment(keys[5:7], jnp.float32(1.0)), 7)
    np.testing.assert_array_equal(some, factors[5:7])
    start = amoebanet.drop_path_draws(config, TrainingMoment(keys, jnp.float32(0.0)), 7)
    np.testing.assert_array_equal(start, np.ones_like(start))
    quarter = amoebanet.drop_path_draws(config, TrainingMoment(keys, jnp.float32(0.25)), 7)
    assert np.unique(quarter).tolist() == pytest.approx([0.0, 1 / (1 - 0.5 * 0.25)])
