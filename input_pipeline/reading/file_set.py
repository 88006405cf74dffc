"""A prepared directory of a few small files and a `dataset.json` with the hash of each.

It appears whole or not at all.
"""

import hashlib
import io
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError
from dawnjax.input_pipeline.reading.prepared import (
    DESCRIPTION_BYTES,
    OTHER_DIRECTORY,
    Outcome,
    with_overwrite,
)

DESCRIPTION_FILE = "dataset.json"


def write(
    directory: pathlib.Path,
    dataset: str,
    facts: Mapping[str, Any],
    files: Mapping[str, bytes],
    *,
    overwrite: bool,
) -> tuple[dict[str, Any], Outcome]:
    """Writes files and their description, or finds that they are there already.

    All is written beside the directory and renamed into place, so an interruption leaves nothing
    half-made there.

    Args:
      directory: The directory.
      dataset: What the files are.
      facts: What the description says besides, as JSON values; `schema_version` among them.
      files: The content of each file.
      overwrite: Replace another data set that is there.

    Returns:
      The description, and whether it was written now.

    Raises:
      DataError: The directory holds something else, or cannot be written.
    """
    check_room(directory)
    body = {
        "dataset": dataset,
        **facts,
        "files": {
            name: {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }
    is_there = (directory / DESCRIPTION_FILE).exists()
    if is_there and _holds(directory, body, overwrite):
        return body, "unchanged"
    text = json.dumps({**body, "sha256": _digest(body)}, indent=1) + "\n"
    partial = directory.with_name(directory.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in {**files, DESCRIPTION_FILE: text.encode()}.items():
            (partial / name).write_bytes(content)
        if is_there:
            shutil.rmtree(directory)
        partial.replace(directory)
    except OSError as error:
        raise DataError(f"{directory}: cannot be written ({error.strerror})") from None
    return body, "written"


def check_room(directory: pathlib.Path) -> None:
    """Refuses a directory that holds something else than a prepared data set.

    Raises:
      DataError: It does.
    """
    is_ours = (directory / DESCRIPTION_FILE).exists()
    if directory.exists() and not is_ours and (not directory.is_dir() or any(directory.iterdir())):
        raise DataError(f"{directory}: holds something else; choose another directory")


def read_description(directory: pathlib.Path, dataset: str, schema_version: int) -> dict[str, Any]:
    """Reads `dataset.json`; all files are there, with the right sizes.

    Raises:
      DataError: Missing, damaged or of another dataset; one line that names the file.
    """
    path, again = directory / DESCRIPTION_FILE, _again(dataset)
    try:
        body = records.load_json(records.read_plain(path, DESCRIPTION_BYTES))
        if body.get("dataset") != dataset:
            raise DataError(
                f"{path}: describes {body.get('dataset')}, not {dataset}; {OTHER_DIRECTORY}"
            )
        is_whole = body.pop("sha256") == _digest(body)
        files = body["files"].items()
    except FileNotFoundError:
        raise MissingDataError(
            f"{directory}: no prepared {dataset} there; `dawnjax prepare --dataset={dataset}` "
            "makes it (--data.data_dir names another place)"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: damaged (no complete description); {again}") from None
    if not is_whole:
        raise DataError(f"{path}: damaged (its hash does not fit); {again}")
    if body["schema_version"] != schema_version:
        raise DataError(f"{path}: has schema version {body['schema_version']}; {again}")
    for name, file in files:
        try:
            size = (directory / name).stat().st_size
        except OSError as error:
            raise DataError(f"{directory / name}: {error.strerror}; {again}") from None
        if size != file["num_bytes"]:
            change = "truncated" if size < file["num_bytes"] else "too long"
            raise DataError(
                f"{directory / name}: {change} ({size:,} of {file['num_bytes']:,} bytes); {again}"
            )
    return body


def read_file(directory: pathlib.Path, body: Mapping[str, Any], name: str) -> bytes:
    """The content of a file, verified.

    Raises:
      DataError: It cannot be read or is damaged.
    """
    path, again = directory / name, _again(body["dataset"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {again}") from None
    if hashlib.sha256(content).hexdigest() != body["files"][name]["sha256"]:
        raise DataError(f"{path}: damaged (its hash does not fit); {again}")
    return content


def read_array(directory: pathlib.Path, body: Mapping[str, Any], name: str) -> np.ndarray:
    """The array of a file that `array_bytes` made, verified.

    Raises:
      DataError: It cannot be read or is damaged.
    """
    content = read_file(directory, body, name)
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError):
        again = _again(body["dataset"])
        raise DataError(f"{directory / name}: damaged (no array); {again}") from None


def array_bytes(array: np.ndarray) -> bytes:
    """An array in NumPy's own format."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _holds(directory: pathlib.Path, wanted: dict[str, Any], overwrite: bool) -> bool:
    try:
        there = read_description(directory, wanted["dataset"], wanted["schema_version"])
    except DataError as error:
        if not overwrite:
            raise DataError(with_overwrite(error)) from None
        return False
    is_same = there == wanted
    if not is_same and not overwrite:
        raise DataError(f"{directory}: holds another content; give --overwrite to replace it")
    return is_same


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _again(dataset: str) -> str:
    return f"run `dawnjax prepare --dataset={dataset}` again"
