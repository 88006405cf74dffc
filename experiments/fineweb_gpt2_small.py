"""FineWeb: a Transformer of GPT-2's small size to a validation loss of 3.28 nats a token.

    dawnjax prepare --dataset=token_shards --from=fineweb10B --out=data/fineweb10B
    dawnjax train --experiment=fineweb_gpt2_small --data.data_dir=data/fineweb10B
    dawnjax plan fineweb_gpt2_small --on=h100:8,v5e:8,v6e:8 --epochs=0.3

12 layers of width 768 with rotary positions, normalized queries and keys, squared ReLU, zero
projections, a soft cap, value embeddings, U-net skips, document masks, and a window that grows;
Muon for the kernels, Adam for the rest. The data are shards of GPT-2 tokens, as llm.c's
`dev/data/fineweb.py` writes them. An evaluation takes the first 10,485,760 tokens to predict of the
files with `val` in their names.

Expected: unknown. It has not been trained, for lack of the data and the machines.

Source: KellerJordan/modded-nanogpt for the target, the tokens to evaluate and the parts of network
and optimizer. Rates, windows and length are our own choice, and rows have 1,024 tokens.
"""

from dawnjax.own import (
    Evaluation,
    Experiment,
    LanguageModel,
    LanguageModelling,
    MuonAdam,
    PiecewiseLinear,
    Stages,
    Target,
    Technique,
    TokenShards,
    WindowStages,
)

EXPERIMENT = Experiment(
    name="fineweb_gpt2_small",
    task=LanguageModelling(
        target_vocabulary="gpt2", window=256, stages=WindowStages(window=(512, 0))
    ),
    model=LanguageModel(value_embeddings=3),
    data=TokenShards(
        corpus="fineweb10B", vocabulary="gpt2", sequence_length=1024, max_eval_tokens=10_485_760
    ),
    optimizer=MuonAdam(base_learning_rate=0.02, adam_learning_rate=3e-3),
    # Of the 10.06 million rows of 10.3 billion tokens: 3.1 billion tokens, the last 40 % of them
    # with a falling rate.
    schedule=PiecewiseLinear(knot_epochs=(0.0, 0.18, 0.3), fractions=(1.0, 1.0, 0.0)),
    stages=Stages(boundary_epochs=(0.1, 0.2)),
    num_epochs=0.3,
    global_batch_size=512,
    accumulation_steps=8,
    compute_dtype="bfloat16",
    targets=(Target(metric="loss", value=3.28, direction="at_most"),),
    evaluation=Evaluation(every_steps=128, global_batch_size=64),
)

TECHNIQUES = (
    Technique("rotary", ("--model.positions=learned",)),
    Technique("normalized_queries", ("--model.normalizes_queries=false",)),
    Technique("squared_relu", ("--model.activation=gelu",)),
    Technique("zero_projections", ("--model.zero_projections=false",)),
    Technique("logit_soft_cap", ("--model.logit_soft_cap=0",)),
    Technique("value_embeddings", ("--model.value_embeddings=0",)),
    Technique("unet_skips", ("--model.unet_skips=false",)),
    Technique("document_masks", ("--model.masks_documents=false",)),
    Technique("growing_window", ("--task.window=0", "--stages.boundary_epochs=")),
    Technique("polar_express", ("--optimizer.orthogonalization=newton_schulz",)),
    Technique("muon", ("--optimizer=adam", "--optimizer.base_learning_rate=3e-3")),
)
