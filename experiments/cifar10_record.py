"""CIFAR-10 to 94 %: the network and optimizer of the speed records."""

from dawnjax.experiment import Evaluation, Experiment, Muon, Target, WarmupLinear
from dawnjax.input_pipeline.cifar10 import Cifar10
from dawnjax.input_pipeline.image_augmentation import ImageAugmentation
from dawnjax.models.record_net import RecordNet

EXPERIMENT = Experiment(
    name="cifar10_record",
    model=RecordNet(),
    data=Cifar10(),
    augmentation=ImageAugmentation(
        max_translation_pixels=2.0, padding="reflect", flip="alternating"
    ),
    optimizer=Muon(),
    schedule=WarmupLinear(),
    num_epochs=8,
    global_batch_size=2000,
    batch_norm_group_size=2000,
    label_smoothing=0.2,
    compute_dtype="bfloat16",
    targets=(Target(value=0.94),),
    evaluation=Evaluation(
        first_epoch=7.0, test_time_augmentation="flip_and_translate", global_batch_size=2000
    ),
)
