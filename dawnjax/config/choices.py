"""Tasks, models and datasets that an experiment chooses from, by tag.

A class is imported when it is chosen, so that a run loads nothing of the others. A new one needs
its own file and one line here; one from an experiment's own file needs none.
"""

import dataclasses
import importlib
from typing import Annotated, Any

CHOICES = {
    "task": {
        "classification": "tasks.classification.Classification",
        "translation": "tasks.translation.Translation",
        "recommendation": "tasks.recommendation.Recommendation",
        "language_modelling": "tasks.language_modelling.LanguageModelling",
        "span_answering": "tasks.span_answering.SpanAnswering",
        "object_detection": "tasks.object_detection.ObjectDetection",
        "instance_segmentation": "tasks.instance_segmentation.InstanceSegmentation",
        "self_play": "tasks.self_play.SelfPlay",
        "professional_moves": "tasks.professional_moves.ProfessionalMoves",
    },
    "model": {
        "resnet": "models.configs.resnet.ResNet",
        "preactivation_resnet": "models.configs.preactivation_resnet.PreactivationResNet",
        "record_net": "models.configs.record_net.RecordNet",
        "amoebanet_d": "models.configs.amoebanet.AmoebaNetD",
        "transformer": "models.configs.transformer.Transformer",
        "gnmt": "models.configs.gnmt.GNMT",
        "neumf": "models.configs.neumf.NeuMF",
        "language_model": "models.configs.language_model.LanguageModel",
        "llama": "models.configs.llama.Llama",
        "bidaf": "models.configs.bidaf.BiDAF",
        "qanet": "models.configs.qanet.QANet",
        "ssd": "models.configs.ssd.SSD",
        "small_ssd": "models.configs.ssd.SmallSSD",
        "mask_rcnn": "models.configs.mask_rcnn.MaskRCNN",
        "policy_value": "models.configs.policy_value.PolicyValue",
    },
    "data": {
        "digits": "input_pipeline.datasets.digits.Digits",
        "cifar10": "input_pipeline.datasets.cifar10.Cifar10",
        "imagenet": "input_pipeline.datasets.imagenet.ImageNet",
        "images": "input_pipeline.datasets.images.Images",
        "synthetic": "input_pipeline.datasets.synthetic.Synthetic",
        "parallel_text": "input_pipeline.datasets.parallel_text.ParallelText",
        "synthetic_text": "input_pipeline.datasets.synthetic.SyntheticText",
        "movielens": "input_pipeline.datasets.movielens.MovieLens",
        "synthetic_ratings": "input_pipeline.datasets.synthetic.SyntheticRatings",
        "token_shards": "input_pipeline.datasets.token_shards.TokenShards",
        "synthetic_tokens": "input_pipeline.datasets.synthetic.SyntheticTokens",
        "squad": "input_pipeline.datasets.squad.Squad",
        "synthetic_questions": "input_pipeline.datasets.synthetic.SyntheticQuestions",
        "coco": "input_pipeline.datasets.coco.Coco",
        "synthetic_objects": "input_pipeline.datasets.synthetic.SyntheticObjects",
        "pgx": "input_pipeline.datasets.pgx_games.PgxGame",
        "go_games": "input_pipeline.datasets.go_games.GoGames",
    },
}
"""Each field's choices: a tag, and the class in `dawnjax`."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Mark of a field whose value is one of `CHOICES`, or of a class with another tag."""

    field: str

    def load(self, tag: str) -> type:
        module, _, name = CHOICES[self.field][tag].rpartition(".")
        return getattr(importlib.import_module(f"dawnjax.{module}"), name)


def choice_of(hint: Any) -> Choice | None:
    return next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Choice)), None)


AnyTask = Annotated[Any, Choice("task")]
AnyModel = Annotated[Any, Choice("model")]
AnyData = Annotated[Any, Choice("data")]
