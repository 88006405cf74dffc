"""Games in SGF; tests/golden/games.txt has files that are no game, each one line."""

import os
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from dawnjax.input_pipeline.datasets.go_games import GoGames
from dawnjax.input_pipeline.reading import sgf
from dawnjax.input_pipeline.reading.dataset import DataError

HEAD = "(;GM[1]FF[4]SZ[9]KM[7.5]\n"


def read(path, text, side=9):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sgf.read_moves(path, side, 2 * side * side)


def test_moves_are_points_row_by_row(tmp_path):
    game = HEAD + "C[a \\] (b)];B[aa]C[x];W[ia] ; B[ai])\n"
    assert read(tmp_path / "a.sgf", game) == [0, 8, 72]


def test_a_property_that_is_no_move_may_hold_any_text(tmp_path):
    assert read(tmp_path / "a.sgf", HEAD + "PB[\xe9" + "];B[aa])") == [0]


def test_names_of_older_files_and_the_usual_board_are_known(tmp_path):
    # FF[3]: small letters of a name mean nothing.
    older = "(;GaMe[1]SiZe[9]PlayerBlack[x];Black[aa]Comment[y];White[ia];b[ai])"
    assert read(tmp_path / "a.sgf", older) == [0, 8, 72]
    assert read(tmp_path / "c.sgf", "(;FF[4];B[aa];W[sa])", side=19) == [0, 18]
    assert read(tmp_path / "d.sgf", "(;SZ[9:9];B[aa])") == [0]


def test_a_ko_cannot_be_taken_back_at_once(tmp_path):
    # Black bb, ac, bd; white ca... around the points bc and cc.
    moves = ["bb", "cb", "ac", "dc", "bd", "cd", "cc", "bc"]  # white takes cc
    text = HEAD + "".join(f";{'BW'[n % 2]}[{move}]" for n, move in enumerate(moves))
    with pytest.raises(DataError, match="move 9, B.cc.: the move repeats an earlier board"):
        read(tmp_path / "b.sgf", text + ";B[cc])")


@pytest.mark.parametrize("end", ["", "];B[aa])"])
def test_a_comment_of_megabytes_needs_little_memory(end, tmp_path):
    path = tmp_path / "long.sgf"
    path.write_text(HEAD + "C[" + "a" * 2**20 + end)
    try:
        tracemalloc.start()
        with (
            pytest.raises(DataError, match="does not begin an SGF property")
            if not end
            else nullcontext()
        ):
            assert sgf.read_moves(path, 9, 18) == [0]
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_a_folder_of_games(tmp_path):
    (tmp_path / "a.sgf").write_text(HEAD + ";B[aa];W[bb];B[cc])")
    (tmp_path / "b.sgf").write_text(HEAD + ";B[dd])")
    data = GoGames(data_dir=str(tmp_path), passes=2)
    spec, examples = data.spec(), data.load("eval")
    assert spec.num_eval_examples == 8 and spec.most_moves == 3
    np.testing.assert_array_equal(examples["number"], [0, 1, 2, 0] * 2)
    np.testing.assert_array_equal(examples["moves"][3], [30, 0, 0])


def test_the_professional_games_have_181_moves():
    folder = Path(os.environ.get("DAWNJAX_TEST_DATA", "")) / "go9x9"
    if not folder.is_dir():
        pytest.skip("needs the four games")
    lengths = [len(sgf.read_moves(path, 9, 113)) for path in sorted(folder.glob("*.sgf"))]
    assert lengths == [30, 62, 42, 47]
    assert GoGames(data_dir=str(folder), max_moves=113).spec().num_eval_examples == 362
