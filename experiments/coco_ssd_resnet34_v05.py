"""COCO to 21.2 % box mAP: MLPerf's SSD with a ResNet-34, by the reference and target of v0.5.

    dawnjax train --experiment=coco_ssd_resnet34_v05 --data.data_dir=data/coco2017 \\
      --initialize_from=RUN_DIR

As `coco_ssd_resnet34`, with another schedule: batches of 32 images at a rate of 1e-3 without
warm-up, and weight decay 5e-4, on one accelerator.

Not yet measured: it needs an accelerator and COCO.

Source: mlcommons/training v0.5, `single_stage_detector/ssd` (`train.py`); rules of MLPerf Training
v0.5 for the target.
"""

import dataclasses

from dawnjax.experiments import coco_ssd_resnet34
from dawnjax.experiments.coco_ssd_resnet34 import EPOCHS_OF_10_000
from dawnjax.own import PiecewiseStep, Sgd, Target

EXPERIMENT = dataclasses.replace(
    coco_ssd_resnet34.EXPERIMENT,
    name="coco_ssd_resnet34_v05",
    optimizer=Sgd(
        base_learning_rate=1e-3, nesterov=False, weight_decay=5e-4, decay_norm_and_bias=True
    ),
    schedule=PiecewiseStep(
        boundary_epochs=(16 * EPOCHS_OF_10_000, 20 * EPOCHS_OF_10_000), factors=(0.1, 0.1)
    ),
    global_batch_size=32,
    batch_norm_group_size=32,
    compute_dtype="float32",
    targets=(Target(metric="box_ap", value=0.212),),
)

TECHNIQUES = coco_ssd_resnet34.TECHNIQUES
