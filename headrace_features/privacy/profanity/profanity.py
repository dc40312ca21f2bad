"""The scorer `profanity`: words and phrases of lists of profanity, by count and by share of the words.

The lists by language are those of the package glin-profanity (MIT), read and not imported. A list knows no
context: `profanity_density` beside a classifier says more than either alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, model_validator

from headrace_features import require
from spark_jobs.exceptions import ConfigError, did_you_mean
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.declare.tables import Column
from spark_jobs.text.language_codes import code_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_features.privacy.profanity.profanity_kernel import Phrases

LISTS: Final = {
    **{"ar": "arabic", "cs": "czech", "da": "danish", "de": "german", "en": "english", "eo": "esperanto"},
    **{"es": "spanish", "fa": "persian", "fi": "finnish", "fr": "french", "hi": "hindi", "hu": "hungarian"},
    **{"it": "italian", "ja": "japanese", "ko": "korean", "nl": "dutch", "no": "norwegian", "pl": "polish"},
    **{"pt": "portuguese", "ru": "russian", "sv": "swedish", "th": "thai", "tr": "turkish", "zh": "chinese"},
}
"""Lists of glin-profanity by ISO 639-1."""


class ProfanityConfig(ConfigModel):
    """Which words are counted.

    What the lists and the file hold decides the rows: `words_sha256` is filled in when the config is made, and texts
    are measured again when it changes.
    """

    languages: tuple[str, ...] = Field(
        ("en",), description=f"lists of glin-profanity: {', '.join(LISTS)}; may be empty"
    )
    words: tuple[str, ...] = Field((), description="further words and phrases")
    file: str | None = Field(
        None, description="a file of words and phrases, one a line, in UTF-8", json_schema_extra={"affects_rows": False}
    )
    without: tuple[str, ...] = Field((), description="words and phrases of the lists that are not counted")
    words_sha256: str | None = Field(None, description="SHA-256 of all counted words; filled in")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_sha256(cls, values: Any) -> Any:
        """Read the lists once, before work starts."""
        if not isinstance(values, dict) or values.keys() - cls.model_fields.keys():
            return values
        defaults = {name: field.default for name, field in cls.model_fields.items()}
        try:
            require("models", "the scorer 'profanity'")
            sha256 = _sha256(listed({**defaults, **values}))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return {**values, "words_sha256": values.get("words_sha256") or sha256}


def listed(settings: dict[str, Any]) -> list[str]:
    """All words and phrases of a config, sorted.

    Of the lists, those with symbols are left out (`a$$`): what separates words is no part of one.

    Raises:
        ConfigError: a list or the file cannot be read; the message names the nearest.
    """
    words = {word.strip() for word in settings["words"]}
    for language in settings["languages"]:
        if language not in LISTS:
            code = code_of(str(language))
            near = f"; write {code}" if code in LISTS else did_you_mean(str(language), LISTS)
            raise ConfigError(f"profanity: there is no list {language!r}{near}")
        words |= {word for word in _installed(language) if _is_plain(word)}
    if settings["file"] is not None:
        try:
            words |= {line.strip() for line in Path(settings["file"]).read_text("utf-8").splitlines()}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"profanity: file {settings['file']!r} cannot be read ({error}); name a text file in UTF-8"
            ) from error
    without = {"", *(word.casefold() for word in settings["without"])}
    return sorted(word for word in words if word.casefold() not in without)


def phrases_to_count(config: ProfanityConfig) -> Phrases:
    """The phrases to search texts for, built once on the driver.

    Raises:
        ConfigError: a list or the file changed since the config was made, or nothing is listed.
    """
    from headrace_features.privacy.profanity.profanity_kernel import phrases_of

    words = listed(config.model_dump())
    if _sha256(words) != config.words_sha256:
        raise ConfigError(
            f"profanity: the words have SHA-256 {_sha256(words)}, the config says {config.words_sha256}; load the "
            "declaration again, or leave words_sha256 out of it"
        )
    if not words:
        raise ConfigError("profanity: nothing is listed; name languages, words or a file")
    return phrases_of(words)


@scorer(
    name="profanity",
    version="1",
    columns=(
        Column("profanity_count!", "long", "listed words and phrases; those that overlap are one"),
        Column("profanity_density", "double", "words in them, of all words; null without any"),
    ),
    config=ProfanityConfig,
    prepare=phrases_to_count,
    fractions=("profanity_density",),
)
def profanity(content: pa.Array, phrases: Phrases) -> dict[str, pa.Array]:
    """Listed profane words and phrases."""
    from headrace_features.privacy.profanity.profanity_kernel import score

    return score(content, phrases)


def _installed(language: str) -> list[str]:
    """A list of glin-profanity; the package is found, not imported.

    Raises:
        ConfigError: it is not installed.
    """
    spec = importlib.util.find_spec("glin_profanity")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "profanity: no lists are installed; pip install 'headrace[filters]', or set languages to [] and name a file"
        )
    path = Path(spec.origin).parent / "data" / "dictionaries" / f"{LISTS[language]}.json"
    words: list[str] = json.loads(path.read_text("utf-8"))["words"]
    return words


def _is_plain(word: str) -> bool:
    """Whether a word or phrase has letters, marks, numbers, spaces, hyphens and apostrophes alone."""
    from spark_jobs.lexing.word_characters import SEPARATOR, word_tables

    classes = word_tables().classes
    return all(classes[ord(c)] != SEPARATOR or c in " -'\u2019" for c in word)


def _sha256(words: list[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
