"""Mask R-CNN: the reference's counts, its anchors, and its start."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import detector

from dawnjax.checkpoints.arrays import by_path
from dawnjax.models.configs.anchors import anchors_of_level, sides_of
from dawnjax.models.configs.mask_rcnn import MaskRCNN
from dawnjax.models.configs.resnet import ResNet
from dawnjax.models.constant_norms import FrozenBatchNorm
from dawnjax.models.pure_model import pure_model

SHAPE = (832, 1344, 3)


def sizes_of(tree):
    return {name: leaf.size for name, leaf in by_path(tree).items()}


def test_the_parts_of_the_reference_have_its_parameters_and_maps():
    model = MaskRCNN()
    pure, params, stats = detector(model, SHAPE)
    parts = {name: sum(sizes_of(params[name]).values()) for name in params}
    assert parts == {
        "stem": 9_408,
        "blocks": 23_454_912 - 9_408,
        "pyramid": 3_344_384,
        "regions": 593_935,
        "box_head": 14_310_805,
        "mask_head": 2_643_537,
    }
    # Scale and shift, and as many means and variances.
    assert sum(sizes_of(stats).values()) == 2 * 53_120
    images = jax.ShapeDtypeStruct((2, *SHAPE), "float32")
    first = jax.eval_shape(lambda *given: pure.apply(*given, train=True)[0], params, stats, images)
    sizes = [(208, 336), (104, 168), (52, 84), (26, 42), (13, 21)]
    assert [level.shape for level in first.maps] == [(2, *size, 256) for size in sizes]
    assert sum(level.shape[1] for level in first.scores) == 279_279
    assert [level.shape for level in first.codes] == [(2, 3 * h * w, 4) for h, w in sizes]
    assert sum(len(level) for level in model.anchors(SHAPE)) == 279_279


class _Normed(nnx.Module):
    """A network has parameters."""

    def __init__(self):
        self.norm = FrozenBatchNorm(2, 1e-5)
        self.unused = nnx.Param(jnp.zeros(()))

    def __call__(self, images, activation=None):
        return self.norm(images, train=True, activation=activation)


def test_a_frozen_batch_norm_is_an_affine_map_by_hand():
    pure = pure_model(lambda rngs: _Normed())
    params, stats = pure.init(jax.random.key(0))
    made = {"scale": [2.0, 3], "bias": [1.0, -1], "mean": [4.0, 5], "var": [9.0, 16]}
    stats = {"norm": {name: jnp.array(values) for name, values in made.items()}}
    images = jnp.array([[[[7.0, 1.0]]]])
    outputs, after = pure.apply(params, stats, images)
    wanted = [2 * 3 / math.sqrt(9 + 1e-5) + 1, 3 * -4 / math.sqrt(16 + 1e-5) - 1]
    np.testing.assert_allclose(outputs[0, 0, 0], wanted, rtol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, after, stats)
    relu, _ = pure.apply(params, stats, images, activation="relu")
    np.testing.assert_allclose(relu[0, 0, 0], [wanted[0], 0], rtol=1e-6)


def test_anchors_have_the_references_rounded_sides():
    assert sides_of(4, 32) == [(48, 24), (32, 32), (24, 48)]
    assert sides_of(8, 64) == [(88, 48), (64, 64), (48, 96)]
    assert sides_of(16, 128) == [(184, 96), (128, 128), (88, 176)]
    anchors = anchors_of_level((2, 3), 16, 128)
    assert anchors.shape == (18, 4) and anchors.dtype == np.float32
    # Centres at 8 and 24 pixels; after three shapes the next column, after three columns a row.
    np.testing.assert_allclose(anchors[1], [8 - 64, 8 - 64, 8 + 64, 8 + 64])
    np.testing.assert_allclose(anchors[3], [24 - 92, 8 - 48, 24 + 92, 8 + 48])
    np.testing.assert_allclose(anchors[9], [8 - 92, 24 - 48, 8 + 92, 24 + 48])


def test_the_start_is_the_references():
    small = MaskRCNN(
        backbone=ResNet(stage_sizes=(1,), stage_widths=(32,), stem="imagenet"),
        norm="group",
        groups=8,
        width=64,
        anchor_sides=(32, 64),
        box_cells=2,
        box_width=64,
        mask_convolutions=1,
    )
    pure, _, _ = detector(small, (64, 64, 3), 7)
    params = pure.init(jax.random.key(1))[0]

    def largest(*place):
        leaf: Any = params
        for name in place:
            leaf = leaf[name]
        return float(np.abs(leaf).max()), float(np.std(leaf))

    for place, bound in (
        (("pyramid", "inner", "0"), math.sqrt(3 / 32)),
        (("pyramid", "outer", "0"), math.sqrt(3 / (9 * 64))),
        (("box_head", "linear_1"), math.sqrt(3 / (4 * 64))),
    ):
        most, _ = largest(*place, "kernel")
        assert 0.97 * bound < most <= bound
    for place, std in (
        (("regions", "conv"), 0.01),
        (("box_head", "classes"), 0.01),
        (("box_head", "codes"), 0.001),
        (("mask_head", "convolutions", "0"), math.sqrt(2 / (9 * 64))),
        (("mask_head", "enlarge"), math.sqrt(2 / (4 * 64))),
    ):
        assert largest(*place, "kernel")[1] == pytest.approx(std, rel=0.1)
    biases = [leaf for name, leaf in by_path(params).items() if name.endswith("/bias")]
    assert biases and not any(np.any(bias) for bias in biases)


@pytest.mark.compiles
def test_the_enlargement_is_a_transposed_convolution_by_hand():
    small = MaskRCNN(
        backbone=ResNet(stage_sizes=(1,), stage_widths=(32,), stem="imagenet"),
        norm="group",
        groups=8,
        width=3,
        anchor_sides=(32,),
    )
    pure, _, _ = detector(small, (64, 64, 3), 2)
    params, stats = pure.init(jax.random.key(0))
    enlarge = pure.bind(params, stats).mask_head.enlarge
    images = np.random.default_rng(0).normal(size=(1, 2, 2, 3)).astype(np.float32)
    kernel = np.asarray(params["mask_head"]["enlarge"]["kernel"])
    wanted = np.zeros((1, 4, 4, 3))
    for y, x, dy, dx in np.ndindex(2, 2, 2, 2):
        wanted[0, 2 * y + dy, 2 * x + dx] = images[0, y, x] @ kernel[dy, dx]
    np.testing.assert_allclose(enlarge(images), wanted, atol=1e-5)
