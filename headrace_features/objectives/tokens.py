"""The step `objective_tokens`: ids of documents as their objectives lay them out, in the table `tokens` of a corpus.

Column `pieces` says where each part of the tokens lies in the text, so that a token is traced to its line wherever it
was moved, and the file is had back (`undo`).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.tables.window_facts import MASK_RULES
from headrace_features.objectives.config import FimConfig, ObjectivesConfig
from headrace_features.objectives.fim import Nodes, RowLayout, choose, lay_out, whole_row
from headrace_features.objectives.layout import Header, LaidOut, LayoutEncoder, Piece, Span, whole
from headrace_features.objectives.masks.headings import FACTS, NO_HEADER, Headed, headed, with_header_facts
from headrace_features.objectives.masks.masking import SPAN, Masking, mask_columns, searched, with_edits
from headrace_features.objectives.rows import DocumentTokens, TokenRow, divided, fits, joined
from headrace_features.objectives.sentinels import Sentinels, find_sentinels
from headrace_features.objectives.syntax import nodes_of
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ArrowRows, Output, Scope, Standing, step
from spark_jobs.lake.declare.tables import Column, Notice
from spark_jobs.selection.cuts import TEXT_COLUMNS, with_cuts
from spark_jobs.spark_sql import DataFrame
from spark_jobs.tokens.certificate import Certificate, certify
from spark_jobs.tokens.encoder_guard import installed, recorded_versions, require_same_encoder
from spark_jobs.tokens.mask_check import RULES_ARE_MASKS
from spark_jobs.tokens.pieces import HEADER, NO_TEXT, PIECES, SENTINELS, with_letters
from spark_jobs.tokens.tokens import (
    MASKED_TOKENS,
    MASKED_TOKENS_DDL,
    MASKED_TOKENS_SCHEMA,
    ROWS_BEGIN,
    TOKENS,
)

_KEYS: Final = ["dataset", "shard", "doc_id"]
_STARTS: Final = (
    "tokens at which further rows of the document begin, ascending: packing cuts it there and, but for rows longer "
    "than a window, nowhere else; a row that is cut in three ends with its end token"
)
OBJECTIVE_TOKENS = replace(
    MASKED_TOKENS,
    name="objective_tokens",
    comment="one row per surviving document: its token ids as its objectives lay them out",
    columns=(
        *(replace(c, comment=_STARTS) if c.name == "row_starts" else c for c in MASKED_TOKENS.columns),
        Column(
            f"{PIECES}!",
            "list<struct<token!: int, start!: int, end!: int>!>",
            "where the tokens from `token` on lie: bytes [start, end) of the document's text; -1 for a sentinel or an "
            "end token, -2 for a header",
        ),
        Column("forms!", "list<string!>", "of each row: whole, psm or spm"),
        Column("cuts!", "list<string!>", "where each row is cut in three: character, line or syntax; none"),
        Column("fell_back", "string", "why lines cut a row, where its syntax was to: no parser of its language, .."),
    ),
    notice=Notice("syntax_cuts", "fell_back is not null", "cut by lines", "fell_back", "each file is parsed"),
)
_DDL: Final = (
    f"{MASKED_TOKENS_DDL}, {PIECES} array<struct<token: int, start: int, end: int>>, forms array<string>, "
    "cuts array<string>, fell_back string"
)
_PIECE: Final = pa.struct([("token", pa.int32()), ("start", pa.int32()), ("end", pa.int32())])
_STRINGS: Final = pa.list_(pa.string())
_SCHEMA: Final = pa.schema(
    [
        *MASKED_TOKENS_SCHEMA,
        (PIECES, pa.list_(_PIECE)),
        ("forms", _STRINGS),
        ("cuts", _STRINGS),
        ("fell_back", pa.string()),
    ]
)


RULED_OBJECTIVE_TOKENS = replace(
    OBJECTIVE_TOKENS,
    columns=(
        *OBJECTIVE_TOKENS.columns,
        Column(
            "mask_rule!", "list<int!>", "number of the rule of each token without loss, 0 of those with: as trainable"
        ),
        Column(
            "masked!",
            "list<struct<rule!: int, start!: int, end!: int>!>",
            "characters [start, end) of the text that each rule found, by rule",
        ),
        Column("no_header", "string", "why no header is in front, where one is declared: no url, .."),
    ),
    checks=(*TOKENS.checks, ROWS_BEGIN, RULES_ARE_MASKS),
)
"""The same of a corpus with rules of masks or headers."""
_RULED_DDL: Final = (
    f"{_DDL}, mask_rule array<int>, masked array<struct<rule: int, start: int, end: int>>, no_header string"
)
_RULED_SCHEMA: Final = pa.schema(
    [*_SCHEMA, ("mask_rule", pa.list_(pa.int32())), ("masked", pa.list_(SPAN)), ("no_header", pa.string())]
)


class ObjectivesTask(NamedTuple):
    """How documents are laid out and encoded.

    Attributes:
        config: of the step.
        file_text: of the tokenizer.json, sentinels special.
        certificate: for that file.
        sentinels: by kind with fill in the middle.
        end_id: of the token that ends a document.
        masking: rules of masks; None where there are none, nor headers.
    """

    config: ObjectivesConfig
    file_text: str
    certificate: Certificate
    sentinels: Mapping[str, Sentinels]
    end_id: int
    masking: Masking | None = None


class TextDocument(NamedTuple):
    """A document to be laid out."""

    doc_id: str
    kind: str
    language: str | None
    text: str
    headed: Headed = NO_HEADER


def _same_encoder(
    config: ObjectivesConfig, inputs: Mapping[str, DataFrame], standing: Standing | None
) -> dict[str, str]:
    """The guard of the step, by fixed texts: stored documents have other ids than their texts (`encoder_guard`)."""
    columns = ("file", "sha256", "end_of_document_id")
    row = inputs["tokenizer"].select(*columns).first() if recorded_versions(standing) != installed() else None
    if row is None:
        return {}
    task = task_of(config, row.asDict(), None)
    encoder = LayoutEncoder(task.file_text, task.certificate, config.batch_characters)

    def encode(texts: Sequence[str]) -> list[Int32Array]:
        return [each.ids for each in encoder.encode([LaidOut(text, whole(text), text) for text in texts])]

    return require_same_encoder(row["file"], encode, standing, documents=False)


@step(version="1", scope=Scope.INCREMENT, tables=(OBJECTIVE_TOKENS,), name="objective_tokens", guard=_same_encoder)
def objective_tokens(
    survivors: DataFrame,
    texts: DataFrame,
    tokenizer: DataFrame,
    config: ObjectivesConfig,
    tokenizer_certificate: DataFrame | None = None,
    cut_texts: DataFrame | None = None,
    documents: DataFrame | None = None,
    template_lines: DataFrame | None = None,
) -> Output:
    """Lay out and encode the surviving documents; one row is a document's token ids."""
    row = tokenizer.select("file", "sha256", "vocabulary_size", "end_of_document_id").first()
    if row is None:
        raise InputError("tokens: the tokenizer table has no row; materialize tokenizer first")
    stored = None if tokenizer_certificate is None else tokenizer_certificate.first()
    masking = Masking.of(config, template_lines) if config.mask_rules else None
    task = task_of(
        config, row.asDict(), None if stored is None else Certificate.from_row(stored.asDict(recursive=True))
    )._replace(masking=masking)
    rows = with_cuts(texts, cut_texts).select(*TEXT_COLUMNS).join(survivors.select(*_KEYS), _KEYS, "left_semi")
    if masking is not None and any(rule.reads == "edits" for rule in masking.rules.values()):
        rows = with_edits(rows, texts, cut_texts, _KEYS)
    if documents is not None:
        rows = with_header_facts(rows, documents, _KEYS, config.header_names)
    encoded = ArrowRows(rows, functools.partial(_encoded, task=task), _DDL if masking is None else _RULED_DDL)
    facts = {
        "headrace.tokenizer-sha256": row["sha256"],
        "headrace.vocabulary-size": str(row["vocabulary_size"]),
        SENTINELS: json.dumps({kind: ids._asdict() for kind, ids in task.sentinels.items()}),
    }
    if masking is not None:
        facts[MASK_RULES] = json.dumps(config.mask_rules)
    return Output({OBJECTIVE_TOKENS.name: encoded.to_frame()}, facts, arrow_rows={OBJECTIVE_TOKENS.name: encoded})


def task_of(config: ObjectivesConfig, tokenizer: Mapping[str, Any], stored: Certificate | None) -> ObjectivesTask:
    """How documents are laid out and encoded, by a config and the row of a tokenizer.

    Args:
        config: of the step.
        tokenizer: its row.
        stored: the certificate of its file; a new one is made where sentinels become special, or others are installed.

    Raises:
        InputError: the tokenizer lacks a sentinel.
    """
    sentinels = {
        kind: find_sentinels(tokenizer["file"], given.fim, f"objectives: {kind}: fim")
        for kind, given in config.kinds.items()
        if given.fim is not None
    }
    file_text = with_letters(tokenizer["file"], itertools.chain(*sentinels.values()))
    certificate = stored if file_text == tokenizer["file"] else None
    if not config.use_fast_encoder:
        certificate = Certificate.refused(tokenizer["sha256"], "use_fast_encoder is false")
    elif certificate is None or not certificate.is_for_this_installation:
        certificate = certify(file_text)
    return ObjectivesTask(config, file_text, certificate, sentinels, tokenizer["end_of_document_id"])


def _encoded(batches: Iterable[pa.RecordBatch], task: ObjectivesTask) -> Iterator[pa.RecordBatch]:
    """Rows of the table, of batches of documents."""
    encoder = LayoutEncoder(task.file_text, task.certificate, task.config.batch_characters)
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("doc_id", "kind", "language", "content"))
        documents = [TextDocument(*values) for values in zip(*columns, strict=True)]
        if FACTS in batch.schema.names:
            documents = _with_headers(documents, batch.column(FACTS).to_pylist(), encoder, task)
        done = 0
        for group in _groups(documents, task.config.batch_characters):
            part, rows = batch.slice(done, len(group)), document_rows(group, encoder, task)
            tokens = _batch(part, group, rows)
            yield tokens if task.masking is None else _with_masks(tokens, part, group, rows, encoder, task)
            done += len(group)


def _with_headers(
    documents: Sequence[TextDocument], facts: Sequence[Any], encoder: LayoutEncoder, task: ObjectivesTask
) -> list[TextDocument]:
    """Documents with what stands in front of them; in front of an empty text nothing does."""
    templates = [task.config.of_kind(document.kind).header if document.text else None for document in documents]
    filled = [
        (document.doc_id, template or "", dict(values or {}))
        for document, template, values in zip(documents, templates, facts, strict=True)
    ]
    headers = headed(filled, encoder, task.config.max_tokens or 1 << 30)
    return [document._replace(headed=header) for document, header in zip(documents, headers, strict=True)]


def _with_masks(
    tokens: pa.RecordBatch,
    batch: pa.RecordBatch,
    documents: Sequence[TextDocument],
    rows: Sequence[DocumentTokens],
    encoder: LayoutEncoder,
    task: ObjectivesTask,
) -> pa.RecordBatch:
    """Rows of the table with the masks of its rules."""
    assert task.masking is not None
    masked = [
        task.masking.masked(task.config.name_of(document.kind), document, row.encoded, encoder)
        for document, row in zip(searched(batch), rows, strict=True)
    ]
    rules, spans = mask_columns(masked)
    trainable = pa.ListArray.from_arrays(rules.offsets, pc.equal(rules.values, 0))
    why_none = pa.array([document.headed.why_none for document in documents], pa.string())
    columns = dict(zip(tokens.schema.names, tokens.columns, strict=True)) | {"trainable": trainable}
    columns |= {"mask_rule": rules, "masked": spans, "no_header": why_none}
    return pa.RecordBatch.from_arrays([columns[name] for name in _RULED_SCHEMA.names], schema=_RULED_SCHEMA)


def _groups(documents: Sequence[TextDocument], characters: int) -> Iterator[list[TextDocument]]:
    """Neighbouring documents of at most so many characters together, or one longer one."""
    group, size = list[TextDocument](), 0
    for document in documents:
        if group and size + len(document.text) > characters:
            yield group
            group, size = [], 0
        group.append(document)
        size += len(document.text)
    if group:
        yield group


class _Laying(NamedTuple):
    """Lays out the rows of a document."""

    document: TextDocument
    config: FimConfig | None
    sentinels: Sentinels | None
    nodes: Nodes

    def lay_out(self, row: int, span: Span) -> RowLayout:
        """Lay out a row; the first has the document's header."""
        if self.config is None or self.sentinels is None:
            laid = whole_row(span)
        else:
            choice = choose(self.config, self.document.doc_id, 0, row)
            laid = lay_out(self.document.text, span, self.config, choice, self.sentinels, self.nodes)
        header = self.document.headed.header
        return laid if row or header is None else laid._replace(layout=(header, *laid.layout))


def document_rows(
    documents: Sequence[TextDocument], encoder: LayoutEncoder, task: ObjectivesTask
) -> list[DocumentTokens]:
    """Lay out and encode documents.

    Args:
        documents: about as many as are encoded at once.
        encoder: of the tokenizer.
        task: how.
    """
    most = task.config.max_tokens or 1 << 30
    laying = _laying(documents, task, most)
    # a text of three characters a token is tried as a row; a longer one is divided, and may be a row all the same
    short = [at for at, each in enumerate(laying) if each.config is None or len(each.document.text) <= 3 * most]
    laid = [laying[at].lay_out(0, Span(0, len(documents[at].text))) for at in short]
    encoded = encoder.encode(
        [LaidOut(documents[at].text, row.layout, documents[at].doc_id) for at, row in zip(short, laid, strict=True)]
    )
    tried = dict(zip(short, map(TokenRow, laid, encoded), strict=True))
    rows = []
    for at, (document, each) in enumerate(zip(documents, laying, strict=True)):
        row = tried.get(at)
        if row is not None and (each.config is None or fits(row, most)):
            rows.append(joined([row], task.end_id))
        else:
            rows.append(joined([*divided(document.text, document.doc_id, each.lay_out, encoder, most)], task.end_id))
    return rows


def _laying(documents: Sequence[TextDocument], task: ObjectivesTask, most: int) -> list[_Laying]:
    """What lays out each document; files are parsed where a row of theirs may be cut by syntax."""
    configs = [task.config.of_kind(document.kind).fim for document in documents]
    asked = [
        at
        for at, (document, config) in enumerate(zip(documents, configs, strict=True))
        if config is not None
        and config.cut == "syntax"
        and (len(document.text.encode()) >= most or choose(config, document.doc_id).is_cut)
    ]
    nodes = dict(zip(asked, nodes_of([(documents[at].language, documents[at].text) for at in asked]), strict=True))
    return [
        _Laying(document, config, task.sentinels.get(task.config.name_of(document.kind)), nodes.get(at, "not parsed"))
        for at, (document, config) in enumerate(zip(documents, configs, strict=True))
    ]


def _batch(batch: pa.RecordBatch, documents: Sequence[TextDocument], rows: Sequence[DocumentTokens]) -> pa.RecordBatch:
    counts = np.array([len(row.ids) for row in rows], np.int32)
    pieces = [piece for row, document in zip(rows, documents, strict=True) for piece in _pieces(row, document.text)]
    starts = pa.array(np.cumsum([0, *(len(row.encoded.layout) for row in rows)]).astype(np.int32))
    flat = np.array(pieces, np.int32).reshape(-1, 3)
    fell_back = [next((laid.fell_back for laid in row.laid if laid.fell_back), None) for row in rows]
    columns = [
        *(batch.column(name) for name in _KEYS),
        _lists([row.ids for row in rows], counts),
        pa.array(counts),
        _lists([np.ones(len(row.ids) + 1, np.bool_) for row in rows], counts + 1),
        pa.array([row.row_starts for row in rows], pa.list_(pa.int32())),
        pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays([*map(pa.array, flat.T)], fields=[*_PIECE])),
        pa.array([[laid.form for laid in row.laid] for row in rows], _STRINGS),
        pa.array([[laid.cut for laid in row.laid] for row in rows], _STRINGS),
        pa.array(fell_back, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _lists(values: Sequence[np.ndarray[Any, Any]], counts: np.ndarray[Any, Any]) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(values)))


def _pieces(rows: DocumentTokens, text: str) -> Iterator[tuple[int, int, int]]:
    """(first token, first byte, byte behind the last) of each piece."""
    layout, counts = rows.encoded.layout, rows.encoded.counts
    before = bytes_before(text, layout)
    for token, piece in zip((np.cumsum(counts) - counts).tolist(), layout, strict=True):
        if isinstance(piece, Span):
            yield token, before[piece.start], before[piece.end]
        else:
            yield (token, HEADER, HEADER) if isinstance(piece, Header) else (token, NO_TEXT, NO_TEXT)


def bytes_before(text: str, layout: Iterable[Piece]) -> Mapping[int, int]:
    """Bytes of the UTF-8 before each character at which a piece of a layout begins or ends."""
    places = sorted({0, *(place for piece in layout if isinstance(piece, Span) for place in piece)})
    if text.isascii():
        return {place: place for place in places}
    sizes = itertools.accumulate(len(text[a:b].encode()) for a, b in itertools.pairwise(places))
    return dict(zip(places, [0, *sizes], strict=True))
