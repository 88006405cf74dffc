"""C4: Llama 3.1 8B from random weights, to a validation loss of 3.3 nats a token.

    dawnjax train --experiment=c4_llama31_8b --data.data_dir=data/c4_llama31 --mesh.fsdp=8
    dawnjax plan c4_llama31_8b --on=h100:64 --mesh.fsdp=32 --mesh.model=2

8,030,261,248 parameters. MLPerf's benchmark llama31_8b: rows of 8,192 tokens of shards 768 to 1023
of C4, and an evaluation of 1,024 rows every 12,288. The cosine ends at 1,200,000 steps, so the rate
of a run is constant after the warm-up. Rates by batch, from the reference's convergence points:

    rows    rate    rows of warm-up    rows to the target
    16      4e-4    256                161,109
    32      8e-4    4,096              178,859
    64      8e-4    6,144              226,645
    128     2e-3    32,768             344,747

Another batch also needs three flags: the rate, --evaluation.every_steps=12,288 / rows (768,
384, 192 and 96), and --schedule.warmup_epochs=rows of warm-up / 4,760,742. That length of an epoch
is a guess from the published number of tokens. With data of another length the recipe's warm-up
changes in proportion: divide by the rows of your data.

Expected: unknown. It has not been trained, for lack of the data and the machines.
MLPerf's tokenizer lists 128,256 tokens, and shards of them are what `--data.vocabulary=llama3`
names. Its documents follow each other without a separator: prepare them with `--separator=`, empty.

Attention's output and the MLPs' down projections begin with a standard deviation of 0.0025, all
other matrices with 0.02, as the reference's do. `experiments/mlperf_recipes.md` compares each
setting.

Source: mlcommons/training, `small_llm_pretraining/nemo`; mlcommons/training_policies,
`training_rules.adoc`; mlcommons/logging, `compliance_checker/training_5.1.0/closed_llama31_8b.yaml`
and `rcp_checker/training_6.1.0`.
"""

import dataclasses
import math

from dawnjax.own import (
    LLAMA_SIZES,
    Adam,
    Evaluation,
    Experiment,
    LanguageModelling,
    Target,
    TokenShards,
    WarmupCosine,
)

BATCH = 32
EPOCH_ROWS = 39 * 10**9 // 8192
"""About; see `token_shards.PUBLISHED`."""

EXPERIMENT = Experiment(
    name="c4_llama31_8b",
    task=LanguageModelling(target_vocabulary="llama3"),
    model=dataclasses.replace(
        LLAMA_SIZES["llama_3_1_8b"], scales_projections=True, remat="full", loss_chunk=1024
    ),
    data=TokenShards(
        corpus="c4_llama31",
        vocabulary="llama3",
        sequence_length=8192,
        max_eval_tokens=1024 * 8192,
    ),
    optimizer=Adam(
        base_learning_rate=8e-4,
        beta_2=0.95,
        epsilon=1e-5,
        weight_decay=0.1,
        clip_global_norm=1.0,
    ),
    schedule=WarmupCosine(warmup_epochs=4096 / EPOCH_ROWS, final_fraction=0.1),
    max_steps=1_200_000,
    global_batch_size=BATCH,
    compute_dtype="bfloat16",
    targets=(Target(metric="loss", value=3.3, direction="at_most"),),
    mlperf_benchmark="llama31_8b",
    evaluation=Evaluation(every_steps=math.ceil(12_288 / BATCH), global_batch_size=64),
)
