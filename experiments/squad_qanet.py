"""SQuAD v1.1: QANet to F1 0.75 on the development set, the target of DAWNBench.

    dawnjax prepare --dataset=squad --from=train-v1.1.json --eval_from=dev-v1.1.json \\
      --out=data/squad
    dawnjax train --experiment=squad_qanet --data.data_dir=data/squad \\
      --data.word_vectors=glove.840B.300d.txt

The network of the fastest of DAWNBench's SQuAD entries for a year: it has no recurrence, so it
reads a passage in parallel. Fixed GloVe vectors of 300 values; passages of 400 tokens or fewer in
training, all questions of the development set in every evaluation.

The paper reports F1 82.7 on the development set after 150,000 steps without augmented data. Not yet
trained at full size; `docs/what_ran_where.md` says what was run.

Source: Yu et al. 2018 (arXiv 1804.09541), section 4.1.1: the network, batches of 32, Adam with
betas 0.8 and 0.999 and epsilon 1e-7, 1,000 steps of warm-up to a constant 0.001, a moving average
of 0.9999, answers of 30 tokens or fewer. The paper's warm-up is logarithmic and this one linear;
its L2 decay of 3e-7 is left out; gradients are clipped to a norm of 5, which it does not mention.
"""

from dawnjax.own import Adam, Constant, Evaluation, Experiment, QANet, SpanAnswering, Squad, Target

EXPERIMENT = Experiment(
    name="squad_qanet",
    task=SpanAnswering(max_answer_tokens=30),
    model=QANet(),
    data=Squad(word_vectors="glove.840B.300d.txt", context_length=400, question_length=50),
    optimizer=Adam(
        base_learning_rate=1e-3,
        beta_1=0.8,
        beta_2=0.999,
        epsilon=1e-7,
        clip_global_norm=5.0,
    ),
    schedule=Constant(warmup_epochs=0.3663),  # 1,000 steps of 32 of the 87,352 questions
    num_epochs=30,
    global_batch_size=32,
    ema_decay=0.9999,
    ema_has_warmup=True,
    targets=(Target(metric="f1_score", value=0.75),),
    evaluation=Evaluation(weights="ema", global_batch_size=64),
)
