"""Pictures in a run directory, which may be a stranger's."""

import os

import cv2
import numpy as np
import pytest

from dawnjax.runs import kept_pictures
from dawnjax.runs.kept_pictures import MOST_PICTURE_BYTES, MOST_PICTURES_OF_A_RUN

IMAGE = cv2.resize(np.random.default_rng(0).integers(0, 256, (3, 5, 3), np.uint8), (50, 30))
SECRET = b"Exif\0\0 taken at home"
JPEG = cv2.imencode(".jpg", IMAGE)[1].tobytes()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run" / "inference" / "cpu-step20"
    made.mkdir(parents=True)
    return made


def test_the_first_of_the_newest_step(folder):
    older = folder.with_name("tpu-step9-3of7")
    older.mkdir()
    for place in (older, folder):
        for number in range(MOST_PICTURES_OF_A_RUN + 2):
            (place / f"{number:06}.jpg").write_bytes(JPEG)
    (folder / "notes.txt").write_text("mine")
    pictures, refused = kept_pictures.read(folder.parents[1])
    assert [(one.step, one.example) for one in pictures] == [(20, n) for n in range(4)]
    assert not refused
    assert kept_pictures.read(folder.parents[2]) == ([], [])


@pytest.mark.parametrize(
    "content,why",
    [
        (b"<svg onload='alert(1)'/>", "is not a JPEG"),
        (JPEG.replace(b"\0\x1e\0\x32", b"\xff\xf0\xff\xf0"), "is a damaged JPEG"),  # 4e9 pixels
        (
            cv2.imencode(".jpg", np.zeros((8, 4200), np.uint8))[1].tobytes(),
            "more than 4,096 pixels",
        ),
        (JPEG + bytes(MOST_PICTURE_BYTES), "has 26"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(folder, content, why):
    (folder / "000001.jpg").write_bytes(content)
    pictures, refused = kept_pictures.read(folder.parents[1])
    [line] = refused
    assert not pictures
    assert line.startswith("run/inference/cpu-step20/000001.jpg: ") and why in line


def test_what_is_hidden_in_a_picture_is_dropped(folder):
    exif = b"\xff\xe1" + (2 + len(SECRET)).to_bytes(2, "big") + SECRET
    (folder / "000001.jpg").write_bytes(JPEG[:2] + exif + JPEG[2:] + SECRET)
    [picture], refused = kept_pictures.read(folder.parents[1])
    assert not refused and SECRET not in picture.content
    shown = cv2.imdecode(np.frombuffer(picture.content, np.uint8), cv2.IMREAD_COLOR)
    given = cv2.imdecode(np.frombuffer(JPEG, np.uint8), cv2.IMREAD_COLOR)
    assert shown is not None and given is not None
    assert np.abs(shown.astype(int) - given).mean() < 10  # of 255, at a lower quality


def test_links_lead_nowhere(folder, tmp_path):
    (tmp_path / "mine.jpg").write_bytes(JPEG)
    (folder / "000001.jpg").symlink_to(tmp_path / "mine.jpg")
    pictures, [line] = kept_pictures.read(folder.parents[1])
    assert not pictures and line.endswith("000001.jpg: is a link")
    os.mkfifo(folder / "000000.jpg")
    pictures, lines = kept_pictures.read(folder.parents[1])
    assert not pictures and len(lines) == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "inference").symlink_to(folder.parent)
    assert kept_pictures.read(tmp_path / "other") == ([], [])
