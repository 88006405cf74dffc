"""Wikipedia's paragraphs in SQuAD v1.1: a small Llama on bytes, for a CPU.

    dawnjax train --experiment=wikipedia_llama_small --data.data_dir=data/squad_text

`wikipedia_bytes_small` has the same data, and the commands that prepare them. 4 layers of width 128
with 4 query heads, 2 key and value heads and document masks: 853,376 parameters. Adam, a cosine;
300 steps of 8 rows of 256 bytes. An evaluation takes the first 65,536 tokens to predict.

The target is PyTorch's, fixed before DawnJAX was trained to it: two seeds of a script with the same
network, recipe and evaluations (November 2026, seeds 1000 and 1001) ended at 3.075 and 3.082 bits a
byte. The target lies just above both: a run reaches it near its end, if at all.

Expected: on 2 cores of an AMD EPYC virtual machine seed 0 reached it at the last step, after 83 s
alone on the machine. Beside much other work 2 of 2 seeds reached it, after 546 and 975 s.

Source: the decoder of `c4_llama31_8b`, at the size of `wikipedia_bytes_small`.
"""

from dawnjax.own import (
    Adam,
    Evaluation,
    Experiment,
    LanguageModelling,
    Llama,
    Rotary,
    Target,
    TokenShards,
    WarmupCosine,
)

EXPERIMENT = Experiment(
    name="wikipedia_llama_small",
    task=LanguageModelling(),
    model=Llama(
        num_layers=4,
        width=128,
        num_heads=4,
        num_kv_heads=2,
        head_width=32,
        mlp_width=384,
        rotary=Rotary(base=10_000.0),
        masks_documents=True,
    ),
    data=TokenShards(corpus="squad_text", sequence_length=256, max_eval_tokens=65_536),
    optimizer=Adam(base_learning_rate=3e-3, beta_2=0.95, epsilon=1e-8),
    schedule=WarmupCosine(warmup_epochs=0.01, final_fraction=0.1),
    max_steps=300,
    global_batch_size=8,
    targets=(Target(metric="bits_per_byte", value=3.1, direction="at_most"),),
    target_note="what two seeds of a PyTorch script of the same network both reached",
    evaluation=Evaluation(every_steps=50, global_batch_size=32),
)
