"""CIFAR-10 to 94 %: the pre-activation ResNet-164, DAWNBench's seed.

    dawnjax prepare --dataset=cifar10 --from=cifar-10-python.tar.gz --out=data/cifar10
    dawnjax train --experiment=cifar10_resnet164 --data.data_dir=data/cifar10

SGD with momentum at 0.1 in batches of 128, a tenth of it for the first 400 steps, divided by ten
after 32,000 and 48,000 steps; weight decay on all parameters; random crops and flips.

Not yet measured: it needs an accelerator (an epoch is 71 TFLOP). DAWNBench's seed (one P100,
PyTorch 0.1.12) reached 94.19 % after 138 epochs and 3.0 hours with another schedule; the paper
states 5.46 % error (median of five).

Source: He et al. 2016, "Identity Mappings in Deep Residual Networks" (arXiv 1603.05027), appendix,
"Implementation Details", and table 2; the entry `dawn_resnet164_b_1p100-dawn_pytorch` of
https://github.com/stanford-futuredata/dawn-bench-entries.
"""

from dawnjax.own import (
    Cifar10,
    Classification,
    Evaluation,
    Experiment,
    ImageAugmentation,
    PiecewiseLinear,
    PreactivationResNet,
    Sgd,
    Target,
)

EXPERIMENT = Experiment(
    name="cifar10_resnet164",
    task=Classification(augmentation=ImageAugmentation(max_translation_pixels=4.0, flip="random")),
    model=PreactivationResNet(),
    data=Cifar10(),
    optimizer=Sgd(
        base_learning_rate=0.1, nesterov=False, weight_decay=1e-4, decay_norm_and_bias=True
    ),
    # 400, 32,000 and 48,000 steps of 128 in epochs of 50,000.
    schedule=PiecewiseLinear(
        knot_epochs=(0.0, 1.024, 1.024, 81.92, 81.92, 122.88, 122.88),
        fractions=(0.1, 0.1, 1.0, 1.0, 0.1, 0.1, 0.01),
    ),
    num_epochs=164,
    global_batch_size=128,
    batch_norm_group_size=128,
    compute_dtype="float32",
    targets=(Target(value=0.94),),
    evaluation=Evaluation(every_epochs=1.0, first_epoch=80.0, global_batch_size=2000),
)
