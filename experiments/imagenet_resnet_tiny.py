"""A tiny stand-in for ImageNet with ResNet: synthetic images, seconds on any machine.

    dawnjax train --experiment=imagenet_resnet_tiny --seed=0 --run_dir=runs/tiny_0

Use it to try a run of image classification with a residual network: small images made from a seed,
a small network, and a target that it reaches in a few epochs. Its time says nothing about ImageNet,
and no benchmark's export takes it.

Source: He et al. 2015 for the network's blocks; sizes and rates are arbitrary.
"""

from dawnjax.own import Evaluation, Experiment, ResNet, Sgd, Synthetic, Target, WarmupCosine

EXPERIMENT = Experiment(
    name="imagenet_resnet_tiny",
    model=ResNet(stage_sizes=(1, 1), stage_widths=(16, 32)),
    data=Synthetic(image_height=16, image_width=16, image_channels=3, num_eval_examples=250),
    optimizer=Sgd(base_learning_rate=0.1, weight_decay=5e-4),
    schedule=WarmupCosine(warmup_epochs=1.0),
    num_epochs=8,
    global_batch_size=64,
    batch_norm_group_size=16,
    targets=(Target(value=0.5),),
    target_note="an arbitrary level of a made-up task",
    evaluation=Evaluation(),
)
