"""Handwritten digits in 10 epochs: Muon, half the width, and the average of the weights.

    dawnjax train --experiment=digits_muon.py

The network of `digits` with 16 and 32 channels in place of 32 and 64: 19,706 parameters. Muon
updates the convolutions, Adam the rest; the rate falls in a straight line. An evaluation measures
the moving average of the weights. Rates and length were searched on seeds 100 to 147.
"""

import dataclasses

from dawnjax.config.experiment import MuonAdam, WarmupLinear
from dawnjax.config.techniques import Technique
from dawnjax.experiments import digits
from dawnjax.models.resnet import ResNet

EXPERIMENT = dataclasses.replace(
    digits.EXPERIMENT,
    name="digits_muon",
    model=ResNet(stage_sizes=(1, 1), stage_widths=(16, 32)),
    optimizer=MuonAdam(
        base_learning_rate=0.2,
        momentum=0.9,
        orthogonalization="newton_schulz",
        iterations=3,
        adam_learning_rate=0.01,
        weight_decay=0.005,
    ),
    schedule=WarmupLinear(),
    num_epochs=10,
    ema_decay=0.9,
    evaluation=dataclasses.replace(digits.EXPERIMENT.evaluation, weights="ema"),
)

TECHNIQUES = (
    Technique(
        "muon",
        (
            "--optimizer=sgd",
            "--optimizer.base_learning_rate=0.4",
            "--optimizer.weight_decay=5e-4",
            "--schedule.warmup_epochs=1",
        ),
    ),
    Technique("half_width", ("--model.stage_widths=32,64",)),
    Technique("averaged_weights", ("--ema_decay=0", "--evaluation.weights=raw")),
    Technique("falling_rate", ("--schedule=constant",)),
    Technique("weight_decay", ("--optimizer.weight_decay=0",)),
    Technique("label_smoothing", ("--task.label_smoothing=0",)),
    Technique(
        "augmentation",
        (
            "--task.augmentation.max_translation_pixels=0",
            "--task.augmentation.max_scale_fraction=0",
        ),
    ),
    Technique("group_statistics", ("--batch_norm_group_size=64",)),
)
