"""Blood cells."""

from dawnjax.config.experiment import Adam, Evaluation, Experiment, Target, WarmupCosine
from dawnjax.config.tiny import tiny
from dawnjax.input_pipeline.datasets.coco import Coco
from dawnjax.input_pipeline.datasets.synthetic_objects import SyntheticObjects
from dawnjax.input_pipeline.reading.object_augmentation import ObjectAugmentation
from dawnjax.models.ssd import SmallSSD
from dawnjax.tasks.object_detection import ObjectDetection

EXPERIMENT = Experiment(
    name="cells_ssd_small",
    task=ObjectDetection(
        augmentation=ObjectAugmentation(
            crop="none", flip="both", brightness=0, contrast=0, saturation=0, hue=0
        )
    ),
    model=SmallSSD(),
    data=Coco(corpus="blood_cells", height=96, width=128),
    optimizer=Adam(base_learning_rate=2e-3, weight_decay=1e-4),
    schedule=WarmupCosine(),
    num_epochs=24,
    global_batch_size=16,
    targets=(Target(metric="box_ap", value=0.25),),
    evaluation=Evaluation(every_epochs=3, first_epoch=12, global_batch_size=36),
)

TINY = tiny(EXPERIMENT, data=SyntheticObjects(num_train_examples=32, num_eval_examples=20))
