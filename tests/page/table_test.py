"""A table for a terminal: what it shows where columns have no room."""

from dawnjax.page.table import of_words


def test_rows_that_their_first_cell_does_not_tell_apart_have_numbers_in_every_block(monkeypatch):
    rows = [["v5e:8", "64", "1 ms", "2 USD"], ["v5e:8", "128", "2 ms", "3 USD"]]
    table = of_words(["system", "batch", "step", "cost of a run"], rows)
    assert "#" not in table.to_text()
    monkeypatch.setenv("COLUMNS", "28")
    assert table.to_text() == (
        "#  system  batch  step\n"
        "1  v5e:8      64  1 ms\n"
        "2  v5e:8     128  2 ms\n"
        "\n"
        "#  cost of a run\n"
        "1          2 USD\n"
        "2          3 USD"
    )


def test_columns_without_room_stand_below(monkeypatch):
    rows = [["v3:32", "152 ms", "16 x 2 USD an hour and accelerator"], ["v3:8", "1 ms", ""]]
    table = of_words(["system", "step", "price"], rows, texts=(0, 2))
    whole = (
        "system    step  price\nv3:32   152 ms  16 x 2 USD an hour and accelerator\nv3:8      1 ms"
    )
    assert table.to_text() == whole
    monkeypatch.setenv("COLUMNS", "30")
    assert table.to_text() == (
        "system    step\n"
        "v3:32   152 ms\n"
        "v3:8      1 ms\n"
        "\n"
        "system  price\n"
        "v3:32   16 x 2 USD an hour and\n"
        "        accelerator\n"
        "v3:8"
    )
