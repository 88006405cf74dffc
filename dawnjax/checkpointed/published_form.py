"""A run's weights as a published checkpoint has them: Hugging Face's names and layouts.

    OUT/model.safetensors    the tensors, as `--initialize_from` and transformers read them
    OUT/config.json          the sizes, for transformers

Adapters are added to the matrices that they stand beside.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.checkpointed.exported_weights import DescribedExperiment, saved_arrays, write_tensors
from dawnjax.checkpointed.published_weights import SINGLE
from dawnjax.config.choices import CHOICES, Choice
from dawnjax.config.config_json import from_json
from dawnjax.errors import ConfigError
from dawnjax.models.published_llama import published_config, published_tensors, with_adapters

CONFIG = "config.json"


def export(path: Path, out: Path, checkpoint_directory: str = "") -> list[Path]:
    """Write the newest checkpoint of a run that verifies into a new folder; return the files."""
    saved = saved_arrays(path, checkpoint_directory, check=model_of)
    model = model_of(saved.experiment)
    prefix = "params/"
    arrays = {name.removeprefix(prefix): array for name, array in saved.arrays.items()}
    tensors, config = form_of(model, saved.experiment, arrays)

    def fill(folder: Path) -> None:
        # transformers reads no file without this word.
        write_tensors(folder / SINGLE, tensors, {"format": "pt"})
        records.write_json(folder / CONFIG, config)

    records.write_folder(out, fill)
    return [out / SINGLE, out / CONFIG]


def model_of(experiment: DescribedExperiment) -> Any:
    """Config of a run's model; `ConfigError` for one that has no published form."""
    tag = str(experiment.model.get("tag"))
    cls = Choice("model").load(tag) if tag in CHOICES["model"] else None
    if cls is None or not hasattr(cls, "published_names"):
        raise ConfigError(
            f"--format=huggingface: no published checkpoint is known for model={tag}; "
            "--format=safetensors writes its arrays by our names"
        )
    model = from_json(cls, experiment.model)
    _config_of(model, experiment, 1)
    return model


def form_of(
    model: Any, experiment: DescribedExperiment, arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tensors by their published names, and the content of `config.json`."""
    merged = with_adapters(model, arrays)
    config = _config_of(model, experiment, len(merged["embedding"]))
    return published_tensors(model.published_names(), merged), config


def _config_of(model: Any, experiment: DescribedExperiment, vocabulary_size: int) -> dict[str, Any]:
    stages = experiment.task.get("stages") or {}
    windows = [experiment.task.get("window", 0), *stages.get("window", ())]
    try:
        return published_config(
            model,
            vocabulary_size=vocabulary_size,
            length=experiment.data.get("sequence_length", model.rotary.original_length),
            window=windows[-1],
            dtype=model.param_dtype,
        )
    except ValueError as error:
        raise ConfigError(f"--format=huggingface: {error}") from None
