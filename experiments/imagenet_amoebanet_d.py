"""ImageNet to 93 % top-5: AmoebaNet-D N6 F256, as Google entered it in DAWNBench.

    dawnjax prepare --dataset=imagenet --from=ILSVRC2012 --out=data/imagenet
    dawnjax train --experiment=imagenet_amoebanet_d --data.data_dir=data/imagenet

RMSProp as TensorFlow computes it, 2.56 at a batch of 1,024, the rate times 0.88 after each epoch,
warm-up over the first hundredth of the run, an auxiliary head, dropout before the classifier, and
the moving average of the weights for evaluation. As in the source's command there is no drop path
and no clipping of gradients. Unlike the source, the statistics of BatchNorm are not averaged
beyond their own momentum. The preprocessing of images was not compared.

Not yet measured. The entry (one Cloud TPU, TensorFlow 1.8) reached 93.04 % top-5 after 33 of 35
epochs and 7.5 hours, 93.11 % and 76.20 % top-1 at the end.

Source: the entry `google_amoeba_net_d_tpu_tensorflow18` of
https://github.com/stanford-futuredata/dawn-bench-entries for batch, rates, decay and epochs; the
command in `models/experimental/amoeba_net/README.md` at 1acd2c4 in
https://github.com/tensorflow/tpu, and the defaults of that program's flags, for the rest.
"""

from dawnjax.own import (
    AmoebaNetD,
    Classification,
    Evaluation,
    Experiment,
    Exponential,
    ImageAugmentation,
    ImageNet,
    RmsProp,
    Target,
)

EXPERIMENT = Experiment(
    name="imagenet_amoebanet_d",
    task=Classification(
        augmentation=ImageAugmentation(crop_pixels=224, flip="random"), label_smoothing=0.1
    ),
    model=AmoebaNetD(),
    data=ImageNet(),
    optimizer=RmsProp(base_learning_rate=0.64, reference_batch_size=256, clip_global_norm=0.0),
    schedule=Exponential(warmup_epochs=0.35, rate=0.88),
    num_epochs=35,
    global_batch_size=1024,
    batch_norm_group_size=128,
    compute_dtype="bfloat16",
    ema_decay=0.9999,
    ema_has_warmup=True,
    targets=(Target(metric="top_5_accuracy", value=0.93),),
    evaluation=Evaluation(
        every_epochs=1.0, first_epoch=25.0, weights="ema", global_batch_size=1000
    ),
)
