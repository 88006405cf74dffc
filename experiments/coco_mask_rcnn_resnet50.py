"""COCO to 37.7 % box and 33.9 % mask mAP: MLPerf's Mask R-CNN, by the reference of v0.5.

    dawnjax prepare --dataset=coco --from=coco --out=data/coco2017
    dawnjax train --experiment=coco_mask_rcnn_resnet50 --data.data_dir=data/coco2017 \\
      --initialize_from=RUN_DIR

`RUN_DIR` is a run of ResNet-50 on ImageNet (`--experiment=imagenet_resnet50`): the benchmark begins
with such a backbone, and keeps its BatchNorm. To train from scratch, take `--model.norm=group
--model.frozen_stages=0`.

The reference's network, 44,347,573 parameters; stem and first stage are not trained. Momentum 0.9
at 0.02 in batches of 16, biases at twice the rate and without decay; a tenth from iterations 60,000
and 80,000 of 90,000 on. Both targets must hold in one evaluation.

Images have 800 pixels on the shorter side, at most 1,333 on the longer, and are padded to 832 x
1,344 or 1,344 x 832, one of the two in each batch. experiments/mlperf_recipes.md lists the
differences from the reference.

Not yet measured: it needs an accelerator and COCO.

Source: mlcommons/training v0.5, `object_detection/pytorch`; rules of MLPerf Training v0.5.
"""

from dawnjax.own import (
    Coco,
    Evaluation,
    Experiment,
    InstanceSegmentation,
    MaskRCNN,
    PiecewiseStep,
    Sgd,
    Target,
    Technique,
)

EPOCHS_OF_10_000 = 16 * 10_000 / 117_266
"""Epochs of 10,000 iterations of 16 images, in which the reference gives its schedule."""

EXPERIMENT = Experiment(
    name="coco_mask_rcnn_resnet50",
    task=InstanceSegmentation(),
    model=MaskRCNN(),
    data=Coco(
        corpus="coco2017",
        height=832,
        width=1344,
        short_side=800,
        long_side=1333,
        turns_tall=True,
        mask_side=112,
        trains_crowd=False,
    ),
    optimizer=Sgd(base_learning_rate=0.02, nesterov=False, weight_decay=1e-4, bias_rate_factor=2.0),
    schedule=PiecewiseStep(
        warmup_epochs=500 * 16 / 117_266,
        initial_fraction=1 / 3,
        boundary_epochs=(6 * EPOCHS_OF_10_000, 8 * EPOCHS_OF_10_000),
        factors=(0.1, 0.1),
    ),
    num_epochs=9 * EPOCHS_OF_10_000,
    global_batch_size=16,
    mlperf_benchmark="maskrcnn",
    targets=(Target(metric="box_ap", value=0.377), Target(metric="mask_ap", value=0.339)),
    evaluation=Evaluation(every_epochs=1.0, global_batch_size=16),
)

TECHNIQUES = (
    Technique("mirror_images", ("--task.flip=none",)),
    Technique("double_rate_of_biases", ("--optimizer.bias_rate_factor=1",)),
    Technique("frozen_stages", ("--model.frozen_stages=0",)),
    Technique("warm_up", ("--schedule.warmup_epochs=0",)),
)
