"""A table for a terminal: what it shows where columns have no room."""

from dawnjax.page.table import of_words


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
