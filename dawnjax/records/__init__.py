"""The one way in and out of the files of this project: `records.read_json`, `records.write`.

`reading` bounds what strangers made, `typed` makes dataclasses of it, `writing` replaces a file
whole or not at all. input_pipeline uses it too; it rests on the errors alone.
"""

from dawnjax.records.reading import (
    MOST_MARKS,
    BoundError,
    check_depth,
    check_json,
    count_marks,
    gunzip,
    lines,
    load_json,
    open_plain,
    read_plain,
)
from dawnjax.records.typed import FieldError, convert, decode, plain, read_json
from dawnjax.records.writing import open_append, sync_folder, write, write_folder, write_json
