"""Text into shards of byte tokens, for `token_shards.TokenShards`."""

import gzip
import pathlib
import zlib

import numpy as np

from dawnjax.input_pipeline.dataset import DataError
from dawnjax.input_pipeline.preparation import Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.prepared import named_write_errors
from dawnjax.input_pipeline.token_shards import SEPARATORS, shard_of

MOST_BYTES = 2**30
"""Of a text; a shard's header counts tokens in 32 bits."""

TRAIN_FILE, EVAL_FILE = "text_train_000000.bin", "text_val_000000.bin"
_GZIP = b"\x1f\x8b"


def tokens_of(path: pathlib.Path) -> np.ndarray:
    """The separator, then the bytes of a text, plain or as .gz: uint16 [1 + bytes].

    Raises:
      DataError: It cannot be read, is empty or too long, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP
        with gzip.open(path) if is_gzip else path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "is no whole .gz file"
        raise DataError(f"{path}: {reason}") from None
    if not 0 < len(text) <= MOST_BYTES:
        raise DataError(f"{path}: holds {len(text)} bytes or more; wanted 1 to {MOST_BYTES}")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start}: is not UTF-8") from None
    document = np.frombuffer(text, np.uint8).astype(np.uint16)
    return np.concatenate([[SEPARATORS["bytes"]], document]).astype(np.uint16)


def _prepare(request: Request) -> str:
    source, given = request.required_source(), request.flags["validation"]
    if given is None:
        raise FlagError("--validation is missing: the text to evaluate on")
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/text")
    texts = {TRAIN_FILE: tokens_of(source), EVAL_FILE: tokens_of(pathlib.Path(given).expanduser())}
    others = [path for path in request.out.glob("*.bin") if path.name not in texts]
    if others:
        raise DataError(f"{request.out}: holds other shards ({others[0].name}); choose another")
    for name, tokens in texts.items():
        _write(request.out / name, shard_of(tokens), overwrite=request.overwrite)
    counts = ", ".join(f"{name} {len(tokens) - 1:,} bytes" for name, tokens in texts.items())
    return f"{request.out}: prepared in {request.progress.seconds:.1f} s: {counts}"


def _write(path: pathlib.Path, content: bytes, *, overwrite: bool) -> None:
    with named_write_errors(path):
        if path.exists():
            if path.read_bytes() == content:
                return
            if not overwrite:
                raise DataError(f"{path}: holds other tokens; give --overwrite to replace them")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(content)
        unfinished.rename(path)


PREPARATION = Preparation(
    name="token_shards",
    usage=("--from=train.txt --validation=valid.txt --out=DIR\n[--overwrite]",),
    takes="""--from and --validation name texts in UTF-8, plain or as .gz. Each byte is a token, and
each text is one document. Shards of tokens, such as FineWeb's .bin files, need no preparation.""",
    flags=(Flag("validation", "The text to evaluate on."),),
    run=_prepare,
)
