"""Residual networks: parameter counts, and each layer against PyTorch where it is installed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models.configs.resnet import ResNet
from dawnjax.models.execution import Execution, Platform

pytestmark = pytest.mark.compiles

SMALL = ResNet(stage_sizes=(1, 1), stage_widths=(32, 64))


def built(
    config: ResNet,
    image_shape: tuple[int, int, int],
    platform: Platform = "cpu",
    group_size: int = 4,
) -> Any:
    execution = Execution(
        platform=platform, compute_dtype="float32", batch_norm_group_size=group_size
    )

    def build() -> Any:
        return config.build(
            image_shape=image_shape, num_classes=10, execution=execution, rngs=nnx.Rngs(0)
        )

    graph, _ = nnx.split(nnx.eval_shape(build))
    return nnx.merge(graph, jax.jit(lambda: nnx.state(build()))())  # one program for all layers


def num_params(config, image_shape):
    module = nnx.eval_shape(lambda: built(config, image_shape))
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(module, nnx.Param)))


def test_digits_network_has_the_parameters_counted_by_hand():
    stem = 9 * 1 * 32
    first = 2 * 9 * 32 * 32
    second = 9 * 32 * 64 + 9 * 64 * 64 + 32 * 64
    norms = 2 * (3 * 32 + 3 * 64)
    classifier = 64 * 10 + 10
    assert stem + first + second + norms + classifier == 77_290
    assert num_params(SMALL, (8, 8, 1)) == 77_290


def test_cifar_resnet_18_has_the_published_parameter_count():
    # 11.17 M: the count that CIFAR-10 ResNet-18 implementations with a 3x3 stem state.
    assert num_params(ResNet(), (32, 32, 3)) == 11_173_962


def test_a_zero_last_scale_starts_each_block_as_its_shortcut():
    module = built(ResNet(stage_sizes=(1,), stage_widths=(16,), last_scale=0.0), (8, 8, 3))
    images = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8, 8, 3)), jnp.float32)
    hidden = jax.nn.relu(module.stem_norm(module.stem(images), train=False))
    wanted = module.classifier(hidden.mean((1, 2)))
    np.testing.assert_array_equal(module(images, train=False), wanted)
    assert np.abs(wanted).max() > 0


def test_platforms_agree():
    images = jnp.asarray(np.random.default_rng(0).standard_normal((8, 8, 8, 1)), jnp.float32)

    def logits(platform: Platform) -> Any:
        graph, state = nnx.split(built(SMALL, (8, 8, 1), platform))
        return jax.jit(lambda state: nnx.merge(graph, state)(images, train=True))(state)

    by_cpu, by_gpu = logits("cpu"), logits("gpu")
    assert by_cpu.dtype == jnp.float32 and by_cpu.shape == (8, 10)
    # Five normalized layers, each off by a few 1e-6 of its own size.
    np.testing.assert_allclose(by_cpu, by_gpu, atol=1e-4 * np.abs(by_gpu).max())


class TorchTwin:
    """The same network from PyTorch's own functions, in float64, with the parameters of ours."""

    def __init__(self, torch, params):
        self.torch = torch
        self.params = jax.tree.map(self.leaf, params)

    def leaf(self, value):
        value = np.asarray(value)
        if value.ndim == 4:
            value = value.transpose(3, 2, 0, 1)
        return self.torch.tensor(value, dtype=self.torch.float64, requires_grad=True)

    def gradients(self):
        def gradient(tensor):
            value = tensor.grad.numpy()
            return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value

        return jax.tree.map(gradient, self.params)

    def normalized(self, images, kernel, norm, stride=1):
        convolved = self.torch.nn.functional.conv2d(
            images, kernel, stride=stride, padding=kernel.shape[2] // 2
        )
        return self.torch.nn.functional.batch_norm(
            convolved, None, None, norm["scale"], norm["bias"], training=True
        )

    def __call__(self, images):
        relu, params = self.torch.relu, self.params
        hidden = self.torch.tensor(images, dtype=self.torch.float64).permute(0, 3, 1, 2)
        hidden = relu(self.normalized(hidden, params["stem"]["kernel"], params["stem_norm"]))
        for name in sorted(params["blocks"]):
            block = params["blocks"][name]
            stride, shortcut = 1, hidden
            if "projection" in block:
                stride = 2
                shortcut = self.normalized(
                    hidden, block["projection"]["kernel"], block["projection_norm"], stride
                )
            kernel_1, kernel_2 = block["conv_1"]["kernel"], block["conv_2"]["kernel"]
            hidden = relu(self.normalized(hidden, kernel_1, block["norm_1"], stride))
            hidden = relu(self.normalized(hidden, kernel_2, block["norm_2"]) + shortcut)
        classifier = params["classifier"]
        return hidden.mean((2, 3)) @ classifier["kernel"] + classifier["bias"]


@pytest.mark.parity
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("config", "image_shape"),
    [(SMALL, (8, 8, 1)), (ResNet(stage_sizes=(2, 1), stage_widths=(16, 24)), (9, 11, 3))],
)
def test_values_and_gradients_are_those_of_pytorch_in_float64(config, image_shape, platform):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4, *image_shape)).astype(np.float32)
    weights = rng.standard_normal((4, 10)).astype(np.float32)
    module = built(config, image_shape, platform)
    graph, params, stats = nnx.split(module, nnx.Param, nnx.BatchStat)
    params, stats = nnx.to_pure_dict(params), nnx.to_pure_dict(stats)
    twin = TorchTwin(torch, params)
    wanted = twin(images)
    (wanted * torch.tensor(weights)).sum().backward()

    def weighted_sum(params):
        logits = nnx.merge(graph, nnx.State(params), nnx.State(stats))(images, train=True)
        return (logits * weights).sum(), logits

    gradients, logits = jax.jit(jax.grad(weighted_sum, has_aux=True))(params)
    np.testing.assert_allclose(logits, wanted.detach().numpy(), atol=1e-4)
    wanted_gradients = twin.gradients()
    assert jax.tree.structure(gradients) == jax.tree.structure(wanted_gradients)
    for got, want in zip(
        jax.tree.leaves(gradients), jax.tree.leaves(wanted_gradients), strict=True
    ):
        # Float32 against float64 through eight normalized layers.
        np.testing.assert_allclose(got, want, atol=2e-4 * np.abs(want).max() + 1e-6)


def test_without_normalization_and_relu_the_network_is_linear():
    config = ResNet(stage_sizes=(1, 1), stage_widths=(4, 8), normalizes=False, rectifies=False)
    module = built(config, (8, 8, 3))
    first, second = jax.random.normal(jax.random.key(0), (2, 4, 8, 8, 3))
    inputs = (0 * first, first, second, first + second)
    zero, *logits = (np.asarray(module(images, train=True)) for images in inputs)
    np.testing.assert_allclose(logits[2] - zero, logits[0] + logits[1] - 2 * zero, atol=1e-4)
    assert not jax.tree.leaves(nnx.state(module, nnx.BatchStat)), "nothing keeps statistics"
