"""CIFAR-10 to 94 %: the network and optimizer of the speed records.

    dawnjax prepare --dataset=cifar10 --from=cifar-10-python.tar.gz --out=data/cifar10
    dawnjax train --experiment=cifar10_record --data.data_dir=data/cifar10

A fixed whitening of 2x2 patches, groups of 64, 256 and 256 channels, Muon for the kernels,
alternating flips and translations. An evaluation averages six views of each test image.

Expected: the source reaches 94 % on one A100. Here only a JPEG copy of the data was used: on one
NVIDIA H200 nine seeds ended at a mean top-1 of 0.9063 after 1.05 s of training; none reached 0.94.

Source: Jordan 2024 (arXiv 2404.00498), and the later record with Muon, `airbench94_muon.py` in
https://github.com/KellerJordan/cifar10-airbench, which explains its numbers.
"""

from dawnjax.own import (
    Cifar10,
    Classification,
    Evaluation,
    Experiment,
    ImageAugmentation,
    Muon,
    RecordNet,
    Target,
    Technique,
    WarmupLinear,
)

EXPERIMENT = Experiment(
    name="cifar10_record",
    task=Classification(
        augmentation=ImageAugmentation(
            max_translation_pixels=2.0, padding="reflect", flip="alternating"
        ),
        label_smoothing=0.2,
        test_time_augmentation="flip_and_translate",
    ),
    model=RecordNet(),
    data=Cifar10(),
    optimizer=Muon(),
    schedule=WarmupLinear(),
    num_epochs=8,
    global_batch_size=2000,
    batch_norm_group_size=2000,
    compute_dtype="bfloat16",
    targets=(Target(value=0.94),),
    evaluation=Evaluation(first_epoch=7.0, global_batch_size=2000),
)

TECHNIQUES = (
    Technique("label_smoothing", ("--task.label_smoothing=0",)),
    Technique("translation", ("--task.augmentation.max_translation_pixels=0",)),
    Technique("alternating_flip", ("--task.augmentation.flip=random",)),
    Technique("test_time_views", ("--task.test_time_augmentation=none",)),
    Technique("whitening", ("--model.whitens=false",)),
    Technique(
        "muon",
        (
            "--optimizer=sgd",
            "--optimizer.base_learning_rate=0.5",
            "--optimizer.weight_decay=5e-4",
        ),
    ),
)
