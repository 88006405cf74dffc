"""GovReport: low-rank adapters of Llama 2 70B, to an evaluation loss of 0.925 nats a token.

    dawnjax prepare --dataset=token_shards --documents=rows --from=train.parquet \\
        --validation=validation.parquet --out=data/govreport
    dawnjax train --experiment=llama2_70b_lora --data.data_dir=data/govreport \\
        --initialize_from=Llama-2-70b-hf --mesh.fsdp=8
    dawnjax plan llama2_70b_lora --on=h100:8 --mesh.fsdp=8

44,564,480 parameters of adapters of rank 16, beside 68,976,648,192 that stay as they are, in
bfloat16. MLPerf's benchmark: 3,901 rows of 8,192 tokens, an evaluation of 173 rows every 384, the
first three left out. Rows share no token. Training counts all tokens; an evaluation counts those of
the summaries, about 13 %, and takes the mean of the rows' means, so prepared data without a mask
are refused. The cosine ends at 0 after the reference's 1,024 steps. Another batch of N rows leaves
out floor(0.125 N + 2) evaluations: give it --evaluation.first_epoch.
`experiments/mlperf_recipes.md` compares each setting.

Expected: not known. It has not been trained: neither the weights, the data nor the machines were at
hand. MLPerf's checkpoint holds query, key and value as one matrix; `--initialize_from` reads the
form of the published Llama 2, with three. The reference reaches the target after 3,179 rows.

Source: mlcommons/training, `llama2_70b_lora`; mlcommons/training_policies, `training_rules.adoc`;
mlcommons/logging,
`compliance_checker/training_5.1.0/closed_llama2_70b_lora.yaml` and `rcp_checker/training_6.1.0`.
"""

import dataclasses
import math

from dawnjax.own import (
    LLAMA_SIZES,
    Adam,
    Evaluation,
    Experiment,
    LanguageModelling,
    Lora,
    Target,
    TokenShards,
    WarmupCosine,
)

BATCH, EPOCH_ROWS, EVERY_ROWS = 8, 3901, 384
SKIPPED = math.floor(0.125 * BATCH + 2)
LORA = Lora(
    rank=16,
    alpha=32.0,
    targets=("qkv", "output"),
    dropout_rate=0.1,
)

EXPERIMENT = Experiment(
    name="llama2_70b_lora",
    task=LanguageModelling(target_vocabulary="llama2", averages="rows"),
    model=dataclasses.replace(
        LLAMA_SIZES["llama_2_70b"], lora=LORA, param_dtype="bfloat16", remat="full", loss_chunk=1024
    ),
    data=TokenShards(
        corpus="govreport",
        vocabulary="llama2",
        sequence_length=8192,
        rows="apart",
        masks_prompts=True,
    ),
    optimizer=Adam(
        base_learning_rate=4e-4,
        beta_2=0.999,
        epsilon=1e-8,
        weight_decay=1e-4,
        clip_global_norm=0.3,
    ),
    schedule=WarmupCosine(),
    max_steps=1024,
    global_batch_size=BATCH,
    compute_dtype="bfloat16",
    targets=(Target(metric="loss", value=0.925, direction="at_most"),),
    mlperf_benchmark="llama2_70b_lora",
    evaluation=Evaluation(
        every_epochs=EVERY_ROWS / EPOCH_ROWS,
        first_epoch=(SKIPPED + 1) * EVERY_ROWS / EPOCH_ROWS,
        global_batch_size=8,
    ),
)
