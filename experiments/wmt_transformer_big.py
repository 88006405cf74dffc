"""WMT English to German: the Transformer's big model to BLEU 25, MLPerf's translation task.

    dawnjax prepare --dataset=parallel_text --train_source=train.en.gz --train_target=train.de.gz \\
      --eval_source=newstest2014.en --eval_target=newstest2014.de \\
      --vocabulary_size=32768 --row_length=256 --out=data/wmt_en_de
    dawnjax train --experiment=wmt_transformer_big --data.data_dir=data/wmt_en_de

6 + 6 layers of width 1024 with 16 heads; as `wmt_transformer_base`, with dropout 0.3.

Not yet measured. It is meant for one machine of 8 GPUs or TPU cores. The paper trains 300,000
steps in 3.5 days on 8 P100 and reports BLEU 28.4, which is tokenized BLEU of averaged checkpoints;
the target of 25 comes much sooner.

Source: Vaswani et al. 2017 (arXiv 1706.03762), sections 5 and 6.1 and Table 3 (the peak rate is
(1024 x 4000) ** -0.5); the target is the value of MLPerf v0.5 and v0.6, which have it for another
BLEU (see `wmt_transformer_base`).
"""

import dataclasses

from dawnjax.experiments import wmt_transformer_base
from dawnjax.own import Adam, Transformer

EXPERIMENT = dataclasses.replace(
    wmt_transformer_base.EXPERIMENT,
    name="wmt_transformer_big",
    model=Transformer(width=1024, hidden_width=4096, num_heads=16, dropout_rate=0.3),
    optimizer=Adam(base_learning_rate=4.94e-4),
    target_note="MLPerf's value for WMT, which there is of BLEU without regard to case",
)
