"""Instance segmentation by a two-stage network: boxes, classes and masks, by COCO's figures.

Source: He et al. 2017, "Mask R-CNN" (arXiv 1703.06870); mlcommons/training v0.5,
`object_detection/pytorch`, for sampling, losses and search.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from etils import epy

from dawnjax.errors import ConfigError
from dawnjax.input_pipeline.augmentation import mask_augmentation
from dawnjax.input_pipeline.augmentation.object_augmentation import Flip
from dawnjax.input_pipeline.reading.batches import APART
from dawnjax.input_pipeline.reading.objects import BACKGROUND, Objects
from dawnjax.tasks import (
    coco_scores,
    mask_pasting,
    pictures,
    region_losses,
    region_targets,
    turned_images,
)
from dawnjax.tasks.detection import Detection, DetectionSearch, detections, on_each_device
from dawnjax.tasks.region_targets import Regions
from dawnjax.tasks.task import AUGMENTATION, MODEL, Arrays, Moment, Setting, make_model

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

    from dawnjax.models import boxes as box_geometry
    from dawnjax.models import mask_rcnn, pure_model
    from dawnjax.models import proposals as region_proposals
    from dawnjax.profile import model_flops

CODE_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
"""Weights of the code of a proposal's box."""

_FLIP, _ANCHORS, _PROPOSALS = range(3)


class Chosen(NamedTuple):
    """What a batch is learnt from; all arrays are [batch, ...].

    Attributes:
      anchors: Sample of the anchors.
      anchor_codes: Of the boxes of their objects.
      regions: Sample of the proposals and true boxes, those with an object first.
      corners: Of the sampled regions, in pixels.
      classes: Class of each region's object; 0 for the background.
      codes: Of the box of that object.
      masks: Targets of the first regions, which may have an object.
    """

    anchors: region_targets.Sample
    anchor_codes: jax.Array
    regions: region_targets.Sample
    corners: jax.Array
    classes: jax.Array
    codes: jax.Array
    masks: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSegmentation(Detection):
    """Boxes, classes and masks of objects in images.

    Attributes:
      search: Choice of detections in an evaluation.
      flip: Mirror images, each with probability 1/2.
      regions: Choice of proposals, and of what the losses are taken over.
    """

    TAG: ClassVar[str] = "instance_segmentation"
    metrics: ClassVar = (*coco_scores.metrics_of_kind("box"), *coco_scores.metrics_of_kind("mask"))
    arrays: ClassVar = ("image", "covered", "boxes", "classes", "masks")
    scored_on_host: ClassVar[str] = "masks in whole images and the figures of COCO"

    search: DetectionSearch = DetectionSearch(most=100)
    flip: Flip = "horizontal"
    regions: Regions = Regions()

    def validate(self, model: Any, spec: Any) -> None:
        super().validate(model, spec)
        if not hasattr(model, "anchors"):
            raise ConfigError(
                f"model={model.TAG} has no anchors, which task={self.TAG} needs: choose mask_rcnn"
            )
        try:
            model.anchors(spec.image_shape)
        except ValueError as error:
            raise ConfigError(f"data.height and data.width: {error}") from None

    def refuse_setting(self, experiment: Any, setting: Setting) -> None:
        """Refuse to split a batch: each loss is divided by counts of the whole."""
        if experiment.accumulation_steps > 1:
            raise ConfigError(
                f"accumulation_steps={experiment.accumulation_steps} would change the losses of "
                f"task={self.TAG}, which are means over the batch's regions; give 1"
            )
        sizes = {span.global_batch_size for span in experiment.spans(setting.spec)}
        if setting.spec.turns_tall and len(sizes) > 1:
            raise ConfigError("data.turns_tall=true needs batches of one size in all stages")

    def loss(
        self, module: Any, batch: Arrays, moment: Moment, setting: Setting
    ) -> tuple[jax.Array, jax.Array | int]:
        """Losses of images, whose mean is the sum of the five losses' means over the batch."""
        keys = moment.keys(AUGMENTATION, batch["index"])
        spec, is_turned = setting.spec, _is_turned(batch, setting)
        covered = turned_images.exchanged(batch["covered"], is_turned)
        images, boxes, masks = mask_augmentation.mirrored(
            self.flip,
            batch["image"],
            batch["boxes"],
            batch["masks"],
            covered,
            _keys(keys, _FLIP),
            is_turned,
        )
        images = mask_augmentation.normalized(images, covered, spec.mean, spec.std)
        first = turned_images.first_stage(module, images, is_turned, train=True)
        count = sum(len(level) for level in setting.model.anchors(spec.image_shape))
        draws = [
            jax.vmap(lambda key, n=n: jax.random.uniform(key, (n,)))(_keys(keys, purpose))
            for purpose, n in ((_ANCHORS, count), (_PROPOSALS, count + spec.most_objects))
        ]
        choose = jax.vmap(lambda *image: self._chosen(setting, *image))
        truth = (boxes, batch["classes"], masks, covered)
        turns = () if is_turned is None else (is_turned,)
        # The choice has no gradient, and the boxes of proposals none.
        chosen = on_each_device(choose, setting.mesh)(
            *jax.lax.stop_gradient(first[1:]), *truth, *draws, *turns
        )
        parts = self._parts(module, first, chosen, is_turned, setting)
        return region_losses.image_losses(parts), len(images)

    def _chosen(
        self,
        setting,
        scores,
        codes,
        boxes,
        classes,
        masks,
        covered,
        anchor_draws,
        region_draws,
        is_turned=None,
    ) -> Chosen:
        """Choice of one image; `covered` is of the array as it lies."""
        config = self.regions
        levels = turned_images.anchors(setting, is_turned)
        anchors = (np if is_turned is None else jnp).concatenate(levels)
        extent = _extents(covered, is_turned, setting)
        corners = boxes * jnp.tile(extent[::-1], 2)
        labels = region_targets.anchor_labels(anchors, corners, classes, extent, config)
        most = int(config.anchors * config.anchors_of_objects)
        sample = region_targets.sampled(anchor_draws, labels, config.anchors, most)
        of_objects = corners[labels.objects[sample.places]]
        centred = box_geometry.to_centred(jnp.asarray(anchors)[sample.places])
        anchor_codes = box_geometry.encode(of_objects, centred, region_proposals.CODE_WEIGHTS)

        found = self._proposals(levels, scores, codes, extent, config.scored)
        regions = jnp.concatenate([found.corners, corners])
        is_real = jnp.concatenate([found.is_real, classes != BACKGROUND])
        # A draw belongs to the anchor, not to the rank, which rounding can change.
        true = len(anchors) + jnp.arange(len(classes))
        draws = region_draws[jnp.concatenate([found.anchors, true])]
        labels = region_targets.proposal_labels(
            regions, is_real, corners, classes, config.box_overlap
        )
        chosen = region_targets.sampled(draws, labels, config.sampled, config.num_masks)
        objects = labels.objects[chosen.places]
        regions, matched = regions[chosen.places], corners[objects]
        region_codes = box_geometry.encode(
            matched, box_geometry.to_centred(_with_area(regions)), CODE_WEIGHTS
        )
        part = slice(config.num_masks)
        targets = region_targets.mask_targets(
            regions[part], matched[part], masks[objects[part]], setting.model.mask_side
        )
        region_classes = jnp.where(chosen.is_positive, classes[objects], BACKGROUND)
        return Chosen(sample, anchor_codes, chosen, regions, region_classes, region_codes, targets)

    def _proposals(self, levels, scores, codes, extent, before) -> region_proposals.Proposals:
        config = self.regions
        return region_proposals.proposals(
            scores,
            codes,
            levels,
            extent,
            before=before,
            most=config.proposals,
            overlap=config.overlap,
        )

    def _parts(
        self,
        module: Any,
        first: mask_rcnn.FirstStage,
        chosen: Chosen,
        is_turned: jax.Array | None,
        setting: Setting,
    ) -> list[region_losses.Part]:
        model, sample = setting.model, chosen.anchors
        scores, codes = (jnp.concatenate(level, axis=1) for level in (first.scores, first.codes))
        of_anchors = region_losses.anchor_losses(
            jnp.take_along_axis(scores, sample.places, axis=1),
            jnp.take_along_axis(codes, sample.places[..., None], axis=1),
            chosen.anchor_codes,
            sample.is_positive,
            sample.is_real,
        )
        features = _features(setting, first.maps, chosen.corners, model.box_cells, is_turned)
        logits, class_codes = module.box_head(features)
        of_boxes = region_losses.box_losses(
            logits, class_codes, chosen.classes, chosen.codes, chosen.regions.is_real
        )
        part = slice(self.regions.num_masks)
        corners = chosen.corners[:, part]
        features = _features(setting, first.maps, corners, model.mask_cells, is_turned)
        logits = module.mask_head(features, chosen.classes[:, part])
        is_positive = chosen.regions.is_positive[:, part]
        of_masks = region_losses.mask_loss(logits, chosen.masks, is_positive)
        return [*of_anchors, *of_boxes, of_masks]

    def zero_totals(self, setting: Setting) -> Arrays:
        totals = super().zero_totals(setting)
        side, places = setting.model.mask_side, totals["detections"].shape[:2]
        return {**totals, "masks": jnp.zeros((*places, side, side), jnp.uint8)}

    def answer(self, module: Any, inputs: Arrays, setting: Setting) -> Arrays:
        """Detections, and the probability of each one's mask in its box, from 0 to 255."""
        spec, model, is_turned = setting.spec, setting.model, _is_turned(inputs, setting)
        covered = turned_images.exchanged(inputs["covered"], is_turned)
        images = mask_augmentation.normalized(inputs["image"], covered, spec.mean, spec.std)
        first = turned_images.first_stage(module, images, is_turned, train=False)
        extents = _extents(covered, is_turned, setting)

        def propose(scores, codes, extent, is_turned=None) -> region_proposals.Proposals:
            levels = turned_images.anchors(setting, is_turned)
            return self._proposals(levels, scores, codes, extent, self.regions.scored_evaluated)

        turns = () if is_turned is None else (is_turned,)
        found = on_each_device(jax.vmap(propose), setting.mesh)(
            first.scores, first.codes, extents, *turns
        )
        features = _features(setting, first.maps, found.corners, model.box_cells, is_turned)
        logits, codes = module.box_head(features)

        def search(corners, is_real, logits, codes, extent) -> jax.Array:
            references = box_geometry.to_centred(corners)[:, None]
            of_classes = box_geometry.decode(codes[:, 1:], references, CODE_WEIGHTS)
            of_classes = box_geometry.clip(of_classes, extent[1], extent[0])
            scores = jnp.where(is_real[:, None], jax.nn.softmax(logits)[:, 1:], 0.0)
            return detections(self.search, of_classes, scores)

        best = on_each_device(jax.vmap(search), setting.mesh)(
            found.corners, found.is_real, logits, codes, extents
        )
        features = _features(setting, first.maps, best[..., :4], model.mask_cells, is_turned)
        masks = jax.nn.sigmoid(module.mask_head(features, best[..., 5].astype(jnp.int32)))
        fractions = best[..., :4] / jnp.tile(extents[:, None, ::-1], 2)
        return {
            "detections": jnp.concatenate([fractions, best[..., 4:]], axis=-1),
            "masks": jnp.round(255 * masks).astype(jnp.uint8),
        }

    def scores(self, truth: Objects, answers: Mapping[str, np.ndarray]) -> dict[str, float]:
        found, squares = answers["detections"], answers["masks"]
        masks = list(mask_pasting.masks_of_images(found, squares, truth.sizes))
        return {
            **coco_scores.scores(truth, found),
            **coco_scores.scores(truth, found, "mask", masks),
        }

    def shown(
        self, truth: Objects, answer: Mapping[str, np.ndarray], example: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        found, squares = answer["detections"], answer["masks"]
        image, covered = example["image"][0], example["covered"][0]
        if APART in example and example[APART][0]:
            image = image.swapaxes(0, 1)
        height, width = np.round(covered * image.shape[:2]).astype(int).tolist()
        sizes = np.array([[height, width]])
        masks = next(mask_pasting.masks_of_images(found, squares, sizes))
        true = truth.padded(len(truth.boxes))["boxes"][0]
        return pictures.drawn(image[:height, :width], found[0], true, truth.names, masks=masks)

    def stated(
        self, sizes: np.ndarray, names: Sequence[str], answer: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        found = answer["detections"]
        masks = list(mask_pasting.masks_of_images(found, answer["masks"], sizes))
        return coco_scores.stated(sizes, names, found, masks)

    def train_flops_per_example(self, setting: Setting) -> float:
        """Model FLOPs of one image in a train step: all layers, and the heads of sampled regions.

        Those of reading features of regions are none. Parts that are not trained have no gradient.
        """
        model = make_model(self, setting)
        params, batch_stats = jax.eval_shape(model.init, jax.random.key(0))
        config, network = self.regions, setting.model

        def forward(params: Any, batch_stats: Any, images: jax.Array) -> Any:
            module = model.bind(params, batch_stats, jax.random.key(MODEL))
            first = module(images, **pure_model.mode_arguments(module, True))

            def regions(count: int, cells: int) -> jax.Array:
                return jnp.zeros((1, count, cells, cells, network.width), images.dtype)

            boxes = module.box_head(regions(config.sampled, network.box_cells))
            classes = jnp.zeros((1, config.num_masks), jnp.int32)
            masks = module.mask_head(regions(config.num_masks, network.mask_cells), classes)
            return first, boxes, masks

        def frozen(params: Any, batch_stats: Any, images: jax.Array) -> Any:
            module = model.bind(params, batch_stats, jax.random.key(MODEL))
            return module.features(images, train=True, num_stages=network.frozen_stages)

        images = jax.ShapeDtypeStruct((1, *setting.spec.image_shape), jnp.float32)
        total, held = (
            model_flops.product_flops(jax.make_jaxpr(function)(params, batch_stats, images).jaxpr)
            for function in (forward, frozen)
        )
        return model_flops.TRAINING_FACTOR * total - (model_flops.TRAINING_FACTOR - 1) * held


def _is_turned(arrays: Arrays, setting: Setting) -> jax.Array | None:
    """Which images lie on their side, bool [batch]; None where all stand."""
    return arrays[APART] if setting.spec.turns_tall else None


def _extents(covered: jax.Array, is_turned: jax.Array | None, setting: Setting) -> jax.Array:
    """Height and width in pixels of images as they stand, [..., 2], from shares of the arrays."""
    lying = mask_augmentation.extents(covered, setting.spec.image_shape[:2])
    return turned_images.exchanged(lying, is_turned)


def _features(
    setting: Setting,
    maps: list[jax.Array],
    corners: jax.Array,
    cells: int,
    is_turned: jax.Array | None,
) -> jax.Array:
    """Features of boxes of images as they stand: [batch, boxes, cells, cells, channels]."""

    def read(maps: list[jax.Array], corners: jax.Array) -> jax.Array:
        return mask_rcnn.features_of(setting.model, maps, corners, cells)

    lying = turned_images.exchanged(corners, is_turned)
    features = on_each_device(read, setting.mesh)(maps, lying)
    return turned_images.features_as_they_stand(features, is_turned)


def _with_area(corners: jax.Array) -> jax.Array:
    """Boxes of which padding has sides of 1, so that a code of it is a number."""
    has_area = (corners[..., 2:] > corners[..., :2]).all(-1, keepdims=True)
    return jnp.where(has_area, corners, jnp.array([0.0, 0.0, 1.0, 1.0]))


def _keys(keys: jax.Array, purpose: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(keys)
