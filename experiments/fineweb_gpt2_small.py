"""FineWeb: a Transformer of GPT-2's small size to a validation loss of 3.28 nats a token.

    dawnjax train --experiment=fineweb_gpt2_small --data.data_dir=data/fineweb10B

12 layers of width 768 with rotary positions, normalized queries and keys, squared ReLU, zero
projections, a soft cap, U-net skips and document masks. The data are shards of GPT-2 tokens, as
llm.c's `dev/data/fineweb.py` writes them; the loss is that of the first 10,485,760 tokens to
predict of the files with `val` in their names.

Expected: not known. It has not been trained: neither the data nor the machines were at hand.

Source: KellerJordan/modded-nanogpt for the target, the tokens to evaluate and the parts of the
network. The optimizer is Adam, with rates of our own choice, and not the record's Muon.
"""

from dawnjax.config.experiment import Adam, Evaluation, Experiment, Target, WarmupLinear
from dawnjax.config.techniques import Technique
from dawnjax.config.tiny import tiny
from dawnjax.input_pipeline.synthetic_tokens import SyntheticTokens
from dawnjax.input_pipeline.token_shards import TokenShards
from dawnjax.models.language_model import LanguageModel
from dawnjax.tasks.language_modelling import LanguageModelling

EXPERIMENT = Experiment(
    name="fineweb_gpt2_small",
    task=LanguageModelling(),
    model=LanguageModel(),
    data=TokenShards(
        corpus="fineweb10B", vocabulary="gpt2", sequence_length=1024, max_eval_tokens=10_485_760
    ),
    optimizer=Adam(base_learning_rate=1e-3, beta_2=0.95, epsilon=1e-8),
    schedule=WarmupLinear(),
    max_steps=9536,
    num_epochs=0,
    global_batch_size=512,
    compute_dtype="bfloat16",
    targets=(Target(metric="loss", value=3.28, direction="at_most"),),
    target_note="in nats a GPT-2 token on FineWeb: with --data.vocabulary=bytes it says nothing",
    evaluation=Evaluation(every_steps=128, global_batch_size=64),
)

TECHNIQUES = (
    Technique("rotary", ("--model.positions=learned",)),
    Technique("normalized_queries", ("--model.normalizes_queries=false",)),
    Technique("squared_relu", ("--model.activation=gelu",)),
    Technique("zero_projections", ("--model.zero_projections=false",)),
    Technique("logit_soft_cap", ("--model.logit_soft_cap=0",)),
    Technique("unet_skips", ("--model.unet_skips=false",)),
    Technique("document_masks", ("--model.masks_documents=false",)),
)

TINY = tiny(
    EXPERIMENT,
    data=SyntheticTokens(),
    model=LanguageModel(num_layers=2, width=16, num_heads=2),
)
