"""ImageNet to 93 % top-5: ResNet-50, the plain reference recipe.

    dawnjax prepare --dataset=imagenet --from=ILSVRC2012 --out=data/imagenet
    dawnjax train --experiment=imagenet_resnet50 --data.data_dir=data/imagenet

SGD with Nesterov momentum, 0.1 for each 256 examples of a batch of 1,024, five epochs of warm-up,
a cosine to 0 over 40 epochs, label smoothing, random rectangles and flips, the last BatchNorm
scale of each block starting at 0.

Not yet measured: it needs an accelerator (an epoch is 30 PFLOP) and ImageNet. The nearest entry of
DAWNBench (half of a TPU v2 pod, TensorFlow 1.8, steps in place of a cosine, no smoothing) had
93.00 % top-5 after 87 epochs, and 93.03 % and 75.97 % top-1 after 100.

Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD" (arXiv 1706.02677), sections 2.1, 2.2
and 5.1; cosine and smoothing as in He et al. 2018, "Bag of Tricks" (arXiv 1812.01187), section 5.
"""

from dawnjax.own import (
    Classification,
    Evaluation,
    Experiment,
    ImageAugmentation,
    ImageNet,
    Sgd,
    Target,
    Technique,
    WarmupCosine,
    imagenet_resnet,
)

EXPERIMENT = Experiment(
    name="imagenet_resnet50",
    task=Classification(
        augmentation=ImageAugmentation(crop_pixels=224, flip="random"), label_smoothing=0.1
    ),
    model=imagenet_resnet(50),
    data=ImageNet(),
    optimizer=Sgd(base_learning_rate=0.1, reference_batch_size=256, weight_decay=1e-4),
    schedule=WarmupCosine(warmup_epochs=5.0),
    num_epochs=40,
    global_batch_size=1024,
    batch_norm_group_size=32,
    compute_dtype="bfloat16",
    targets=(Target(metric="top_5_accuracy", value=0.93),),
    evaluation=Evaluation(every_epochs=1.0, first_epoch=30.0, global_batch_size=1000),
)

TECHNIQUES = (
    # Removes normalization and ReLU to see their cost, as in figure 11 of Coleman et al. 2019;
    # without them the network hardly learns.
    Technique("batch_norm", ("--model.normalizes=false",)),
    Technique("relu", ("--model.rectifies=false",)),
    # XLA's fusion of ops into one kernel; the same mathematics.
    Technique("fusion", ("--xla_options=xla_disable_hlo_passes=fusion",)),
)
