"""A dataset that TensorFlow Datasets left in ArrayRecord files, read without TensorFlow.

`tfds.builder(NAME, data_dir=..., file_format="array_record").download_and_prepare()` makes
`NAME/[CONFIG/]VERSION/` with `dataset_info.json` and the files of each split.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from dawnjax import records
from dawnjax.errors import install
from dawnjax.input_pipeline.reading.dataset import DataError

INFO_FILE = "dataset_info.json"
FORMAT = "array_record"

MOST_INFO_BYTES = 16 * 2**20


def find_version(directory: pathlib.Path, name: str = "*") -> pathlib.Path | None:
    """Newest version in a directory of TFDS's data, a dataset, a configuration or a version."""
    for pattern in ("", "[0-9]*/", f"{name}/[0-9]*/"):
        versions = [path.parent for path in directory.glob(f"{pattern}{INFO_FILE}")]
        if versions:
            numbers = ([int(n) for n in v.name.split(".") if n.isdecimal()] for v in versions)
            return max(zip(numbers, versions, strict=True))[1]
    return None


def read_info(version: pathlib.Path) -> dict[str, Any]:
    """Metadata of a version, checked: at least `name`, and `splits` with their sizes."""
    path = version / INFO_FILE
    try:
        info = records.load_json(records.read_plain(path, MOST_INFO_BYTES))
        file_format, _ = info.get("fileFormat", "tfrecord"), info["name"]
        num_examples(info)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(repr(error).split())[:200]
        raise DataError(f"{path}: damaged ({reason})") from None
    if file_format != FORMAT:
        raise DataError(
            f"{path}: is in the format {file_format!r}; only array_record can be read without "
            "TensorFlow: build it with tfds.builder(..., file_format='array_record')"
        )
    return info


def num_examples(info: dict[str, Any]) -> dict[str, int]:
    # A split that has no whole shard yet states no lengths.
    return {split["name"]: sum(map(int, split.get("shardLengths", ()))) for split in info["splits"]}


def first_split(version: pathlib.Path, names: Sequence[str]) -> str | None:
    known = num_examples(read_info(version))
    return next((name for name in names if name in known), None)


def fingerprint(version: pathlib.Path, *more: str) -> str:
    """Hash of a version's metadata (sizes of splits, no checksums): 16 hex digits."""
    info = read_info(version)
    content = [info["name"], info.get("version"), info.get("description"), info["splits"], *more]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def open_version(version: pathlib.Path) -> Any:
    tfds = import_tfds(version)
    try:
        return tfds.builder_from_directory(str(version))
    except ImportError as error:
        raise not_installed(version, error) from None
    except Exception as error:
        raise damaged(str(version), error) from None


def open_split(
    version: pathlib.Path, builder: Any, split: str, names: Sequence[str]
) -> tuple[int, Callable[[int], dict[str, Any]]]:
    """Number of a split's examples, and a reader of some features of one, `image` as its file."""
    tfds = import_tfds(version)
    features = tfds.features.FeaturesDict({name: builder.info.features[name] for name in names})
    decoders = {"image": tfds.decode.SkipDecoding()}
    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    try:
        source = builder.as_data_source(split=split, deserialize_method=raw)
        # Some errors show at the first use only; raise them here, with the name of the split.
        count = len(source)
    except ImportError as error:
        raise not_installed(version, error) from None
    except Exception as error:
        raise damaged(f"{version}: split {split}", error) from None

    def read(index: int) -> dict[str, Any]:
        try:
            return features.deserialize_example_np(source[index], decoders=decoders)
        except Exception as error:
            raise damaged(f"{version}: {split} example {index}", error) from None

    return count, read


def import_tfds(version: pathlib.Path) -> Any:
    """The `tensorflow_datasets` module; raises DataError where it is not installed."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise not_installed(version, error) from None
    return tfds


def not_installed(version: pathlib.Path, error: ImportError) -> DataError:
    return DataError(
        f"{version}: ArrayRecord files need packages that are not installed ({error}): "
        f"{install('tfds')}"
    )


def damaged(where: str, error: Exception) -> DataError:
    """One line for the many kinds of errors that ArrayRecord and TFDS raise."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return DataError(f"{where}: damaged or cut short: {reason}")
