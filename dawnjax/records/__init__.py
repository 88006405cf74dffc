"""The one way in and out of the project's files: `records.read_json`, `records.write`.

`reading` bounds strangers' files, `typed` makes dataclasses of them, `writing` replaces a file
whole or not at all.
"""

from dawnjax.records.paths import in_home, path_of
from dawnjax.records.reading import (
    MOST_MARKS,
    BoundError,
    check_depth,
    check_json,
    count_marks,
    csv_rows,
    gunzip,
    lines,
    load_json,
    open_plain,
    read_plain,
    walk,
)
from dawnjax.records.typed import (
    FORGED,
    FieldError,
    convert,
    decode,
    in_words,
    plain,
    read_json,
    schema_of,
)
from dawnjax.records.writing import (
    CANNOT_RENAME,
    json_text,
    lock,
    no_lock,
    open_append,
    put_folder,
    sync_folder,
    write,
    write_folder,
    write_json,
)
