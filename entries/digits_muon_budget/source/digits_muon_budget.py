"""Handwritten digits by 5,000 training examples: Muon in place of SGD, and the average of the weights."""

import dataclasses

from dawnjax.own import MuonAdam, WarmupLinear, load_experiment

BASELINE = load_experiment("digits")
EXPERIMENT = dataclasses.replace(
    BASELINE,
    name="digits_muon_budget",
    optimizer=MuonAdam(
        base_learning_rate=0.2,
        momentum=0.9,
        orthogonalization="newton_schulz",
        iterations=3,
        adam_learning_rate=0.01,
        weight_decay=0.005,
    ),
    schedule=WarmupLinear(),
    num_epochs=5.5,
    evaluation=dataclasses.replace(BASELINE.evaluation, every_epochs=100000, first_epoch=0),
)
