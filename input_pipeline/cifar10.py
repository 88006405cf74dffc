"""CIFAR-10 from disk."""

import dataclasses
from typing import ClassVar

import numpy as np

from dawnjax.input_pipeline.dataset import DatasetSpec, Split

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar10:
    """CIFAR-10."""

    TAG: ClassVar[str] = "cifar10"
    data_dir: str = ""

    def spec(self) -> DatasetSpec:
        raise NotImplementedError

    def load(self, split: Split) -> dict[str, np.ndarray]:
        raise NotImplementedError
