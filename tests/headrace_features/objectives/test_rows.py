"""Rows of documents: at most a window long, full, each its own choice, and together the file."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_features.objectives.config import FimConfig, KindObjectives, ObjectivesConfig
from headrace_features.objectives.fim import WHOLE, choose
from headrace_features.objectives.layout import LayoutEncoder
from headrace_features.objectives.tokens import ObjectivesTask, TextDocument, bytes_before, document_rows
from headrace_features.objectives.undo import undo
from spark_jobs.tokens.certificate import Certificate, certify
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer, library_of
from tests.headrace_features.objectives.sources import SOURCES

_FILE, _IDS = fim_tokenizer()
_END = 0
_LIBRARY = library_of(_FILE)
_CERTIFICATE = certify(_FILE)
_PIECES = st.sampled_from(
    [*SOURCES.values(), "x", "\n", " " * 9, "🇩🇪" * 5, "e\u0301\u0323" * 3, "<fim_prefix>", "\r\n"]
)


def _task(config: ObjectivesConfig, certificate: Certificate = _CERTIFICATE) -> ObjectivesTask:
    return ObjectivesTask(config, _FILE, certificate, {"code": _IDS}, _END)


def _config(max_tokens: int, **fim: object) -> ObjectivesConfig:
    return ObjectivesConfig(kinds={"code": KindObjectives(fim=FimConfig(**fim))}, max_tokens=max_tokens)  # type: ignore[arg-type]


def _decode(ids: list[int]) -> str:
    return str(_LIBRARY.decode(ids, skip_special_tokens=False))


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.lists(_PIECES, max_size=12).map("".join), min_size=1, max_size=5),
    max_tokens=st.sampled_from([24, 64, 256, 4096]),
    rate=st.sampled_from([0.0, 0.5, 1.0]),
    cut=st.sampled_from(["character", "line"]),
    order=st.sampled_from(["prefix_suffix", "suffix_prefix"]),
)
def test_rows_fit_windows_and_are_the_file(
    texts: list[str], max_tokens: int, rate: float, cut: str, order: str
) -> None:
    """Undone and put together rows are the text; none is longer than a window, all but the last are as good as full."""
    documents = [TextDocument(f"d{number}", "code", "Python", text) for number, text in enumerate(texts)]
    config = _config(max_tokens, rate=rate, cut=cut, spm_order=order)
    task = _task(config)
    made = document_rows(documents, LayoutEncoder(_FILE, _CERTIFICATE, 1 << 18), task)
    for document, rows in zip(documents, made, strict=True):
        bounds = [0, *rows.row_starts, len(rows.ids)]
        parts = [rows.ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]
        assert len(parts) == max(1, len(rows.laid))
        assert "".join(undo(part, _IDS, _END, _decode) for part in parts) == document.text
        assert all(len(part) <= max_tokens for part in parts) and len(parts[-1]) < max_tokens
        assert all(len(part) > max_tokens - 16 for part in parts[:-1])  # a letter, or what a cut splits
        for number, (laid, part) in enumerate(zip(rows.laid, parts, strict=False)):
            fim = config.kinds["code"].fim
            assert fim is not None
            is_cut = choose(fim, document.doc_id, 0, number).is_cut
            assert laid.form == WHOLE or (is_cut and part[-1] == _END) == (number + 1 < len(parts))
            assert sum(token in _IDS for token in part) == (0 if laid.form == WHOLE else 3)
        before = bytes_before(document.text, rows.encoded.layout)
        data = document.text.encode()
        assert all(data[: before[place]].decode() == document.text[:place] for place in before)


@pytest.mark.parametrize("cut", ["character", "line", "syntax"])
@pytest.mark.parametrize("language", SOURCES)
def test_files_of_six_languages_come_back(language: str, cut: str) -> None:
    """Short and long, each cut, for many documents; by syntax none falls back where a parser is there."""
    documents = [TextDocument(f"{cut}{n}", "code", language, SOURCES[language] * (1 + n % 4)) for n in range(24)]
    task = _task(_config(128, rate=1, cut=cut))
    made = document_rows(documents, LayoutEncoder(_FILE, _CERTIFICATE, 1 << 18), task)
    cuts = [laid.cut for rows in made for laid in rows.laid if laid.form != WHOLE]
    assert cuts.count(cut) >= 0.9 * len(cuts) > 20
    for document, rows in zip(documents, made, strict=True):
        bounds = [0, *rows.row_starts, len(rows.ids)]
        parts = [rows.ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]
        assert "".join(undo(part, _IDS, _END, _decode) for part in parts) == document.text


def test_both_encoders_and_any_batches_give_the_same_rows() -> None:
    """With a certificate and without; one document at a time or all at once."""
    documents = [
        TextDocument(f"{name}{n}", "code", name, text * n) for name, text in SOURCES.items() for n in (1, 2, 9)
    ]
    config, refused = _config(64, rate=0.7), Certificate.refused("", "no")
    fast = document_rows(documents, LayoutEncoder(_FILE, _CERTIFICATE, 1 << 18), _task(config))
    slow = [
        row
        for document in documents
        for row in document_rows([document], LayoutEncoder(_FILE, refused, 64), _task(config, refused))
    ]
    for one, other in zip(fast, slow, strict=True):
        assert np.array_equal(one.ids, other.ids)
        assert (one.row_starts, one.encoded.layout, one.laid) == (other.row_starts, other.encoded.layout, other.laid)


def test_kinds_without_fim_are_encoded_as_they_are() -> None:
    """Whole, in one row whatever their length; `all` is of the kinds that are not named."""
    text = SOURCES["Go"] * 50
    ids = _LIBRARY.encode(text, add_special_tokens=False).ids
    (rows,) = document_rows(
        [TextDocument("d", "prose", None, text)], LayoutEncoder(_FILE, _CERTIFICATE, 99), _task(_config(32))
    )
    assert rows.ids.tolist() == ids and rows.row_starts == [] and [laid.form for laid in rows.laid] == [WHOLE]
    config = ObjectivesConfig(kinds={"all": KindObjectives(fim=FimConfig()), "prose": KindObjectives()})
    assert (config.name_of("code"), config.name_of("prose"), config.name_of(None)) == ("all", "prose", "all")
    with pytest.raises(ValueError, match="'prosa' is no kind of document; did you mean 'prose'"):
        ObjectivesConfig(kinds={"prosa": KindObjectives()})
