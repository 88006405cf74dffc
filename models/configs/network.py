"""Networks of the settings in this folder, loaded by name when they are built."""

import importlib
from typing import Any, ClassVar

from dawnjax.limits import check_fields


def network(name: str) -> Any:
    """Class or function of a module of `models`, such as `resnet.ResNetModule`."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(f"dawnjax.models.{module}"), member)


def built(config: Any, name: str, **given: Any) -> Any:
    """Network of settings whose limits are checked."""
    check_fields(config, "model.")
    return network(name)(config, **given)


class ImageNetwork:
    """Settings of a network that sees images and knows classes; `NETWORK` names its class."""

    NETWORK: ClassVar[str]

    def build(
        self, *, image_shape: tuple[int, ...], num_classes: int, execution: Any, rngs: Any
    ) -> Any:
        sizes = {"image_shape": image_shape, "num_classes": num_classes}
        return built(self, self.NETWORK, **sizes, execution=execution, rngs=rngs)


class TextNetwork:
    """Settings of a network that reads tokens of one vocabulary; `NETWORK` names its class."""

    NETWORK: ClassVar[str]

    def build(self, *, vocabulary_size: int, execution: Any, rngs: Any) -> Any:
        sizes = {"vocabulary_size": vocabulary_size}
        return built(self, self.NETWORK, **sizes, execution=execution, rngs=rngs)
