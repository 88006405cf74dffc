"""English to German image captions: a small GNMT to BLEU 28.0 on Multi30K's 2016 test set.

    dawnjax prepare --dataset=parallel_text --train_source=train.en.gz --train_target=train.de.gz \\
      --eval_source=test_2016_flickr.en.gz --eval_target=test_2016_flickr.de.gz \\
      --vocabulary_size=8000 --row_length=64 --out=data/multi30k_en_de
    dawnjax train --experiment=multi30k_gnmt --data.data_dir=data/multi30k_en_de

2 + 2 LSTM layers of width 256, 7,386,433 parameters with the joint vocabulary of 8,000; 29,000
pairs in rows of 62 source and 64 target tokens, 8 rows (about 32 pairs) a step; greedy search; BLEU
is sacreBLEU's, cased, on detokenized text. float32, because a step of bfloat16 takes 1.25 times as
long on an Intel Xeon (100 steps, one run of each).

Seed 0 did **not** reach the target on 2 cores of an Intel Xeon virtual machine: BLEU 17.4, 22.1 and
23.7 after 3, 4 and 5 epochs. A bfloat16 trial of the same recipe, evaluated on the validation set,
had 9.4, 16.8, 25.2, 29.0 and 29.7 after 1 to 5 epochs. Its last parameters had 28.57 on the 2016
test set, and the target was set from that: it was chosen by looking at the test set. Trials differ
much: some lag by an epoch or more, and miss the target (docs/translation.md).

Source: the network of MLPerf's GNMT made smaller; bounds, rates and length were chosen here, on the
validation set.
"""

from dawnjax.config.experiment import (
    Adam,
    Evaluation,
    Experiment,
    Observation,
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
    ema_decay=0.995,
    targets=(Target(metric="bleu", value=28.0),),
    target_note="chosen from one trial of this recipe, which had 28.57 on this test set",
    evaluation=Evaluation(weights="ema", first_epoch=3.0, global_batch_size=250),
    observations=(
        Observation(
            hardware="2 cores of an Intel Xeon virtual machine",
            trials=1,
            reached=0,
            mean_time_to_accuracy_seconds=None,
            quality=23.65,
            date="2026-11-25",
        ),
    ),
)

TINY = tiny(
    EXPERIMENT,
    data=SyntheticText(num_train_examples=32, num_eval_examples=20),
    model=GNMT(num_layers=2, width=16),
)
