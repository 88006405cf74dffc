"""Labelled images of a person's own: prepared under any name, class folders or TFDS."""

import dataclasses
import re
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.datasets.photograph_directory import PhotographDirectory
from dawnjax.input_pipeline.reading.dataset import DatasetSpec, Split, directory_of
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand

SIDES = range(8, 1025)
"""Heights and widths that may be asked for, in pixels."""

TAKEN = (
    *("cifar10", "digits", "image_arrays", "images", "imagenet", "movielens", "parallel_text"),
    *("synthetic", "synthetic_ratings", "synthetic_text", "synthetic_tokens", "token_shards"),
    *(
        "coco",
        "go_games",
        "pgx",
        "pgx_opponent",
        "squad",
        "synthetic_objects",
        "synthetic_questions",
    ),
)
"""Names of other datasets: a person's images are never taken for them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """Labelled images that were prepared under a name, or photographs as they are.

    Attributes:
      name: The name that they were prepared under, or that TensorFlow Datasets has for them.
      data_dir: The directory that `dawnjax prepare` wrote, or image folders (train/<class>/* and
        val/<class>/*), or a TFDS directory in ArrayRecord files. Empty takes one of the name in the
        directory that the environment variable DAWNJAX_DATA names, or in `./data` without it.
      image_side: Height and width of the images in pixels; prepared ones must have them. 0 takes
        prepared images as they are. What is not prepared needs it, and is normalized with mean 0.5
        and standard deviation 0.25.
    """

    TAG: ClassVar[str] = "images"
    RESIZES: ClassVar[bool] = True
    name: str
    data_dir: str = ""
    image_side: int = 0

    def spec(self) -> DatasetSpec:
        return self._directory().spec()

    def load(self, split: Split) -> dict[str, np.ndarray | RowsOnDemand]:
        return self._directory().load(split)

    def classes(self) -> tuple[str, ...]:
        return self._directory().classes()

    def _directory(self) -> PhotographDirectory:
        wrong = reason_against(self.name)
        if wrong:
            raise ValueError(f"data.name={self.name} {wrong}")
        return PhotographDirectory(
            path=directory_of(self.name, self.data_dir),
            dataset=self.name,
            title=self.name,
            command=f"--dataset=images --name={self.name}",
            tfds_name=self.name,
            side=self.image_side or None,
            sides=SIDES,
            published=None,
        )


def reason_against(name: str) -> str:
    """Reason why a name cannot be given to images; empty where it can."""
    if name in TAKEN:
        return "is the name of another dataset; choose one of your own"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", name):
        return (
            "must be up to 80 letters, digits, '_', '.' and '-', and begin with a letter or digit: "
            "it names a directory"
        )
    return ""
