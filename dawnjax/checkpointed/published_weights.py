"""Parameters that a run takes from a published checkpoint, in files of the form of safetensors.

`--initialize_from` names a file, or a folder with `model.safetensors` or with
`model.safetensors.index.json` and the files that it lists. Names, shapes and the settings of a
`config.json` beside them are compared with the model before a run begins; float32, float16 and
bfloat16 are cast to its dtypes. Each process then reads the parts of its own devices alone.

Source: huggingface/safetensors, `README.md`, "Format"; transformers, `modeling_utils.py`, for the
index.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dawnjax import records
from dawnjax.checkpoints.arrays import by_path
from dawnjax.errors import ConfigError, install
from dawnjax.models.configs.published_llama import Published
from dawnjax.train_step import Recipe

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
SETTINGS = "config.json"
DTYPES = ("F32", "F16", "BF16")

MOST_HEADER_BYTES = 8 * 2**20
"""Limit of a file's header, with about 130 bytes for each tensor."""

MOST_TENSORS = 200_000
"""Limit of the tensors of all files together."""

TABLE, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
WHOLE_BYTES, SAMPLES, SAMPLE_BYTES = 2**28, 64, 4096
"""A file of up to `WHOLE_BYTES` is hashed whole; of a larger one its header, its size and evenly
spaced blocks, as of shards of tokens."""


def is_published(path: Path) -> bool:
    """True for a path that names files of safetensors and no run."""
    return path.suffix == ".safetensors" or any((path / name).exists() for name in (INDEX, SINGLE))


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint: its file, shape and dtype, by the file's own word."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class PublishedWeights:
    """A published checkpoint, of which only the headers were read."""

    path: Path

    @functools.cached_property
    def files(self) -> tuple[Path, ...]:
        if self.path.suffix == ".safetensors":
            return (self.path,)
        index = self.path / INDEX
        if not index.exists():
            return (self.path / SINGLE,)
        try:
            fields = records.read_json(index, dict[str, Any])
            names = set(fields.get("weight_map", {}).values())
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise self.fault(f"{INDEX}: {error}") from None
        for name in names:
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise self.fault(f"{INDEX} names {name!r}, which is not a file of its folder")
        if not names:
            raise self.fault(f"{INDEX} names no file")
        return tuple(self.path / name for name in sorted(names))

    @functools.cached_property
    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for file in self.files:
            with self.opened(file) as reader:
                for name in list(reader.keys()):
                    part = reader.get_slice(name)
                    if name in found:
                        raise self.fault(f"{name} is in {found[name].file.name} and {file.name}")
                    if len(found) == MOST_TENSORS:
                        raise self.fault(f"has more than {MOST_TENSORS:,} tensors, at {file.name}")
                    found[name] = Tensor(file, tuple(part.get_shape()), str(part.get_dtype()))
        return found

    @functools.cached_property
    def state(self) -> str:
        """Content in words, equal for equal content alone."""
        digest = hashlib.sha256()
        for file in self.files:
            try:
                with records.open_plain(file) as content:
                    size = os.fstat(content.fileno()).st_size
                    step = SAMPLE_BYTES if size > WHOLE_BYTES else 2**20
                    places: Any = range(0, size, step)
                    if size > WHOLE_BYTES:
                        places = sorted({size * n // SAMPLES for n in range(SAMPLES)})
                    digest.update(f"{file.name} {size} ".encode())
                    for place in places:
                        content.seek(place)
                        digest.update(content.read(step))
            except (OSError, ValueError) as error:
                raise self.fault(f"{file.name}: {_words(error)}") from None
        return f"published weights, sha256 {digest.hexdigest()[:16]}"

    @property
    def step(self) -> int:
        return 0

    @property
    def weights(self) -> str:
        return "raw"

    @property
    def model(self) -> str:
        return ""

    def choose(self, recipe: Recipe) -> dict[str, str]:
        """By array of the run, whether it is taken: its own path, or empty."""
        self.check(recipe)
        places, state = _places(recipe), recipe.abstract_state
        both = {"params": state.params, "batch_stats": state.batch_stats}
        return {
            name: name if name.removeprefix("params/") in places else "" for name in by_path(both)
        }

    def check(self, recipe: Recipe) -> None:
        """Refuse other settings, missing and other tensors, other shapes, and quantized ones."""
        self._refuse_other_settings(recipe)
        places = _places(recipe)
        wanted: dict[str, tuple[int, ...]] = {}
        for path, leaf in _leaves(
            recipe.split_params(recipe.abstract_state.params), recipe
        ).items():
            for name, shape in _tensors_of(places[path], leaf.shape):
                wanted[name] = shape
        tensors = self.tensors
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise self.fault(f"{missing[0]} is missing, of {len(missing)} that the model needs")
        for name, shape in wanted.items():
            there = tensors[name]
            if there.shape != shape:
                raise self.fault(
                    f"{name} is {list(there.shape)} in it and {list(shape)} in the model"
                    + self._about_vocabulary(name, recipe)
                )
            if there.dtype not in DTYPES:
                raise self.fault(f"{name} is {there.dtype}; wanted one of {', '.join(DTYPES)}")
        # Rates of positions, which older checkpoints hold, follow from the model.
        named = (name for name in tensors if not name.endswith(".rotary_emb.inv_freq"))
        others = sorted(set(named) - set(wanted))
        if others:
            raise self.fault(f"{others[0]} is not a tensor of the model, with {len(others)} in all")

    def _refuse_other_settings(self, recipe: Recipe) -> None:
        """Compare the model with the `config.json` beside the files, where there is one."""
        folder = self.path.parent if self.path.suffix == ".safetensors" else self.path
        model, task = recipe.experiment.model, recipe.experiment.task
        if not hasattr(model, "other_settings") or not (folder / SETTINGS).exists():
            return
        window, length = getattr(task, "window", 0), recipe.spec.sequence_length
        try:
            fields = records.read_json(folder / SETTINGS, dict[str, Any])
            others = model.other_settings(fields, window, length)
        except (OSError, *records.FORGED) as error:
            raise self.fault(f"{SETTINGS}: {error}") from None
        if others:
            raise self.fault(f"{SETTINGS} states {others[0].words}; give {others[0].flag}")

    def read(
        self,
        recipe: Recipe,
        wanted: Mapping[str, jax.ShapeDtypeStruct],
        progress: Callable[[], object],
    ) -> dict[str, jax.Array]:
        """Arrays of the run by their paths."""
        places, read = _places(recipe), {}
        for name, leaf in wanted.items():
            place = places[name.removeprefix("params/")]
            read[name] = self.array(place, leaf.shape, leaf.sharding, leaf.dtype)
            progress()
        return read

    def array(
        self, place: Published, shape: tuple[int, ...], sharding: Any, dtype: Any
    ) -> jax.Array:
        """One of our arrays on the devices of a sharding, each of which reads its part alone."""

        def part(index: Any) -> np.ndarray:
            spans = [range(*s.indices(size)) for s, size in zip(index, shape, strict=True)]
            return self.part(place, place.names, spans).astype(dtype)

        return jax.make_array_from_callback(shape, sharding, part)

    def part(self, place: Published, names: Any, spans: list[range]) -> np.ndarray:
        """Part of one of our arrays; `names` are the tensors of its leading axes."""
        if isinstance(names, tuple):
            return np.stack([self.part(place, names[n], spans[1:]) for n in spans[0]])
        index = [slice(span.start, span.stop) for span in spans]
        if place.is_transposed:
            index[-2:] = index[:-3:-1]
        start, step = place.every
        if step > 1:
            index[-1] = slice(index[-1].start * step, index[-1].stop * step)
        with self.opened(self.tensors[names].file) as reader:
            # A slice of a tensor without axes or elements is none that the library gives.
            has_parts = math.prod(self.tensors[names].shape) and index
            part = reader.get_slice(names)[tuple(index)] if has_parts else reader.get_tensor(names)
        part = part[..., start::step] if step > 1 else part
        return part.swapaxes(-1, -2) if place.is_transposed else part

    @contextlib.contextmanager
    def opened(self, file: Path) -> Iterator[Any]:
        try:
            import safetensors
        except ImportError:
            raise self.fault(f"reading it needs safetensors ({install('weights')})") from None
        try:
            with records.open_plain(file) as content:
                header_bytes = int.from_bytes(content.read(8), "little")
            if header_bytes > MOST_HEADER_BYTES:
                raise ValueError(
                    f"begins with a header of {header_bytes:,} bytes; at most "
                    f"{MOST_HEADER_BYTES:,} are read"
                )
            with safetensors.safe_open(file, framework="numpy") as reader:
                yield reader
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise self.fault(f"{file.name}: {_words(error)}") from None

    def _about_vocabulary(self, name: str, recipe: Recipe) -> str:
        if name not in (TABLE, OUTPUT):
            return ""
        return f": the data's vocabulary has {recipe.spec.vocabulary_size} tokens"

    def fault(self, text: str) -> ConfigError:
        # A name in a stranger's file may hold line breaks, or be as long as the file.
        return ConfigError(f"--initialize_from={self.path}: {' '.join(text.split())[:500]}")


def _places(recipe: Recipe) -> dict[str, Published]:
    model = recipe.experiment.model
    if not hasattr(model, "published_names"):
        raise ConfigError(
            f"--initialize_from: no published checkpoint is known for model={model.TAG}; name a run"
        )
    return model.published_names()


def _leaves(split: tuple[Any, Any], recipe: Recipe) -> dict[str, Any]:
    """Path and shape of each parameter that a checkpoint gives: all but adapters."""
    trained, frozen = split
    params = frozen if getattr(recipe.experiment.model, "trained_parts", ()) else trained
    return by_path(params)


def _tensors_of(place: Published, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors that make one of our arrays."""
    names = [place.names]
    while isinstance(names[0], tuple):
        names = [name for group in names for name in group]
        shape = shape[1:]
    if place.is_transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    shape = (*shape[:-1], shape[-1] * place.every[1])
    return [(name, shape) for name in names]


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error).splitlines() or ["damaged"])[0]
