"""Handwritten digits: a residual network of 77,000 parameters to 99.15 % of 897 test images.

    dawnjax train --experiment=digits

The data are scikit-learn's 1,797 real digits of 8x8 pixels, split in 900 and 897, stratified, seed
0. On this split one nearest neighbour reaches 0.9877 and the best RBF-SVM 0.9900; 890 of 897 is
0.9922.

Expected: on 2 cores of an AMD EPYC virtual machine 20 of 20 seeds reached the target, after 0.78 s
(CV 0.20) and 6 to 11 epochs; compilation takes 4 to 6 s before that. On a Zen 5 it was 20 of 20
and 0.46 s. `benchmarks/measurements.md` has the spread.

Source: the network and its ingredients come from He et al. 2015 and the usual CIFAR recipes
(SGD with Nesterov momentum, warm-up, cosine, label smoothing); rates, augmentation and length were
searched here on seeds 100 to 115, 300 to 315 and 500 to 539.
"""

from dawnjax.own import (
    Classification,
    Digits,
    Evaluation,
    Experiment,
    ImageAugmentation,
    ResNet,
    Sgd,
    Target,
    Technique,
    WarmupCosine,
)

EXPERIMENT = Experiment(
    name="digits",
    task=Classification(
        augmentation=ImageAugmentation(
            max_translation_pixels=0.4,
            subpixel_translation=True,
            max_scale_fraction=0.05,
            padding="edge",
        ),
        label_smoothing=0.1,
    ),
    model=ResNet(stage_sizes=(1, 1), stage_widths=(32, 64)),
    data=Digits(),
    optimizer=Sgd(base_learning_rate=0.4, weight_decay=5e-4),
    schedule=WarmupCosine(warmup_epochs=2.0),
    num_epochs=18,
    global_batch_size=64,
    batch_norm_group_size=16,
    targets=(Target(value=0.9915),),
    target_note="890 of the 897 test images, chosen by looking at what models reach on them",
    evaluation=Evaluation(first_epoch=6.0, global_batch_size=150),
)

TECHNIQUES = (
    Technique("label_smoothing", ("--task.label_smoothing=0",)),
    Technique("translation", ("--task.augmentation.max_translation_pixels=0",)),
    Technique("scaling", ("--task.augmentation.max_scale_fraction=0",)),
    Technique("nesterov", ("--optimizer.nesterov=false",)),
    Technique("weight_decay", ("--optimizer.weight_decay=0",)),
    Technique("warm_up", ("--schedule.warmup_epochs=0",)),
    Technique("group_statistics", ("--batch_norm_group_size=64",)),
)
