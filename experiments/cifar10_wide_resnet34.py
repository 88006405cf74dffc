"""CIFAR-10 to 94 %: a Wide ResNet of 34 layers with one cycle of the learning rate.

    dawnjax prepare --dataset=cifar10 --from=cifar-10-python.tar.gz --out=data/cifar10
    dawnjax train --experiment=cifar10_wide_resnet34 --data.data_dir=data/cifar10

WRN-34-6. The rate rises for 17.5 epochs, falls for as many, and ends with 5 epochs close to 0.

Not yet measured: it needs an accelerator (an epoch is 655 TFLOP). The entry that this follows
(eight V100) reached 94.03 % after 36 epochs and 174 s.

Source: the entry `fastai_pytorch`, "Custom Wide Resnet", of
https://github.com/stanford-futuredata/dawn-bench-entries, and `cifar10/dawn_submission` in
https://github.com/fastai/imagenet-fast: 40 epochs, one eighth of them at the end, batches of 8 x
128, rates 1.3 / 50 to 1.3, weight decay 2e-4. The source differs: it has 22 layers (no entry with
34 was found), momentum that cycles from 0.95 to 0.85, padding by reflection, rotation by up to 2
degrees, and changes of brightness, contrast and saturation by up to a quarter.
"""

from dawnjax.own import (
    Cifar10,
    Classification,
    Evaluation,
    Experiment,
    ImageAugmentation,
    PiecewiseLinear,
    Sgd,
    Target,
    wide_resnet,
)

EXPERIMENT = Experiment(
    name="cifar10_wide_resnet34",
    task=Classification(augmentation=ImageAugmentation(max_translation_pixels=4.0, flip="random")),
    model=wide_resnet(depth=34, widening=6),
    data=Cifar10(),
    optimizer=Sgd(base_learning_rate=1.3, nesterov=False, weight_decay=2e-4),
    schedule=PiecewiseLinear(
        knot_epochs=(0.0, 17.5, 35.0, 40.0), fractions=(0.02, 1.0, 0.02, 0.0002)
    ),
    num_epochs=40,
    global_batch_size=1024,
    batch_norm_group_size=128,
    compute_dtype="bfloat16",
    targets=(Target(value=0.94),),
    evaluation=Evaluation(every_epochs=1.0, first_epoch=25.0, global_batch_size=2000),
)
