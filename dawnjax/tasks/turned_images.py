"""Images on their side, seen as they stand by kernels that are turned with them.

With rows and columns of an image and of every kernel exchanged, those of each map are exchanged. So
wide and tall images need one program of one shape. Boxes, masks and anchors are of images as they
stand; images and maps are as they lie. `is_turned`, bool [batch] or of one image [], is the same
for a whole batch; None is for data whose images all stand.
"""

from __future__ import annotations

from typing import Any

from etils import epy

from dawnjax.tasks.task import Setting

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import mask_rcnn, pure_model


def exchanged(values: Any, is_turned: jax.Array | None) -> Any:
    """Sizes [..., 2] or corners [..., 4], with the two axes of images on their side exchanged."""
    if is_turned is None:
        return values
    pairs = values.reshape(*values.shape[:-1], -1, 2)
    return _chosen(is_turned, pairs[..., ::-1].reshape(values.shape), values)


def features_as_they_stand(features: jax.Array, is_turned: jax.Array | None) -> jax.Array:
    """Features of boxes [batch, boxes, cells, cells, channels], from those of maps as they lie."""
    if is_turned is None:
        return features
    return _chosen(is_turned, features.swapaxes(2, 3), features)


def anchors(setting: Setting, is_turned: jax.Array | None) -> list[Any]:
    """Anchors of each level of one image as it stands, float32 [anchors, 4]."""
    lying = setting.model.anchors(setting.spec.image_shape)
    if is_turned is None:
        return lying
    standing = setting.model.anchors(setting.spec.upright.image_shape)
    return [jnp.where(is_turned, *pair) for pair in zip(standing, lying, strict=True)]


def first_stage(
    module: Any, images: jax.Array, is_turned: jax.Array | None, *, train: bool
) -> mask_rcnn.FirstStage:
    """Maps as the images lie; scores and codes in the order of the anchors as they stand."""
    if is_turned is None:
        return module(images, **pure_model.mode_arguments(module, train))
    arrays, module_of = pure_model.split_module(module)
    any_turned = is_turned.any()

    def turned(leaf: jax.Array) -> jax.Array:
        # Kernels of convolutions have four axes, and nothing else has.
        return jnp.where(any_turned, leaf.swapaxes(0, 1), leaf) if leaf.ndim == 4 else leaf

    network = module_of(jax.tree.map(turned, arrays))
    with pure_model.named_layers(network):
        first = network(images, **pure_model.mode_arguments(network, train))

    def ordered(values: jax.Array, level: jax.Array) -> jax.Array:
        positions = values.reshape(*level.shape[:3], -1)
        return _chosen(is_turned, positions.swapaxes(1, 2).reshape(values.shape), values)

    return mask_rcnn.FirstStage(
        first.maps,
        [ordered(*pair) for pair in zip(first.scores, first.maps, strict=True)],
        [ordered(*pair) for pair in zip(first.codes, first.maps, strict=True)],
    )


def _chosen(is_turned: jax.Array, turned: jax.Array, others: jax.Array) -> jax.Array:
    axes = (1,) * (others.ndim - is_turned.ndim)
    return jnp.where(is_turned.reshape(*is_turned.shape, *axes), turned, others)
