"""COCO to 23.0 % box mAP: MLPerf's SSD with a ResNet-34, by the rules of v0.6.

    dawnjax prepare --dataset=coco --from=coco --out=data/coco2017
    dawnjax train --experiment=coco_ssd_resnet34 --data.data_dir=data/coco2017 \\
      --initialize_from=RUN_DIR

`RUN_DIR` is a run of ResNet-34 on ImageNet (`--experiment=imagenet_resnet50` with
`--model.stage_sizes=3,4,6,3 --model.block=basic --model.stage_widths=64,128,256,512`): the
benchmark begins with such a backbone. Without the flag everything is trained from scratch.

The reference's network, 19,972,534 parameters and 8,732 default boxes; momentum 0.9. The rate is
the DGX-1's 0.0875; the reference's rule, 2.5e-3 for each 32 images, gives 0.075. Another batch does
not scale it. It is divided by ten at iterations 160,000 and 200,000 of batches of 32. Evaluations
come every 20,000 from 120,000 on; the reference leaves out the one at 140,000. The rules leave
batch, warm-up and decay free: 960 images, 650 iterations and 1.6e-4 of all parameters (5e-4 in the
reference) come from the DGX-1 and its eight V100.

Training images are stored with 510 x 510 pixels, from which crops are cut; MLPerf's reference cuts
them from the original. The 48 images without objects are not evaluated, as in the reference.

Not yet measured: it needs an accelerator and COCO.

Source: mlcommons/training v0.5 and commit d99c36d, `single_stage_detector/ssd`; MLPerf Training
v0.6, rules and the log of a DGX-1.
"""

from dawnjax.own import (
    SSD,
    Coco,
    Evaluation,
    Experiment,
    ObjectDetection,
    PiecewiseStep,
    Sgd,
    Target,
    Technique,
)

EPOCHS_OF_10_000 = 32 * 10_000 / 117_266
"""Epochs of 10,000 iterations of 32 images, in which the reference gives its schedule."""

EXPERIMENT = Experiment(
    name="coco_ssd_resnet34",
    task=ObjectDetection(),
    model=SSD(),
    data=Coco(
        corpus="coco2017",
        height=300,
        width=300,
        train_height=510,
        train_width=510,
        evaluates_empty=False,
    ),
    optimizer=Sgd(
        base_learning_rate=0.0875,
        nesterov=False,
        weight_decay=1.6e-4,
        decay_norm_and_bias=True,
    ),
    schedule=PiecewiseStep(
        warmup_epochs=650 * 960 / 117_266,
        boundary_epochs=(16 * EPOCHS_OF_10_000, 20 * EPOCHS_OF_10_000),
        factors=(0.1, 0.1),
    ),
    num_epochs=24 * EPOCHS_OF_10_000,
    global_batch_size=960,
    batch_norm_group_size=120,
    compute_dtype="bfloat16",
    mlperf_benchmark="ssd",
    targets=(Target(metric="box_ap", value=0.23),),
    evaluation=Evaluation(
        every_epochs=2 * EPOCHS_OF_10_000,
        first_epoch=12 * EPOCHS_OF_10_000 - 0.01,
        global_batch_size=960,
    ),
)

TECHNIQUES = (
    # What the reference's departures from the paper are worth.
    Technique("crop_condition", ("--task.augmentation.crop=any_object",)),
    Technique("centres_by_step", ("--model.boxes.centres=map",)),
    Technique("divisor_of_each_image", ("--task.loss_divisor=batch",)),
    Technique("crops", ("--task.augmentation.crop=none",)),
    Technique("hard_negatives", ("--task.negatives=8732",)),
)
