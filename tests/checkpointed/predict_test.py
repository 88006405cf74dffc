"""Answers to inputs of one's own: those of the evaluation, from files; other files in one line."""

import json
import shutil
from types import SimpleNamespace

import cv2
import jax.numpy as jnp
import numpy as np
import pytest
from each_change import rows
from networks import PLAIN
from task_table import trained_run
from trained import result_of

from dawnjax.__main__ import main
from dawnjax.checkpointed.earlier_run import read_run
from dawnjax.tasks import bleu
from dawnjax.tasks.language_modelling import MOST_NEW_TOKENS, LanguageModelling
from dawnjax.tasks.task import Setting

pytestmark = pytest.mark.compiles


@pytest.fixture
def run_of(tmp_path_factory, compile_cache):
    return lambda name: trained_run(tmp_path_factory, name, compile_cache)


def predicted(capsys, *argv):
    capsys.readouterr()
    status = main(["predict", *map(str, argv)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return [json.loads(line) for line in captured.out.splitlines()]


def write_images(folder, images):
    folder.mkdir()
    for number, image in enumerate(images):
        cv2.imwrite(str(folder / f"{number:03}.png"), image[..., ::-1])
    return folder


def test_images_of_the_split_have_the_accuracy_of_the_run(run_of, tmp_path, capsys):
    run = run_of("classification")
    examples = {**read_run(run).experiment.data.load("eval")}
    folder = write_images(tmp_path / "images", examples["image"])
    lines = predicted(capsys, run, f"--from={folder}")
    assert [line["file"] for line in lines] == [str(p) for p in sorted(folder.iterdir())]
    firsts = [int(line["answer"][0]["class"]) for line in lines]
    accuracy = float((np.array(firsts) == examples["label"]).mean())
    assert accuracy == pytest.approx(result_of(run)["evaluations"][-1]["top_1_accuracy"])
    shares = [each["probability"] for each in lines[0]["answer"]]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1 + 1e-5
    # A photograph of any size beside a pattern, in the order of names; hidden files stay out.
    large = tmp_path / "large.jpg"
    cv2.imwrite(str(large), np.full((70, 90, 3), 128, np.uint8))
    (folder / ".hidden.png").write_text("")
    lines = predicted(capsys, run, "--from", large, folder / "00*.png")
    assert [line["file"][-7:] for line in lines[:3]] == ["rge.jpg", "000.png", "001.png"]


@pytest.mark.parametrize("name", rows(["translation", "gnmt"], ["translation"]))
def test_sentences_are_translated_as_in_the_evaluation(name, run_of, tmp_path, capsys):
    run = run_of(name)
    data = read_run(run).experiment.data
    sources = data.vocabulary().decode(data.load("eval")["source"])
    file = tmp_path / "sentences.txt"
    file.write_text("\n\n".join(sources) + "\n")
    lines = predicted(capsys, run, f"--from={file}")
    assert [line["source"] for line in lines] == sources
    assert [line["line"] for line in lines[:3]] == [1, 3, 5]
    score, _ = bleu.corpus_bleu(
        [line["answer"] for line in lines], data.references(), bleu.CUSTOMARY
    )
    assert score == pytest.approx(result_of(run)["evaluations"][-1]["bleu"], abs=0.01)


def test_objects_are_those_that_infer_finds(run_of, tmp_path, capsys):
    run = shutil.copytree(run_of("object_detection"), tmp_path / "run")
    images = read_run(run).experiment.data.load("eval")["image"]
    folder = write_images(tmp_path / "images", images)
    assert main(["infer", str(run), "--examples=13", f"--draw={tmp_path / 'drawn'}"]) == 0
    drawn = json.loads((tmp_path / "drawn" / "answers.json").read_text())
    wanted = {each["example"]: each["answer"] for each in drawn}
    lines = predicted(capsys, run, f"--from={folder}")
    assert len(lines) == 13 and any(line["answer"] for line in lines)
    for number, line in enumerate(lines):
        there = wanted[number]
        assert [a["class"] for a in line["answer"]] == [a["class"] for a in there]
        # The synthetic set calls a drawn pixel eight of the image as published.
        boxes = np.array([a["bbox"] for a in line["answer"]]).reshape(-1, 4)
        theirs = np.array([a["bbox"] for a in there]).reshape(-1, 4) / 8
        np.testing.assert_allclose(boxes, theirs, atol=0.02)


@pytest.mark.parametrize("name", rows(["language_modelling", "llama"], ["llama"]))
def test_prompts_are_continued(name, run_of, tmp_path, capsys):
    run, file = run_of(name), tmp_path / "prompts.txt"
    file.write_text("abc\nkmo\r\n")
    lines = predicted(capsys, run, f"--from={file}")
    assert [line["prompt"] for line in lines] == ["abc", "kmo"]
    assert all(isinstance(line["answer"], str) for line in lines)
    file.write_text("x" * 40)
    assert main(["predict", str(run), f"--from={file}"]) == 1
    assert "prompts.txt:1: has 40 tokens" in capsys.readouterr().err


def test_a_continuation_is_the_likeliest_token_after_each():
    def counting(tokens, window):
        """Makes the token after n the likeliest: n + 1."""
        return jnp.eye(200)[(tokens + 1) % 200]

    spec = SimpleNamespace(separator=20)
    setting = Setting(model=None, data=None, spec=spec, execution=PLAIN)
    rows = np.full((1, 160), 20, np.int32)
    for prompt, wanted in (
        ([20, 15], [16, 17, 18, 19]),  # up to the separator
        ([20, 21], list(range(22, 22 + MOST_NEW_TOKENS))),
        ([20, *range(21, 170)], list(range(170, 180))),  # up to the row's end
    ):
        tokens = rows.copy()
        tokens[0, : len(prompt)] = prompt
        inputs = {"tokens": jnp.asarray(tokens), "length": jnp.array([len(prompt)])}
        answer = np.asarray(LanguageModelling().answer(counting, inputs, setting))[0]
        assert answer[answer >= 0].tolist() == wanted
        assert (answer[len(wanted) :] == -1).all()
