"""Models in the registry: the facts in a model's entry, and its file, read by workers.

    system.registry                 kind model: format, labels, hash and size; of a trained model its evaluation too
    <warehouse>/models/<SHA-256>    the file, which never changes and is stored once whatever names it has

A file may have hundreds of MB, so it is not in a cell of the registry: every look at a policy reads those.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pyarrow as pa

from headrace_features.models.model_file import DIGEST_BYTES
from spark_jobs.exceptions import InputError, SetupError
from spark_jobs.lake.declare.step import ConfigModel
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.files.storage import create, open_input
from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.lake.run.registry import Entry, entries, find_entries, record
from spark_jobs.threads import made_once

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headrace_features.models.causal_model import CausalModel
    from headrace_features.models.classifier import Classifier
    from headrace_features.models.encoder import Encoder
    from headrace_features.models.name_model import NameModel
    from headrace_features.models.ngram_model import NgramModel
    from spark_jobs.fasttext.model import FastTextModel

    Model = CausalModel | Classifier | Encoder | FastTextModel | NameModel | NgramModel

VERSION_DIGITS: Final = 12
PERPLEXITY: Final = "perplexity"
"""The only label of an n-gram model or a causal one, for configs."""
Format = Literal["classifier", "fasttext", "ngrams", "causal", "encoder", "names"]
_FORMATS: Final[Mapping[str, Format]] = {
    "CausalModel": "causal",
    "Classifier": "classifier",
    "FastTextModel": "fasttext",
    "NameModel": "names",
    "NgramModel": "ngrams",
    "SentenceEncoder": "encoder",
    "StaticVectors": "encoder",
}
_GZIP: Final = b"\x1f\x8b"
_ARPA: Final = re.compile(rb"^\\data\\\s*$", re.MULTILINE)
_HEAD_BYTES: Final = 1 << 16  # bytes searched for `\data\`; comments may precede it
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")


class LabelFacts(ConfigModel):
    """Evaluation of a trained model on one label; see `classifier_training.LabelEvaluation`."""

    label: str
    test_count: int
    precision: float | None
    recall: float | None
    auc: float | None
    average_precision: float | None
    calibration_error: float


class ModelFacts(ConfigModel):
    """The content of a model's entry in the registry."""

    format: Format
    labels: tuple[str, ...]  # of an n-gram model or a causal one `perplexity` alone, of an encoder `vector`
    sha256: str
    byte_count: int
    evaluation: tuple[LabelFacts, ...] = ()
    accuracy: float | None = None  # share of the texts held back whose most probable label is theirs

    @classmethod
    def of(cls, entry: Entry) -> ModelFacts:
        """Parse the facts of a registry entry."""
        return cls.model_validate_json(entry.content)


@dataclass(frozen=True)
class ModelFile:
    """The location of a model's file, for workers to read.

    Attributes:
        label: its `name@version`.
        sha256: identity of the model.
        location: path or URI.
        properties: of PyIceberg's FileIO.
    """

    label: str
    sha256: str
    location: str
    properties: tuple[tuple[str, str], ...]


def read_model(data: Any, name: str) -> Model:
    """Read a model of any kind from the bytes of its file.

    Raises:
        InputError: the bytes are no model, of another version, or damaged.
        SetupError: the model needs a missing package.
    """
    from headrace_features.models import classifier, encoder, model_file, name_model, ngram_model
    from spark_jobs.fasttext.model import read_fasttext

    begins = bytes(memoryview(data)[:64])
    if begins.startswith(model_file.MAGIC):
        try:
            from headrace_features.models.causal_model import read_causal_model
        except ImportError as error:
            raise SetupError(f"{name}: needs torch; pip install 'headrace[torch,transformers]'") from error
        return read_causal_model(bytes(data), name)
    if begins.startswith(encoder.MAGIC):
        return encoder.read_encoder(bytes(data), name)
    if begins.startswith(classifier.MAGIC):
        return classifier.read_classifier(bytes(data), name)
    if begins.startswith(name_model.MAGIC):
        return name_model.read_name_model(bytes(data), name)
    if begins.startswith(ngram_model.MAGIC):
        return ngram_model.read_ngram_model(bytes(data), name)
    return read_fasttext(data, name)


def _as_stored(data: bytes, name: str) -> bytes:
    """A model's file as it is stored: ARPA text, gzipped or not, is converted to headrace's format; others stay."""
    from headrace_features.models.ngram_model import read_arpa

    try:
        plain = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name}: is a damaged gzip file ({error}); copy it again") from error
    return read_arpa(plain, name).to_bytes() if _ARPA.search(plain[:_HEAD_BYTES]) else data


def add_model(
    catalogue: Catalog,
    name: str,
    data: bytes,
    version: str | None = None,
    evaluation: Iterable[LabelFacts] = (),
    accuracy: float | None = None,
) -> Entry:
    """Register a model and store its file; nothing is written if both exist already.

    Raises:
        InputError: the name is malformed, the file is no model, or name and version are those of another.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"model {name!r}: not a name; write [a-z][a-z0-9_]{{0,40}}, because columns are called so")
    data = _as_stored(data, f"model {name}")
    model = read_model(data, f"model {name}")
    facts = ModelFacts(
        format=_FORMATS[type(model).__name__],
        labels=getattr(model, "labels", (PERPLEXITY,)),
        sha256=_sha256(model, data),
        byte_count=len(data),
        evaluation=tuple(evaluation),
        accuracy=accuracy,
    )
    version = version or facts.sha256[:VERSION_DIGITS]
    for there in entries(catalogue, "model", name):
        if there.version == version and ModelFacts.of(there).sha256 == facts.sha256:
            facts = ModelFacts.of(there)  # which may have an evaluation
    file = _file(catalogue, name, facts.sha256)
    if not _holds(file, data):
        with create(file.location, dict(file.properties)) as out:
            out.write(data)
    lacking = {"accuracy"} if facts.accuracy is None else None  # as in entries of earlier versions of headrace
    content = canonical_json(facts.model_dump(mode="json", exclude=lacking)).encode()
    return record(catalogue, "model", name, version, content)


def record_trained(catalogue: Catalog, name: str, table: str) -> None:
    """Register the last trained model, from table NAME.`table`, with its evaluation in `NAME.evaluation`."""
    from pyiceberg.expressions import AlwaysTrue

    if not is_unrecorded(catalogue, name, table):
        return
    (row,) = read_rows(catalogue, f"{name}.{table}", ("file", "accuracy"), AlwaysTrue())
    measured = read_rows(catalogue, f"{name}.evaluation", tuple(LabelFacts.model_fields), AlwaysTrue())
    evaluation = sorted((LabelFacts(**measures) for measures in measured), key=lambda measures: measures.label)
    add_model(catalogue, name, row["file"], evaluation=evaluation, accuracy=row.get("accuracy"))


def is_unrecorded(catalogue: Catalog, name: str, table: str) -> bool:
    """Whether the last trained model is not in the registry, or its file is lost or damaged."""
    from pyiceberg.expressions import AlwaysTrue

    trained = read_rows(catalogue, f"{name}.{table}", ("sha256",), AlwaysTrue())
    if not trained:
        return False
    sha256 = trained[0]["sha256"]
    versions = {entry.version for entry in entries(catalogue, "model", name)}
    return sha256[:VERSION_DIGITS] not in versions or not _is_intact(_file(catalogue, name, sha256))


def find_models(catalogue: Catalog, references: Iterable[str]) -> list[tuple[ModelFacts, ModelFile]]:
    """Facts and files of models, each given as `name@version`.

    Raises:
        InputError: one does not exist; the message names the nearest.
    """
    mend = "headrace model add, or train it: headrace run NAME"
    labelled = [(entry.label, ModelFacts.of(entry)) for entry in find_entries(catalogue, "model", references, mend)]
    return [(facts, _file(catalogue, label, facts.sha256)) for label, facts in labelled]


@made_once
def load_model(file: ModelFile) -> Model:
    """Read a model once per process; the matrices of a local fastText model stay in a shared memory map.

    Raises:
        InputError: the file is missing or damaged.
    """
    name = file.label.partition("@")[0]
    mend = f"headrace run {name} writes it again if it was trained here, headrace model add {name} --from FILE if not"
    try:
        with open_input(file.location, dict(file.properties)) as stream:
            data = stream.read_buffer()
            model = read_model(data, f"model {file.label}")
    except OSError as error:
        reason = "it is not there" if isinstance(error, FileNotFoundError) else str(error).split(". Detail")[0]
        raise InputError(f"model {file.label}: {file.location} cannot be read, {reason}; {mend}") from error
    except InputError as error:
        raise InputError(f"{str(error).rpartition(';')[0]} ({file.location}); {mend}") from error
    if (sha256 := _sha256(model, data)) != file.sha256:
        raise InputError(f"model {file.label}: {file.location} has SHA-256 {sha256[:12]}, another; {mend}")
    return model


def load_encoder(file: ModelFile) -> Encoder:
    """`load_model` for a model of the format `encoder` in the registry."""
    return cast("Encoder", load_model(file))


def _sha256(model: Model, data: Any) -> str:
    """Identity of a model, taken from the bytes of its file, which `read_model` checked."""
    from spark_jobs.fasttext.model import FastTextModel

    return model.sha256 if isinstance(model, FastTextModel) else bytes(memoryview(data)[-DIGEST_BYTES:]).hex()


def _holds(file: ModelFile, data: bytes) -> bool:
    """Whether the file exists with these bytes; then it is not rewritten, since a worker may have it mapped."""
    try:
        with open_input(file.location, dict(file.properties)) as stream:
            return bool(stream.read_buffer().equals(pa.py_buffer(data)))
    except OSError:
        return False


def _is_intact(file: ModelFile) -> bool:
    """Whether the file of a model trained here exists, and its content has the hash at its end."""
    try:
        with open_input(file.location, dict(file.properties)) as stream:
            data = memoryview(stream.read_buffer())
    except OSError:
        return False
    return hashlib.sha256(data[:-DIGEST_BYTES]).hexdigest() == bytes(data[-DIGEST_BYTES:]).hex() == file.sha256


def _file(catalogue: Catalog, label: str, sha256: str) -> ModelFile:
    """Location of the file of a model with this SHA-256."""
    properties: Mapping[str, str] = catalogue.properties
    root = properties["warehouse"].removeprefix("file://").rstrip("/")
    return ModelFile(
        label,
        sha256,
        f"{root}/models/{sha256}",
        tuple(sorted((key, value) for key, value in properties.items() if key.startswith(("s3.", "client.")))),
    )
