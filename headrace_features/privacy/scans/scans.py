"""Step: scan the documents of a quarantined dataset; counts and names of what was found, never what was found.

Signs that a document is a fixture or made up are such as real documents rarely bear: RFCs name example.com, so a few
such names are no sign, many are.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import Field, field_validator

from headrace_features.privacy.scans.malware import SHIPPED, clamd_findings, compiled, yara_findings
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ConfigModel, Scope, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.side_reads import map_rows
from spark_jobs.sources.licences.expressions import allows
from spark_jobs.sources.licences.names import required_ids, spdx_expression
from spark_jobs.spark_sql import DataFrame, F

if TYPE_CHECKING:
    import pyarrow as pa

_COUNTED = ("malware", "secret", "personal_data", "fixture")


class ScansConfig(ConfigModel):
    """Scans beside those for secrets, personal data and signs of test data."""

    yara_rules: str | None = Field(None, description="file of YARA rules; without one, the EICAR test file alone")
    yara_sha256: str = Field("", description="SHA-256 of that file, so that other rules scan again; filled in")
    clamd: str | None = Field(
        None, pattern=r"^(unix:///.+|tcp://[^/]+)$", description="unix:///PATH or tcp://HOST:PORT of a clamd"
    )
    clamd_database: str = Field("", description="any text; another one scans again, as for new signatures of clamd")
    licences_allowed: tuple[str, ...] = Field((), description="SPDX ids; none: licences are not checked")
    source_trust: float | None = Field(None, ge=0, le=1, description="trust in the source, 0 to 1; put into each row")
    min_confidence: float = Field(
        0.5,
        ge=0,
        le=1,
        description="least confidence of a finding to be counted",
    )

    @field_validator("licences_allowed")
    @classmethod
    def _are_licences(cls, licences: tuple[str, ...]) -> tuple[str, ...]:
        """Check that each name is an SPDX id, and spell it as SPDX does."""
        return required_ids(licences)


SCANS = Table(
    name="scans",
    comment="One row per quarantined document: how much of what was found in it, by name; never the thing itself.",
    columns=(
        Column("shard!", "int", "as in documents"),
        Column("doc_id!", "string", "identity of the document"),
        Column("malware_count!", "long", "YARA rules that match, and what clamd found"),
        Column("secret_count!", "long", "keys, tokens and passwords"),
        Column("personal_data_count!", "long", "mail addresses, numbers of people and the like"),
        Column("fixture_count!", "long", "signs that it is test data or made up"),
        Column("findings!", "map<string, long!>", "how often, by kind and rule, such as secret.aws"),
        Column("licence", "string", "its own, else its repository's, else what the dataset declares; SPDX"),
        Column("licence_allowed", "boolean", "whether that is one of licences_allowed; null where none are declared"),
        Column("source_trust", "double", "how far the source is trusted, as declared, 0 to 1"),
    ),
    key=("doc_id",),
    partition=("increment", "shard"),
)
_SCANNED = (
    "shard int, doc_id string, repository string, licence string, malware_count bigint, secret_count bigint, "
    "personal_data_count bigint, fixture_count bigint, findings map<string, bigint>"
)


class _Rules(NamedTuple):
    yara: str
    clamd: str | None
    min_confidence: float


@step(version="3", scope=Scope.INCREMENT, tables=(SCANS,))
def scans(documents: DataFrame, repositories: DataFrame, provenance: DataFrame, config: ScansConfig) -> DataFrame:
    """Scan every document of an increment."""
    rules = _Rules(yara_source(config), config.clamd, config.min_confidence)
    compiled(rules.yara)  # a mistake in it ends here, not in a worker
    columns = ["shard", "doc_id", "repository", "licence", "path"]
    scanned = map_rows(documents, columns, ["content"], partial(_scan, rules=rules), _SCANNED).to_frame()
    theirs = repositories.groupBy("repository").agg(F.max("licence").alias("of_repository"))
    declared = provenance.agg(F.max("licence").alias("of_dataset"))
    rows = scanned.join(theirs, "repository", "left").crossJoin(F.broadcast(declared))
    rows = rows.withColumn("licence", F.coalesce("licence", "of_repository", "of_dataset"))
    rows = rows.select(
        "shard",
        "doc_id",
        *(f"{kind}_count" for kind in _COUNTED),
        "findings",
        "licence",
        F.lit(None).cast("boolean").alias("licence_allowed"),
        F.lit(config.source_trust).cast("double").alias("source_trust"),
    )
    return rows.mapInArrow(partial(_judge, allowed=frozenset(config.licences_allowed)), rows.schema)


def yara_source(config: ScansConfig) -> str:
    """The YARA rules named by a config.

    Raises:
        InputError: the file is not the declared one.
    """
    content = (Path(config.yara_rules) if config.yara_rules else SHIPPED).read_bytes()
    if config.yara_rules and config.yara_sha256 != hashlib.sha256(content).hexdigest():
        raise InputError(f"scans.yara_rules: {config.yara_rules} changed since definitions were loaded; run again")
    return content.decode()


def _judge(batches: Iterable[pa.RecordBatch], allowed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Batches of rows of `SCANS` with whether the licence of each is allowed; null where no licences are named."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        licences = pc.dictionary_encode(batch.column("licence").cast(pa.string()), null_encoding="encode")
        names = [spdx_expression(licence) for licence in licences.dictionary.to_pylist()]
        answers = pa.array([allows(name or "", allowed) if allowed else None for name in names], pa.bool_())
        place = batch.schema.get_field_index("licence_allowed")
        yield batch.set_column(place, batch.schema.field(place), answers.take(licences.indices))


def _scan(batches: Iterable[pa.RecordBatch], rules: _Rules) -> Iterator[pa.RecordBatch]:
    """Batches of documents (shard, doc_id, repository, licence, path, content) to batches of findings."""
    import pyarrow as pa

    for batch in batches:
        counts_of_texts = findings(
            batch.column("path").to_pylist(), batch.column("content"), rules.yara, rules.clamd, rules.min_confidence
        )
        counts = [
            pa.array(
                [
                    sum(n for name, n in text_counts.items() if name.startswith(f"{kind}."))
                    for text_counts in counts_of_texts
                ],
                pa.int64(),
            )
            for kind in _COUNTED
        ]
        by_name = pa.array(
            [list(text_counts.items()) for text_counts in counts_of_texts], pa.map_(pa.string(), pa.int64())
        )
        keys = [batch.column(name) for name in ("shard", "doc_id", "repository", "licence")]
        names = ["shard", "doc_id", "repository", "licence", *(f"{kind}_count" for kind in _COUNTED), "findings"]
        yield pa.RecordBatch.from_arrays([*keys, *counts, by_name], names=names)


def findings(
    paths: list[str], content: pa.Array, yara: str, clamd: str | None = None, min_confidence: float = 0.5
) -> list[dict[str, int]]:
    """How often each rule finds something in each document, by `malware.`, `secret.`, `personal_data.`, `fixture.RULE`.

    Args:
        paths: (D,) paths of the documents.
        content: (D,) strings, none of them null.
        yara: text of YARA rules.
        clamd: address of a clamd; None for none.
        min_confidence: of personal data and secrets.

    Raises:
        InputError: clamd does not answer.
    """
    from headrace_features.privacy.personal_data.find import found_spans, resolve

    counts_of_texts = []
    spans = found_spans(content, min_confidence)
    for path, text, personal in zip(paths, content.to_pylist(), spans, strict=True):
        data = text.encode("utf-8", "surrogatepass")
        counts: Counter[str] = Counter()
        counts.update(f"malware.{name}" for name in yara_findings(data, yara))
        if clamd is not None:
            counts.update(f"malware.{name}" for name in clamd_findings(data, clamd))
        for span in resolve(personal):
            counts[f"secret.{span.rule}" if span.kind == "secret" else f"personal_data.{span.kind}"] += 1
        counts.update({f"fixture.{name}": count for name, count in signs(path, text)})
        counts_of_texts.append(dict(sorted(counts.items())))
    return counts_of_texts


_TEST_PATH: Final = re.compile(
    r"(?:^|/)(?:tests?|testing|testdata|test[_-]data|fixtures?|__fixtures__|mocks?|__mocks__|cassettes|__snapshots__)/"
    r"|(?:^|/)(?:conftest\.py|test_[^/]*\.py|[^/]*_test\.(?:py|go|rb)|[^/]*\.(?:spec|test)\.[jt]sx?)$"
)
_LOREM: Final = re.compile(r"(?i)\blorem\s+ipsum\b")
_EXAMPLE_NAME: Final = re.compile(r"(?i)(?:[@.]|//)example\.(?:com|org|net)\b")
_EXAMPLES: Final = 3  # of such names, in a text that has one for each so many characters
_EXAMPLE_CHARACTERS: Final = 400
# Forms of the addresses and soldiers' boxes that Faker makes in its default language, and few others do.
_STREETS: Final = (
    "Burg", "Crossroad", "Glen", "Isle", "Junction", "Knoll", "Mews", "Orchard", "Port", "Shoal", "Spur", "Stravenue",
    "Throughway", "Trafficway", "Underpass", "Viaduct", "Village",
)  # fmt: skip
_BOXES: Final = ("APO A", "FPO A", "DPO A")
_FAKER: Final = re.compile(
    rf"\b\d{{3,5}} [A-Z][\w']+ (?:{'|'.join(_STREETS)})s?\b"
    r"|\b[AFD]PO A[AEP] \d{5}\b"
    r"|\b(?:Apt\.|Suite) \d{3}\n[A-Z][a-z]+ ?[A-Za-z]*(?:ville|town|mouth|berg|burgh|shire|chester|side|bury|fort|land"
    r"|stad|view|ton|port|haven|furt), [A-Z]{2} \d{5}\b"
)
_FAKER_WORDS: Final = (*_STREETS, *_BOXES, "Apt. ", "Suite ")
_FAKER_FORMS: Final = 2


def signs(path: str, text: str) -> Iterator[tuple[str, int]]:
    """Each sign in a document, and how often."""
    if _TEST_PATH.search(path):
        yield "test_path", 1
    lower = text.lower()  # searching for words first is ten times as fast as the expressions
    if "ipsum" in lower and (count := len(_LOREM.findall(text))):
        yield "lorem_ipsum", count
    if "example." in lower:
        count = len(_EXAMPLE_NAME.findall(text))
        if count >= _EXAMPLES and count * _EXAMPLE_CHARACTERS >= len(text):
            yield "example_names", count
    if any(word in text for word in _FAKER_WORDS) and (count := len(_FAKER.findall(text))) >= _FAKER_FORMS:
        yield "faker", count
