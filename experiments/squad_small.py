"""SQuAD in minutes on two cores: a small BiDAF with vectors of its own."""

from dawnjax.config.experiment import Adam, Evaluation, Experiment, Target, WarmupLinear
from dawnjax.config.tiny import tiny
from dawnjax.input_pipeline.squad import Squad
from dawnjax.input_pipeline.synthetic_questions import SyntheticQuestions
from dawnjax.models.bidaf import BiDAF
from dawnjax.tasks.span_answering import SpanAnswering

EXPERIMENT = Experiment(
    name="squad_small",
    task=SpanAnswering(max_answer_tokens=20),
    model=BiDAF(
        word_width=48,
        filters=16,
        hidden_width=32,
        num_modelling_layers=1,
        has_match=True,
        dropout_rate=0.0,
    ),
    data=Squad(
        vocabulary_size=10_000,
        context_length=128,
        question_length=24,
        eval_context_length=256,
        eval_articles=6,
    ),
    optimizer=Adam(base_learning_rate=5e-3, beta_2=0.999, epsilon=1e-8, clip_global_norm=5.0),
    schedule=WarmupLinear(warmup_epochs=0.05),
    num_epochs=1,
    global_batch_size=32,
    targets=(Target(metric="f1_score", value=0.75),),
    evaluation=Evaluation(every_epochs=0.25, first_epoch=0.75, global_batch_size=200),
)

TINY = tiny(
    EXPERIMENT,
    data=SyntheticQuestions(num_train_examples=32, num_eval_examples=20),
    model=BiDAF(word_width=6, character_width=4, filters=6, hidden_width=6, num_modelling_layers=1),
)
"""Two steps on made-up questions."""
