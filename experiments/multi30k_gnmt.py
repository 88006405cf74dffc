"""English to German image captions: a small GNMT on Multi30K's 2016 test set.

    dawnjax prepare --dataset=parallel_text --train_source=train.en.gz --train_target=train.de.gz \\
      --eval_source=test_2016_flickr.en.gz --eval_target=test_2016_flickr.de.gz \\
      --vocabulary_size=8000 --row_length=64 --out=data/multi30k_en_de
    dawnjax train --experiment=multi30k_gnmt --data.data_dir=data/multi30k_en_de
"""

from dawnjax.config.experiment import (
    Adam,
    Evaluation,
    Experiment,
    Target,
    WarmupLinear,
)
from dawnjax.config.tiny import tiny
from dawnjax.input_pipeline.parallel_text import ParallelText
from dawnjax.input_pipeline.synthetic_text import SyntheticText
from dawnjax.models.gnmt import GNMT
from dawnjax.tasks.translation import Translation

EXPERIMENT = Experiment(
    name="multi30k_gnmt",
    task=Translation(label_smoothing=0.1),
    model=GNMT(num_layers=2, width=256, dropout_rate=0.1, initial_bound=0.2, attention_length=1.0),
    data=ParallelText(corpus="multi30k_en_de", vocabulary_size=8000, row_length=64),
    optimizer=Adam(base_learning_rate=3e-3, beta_2=0.999, epsilon=1e-8, clip_global_norm=0.5),
    schedule=WarmupLinear(warmup_epochs=0.2),
    num_epochs=5,
    global_batch_size=8,
    compute_dtype="bfloat16",
    ema_decay=0.995,
    targets=(Target(metric="bleu", value=30.0),),
    evaluation=Evaluation(weights="ema", first_epoch=2.0, global_batch_size=250),
)

TINY = tiny(
    EXPERIMENT,
    data=SyntheticText(num_train_examples=32, num_eval_examples=20),
    model=GNMT(num_layers=2, width=16),
)
