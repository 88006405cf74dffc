"""Prepared data onto disk: whole or not at all, and never over other content unasked."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import manifest as manifests
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.manifest import Facts, Kind, Manifest, blocks_of

Outcome = Literal["written", "unchanged"]


def write_files(
    directory: pathlib.Path,
    kind: Kind[Facts],
    facts: Facts,
    contents: Mapping[str, np.ndarray | bytes],
    *,
    overwrite: bool,
) -> tuple[Manifest[Facts], Outcome]:
    """Write a few files that fit memory and their manifest, or find that they are there, intact."""
    refuse_strangers(directory)
    wanted = kind.make(kind.name, facts, contents)
    if held(directory, kind, lambda there: there == wanted, overwrite) is not None:
        return wanted, "unchanged"
    # Written beside the directory and renamed: an interruption leaves what was there.
    partial = directory.with_name(directory.name + ".partial")
    with named_write_errors(directory):
        # What a killed call left.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in contents.items():
            write_synced(partial / name, blocks_of(content))
        write_synced(partial / manifests.FILE, [wanted.to_json()])
        if directory.exists():
            shutil.rmtree(directory)
        partial.replace(directory)
    return wanted, "written"


def refuse_strangers(directory: pathlib.Path) -> None:
    """Refuse a directory that holds something else than prepared data."""
    is_ours = (directory / manifests.FILE).exists()
    if directory.exists() and not is_ours and (not directory.is_dir() or any(directory.iterdir())):
        raise DataError(f"{directory}: holds something else; choose another directory")


def held(
    directory: pathlib.Path,
    kind: Kind[Facts],
    is_same: Callable[[Manifest[Facts]], bool],
    overwrite: bool,
) -> Manifest[Facts] | None:
    """Manifest of the same content in a directory, every byte checked; None where it may be
    written.
    """
    if not (directory / manifests.FILE).exists():
        return None
    try:
        there = kind.read(directory)
        there.verify(directory)
    except DataError as error:
        if overwrite:
            return None
        text = str(error)
        is_other = text.endswith(manifests.OTHER_DIRECTORY)
        way_out = ", or give --overwrite to replace it" if is_other else ", with --overwrite"
        raise DataError(text + way_out) from None
    if is_same(there):
        return there
    if overwrite:
        return None
    facts: Any = there.facts
    made_from = f", from {there.source['kind']}" if "kind" in there.source else ""
    raise DataError(
        f"{directory}: holds other content ({there.dataset}, {facts.summary()}{made_from}); give "
        "--overwrite to replace it"
    )


def write_manifest(directory: pathlib.Path, manifest: Manifest[Any]) -> None:
    """Write `dataset.json`, whole or not at all; the files must be on disk before."""
    path = directory / manifests.FILE
    # Under a fixed name and not a drawn one, as other files are written: after a kill the next
    # writer overwrites it, and there is one writer at a time.
    partial = path.with_name(f"{path.name}.partial")
    write_synced(partial, [manifest.to_json()])
    with named_write_errors(path):
        os.replace(partial, path)
        records.sync_folder(directory)


def write_synced(path: pathlib.Path, blocks: Iterable[bytes | memoryview]) -> None:
    with named_write_errors(path), open(path, "wb", opener=records.no_follow) as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def named_write_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
