"""Pictures of answers on the report's page."""

import base64

import cv2
import numpy as np
import pytest
from made_reports import Page
from made_runs import write_run

from dawnjax.report import contents, inputs


@pytest.fixture
def runs(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)
    content = cv2.imencode(".jpg", image)[1].tobytes()
    for seed in (0, 1):
        run = write_run(tmp_path / f"run{seed}", seed=seed)
        folder = run / "inference" / "cpu-step20"
        folder.mkdir(parents=True)
        for example in (3, 5):
            (folder / f"{example:06}.jpg").write_bytes(content)
    return tmp_path


def test_a_page_shows_the_pictures_of_one_run_of_an_experiment(runs):
    read = inputs.read([runs])
    page = Page(contents.make(read).html)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [image["alt"] for image in images] == [
        "x, run run0, step 20: example 3",
        "x, run run0, step 20: example 5",
    ]
    for image in images:
        head, _, data = str(image["src"]).partition(",")
        assert head == "data:image/jpeg;base64"
        shown = np.frombuffer(base64.b64decode(data), np.uint8)
        image = cv2.imdecode(shown, cv2.IMREAD_COLOR)
        assert image is not None and image.shape == (30, 50, 3)
    assert "Pictures of answers" in "".join(page.text)
    assert contents.make(read).html == contents.make(inputs.read([runs])).html


def test_a_damaged_picture_is_named_and_the_page_has_the_rest(runs):
    (runs / "run0" / "inference" / "cpu-step20" / "000003.jpg").write_bytes(b"none")
    read = inputs.read([runs])
    assert "run0/inference/cpu-step20/000003.jpg: is not a JPEG" in read.problems
    page = Page(contents.make(read).html)
    assert sum(tag == "img" for tag, _ in page.tags) == 1
