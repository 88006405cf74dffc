"""MovieLens 20M: NeuMF to HR@10 0.635, the recommendation benchmark of MLPerf Training v0.5.

    dawnjax prepare --dataset=movielens --from=ml-20m/ratings.csv --out=data/ml-20m
    dawnjax train --experiment=movielens_ml20m_neumf --data.data_dir=data/ml-20m

64 factors and an MLP of 256, 256, 128, 64: 31,832,577 parameters with 138,493 users and 26,744
items; Adam at 0.0005; four negatives beside each rating; HR@10 among 999 items that the user never
rated. A step has 408 ratings, so 2,040 pairs; a step of the reference has 2,048. Here a rating
shares a step with its negatives; the reference shuffles all pairs of an epoch.

Not yet measured: the licence of the data forbids passing them on, so DawnJAX has no copy.

Source: mlcommons/training v0.5, `recommendation/pytorch`: `run_and_time.sh` for rate and batch,
`ncf.py` for Adam's constants and 20 epochs; MLPerf Training v0.5, logs of `ncf`, for sizes and
target.
"""

from dawnjax.own import (
    Adam,
    Constant,
    Evaluation,
    Experiment,
    MovieLens,
    NeuMF,
    Recommendation,
    Target,
)

EXPERIMENT = Experiment(
    name="movielens_ml20m_neumf",
    task=Recommendation(num_negatives=4),
    model=NeuMF(gmf_width=64, layer_widths=(256, 256, 128, 64)),
    data=MovieLens(corpus="ml-20m", num_eval_negatives=999),
    optimizer=Adam(base_learning_rate=5e-4, beta_2=0.999, epsilon=1e-8),
    schedule=Constant(),
    num_epochs=20,
    global_batch_size=408,
    targets=(Target(metric="hit_rate_at_10", value=0.635),),
    evaluation=Evaluation(global_batch_size=1000),
)
