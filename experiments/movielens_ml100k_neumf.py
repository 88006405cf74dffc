"""placeholder"""

from dawnjax.config.experiment import Adam, Constant, Evaluation, Experiment, Target
from dawnjax.config.tiny import tiny
from dawnjax.input_pipeline.movielens import MovieLens
from dawnjax.input_pipeline.synthetic_ratings import SyntheticRatings
from dawnjax.models.neumf import NeuMF
from dawnjax.tasks.recommendation import Recommendation

EXPERIMENT = Experiment(
    name="movielens_ml100k_neumf",
    task=Recommendation(num_negatives=4),
    model=NeuMF(gmf_width=8, layer_widths=(64, 32, 16, 8)),
    data=MovieLens(corpus="ml-100k"),
    optimizer=Adam(base_learning_rate=1e-3, beta_2=0.999, epsilon=1e-8),
    schedule=Constant(),
    num_epochs=20,
    global_batch_size=256,
    targets=(Target(metric="hit_rate_at_10", value=0.66),),
    evaluation=Evaluation(global_batch_size=943),
)
TINY = tiny(
    EXPERIMENT,
    data=SyntheticRatings(num_users=16, num_items=40, ratings_per_user=3),
    model=NeuMF(gmf_width=4, layer_widths=(16, 8, 4)),
)
