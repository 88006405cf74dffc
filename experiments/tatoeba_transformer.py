"""English to German everyday sentences: a Transformer on 163,931 pairs of Tatoeba.

    dawnjax prepare --dataset=parallel_text --train_source=train.en.gz --train_target=train.de.gz \\
      --eval_source=test.en.gz --eval_target=test.de.gz \\
      --vocabulary_size=8000 --row_length=64 --out=data/tatoeba_en_de
    dawnjax train --experiment=tatoeba_transformer --data.data_dir=data/tatoeba_en_de

3 + 3 layers of width 512, 19,851,264 parameters with the joint vocabulary of 8,000; 26,334 rows of
62 source and 64 target tokens, 6.2 pairs in each; 64 rows, about 4,000 target tokens, a step,
6,584 steps in all; greedy search; BLEU is sacreBLEU's, cased, on detokenized text.

Not yet measured. It is meant for one GPU: its 16 epochs make about 3.2 PFLOP. The target was chosen
before any run. An English sentence may have several German translations in this corpus, and only
one of them is the reference, which lowers BLEU.

Source: `multi30k_transformer`, changed where the corpus differs. It has 5.7 times as many pairs,
about as many as IWSLT 2014, so it takes the width and batch of the model that fairseq trains there
(`transformer_iwslt_de_en`: 512, feed-forward 1,024, 4 heads, 4,096 tokens). It has half of that
model's 6 + 6 layers, for sentences of ten tokens, and dropout between its 0.3 and Multi30K's 0.1.
The peak rate is Multi30K's over the root of the two widths' ratio (Vaswani et al. 2017, section
5.3).
"""

from dawnjax.own import (
    Adam,
    Evaluation,
    Experiment,
    ParallelText,
    Target,
    Transformer,
    Translation,
    WarmupLinear,
)

EXPERIMENT = Experiment(
    name="tatoeba_transformer",
    task=Translation(label_smoothing=0.1),
    model=Transformer(num_layers=3, width=512, hidden_width=1024, num_heads=4, dropout_rate=0.2),
    data=ParallelText(corpus="tatoeba_en_de", vocabulary_size=8000, row_length=64),
    optimizer=Adam(base_learning_rate=1e-3),
    schedule=WarmupLinear(warmup_epochs=1.0),
    num_epochs=16,
    global_batch_size=64,
    compute_dtype="bfloat16",
    ema_decay=0.995,
    targets=(Target(metric="bleu", value=30.0),),
    target_note="chosen before any run",
    evaluation=Evaluation(weights="ema", first_epoch=4.0, every_epochs=2.0, global_batch_size=256),
)
