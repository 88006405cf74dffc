"""Sections of the page: learning curves, distributions, a study, pictures of answers."""

import base64
import dataclasses
import json

import cv2
import numpy as np
import pytest
from made_reports import Page
from made_runs import write_run
from made_studies import DIGITS

from dawnjax.__main__ import main
from dawnjax.analysis.loading import load
from dawnjax.report import contents, inputs
from dawnjax.report.curves import own_curves
from dawnjax.report.distributions import distributions
from dawnjax.study.design import Study, StudyFolder, arms_of, trials_of
from dawnjax.trials.hosts import Roofline


def test_curves_have_dollars_where_all_entries_have_a_price(tmp_path):
    write_run(tmp_path / "a" / "0", seed=0, seconds=10.0, price=36.0)
    write_run(tmp_path / "a" / "1", seed=1, seconds=20.0, price=36.0)
    by_time, by_cost = own_curves(load(tmp_path / "a"))
    assert by_time.title.endswith("against time") and by_cost.title.endswith("against cost")
    # Two hosts at 36 USD an hour: two cents a second, to the last evaluation at 20 s.
    drawn = by_cost.draw(700).body()
    assert "cost since the start" in drawn and "$0.40" in drawn
    # Official entries have no price, and are not in these figures.
    [entry] = load(tmp_path / "a")
    official = dataclasses.replace(entry, suite="mlperf_training", cost_per_hour_usd=None)
    titles = [figure.title for figure in own_curves([entry, official])]
    assert titles == [by_time.title, by_cost.title]
    write_run(tmp_path / "b" / "0", seed=0, seconds=10.0, identity="other")
    assert [figure.title for figure in own_curves(load(tmp_path / "a", tmp_path / "b"))] == [
        by_time.title,
    ]


ROOFLINE = Roofline(
    peak_use_cdf=((0.0, 0.2), (0.5, 1.0)), throughput_cdf=((1e10, 0.2), (5e11, 1.0))
)


def test_two_runs_have_both_figures_and_one_alone_has_tables():
    figures, tables = distributions({"a": ROOFLINE, "b": ROOFLINE})
    assert [figure.name for figure in figures] == ["peak_use", "throughput"]
    assert "a: half of the time at 50% or less" in figures[0].summary
    assert "b: half of the time at 500 GFLOP/s or less" in figures[1].summary
    assert tables[1].rows[:2] == (("a", 1e10, 0.2), ("a", 5e11, 1.0))
    figures, tables = distributions({"a": ROOFLINE})
    assert figures == [] and [len(table.rows) for table in tables] == [2, 2]


@pytest.mark.parametrize("points", [((0.5, 0.9), (0.1, 1.0)), ((1e10, 0.2),), ((1.0, 2.0),), ()])
def test_damaged_points_are_no_distribution(points):
    assert distributions({"a": Roofline(peak_use_cdf=points)}) == ([], [])


SECONDS = {"32 3": 20.0, "32 4": 10.0, "64 3": 40.0, "64 4": None}


@pytest.fixture
def grid(tmp_path):
    axes = ("global_batch_size=32,64", "num_epochs=3,4")
    study = Study(experiment="digits", kind="grid", axes=axes, seeds=2)
    arms = arms_of(study, (), DIGITS)
    out = tmp_path / "grid"
    for trial in trials_of(study, arms):
        values = " ".join(flag.partition("=")[2] for flag in trial.arm.flags)
        write_run(
            trial.directory(out), seed=trial.seed, seconds=SECONDS[values], identity=trial.arm.name
        )
    StudyFolder(out).write(study, arms)
    return out


def test_a_grid_names_its_best_arm_and_the_fields_of_each(grid, tmp_path):
    assert main(["report", str(grid), f"--out={tmp_path / 'page'}"]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Best of 4 arms: global_batch_size=32 num_epochs=4, 10 s" in page
    assert "the same trials chose it, so expect a longer time on fresh seeds" in page
    rows = json.loads((tmp_path / "page" / "tables" / "study_1.json").read_text())["rows"]
    assert [(row["config.global_batch_size"], row["config.num_epochs"]) for row in rows] == [
        (32, 3), (32, 4), (64, 3), (64, 4),
    ]  # fmt: skip


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
