"""ImageNet to 93 % top-5: ResNet-50 on images that grow, after fast.ai and DIUx.

    dawnjax prepare --dataset=imagenet --from=ILSVRC2012 --out=data/imagenet
    dawnjax train --experiment=imagenet_resnet50_progressive --data.data_dir=data/imagenet

Images of 128, 224 and 288 pixels from epochs 0, 14 and 32 on, in batches of 4,096, 1,792 and
1,024; random rectangles of at least half of the image at the end. The rate rises from 1 to 2 over
5 epochs, falls to 1, then to a tenth at 16, 27 and 33 epochs, and follows the batch. Momentum
without Nesterov, no weight decay of biases and normalization, the last BatchNorm scale of each
block starting at 0, no label smoothing. `--stages.boundary_epochs=` switches progressive resizing
off; `--task.augmentation.crop_pixels=224` then chooses the one size.

Not yet measured: it needs an accelerator and ImageNet. The source states 109 minutes to 93.00 % on
eight V100. Of its authors' DAWNBench entries, four such machines reached 93.008 % after 29 epochs
in 0.495 hours, and one machine 93.002 % after 42 epochs in 2.96 hours, both with other schedules.

Three things differ from the source. BatchNorm's statistics are of 32 images, not of a device's
batch. Arithmetic is bfloat16, not float16. Evaluation sees the middle square (0.875 of the shorter
side), also at 288 pixels, where the source keeps the photograph's shape. Images have 256 pixels,
so those of 288 are enlarged; --image_side=330 prepares larger ones (435 GB) for
--data.image_side=330.

Source: `train.py` and `training/train_imagenet_nv.py` in https://github.com/diux-dev/imagenet18
(now https://github.com/cybertronai/imagenet18_old), its schedule `one_machine`; the entries
`fastai_pytorch` and `fastai_resnet50_p3_4_machine_pytorch` of
https://github.com/stanford-futuredata/dawn-bench-entries; `imagenet_nv/main.py` at c4b2255 in
https://github.com/fastai/imagenet-fast for the first entry.
"""

from dawnjax.own import (
    Classification,
    Evaluation,
    Experiment,
    ImageAugmentation,
    ImageNet,
    ImageStages,
    PiecewiseLinear,
    Sgd,
    Stages,
    Target,
    imagenet_resnet,
)

EXPERIMENT = Experiment(
    name="imagenet_resnet50_progressive",
    task=Classification(
        augmentation=ImageAugmentation(crop_pixels=128, center_fraction=0.875, flip="random"),
        stages=ImageStages(crop_pixels=(224, 288), crop_min_area=(0.08, 0.5)),
    ),
    model=imagenet_resnet(50),
    data=ImageNet(),
    optimizer=Sgd(
        base_learning_rate=2.0, reference_batch_size=4096, nesterov=False, weight_decay=1e-4
    ),
    # Of the batch's share of 2.0; the steps are where the source's rates change.
    schedule=PiecewiseLinear(
        knot_epochs=(0.0, 5.0, 5.0, 16.0, 16.0, 27.0, 27.0, 33.0, 33.0),
        fractions=(0.5, 1.0, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.0005),
    ),
    num_epochs=35,
    global_batch_size=4096,
    batch_norm_group_size=32,
    compute_dtype="bfloat16",
    stages=Stages(
        boundary_epochs=(14.0, 32.0),
        global_batch_size=(1792, 1024),
    ),
    targets=(Target(metric="top_5_accuracy", value=0.93),),
    evaluation=Evaluation(every_epochs=1.0, first_epoch=27.0, global_batch_size=1024),
)
