"""Synthetic images of any shape: for trying a machine, a model or a setting without data.

    dawnjax train --experiment=synthetic_image --data.image_height=224 --data.image_width=224

The images are made from a seed: a pattern for each class under noise. A small residual network
learns them in a few epochs on any machine. Every shape is a flag, and how hard the task is depends
on them, so the time says nothing about any benchmark.
"""

from dawnjax.own import Evaluation, Experiment, ResNet, Sgd, Synthetic, Target, WarmupCosine

EXPERIMENT = Experiment(
    name="synthetic_image",
    model=ResNet(stage_sizes=(1, 1), stage_widths=(16, 32)),
    data=Synthetic(),
    optimizer=Sgd(base_learning_rate=0.1, weight_decay=5e-4),
    schedule=WarmupCosine(warmup_epochs=1.0),
    num_epochs=10,
    global_batch_size=64,
    batch_norm_group_size=16,
    targets=(Target(value=0.9),),
    target_note="an arbitrary level of a made-up task",
    evaluation=Evaluation(),
)
