"""SSD: the reference's counts, its default boxes and its start, and the small network."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import count, detector

from dawnjax.checkpoints.arrays import by_path
from dawnjax.models.configs.default_boxes import DefaultBoxes
from dawnjax.models.configs.resnet import ResNet, imagenet_resnet
from dawnjax.models.configs.ssd import SSD, SmallSSD
from dawnjax.models.group_norm import GroupNorm
from dawnjax.models.pure_model import pure_model

SHAPE = (300, 300, 3)


def test_the_reference_has_19972534_parameters_and_8732_boxes():
    model = SSD()
    pure, params, stats = detector(model, SHAPE)
    assert count(params) == 19_972_534
    parts = {name: count(params[name]) for name in params}
    assert parts["stem"] + parts["stem_norm"] + parts["blocks"] == 8_170_304
    assert parts["extra"] == 3_574_400
    assert count(params["heads"]["boxes"]) == 387_192
    assert count(params["heads"]["classes"]) == 7_840_638
    assert model.map_sizes(SHAPE) == ((38, 38), (19, 19), (10, 10), (5, 5), (3, 3), (1, 1))
    defaults = model.default_boxes(SHAPE)
    assert defaults.shape == (8732, 4) and defaults.dtype == np.float32
    images = jax.ShapeDtypeStruct((2, *SHAPE), "float32")
    codes, logits = jax.eval_shape(
        lambda *given: pure.apply(*given, train=False)[0], params, stats, images
    )
    assert codes.shape == (2, 8732, 4) and logits.shape == (2, 8732, 81)


def test_the_backbone_has_the_names_and_shapes_of_a_resnet_34():
    _, params, stats = detector(SSD(), SHAPE)
    _, resnet, resnet_stats = detector(imagenet_resnet(34), (224, 224, 3), 1000)
    assert count(resnet) == 21_797_672
    for part in SSD.pretrained_parts:
        for here, there in ((params, resnet), (stats, resnet_stats)):
            if part not in here:
                continue
            shapes, others = (
                {name: leaf.shape for name, leaf in by_path(tree[part]).items()}
                for tree in (here, there)
            )
            assert shapes.items() <= others.items()


def test_default_boxes_by_hand():
    boxes = SSD().default_boxes(SHAPE)
    root_2, larger = math.sqrt(2), math.sqrt(21 * 45)
    centre = 4 / 300
    wanted = [
        (21 / 300, 21 / 300),
        (larger / 300, larger / 300),
        (21 * root_2 / 300, 21 / root_2 / 300),
        (21 / root_2 / 300, 21 * root_2 / 300),
    ]
    np.testing.assert_allclose(boxes[:4], [(centre, centre, w, h) for w, h in wanted], rtol=1e-6)
    # The next cell lies to the right, the next row below.
    np.testing.assert_allclose(boxes[4, :2], (12 / 300, centre), rtol=1e-6)
    np.testing.assert_allclose(boxes[4 * 38, :2], (centre, 12 / 300), rtol=1e-6)
    # 38 cells of 8 pixels are more than 300: the last centre lies on the border.
    assert boxes[4 * 37, 0] == 1.0
    # Sides are cut to the image.
    assert boxes[-1].tolist() == pytest.approx([0.5, 0.5, 261 / root_2 / 300, 1.0])
    by_map = dataclasses.replace(DefaultBoxes(), centres="map").centred(((38, 38),), (300, 300))
    np.testing.assert_allclose(by_map[4 * 37, 0], 37.5 / 38, rtol=1e-6)


def test_the_start_of_heads_is_xaviers():
    model = SSD(
        backbone=ResNet(stage_sizes=(1,), stage_widths=(8,), stem="small_images"),
        backbone_strides=(4,),
        inner_widths=(8,),
        widths=(64,),
        strides=(2,),
        boxes=DefaultBoxes(steps=(4, 8), scales=(4, 8, 12), num_ratios=(1, 1)),
    )
    pure, _, _ = detector(model, (32, 32, 3), 7)
    params = pure.init(jax.random.key(1))[0]
    kernel = params["heads"]["classes"]["1"]["kernel"]
    assert kernel.shape == (3, 3, 64, 8 * 4)
    bound = math.sqrt(6 / (9 * 64 + 9 * 32))
    assert np.abs(kernel).max() <= bound and np.abs(kernel).max() > 0.98 * bound
    bias = params["heads"]["classes"]["1"]["bias"]
    assert 0 < np.abs(bias).max() <= 1 / math.sqrt(9 * 64)


def test_the_small_network_has_1512_boxes_on_128x96():
    model = SmallSSD()
    assert model.default_boxes((96, 128, 3)).shape == (1512, 4)
    pure, params, stats = detector(model, (96, 128, 3), 3)
    assert count(params) == 303_360
    images = jax.ShapeDtypeStruct((2, 96, 128, 3), "float32")
    codes, logits = jax.eval_shape(lambda *given: pure.apply(*given)[0], params, stats, images)
    assert codes.shape == (2, 1512, 4) and logits.shape == (2, 1512, 4)


def test_group_norm_by_hand():
    pure = pure_model(lambda rngs: GroupNorm(6, 3))
    params, stats = pure.init(jax.random.key(0))
    images = np.random.default_rng(0).normal(3, 2, (2, 3, 4, 6)).astype(np.float32)
    params = {"scale": jnp.arange(1.0, 7), "bias": jnp.arange(6.0)}
    normed = np.asarray(pure.apply(params, stats, images)[0])
    for image in range(2):
        for channel in range(6):
            first = channel // 2 * 2
            group = images[image, :, :, first : first + 2]
            wanted = (images[image, :, :, channel] - group.mean()) / np.sqrt(group.var() + 1e-5)
            np.testing.assert_allclose(
                normed[image, :, :, channel], wanted * (channel + 1) + channel, atol=1e-4
            )
    with pytest.raises(ValueError, match="not whole groups"):
        GroupNorm(6, 4)
