"""C4: MLPerf's mixture of experts of GPT-OSS's sizes, to a validation loss of 3.34 nats a token.

    dawnjax train --experiment=gpt_oss_20b --data.data_dir=data/c4_llama31 --mesh.fsdp=8
    dawnjax plan gpt_oss_20b --on=h100:64 --mesh.fsdp=16 --mesh.expert=4

24 layers of width 2,880 with 32 experts, of which a token goes through 4; layers attend by turns to
a token with the 128 before it and to all. MLPerf's network has the layers of the released
GPT-OSS-20B and neither its biases, sinks, clipping and YaRN, nor its vocabulary: the tokens are
Llama 3.1's, as the data are those of `c4_llama31_8b`. It normalizes queries and keys, and its norms
have an epsilon of 1e-6. There is no balance loss and no dropped token. The token after a separator
counts neither in training nor in an evaluation. `experiments/mlperf_recipes.md` compares each
setting.

Rates by batch, of the reference's convergence points: 16 rows 4e-4 with 2,048 rows of warm-up
(194,560 rows to the target), 32 rows 8e-4 with 4,096 (234,837), 64 rows 1e-3 with 12,288 (301,056).
Flags go with the batch, and warm-up with a guessed epoch, as `c4_llama31_8b` says.

Expected: unknown. It has not been trained, for lack of the data and the machines.

Source: mlcommons/training, `small_llm_moe_pretraining/primus/conf/gpt_oss_20B-pretrain.yaml`, and
the files of AMD-AGI/Primus that it extends; mlcommons/training_policies, `training_rules.adoc`;
mlcommons/logging, `rcp_checker/training_6.1.0`.
"""

import dataclasses

from dawnjax.experiments import c4_llama31_8b
from dawnjax.own import LLAMA_SIZES, LanguageModelling, Target

_C4 = c4_llama31_8b.EXPERIMENT

EXPERIMENT = dataclasses.replace(
    _C4,
    name="gpt_oss_20b",
    task=LanguageModelling(target_vocabulary="llama3", masks_separators=True),
    model=dataclasses.replace(LLAMA_SIZES["gpt_oss_20b_mlperf"], remat="full", loss_chunk=1024),
    targets=(Target(metric="loss", value=3.34, direction="at_most"),),
    mlperf_benchmark="gpt_oss_20b",
)
