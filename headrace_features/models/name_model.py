"""Models that find names in texts: a folder of spaCy or of GLiNER, read offline; no code in it is run.

A folder is packed into one file for the registry, so that it has one SHA-256. Weights of GLiNER are taken as
safetensors alone, for the reason of `model_file`; spaCy writes its own as msgpack.
"""

from __future__ import annotations

import importlib
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_features.models.model_file import DIGEST_BYTES, read_model_file, write_model_file
from spark_jobs.exceptions import InputError, SetupError, did_you_mean
from spark_jobs.threads import made_once

MAGIC: Final = b"headrace name model\n"
DEFAULT_KINDS: Final = {"spacy": {"PERSON": "name", "PER": "name"}, "gliner": {"person": "name"}}
"""Kind by label where a dataset names no labels: OntoNotes and WikiNER call people so, GLiNER takes any word."""
_LIBRARIES: Final = {"meta.json": "spacy", "gliner_config.json": "gliner"}
_NEEDLESS: Final = ("tagger", "parser", "attribute_ruler", "lemmatizer", "senter", "morphologizer", "textcat")
_FILE: Final = re.compile(r"(?!.*(^|/)\.\.?(/|$))[\w][\w./ -]*")
_PIECE_CHARACTERS: Final = 20_000  # spaCy's memory grows by 1 MB in 1,000 characters, and it ends at 1,000,000
_GLINER_WORDS: Final = 300  # its models read 384 words and drop the rest without a word
_SPACY_CONFIDENCE: Final = 0.8  # it gives none; above the default bound of .5, below a checksum's .85


@dataclass(frozen=True)
class Name:
    """A name in a text, with its first character, the one after its last, its label and a confidence."""

    start: int
    end: int
    label: str
    confidence: float


@dataclass(frozen=True)
class NameModel:
    """A model in memory.

    Attributes:
        library: `spacy` or `gliner`.
        labels: its labels; empty for GLiNER, asked for any.
        find: names of some labels in a text, by start, none overlapping.
    """

    library: str
    labels: tuple[str, ...]
    find: Callable[[str, Sequence[str]], Iterator[Name]]


def kinds_of(model: NameModel, kinds_wanted: Mapping[str, str] | None, reference: str) -> dict[str, str]:
    """Kind of personal data by label of a model.

    Args:
        model: the model.
        kinds_wanted: kinds by label as a dataset declares them; None for `DEFAULT_KINDS`.
        reference: what the dataset calls the model.

    Raises:
        InputError: the model has no such label, or none of the default ones.
    """
    if kinds_wanted is None:
        kinds = DEFAULT_KINDS[model.library]
        kinds_by_label = {label: kind for label, kind in kinds.items() if not model.labels or label in model.labels}
        if not kinds_by_label:
            raise InputError(
                f"names: {reference} has the labels {', '.join(model.labels)}; write labels: {{LABEL: name}}"
            )
        return kinds_by_label
    for label in kinds_wanted:
        if model.labels and label not in model.labels:
            raise InputError(f"names: {reference} has no label {label!r}{did_you_mean(label, model.labels)}")
    return dict(kinds_wanted)


def library_of(folder: Path) -> str | None:
    """The library of a folder's model; None where it is none of spaCy or GLiNER."""
    return next((library for file, library in _LIBRARIES.items() if (folder / file).is_file()), None)


def pack_name_model(folder: Path, name: str) -> bytes:
    """Pack a folder of spaCy or GLiNER into one file; equal folders give equal bytes.

    Raises:
        InputError: it is no folder of a model.
    """
    library = library_of(folder)
    if library is None:
        raise InputError(
            f"{name}: {folder} has no meta.json of spaCy and no gliner_config.json; give the folder of a model, for "
            "spaCy that with config.cfg"
        )
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {file: path for file, path in files.items() if _FILE.fullmatch(file)}
    if library == "gliner":
        files = {file: path for file, path in files.items() if path.suffix not in (".bin", ".pt", ".py")}
        if not any(file.endswith(".safetensors") for file in files):
            raise InputError(f"{name}: {folder} has no .safetensors; pickles (.bin) are not read, save it with them")
    header = {"kind": library, "files": [(file, path.stat().st_size) for file, path in files.items()]}
    return write_model_file(MAGIC, header, b"".join(path.read_bytes() for path in files.values()))


def read_name_model(data: bytes, name: str) -> NameModel:
    """Read a packed model.

    Raises:
        InputError: the bytes are no model of names, of another version, or damaged.
        SetupError: it needs a missing package.
    """
    header, body = read_model_file(MAGIC, data, name, "headrace model add takes the folder of a model")
    start = 0
    with tempfile.TemporaryDirectory() as folder:
        for file, size in header["files"]:
            if not _FILE.fullmatch(file):
                raise InputError(f"{name}: holds a file {file!r}, which no model of names has; add the folder again")
            path = Path(folder, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body[start : start + size])
            start += size
        return _open(Path(folder), header["kind"], name)


@made_once
def open_name_model(folder: Path, sha256: str) -> NameModel:
    """Open the folder of a model once per process.

    Raises:
        InputError: it is no folder of a model, or has changed since its SHA-256 was taken.
        SetupError: it needs a missing package.
    """
    data = pack_name_model(folder, "names")
    if (now := data[-DIGEST_BYTES:].hex()) != sha256:
        raise InputError(f"names: {folder} has SHA-256 {now[:12]}, it had {sha256[:12]}; run it again")
    return read_name_model(data, "names")


def _open(folder: Path, library: str, name: str) -> NameModel:
    """Load the model of a folder.

    Raises:
        InputError: its library cannot read it.
        SetupError: the library is not installed.
    """
    try:
        importlib.import_module(library)
    except ImportError as error:
        mend = "pip install 'headrace[names]'" if library == "spacy" else "pip install gliner"
        raise SetupError(f"{name}: needs {library}; {mend}, here and where workers run") from error
    try:
        return _spacy_model(folder) if library == "spacy" else _gliner_model(folder)
    except Exception as error:  # libraries raise what they like
        raise InputError(f"{name}: no model that {library} can read ({str(error)[:200]}); save it again") from error


def _spacy_model(folder: Path) -> NameModel:
    """A pipeline of spaCy, with the parts of it that find names."""
    import spacy

    pipeline, lock = spacy.load(folder, exclude=_NEEDLESS), threading.Lock()

    def find(text: str, labels: Sequence[str]) -> Iterator[Name]:
        for start, piece in _pieces(text, _PIECE_CHARACTERS):
            with lock:  # its tables of strings are written to by every text
                entities = [(entity.start_char, entity.end_char, entity.label_) for entity in pipeline(piece).ents]
            for first, last, label in entities:
                if label in labels:
                    yield Name(start + first, start + last, label, _SPACY_CONFIDENCE)

    return NameModel("spacy", tuple(sorted({label for some in pipeline.pipe_labels.values() for label in some})), find)


def _gliner_model(folder: Path) -> NameModel:
    """A model of GLiNER, asked for labels by their words."""
    from gliner import GLiNER

    from headrace_features.models.causal_model import one_thread

    model = GLiNER.from_pretrained(str(folder), local_files_only=True)

    def find(text: str, labels: Sequence[str]) -> Iterator[Name]:
        for start, piece in _pieces(text, None):
            with one_thread():
                entities = model.predict_entities(piece, list(labels), flat_ner=True, threshold=0.01)
            for entity in sorted(entities, key=lambda entity: entity["start"]):
                yield Name(start + entity["start"], start + entity["end"], entity["label"], float(entity["score"]))

    return NameModel("gliner", (), find)


def _pieces(text: str, characters: int | None) -> Iterator[tuple[int, str]]:
    """Pieces of a text with their starts, cut after a blank where there is one: of characters, else of words."""
    if characters is None:
        ends = [match.end() for match in re.finditer(r"\S+\s*", text)][_GLINER_WORDS - 1 :: _GLINER_WORDS]
    else:
        ends, start = [], 0
        while len(text) - start > characters:
            blank = max(text.rfind(mark, start, start + characters) for mark in "\n ")
            start = blank + 1 if blank > start else start + characters
            ends.append(start)
    for first, last in zip([0, *ends], [*ends, len(text)], strict=True):
        if first < last:
            yield first, text[first:last]
