"""SQuAD v1.1: BiDAF to F1 0.75 on the development set, the target of DAWNBench.

    dawnjax prepare --dataset=squad --from=train-v1.1.json --eval_from=dev-v1.1.json \\
      --out=data/squad
    dawnjax train --experiment=squad_bidaf --data.data_dir=data/squad \\
      --data.word_vectors=glove.6B.100d.txt

2.6 million parameters and fixed GloVe vectors of 100 values; passages of 400 tokens or fewer in
training, all questions of the development set in every evaluation.

The paper reports F1 77.3 on the development and the test set, after 12 epochs of AdaDelta. Not yet
trained at full size; `docs/what_ran_where.md` says what was run.

Source: Seo et al. 2017 (arXiv 1611.01603), section 4.1 for the network, its dropout and the moving
average of the weights; batch of 40, Adam at 0.001 with betas of 0.9 and gradients clipped to a norm
of 5 come from AllenNLP's configuration of the same network (allenai/allennlp, `bidaf.jsonnet`).
"""

from dawnjax.own import Adam, BiDAF, Constant, Evaluation, Experiment, SpanAnswering, Squad, Target

EXPERIMENT = Experiment(
    name="squad_bidaf",
    task=SpanAnswering(max_answer_tokens=30),
    model=BiDAF(),
    data=Squad(word_vectors="glove.6B.100d.txt", context_length=400, question_length=50),
    optimizer=Adam(
        base_learning_rate=1e-3, beta_1=0.9, beta_2=0.9, epsilon=1e-8, clip_global_norm=5.0
    ),
    schedule=Constant(),
    num_epochs=20,
    global_batch_size=40,
    ema_decay=0.999,
    targets=(Target(metric="f1_score", value=0.75),),
    evaluation=Evaluation(weights="ema", global_batch_size=120),
)
