"""WMT English to German: GNMT to uncased BLEU 21.8, as in MLPerf Training v0.5.

    dawnjax prepare --dataset=parallel_text --train_source=train.en.gz --train_target=train.de.gz \\
      --eval_source=newstest2014.en --eval_target=newstest2014.de \\
      --vocabulary_size=32320 --row_length=50 --out=data/wmt_en_de_50
    dawnjax train --experiment=wmt_gnmt --data.data_dir=data/wmt_en_de_50

4 + 4 LSTM layers of width 1024, 160,634,433 parameters; Adam at 1e-3 after 200 steps of warm-up,
halved four times from two thirds of 8 epochs on; label smoothing 0.1, dropout 0.2, gradients
clipped; pairs of at most 50 tokens, packed into rows of 50; beam 5, length penalty 0.6, coverage
penalty 0.1, on newstest2014.

Not yet measured. It is meant for one machine of 8 GPUs or TPU cores.

Source: mlcommons/training, `rnn_translator/pytorch`: the defaults of `train.py`'s flags, for v0.6
and v0.7; that file's `--score-only -lc --tokenize intl` for how BLEU is computed. Three things
differ. The reference clips the gradient of a sentence's summed loss to 5.0; this recipe clips the
gradient of the mean over tokens, about 30 a sentence, to 0.17. The reference's warm-up is
exponential, and this one linear. Its batches are of 128 pairs a worker; 64 rows hold about as many.
The target comes from the logs of MLPerf Training v0.5; later rounds have 24.0.
"""

from dawnjax.own import (
    GNMT,
    Adam,
    Decoding,
    Evaluation,
    Experiment,
    ParallelText,
    PiecewiseStep,
    Scoring,
    Target,
    Translation,
)

EXPERIMENT = Experiment(
    name="wmt_gnmt",
    task=Translation(
        label_smoothing=0.1,
        decoding=Decoding(num_beams=5, length_penalty=0.6, coverage_penalty=0.1),
        scoring=Scoring(is_cased=False, tokenizer="intl"),
    ),
    model=GNMT(),
    data=ParallelText(corpus="wmt_en_de", vocabulary_size=32320, row_length=50),
    optimizer=Adam(base_learning_rate=1e-3, beta_2=0.999, epsilon=1e-8, clip_global_norm=0.17),
    # 3.5 million pairs of at most 50 tokens are some 27,000 steps an epoch.
    schedule=PiecewiseStep(
        warmup_epochs=0.006,
        boundary_epochs=(5.33, 6.0, 6.66, 7.33),
        factors=(0.5, 0.5, 0.5, 0.5),
    ),
    num_epochs=8,
    global_batch_size=64,
    compute_dtype="bfloat16",
    targets=(Target(metric="bleu", value=21.8),),
    target_note="of uncased BLEU with the tokenizer intl, as in MLPerf v0.5",
    evaluation=Evaluation(global_batch_size=256),
)
