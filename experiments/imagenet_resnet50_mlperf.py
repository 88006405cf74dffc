"""ImageNet to 75.9 % top-1, MLPerf's target: ResNet-50 with LARS in batches of 16,384.

    dawnjax train --experiment=imagenet_resnet50_mlperf --data.data_dir=ILSVRC2012

LARS with a peak rate of 25 after five epochs of warm-up; the rate then falls with the square of the
remaining part of 72 epochs, down to 1e-4. Label smoothing. Hosts cut random rectangles of the whole
photographs, as published.
`--weight_update_sharding` splits the optimizer's state and the update over the devices.

Not yet measured: it needs a slice of an accelerator pod and ImageNet.

Source: `models/official/resnet/lars_util.py` in https://github.com/tensorflow/tpu for rate,
warm-up and power at this batch; the last rate is the default of `tf.train.polynomial_decay`, which
it calls; TensorFlow's `LARSOptimizer` for the rule (momentum of scaled
gradients, coefficient 0.001, no trust ratio for biases and normalization), which is the paper's;
Ying et al. 2018, "Image Classification at Supercomputer Scale" (arXiv 1811.06992), section 2. The
target is MLPerf training's since v0.6 (74.9 % in v0.5). 72 epochs are a choice of this recipe.
"""

import dataclasses

from dawnjax.experiments import imagenet_resnet50
from dawnjax.own import (
    Evaluation,
    ImageAugmentation,
    ImageNet,
    Lars,
    Polynomial,
    Target,
    imagenet_resnet,
)

EXPERIMENT = dataclasses.replace(
    imagenet_resnet50.EXPERIMENT,
    name="imagenet_resnet50_mlperf",
    task=dataclasses.replace(
        imagenet_resnet50.EXPERIMENT.task, augmentation=ImageAugmentation(flip="random")
    ),
    data=ImageNet(form="photographs", image_side=224),
    model=imagenet_resnet(50),
    optimizer=Lars(base_learning_rate=25.0),
    schedule=Polynomial(warmup_epochs=5.0, power=2.0, final_fraction=1e-4 / 25.0),
    num_epochs=72,
    global_batch_size=16384,
    batch_norm_group_size=64,
    targets=(Target(value=0.759),),
    mlperf_benchmark="resnet",
    evaluation=Evaluation(every_epochs=4.0, first_epoch=40.0, global_batch_size=2048),
)

TECHNIQUES = imagenet_resnet50.TECHNIQUES
