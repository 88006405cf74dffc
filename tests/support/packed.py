"""Files by name, written as a folder or packed."""

import io
import pathlib
import tarfile
import zipfile

Files = dict[str, bytes]


def write_folder(path: pathlib.Path, files: Files) -> pathlib.Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def write_tar(path: pathlib.Path, files: Files, mode: str = "w:gz") -> pathlib.Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: pathlib.Path, files: Files) -> pathlib.Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
