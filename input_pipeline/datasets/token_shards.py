"""Tokens of a text: rows of a stream, as `dawnjax prepare --dataset=token_shards` wrote it.

    {train,eval}_tokens.npy    uint16 or uint32 [tokens]
    eval_mask.npy              bool [tokens], where an evaluation may count some of them alone
    vocabulary.json            what a token is, where no known vocabulary says it; perhaps with
                               the tokenizer.json that has its text

A run sees rows of it (`reading/token_rows.py`). Originals are texts, rows of tokens
(`reading/token_sources.py`), or shards of tokens (`reading/llmc_shards.py`).
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dawnjax import records
from dawnjax.input_pipeline.reading import (
    columns,
    llmc_shards,
    overlap,
    text_files,
    token_words,
    tokenizer_file,
)
from dawnjax.input_pipeline.reading.columns import Columns, Content, Made
from dawnjax.input_pipeline.reading.dataset import (
    NO_FINGERPRINT,
    DataError,
    Declaration,
    MissingDataError,
    Overlap,
    Split,
    directory_of,
)
from dawnjax.input_pipeline.reading.image_set import LARGEST_VERIFIED_BYTES, SPLITS
from dawnjax.input_pipeline.reading.preparing import (
    Flag,
    FlagError,
    Preparation,
    Request,
    check_fraction,
)
from dawnjax.input_pipeline.reading.token_rows import TokenSpec, dtype_of, rows_of, token_spec
from dawnjax.input_pipeline.reading.token_sources import (
    ByteCoder,
    GivenCoder,
    Part,
    coded,
    documents_of,
    labelled_rows,
    pairs_of,
    split_documents,
)
from dawnjax.input_pipeline.reading.token_words import KNOWN_WORDS, TokenText, Words, token_text
from dawnjax.limits import Limit, NonNegative

KIND = "tokens"
MASK_FILE = "eval_mask.npy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenFacts:
    """Facts of prepared tokens.

    Attributes:
      vocabulary: `bytes` if tokens are bytes; empty of others, which several names may fit.
      largest: The largest token of each split.
      overlap: Documents, or rows of tokens, in both splits; None where they were not compared.
    """

    vocabulary: str
    largest: dict[Split, int]
    overlap: Overlap | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenShards:
    """Tokens, in rows of one length.

    Attributes:
      corpus: Name of the set; the directory that is looked for.
      vocabulary: What a token is: a `bytes` token is a byte of text, and 256 separates documents;
        a `gpt2` token is one of GPT-2's 50,257, and 50256 separates documents; a `llama3` token
        is one of 128,256, and 128000 separates documents; a `llama2` token is one of 32,000, and
        1 separates documents; `file` takes the directory's `vocabulary.json`.
      sequence_length: Tokens of a row that the model reads.
      rows: `overlapping` rows share their last token with the next row's first, so a row predicts
        as many tokens as it reads; `apart` rows share none and predict one fewer, as in a packed
        fine-tuning set.
      masks_prompts: An evaluation counts only the tokens that its mask marks, such as answers
        without their prompts. Training counts all.
      max_eval_tokens: The evaluation stream ends after this many predicted tokens; 0 takes all.
      data_dir: The prepared directory. Empty takes the corpus's folder in the directory of the
        environment variable DAWNJAX_DATA, or in `./data` without it.
    """

    TAG: ClassVar[str] = "token_shards"
    corpus: str = "text"
    vocabulary: Literal["bytes", "gpt2", "llama2", "llama3", "file"] = "bytes"
    sequence_length: Annotated[
        int, Limit(lambda value: 1 <= value <= 2**20, "lie in 1 to 1048576")
    ] = 256
    rows: Literal["overlapping", "apart"] = "overlapping"
    masks_prompts: bool = False
    max_eval_tokens: NonNegative[int] = 0
    data_dir: str = ""

    def spec(self) -> TokenSpec:
        prepared = self._prepared()
        facts, words, where = prepared.facts, self._words(), prepared.directory
        if facts.vocabulary not in ("", self.vocabulary):
            raise ValueError(
                f"data.vocabulary={self.vocabulary}, but {where} was prepared with "
                f"{facts.vocabulary}; give --data.vocabulary={facts.vocabulary}"
            )
        for split, largest in facts.largest.items():
            if largest >= words.size:
                raise DataError(
                    f"{where / _file(split)}: holds the token {largest}, outside the vocabulary of "
                    f"{words.size} (data.vocabulary={words.name})"
                )
        is_apart = self.rows == "apart"
        for split in SPLITS:
            count = self._num_tokens(prepared, split)
            fewest = self.sequence_length + 1 if split == "train" else 2
            fewest = self.sequence_length if is_apart else fewest
            if count < fewest:
                raise DataError(
                    f"{where / _file(split)}: holds {count} tokens; {fewest} are needed"
                )
        if self.masks_prompts:
            self._mask(prepared)
        return self._spec_of(
            self._num_tokens(prepared, "train"),
            self._num_tokens(prepared, "eval"),
            words,
            prepared.fingerprint(repr(words), self.max_eval_tokens, self.masks_prompts),
            Declaration(name=self.corpus, overlap=facts.overlap),
        )

    def _spec_of(self, num_train_tokens: int, num_eval_tokens: int, *facts: Any) -> TokenSpec:
        spec = token_spec(
            num_train_tokens,
            num_eval_tokens,
            self.sequence_length,
            *facts,
            are_apart=self.rows == "apart",
        )
        return dataclasses.replace(spec, has_mask=self.masks_prompts)

    def published_spec(self) -> TokenSpec:
        """Specification of a published set, without its files; see `PUBLISHED`."""
        if (self.corpus, self.vocabulary) not in PUBLISHED:
            raise MissingDataError(
                f"the number of tokens of {self.corpus} is known only from prepared data: give "
                "--data.data_dir"
            )
        train, evaluated = PUBLISHED[self.corpus, self.vocabulary]
        return self._spec_of(
            train,
            min(evaluated, self._most_eval_tokens or evaluated),
            KNOWN_WORDS[self.vocabulary],
            NO_FINGERPRINT,
            Declaration(name=self.corpus),
        )

    def load(self, split: Split) -> dict[str, Any]:
        """Arrays of a split, mapped; streams of up to 2 GiB are verified."""
        prepared, words = self._prepared(), self._words()
        name = _file(split)
        column = prepared.files[name]
        num_bytes = column.shape[0] * np.dtype(column.dtype).itemsize
        stream = prepared.array(name, verified=num_bytes <= LARGEST_VERIFIED_BYTES)
        arrays = rows_of(
            stream,
            self._num_tokens(prepared, split),
            self.sequence_length,
            words.separator,
            split,
            dtype_of(words.size),
            are_apart=self.rows == "apart",
        )
        if split == "eval" and self.masks_prompts:
            arrays["is_target"] = self._mask(prepared)
        return arrays

    def token_text(self) -> TokenText:
        """Text of the tokens; DataError where the vocabulary's text is not known."""
        return token_text(self._words(), directory_of(self.corpus, self.data_dir))

    def _prepared(self) -> Columns[TokenFacts]:
        directory = directory_of(self.corpus, self.data_dir)
        return columns.read(directory, KIND, TokenFacts, "--dataset=token_shards --from=PATH")

    def _words(self) -> Words:
        if self.vocabulary != "file":
            return KNOWN_WORDS[self.vocabulary]
        return token_words.read_words(directory_of(self.corpus, self.data_dir))

    @property
    def _most_eval_tokens(self) -> int:
        # The first token of overlapping rows is not a target.
        return self.max_eval_tokens and self.max_eval_tokens + (self.rows == "overlapping")

    def _num_tokens(self, prepared: Columns[TokenFacts], split: Split) -> int:
        count = prepared.files[_file(split)].shape[0]
        return min(count, self._most_eval_tokens or count) if split == "eval" else count

    def _mask(self, prepared: Columns[TokenFacts]) -> np.ndarray:
        """Targets that count: bool [rows, sequence_length]; DataError without any."""
        if MASK_FILE not in prepared.files:
            raise DataError(
                f"{prepared.directory}: has no mask of prompts, but data.masks_prompts needs one; "
                "prepare it with --documents=pairs or rows"
            )
        mask = prepared.array(MASK_FILE)[: self._num_tokens(prepared, "eval")]
        marks = rows_of(
            mask,
            len(mask),
            self.sequence_length,
            False,
            "eval",
            "bool",
            are_apart=self.rows == "apart",
        )
        is_target = np.asarray(marks["tokens"])[:, 1:]
        if not is_target.any():
            raise DataError(f"{prepared.directory / MASK_FILE}: marks no target")
        return is_target


def _file(split: Split) -> str:
    return f"{split}_tokens.npy"


PUBLISHED = {
    ("fineweb10B", "gpt2"): (103 * 10**8, 10**8),
    ("c4_llama31", "llama3"): (39 * 10**9, 1024 * 8192 + 1),
    ("govreport", "llama2"): (3901 * 8192, 173 * 8192),
    ("squad_text", "bytes"): (13_950_479, 1_605_273),
}
"""Tokens to train on and to evaluate, by corpus and vocabulary.

Source: KellerJordan/modded-nanogpt, `data/cached_fineweb10B.py`: 103 shards of 100 million tokens
to train on, and one to evaluate. mlcommons/training_policies, `training_rules.adoc`: a quarter of
C4, of which Dodge et al. 2021 (arXiv 2104.08758) count 156 billion tokens of another vocabulary, so
that an epoch is known roughly; 1,024 rows of 8,192 tokens to evaluate; GovReport in 3,901 and 173
such rows. The passages of SQuAD v1.1, counted as `wikipedia_bytes_small` prepares them.
"""


_AT_ONCE = 2**22
"""Tokens of a block."""

KINDS = ("none", "blank_lines", "pairs", "rows")


def _narrow(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The same tokens in blocks, as uint16, or as uint32 where one needs it."""
    is_wide = any(part.itemsize > 2 and part.max(initial=0) >= 2**16 for part in parts)
    block, num_tokens = [], 0
    for number, part in enumerate(parts, 1):
        block.append(part)
        num_tokens += len(part)
        if num_tokens >= _AT_ONCE or number == len(parts):
            yield np.concatenate(block).astype("<u4" if is_wide else "<u2", copy=False)
            block, num_tokens = [], 0


def made(
    out: pathlib.Path,
    parts: dict[Split, Part],
    files: dict[str, bytes],
    vocabulary: str = "",
    unit: str = "",
    note: str = "",
) -> Made[TokenFacts]:
    """Tokens to be written; `unit` names what is compared, if it is."""
    contents: dict[str, Content] = dict(files)
    for split, part in parts.items():
        contents[_file(split)] = _narrow(part.tokens)
    if parts["eval"].masks:
        contents[MASK_FILE] = np.concatenate(parts["eval"].masks)
    found = None
    if unit:
        found = overlap.shared(*(parts[split].contents() for split in SPLITS), unit=unit)

    def facts(written: Columns[None]) -> TokenFacts:
        largest: dict[Split, int] = {
            split: int(written.array(_file(split), verified=False).max()) for split in SPLITS
        }
        return TokenFacts(vocabulary=vocabulary, largest=largest, overlap=found)

    def summary(written: Columns[TokenFacts]) -> str:
        said = []
        for split, part in parts.items():
            purpose = "to train on" if split == "train" else "to evaluate"
            words = f"{written.files[_file(split)].shape[0]:,} tokens {purpose}"
            words += f" in {len(part.tokens):,} {unit}" if unit else ""
            if split == "eval" and part.masks:
                words += f", of which {sum(int(mask.sum()) for mask in part.masks):,} count"
            said.append(words)
        return "; ".join(said) + note

    return Made(
        directory=out,
        kind=KIND,
        dataset="token_shards",
        files=contents,
        facts=facts,
        form=TokenFacts,
        summary=summary,
    )


def _prepare(request: Request) -> Made[TokenFacts]:
    source, given = request.required_source(), request.flags["validation"]
    kind = request.flags["documents"] or "none"
    size, tokenizer = request.flags["vocabulary_size"], request.flags["tokenizer"]
    fraction, separator = request.flags["eval_fraction"], request.flags["separator"]
    check_fraction(fraction)
    if request.out is None:
        raise FlagError("--out is missing: the directory to write to, such as data/text")
    if source.is_dir():
        return _of_shards(source, request.out_for("token_shards"))
    if given is None and fraction is None:
        raise FlagError("--validation is missing: the text to evaluate on; or give --eval_fraction")
    if given is not None and fraction is not None:
        raise FlagError("--eval_fraction replaces --validation; give only one of them")
    if kind not in KINDS:
        raise FlagError(f"--documents={kind}: choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    for name in ("separator", "vocabulary_size"):
        if request.flags[name] is not None and tokenizer is None:
            raise FlagError(f"--{name} needs --tokenizer")
    if kind == "rows" and tokenizer:
        raise FlagError("--documents=rows already holds tokens: leave out the flags for texts")
    if fraction is not None and kind not in ("blank_lines", "pairs"):
        raise FlagError("--eval_fraction divides documents: give --documents=blank_lines or pairs")
    out = request.out_for("token_shards")
    paths: dict[Split, pathlib.Path] = {"train": source, "eval": records.path_of(given or source)}
    if kind == "rows":
        rows: dict[Split, Part] = {
            split: labelled_rows(path, is_evaluated=split == "eval")
            for split, path in paths.items()
        }
        return made(out, rows, {}, unit="rows")
    read: Callable[[pathlib.Path], Any] = pairs_of
    if kind != "pairs":
        read = functools.partial(documents_of, separation=kind)
    texts: dict[Split, Any] = (
        {split: read(path) for split, path in paths.items()}
        if fraction is None
        else split_documents(read(source), source, fraction)
    )
    coder = ByteCoder() if tokenizer is None else GivenCoder(tokenizer, separator, size)
    parts: dict[Split, Part] = {
        split: coded(documents, coder, separator != "") for split, documents in texts.items()
    }
    unit = "documents" if kind != "none" else ""
    return made(out, parts, coder.files(), coder.vocabulary, unit, coder.note())


def _of_shards(folder: pathlib.Path, out: pathlib.Path) -> Made[TokenFacts]:
    """Shards of a folder, with the files of their vocabulary that lie beside them."""
    found = llmc_shards.shards_in(folder)
    files = {}
    for name in (token_words.FILE, token_words.TOKENIZER_FILE):
        if (folder / name).exists():
            files[name] = text_files.read_content(folder / name, tokenizer_file.MOST_BYTES)
    if token_words.FILE in files:
        token_words.read_words(folder)
    parts: dict[Split, Part] = {
        split: Part(list(llmc_shards.blocks(shards, _AT_ONCE))) for split, shards in found.items()
    }
    return made(out, parts, files)


PREPARATION = Preparation(
    name="token_shards",
    usage=(
        "--from=train.txt --validation=valid.txt --out=DIR\n"
        "[--eval_fraction=FRACTION] [--documents=blank_lines] [--overwrite]\n"
        "[--tokenizer=tokenizer.json] [--separator=TOKEN] [--vocabulary_size=N]",
        "--documents=pairs --from=train.jsonl --validation=valid.jsonl --out=DIR\n[...]",
        "--documents=rows --from=train.parquet --validation=valid.parquet --out=DIR",
        "--from=FOLDER --out=DIR",
    ),
    takes="""--from and --validation name texts in UTF-8, plain or as .gz. Without --validation,
--eval_fraction of the documents of --from is held out, by a hash of each. A document is a whole
text, or each part between blank lines. A token is a byte, or one of --tokenizer, a tokenizer.json
of Hugging Face such as Llama 3's. With --documents=pairs each line is a JSON document with "prompt"
and "completion", and an evaluation may count only completions. With --documents=rows the files hold
tokens, as Parquet or JSON lines of "input_ids" and "labels", -100 where a token does not count. A
folder of token shards in llm.c's format, such as FineWeb's .bin files, is taken whole: `train` or
`val` in a file's name gives its split, and a vocabulary.json beside them the meaning of a
token.""",
    flags=(
        Flag("validation", "The text to evaluate on."),
        Flag("eval_fraction", "Fraction of the documents of --from to evaluate.", float),
        Flag(
            "documents",
            "The documents: none (each text is one), blank_lines (separated by blank lines), "
            "pairs (JSON lines with prompt and completion) or rows (of tokens).",
        ),
        Flag("vocabulary_size", "Tokens of the vocabulary (default: the tokenizer's).", int),
        Flag("tokenizer", "A tokenizer.json to encode the text with."),
        Flag(
            "separator",
            "The token that begins a document (default: the tokenizer's own first token). "
            "--separator= (empty) joins documents without one.",
        ),
    ),
    run=_prepare,
)
