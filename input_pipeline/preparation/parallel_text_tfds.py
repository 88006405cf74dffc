"""Sentence pairs of a translation dataset that TensorFlow Datasets left on disk, such as WMT's.

An example holds one sentence a language, named by its code: `{"en": ..., "de": ...}`.
"""

import dataclasses
import pathlib

from dawnjax.input_pipeline.reading import tfds_directory
from dawnjax.input_pipeline.reading.dataset import DataError, MissingDataError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsPairs:
    """Pairs of a dataset on disk.

    Attributes:
      directory: Of the dataset's configuration (`wmt14_translate/de-en`), or of one of its
        versions.
      source_language: Code of the language that is translated; `target_language` of its
        translations.
      eval_split: The split to evaluate; empty takes `validation`, or `test` where there is none.
    """

    directory: pathlib.Path
    source_language: str
    target_language: str
    eval_split: str = ""

    def read(self, *splits: str) -> tuple[list[str], list[str]]:
        """Sentences, and their translations, of the first of `splits` that is there."""
        version = tfds_directory.find_version(self.directory)
        if version is None:
            raise MissingDataError(
                f"{self.directory}: no TFDS dataset there; give DATASET/CONFIG in it"
            )
        split = tfds_directory.first_split(version, splits)
        if split is None:
            known = ", ".join(tfds_directory.num_examples(tfds_directory.read_info(version)))
            raise DataError(f"{version}: has no split {' or '.join(splits)}, only {known}")
        builder = tfds_directory.open_version(version)
        languages = (self.source_language, self.target_language)
        for language in languages:
            if language not in builder.info.features:
                known = ", ".join(builder.info.features)
                raise DataError(f"{version}: has no language {language!r}, only {known}")
        source = tfds_directory.open_split(version, builder, split)
        sides: tuple[list[str], list[str]] = ([], [])
        for index in range(len(source)):
            try:
                record = source[index]
                for side, language in zip(sides, languages, strict=True):
                    text = record[language]
                    text = text.decode("utf8") if isinstance(text, bytes) else str(text)
                    # A sentence stays on its line.
                    side.append(" ".join(text.split()))
            except Exception as error:
                where = f"{version}: {split} example {index}"
                raise tfds_directory.damaged(where, error) from None
        return sides
