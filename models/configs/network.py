"""Networks of the settings in this folder, loaded by name when they are built."""

import importlib
from typing import Any

from dawnjax.limits import check_fields


def network(name: str) -> Any:
    """Class or function of a module of `models`, such as `resnet.ResNetModule`."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(f"dawnjax.models.{module}"), member)


def built(config: Any, name: str, **given: Any) -> Any:
    """Network of settings whose limits are checked."""
    check_fields(config, "model.")
    return network(name)(config, **given)
