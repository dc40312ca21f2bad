"""A tokenizer.json is opened so that a text has one list of ids, whatever the file asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from blender_service.exceptions import PackedTableError
from blender_service.tables.text_table import TextEncoder
from headrace.kernels.tokenizer_file import open_tokenizer
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.hf_tokenizer import ExactEncoder, load_reference

TEXT = "abab ab, aba 12 " * 40
VOCABULARY = {name: number for number, name in enumerate(["<unk>", *"ab ,12Ġ▁", "ab", "aba"])}
MERGES = [("a", "b"), ("ab", "a")]
SCORES = [(name, -1.0 - number) for name, number in VOCABULARY.items()]
MODELS: Mapping[str, Callable[[], models.Model]] = {
    "BPE": lambda: models.BPE(
        VOCABULARY,
        MERGES,
        dropout=0.9,
        unk_token="<unk>",
        continuing_subword_prefix="",
        end_of_word_suffix="",
        fuse_unk=True,
        byte_fallback=True,
        ignore_merges=True,
    ),
    "Unigram": lambda: models.Unigram(SCORES, 0, False, alpha=0.1, nbest_size=64),
    "WordLevel": lambda: models.WordLevel(VOCABULARY, unk_token="<unk>"),
    "WordPiece": lambda: models.WordPiece(
        VOCABULARY, unk_token="<unk>", max_input_chars_per_word=3, continuing_subword_prefix=""
    ),
}
ENDS = (("b", VOCABULARY["b"]), ("a", VOCABULARY["a"]))
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "Replace": (Regex("[0-9]"), "b"),
    "Prepend": ("a",),
    "CharDelimiterSplit": (",",),
    "Split": (Regex("[0-9]"), "isolated"),
    "BertProcessing": ENDS,
    "RobertaProcessing": ENDS,
    "TemplateProcessing": ("a $A b", "a $A b $B", [*ENDS]),
    "normalizers.Sequence": ([normalizers.NFC(), normalizers.Lowercase()],),
    "pre_tokenizers.Sequence": ([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()],),
    "processors.Sequence": ([processors.ByteLevel()],),
}
BASES = {"Normalizer", "PreTokenizer", "PostProcessor"}
NOT_MADE = {*BASES, "NORMALIZERS", "Precompiled"}  # the last needs a compiled map of characters


def of_all_kinds(module: ModuleType) -> Iterator[Any]:
    """One of each class of the library's module, with a value for each argument that has no default."""
    for name in sorted(vars(module)):
        if name[0].isupper() and name not in NOT_MADE:
            known = f"{module.__name__.removeprefix('tokenizers.')}.{name}" if name == "Sequence" else name
            yield getattr(module, name)(*ARGUMENTS.get(known, ()))


PARTS = [
    *(pytest.param("normalizer", one, id=type(one).__name__) for one in of_all_kinds(normalizers)),
    *(pytest.param("pre_tokenizer", one, id=type(one).__name__) for one in of_all_kinds(pre_tokenizers)),
    *(pytest.param("post_processor", one, id=type(one).__name__) for one in of_all_kinds(processors)),
]


def file_of(model: str, **parts: Any) -> str:
    """A tokenizer.json that asks for dropout, or has a part as the library writes it."""
    tokenizer = Tokenizer(MODELS[model]())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer.to_str()


def changed(file_text: str, section: str, **fields: object) -> str:
    """A file with other fields in its model, in a part, or at its top (`""`)."""
    declared = json.loads(file_text)
    (declared[section] if section else declared).update(fields)
    return json.dumps(declared)


def ids(file_text: str) -> list[list[list[int]]]:
    """Ids of a text by each way to encode: packed tables, blends of text and other readers, each of them twice."""
    encoders = [ExactEncoder(file_text), ExactEncoder(file_text)]
    texts = [TextEncoder(file_text, 0), TextEncoder(file_text, 0)]
    return [
        *([found.tolist() for found in encoder.encode([TEXT, TEXT], 10_000)] for encoder in encoders),
        *([encoder.encode([TEXT]).ids[:-1].tolist()] * 2 for encoder in texts),
        *([found[0].ids[:-1].tolist() for _ in range(2)] for found in [texts[0].encode_trainable([TEXT], [None])]),
        [open_tokenizer(file_text).encode(TEXT, add_special_tokens=False).ids] * 2,
    ]


def require_equal(file_text: str, plain: str) -> None:
    """All ways give the ids of a file that asks for nothing, of all of the text."""
    expected = Tokenizer.from_str(plain).encode(TEXT, add_special_tokens=False).ids
    assert all(found == [expected, expected] for found in ids(file_text))


@pytest.mark.parametrize("model", MODELS)
def test_no_field_of_a_model_changes_ids_between_two_times(model: str) -> None:
    """Nor do fields of sampling that this release does not read, or that it reads and does not write."""
    asked = file_of(model)
    drawn = {str(Tokenizer.from_str(asked).encode(TEXT, add_special_tokens=False).ids) for _ in range(9)}
    assert (len(drawn) > 1) == (model == "BPE")  # what a file of this release can ask for
    plain = changed(asked, "model", **({"dropout": None} if model == "BPE" else {}))
    require_equal(asked, plain)
    require_equal(changed(plain, "model", dropout=0.9, alpha=0.1, nbest_size=64), plain)


@pytest.mark.parametrize("name", ["dropout", "alpha", "nbest_size"])
def test_a_field_that_draws_is_switched_off_where_the_library_reads_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later release may read those of Unigram from the file."""
    read = Tokenizer(MODELS["BPE" if name == "dropout" else "Unigram"]())
    assert getattr(read.model, name) is not None
    monkeypatch.setattr(Tokenizer, "from_str", lambda text: read)
    assert open_tokenizer(file_of("BPE")) is read
    assert getattr(read.model, name) is None
    assert len({str(read.encode(TEXT).ids) for _ in range(5)}) == 1


@pytest.mark.parametrize(("section", "part"), PARTS)
def test_no_part_changes_ids_between_two_times(section: str, part: Any) -> None:
    """Every normalizer, pre-tokenizer and post-processor of the library, with the fields that it writes."""
    file = file_of("BPE", **{section: part})
    require_equal(file, changed(file, "model", dropout=None))


@pytest.mark.parametrize("direction", ["left", "right"])
@pytest.mark.parametrize("stride", [0, 3])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
def test_texts_are_never_cut_nor_lengthened(direction: str, stride: int, strategy: str) -> None:
    """Whatever the file says of truncation and of padding."""
    plain = changed(file_of("BPE"), "model", dropout=None)
    tokenizer = Tokenizer.from_str(plain)
    tokenizer.enable_truncation(9, stride=stride, strategy=strategy, direction=direction)
    tokenizer.enable_padding(direction=direction, pad_id=1, pad_token="a", length=5000, pad_to_multiple_of=7)
    require_equal(tokenizer.to_str(), plain)


UNKNOWN = [("model", "sampling"), ("normalizer", "chance"), ("pre_tokenizer", "most_words"), ("post_processor", "take")]


@pytest.mark.parametrize(("section", "name"), UNKNOWN)
def test_a_field_that_is_not_known_is_refused_by_name(section: str, name: str) -> None:
    """Wherever it stands, in one line; the library ignores it without a word. A comment is none."""
    parts = {
        "normalizer": normalizers.Sequence([normalizers.NFC()]),
        "pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.Digits()]),
        "post_processor": processors.Sequence([processors.ByteLevel()]),
    }
    file = file_of("BPE", **parts)
    declared = json.loads(file)
    inner = declared[section]
    if section != "model":
        (inner,) = next(value for value in inner.values() if isinstance(value, list))
    inner[name] = 0.5
    wrong = json.dumps(declared)
    Tokenizer.from_str(wrong)
    said = f"the field {section}.{name} is not known here"
    for opened, error in ((load_reference, InputError), (lambda text: TextEncoder(text, 0), PackedTableError)):
        with pytest.raises(error, match=re.escape(said)) as caught:
            opened(wrong)
        assert "\n" not in str(caught.value)
    inner[f"_{name}"] = inner.pop(name)
    load_reference(json.dumps(declared))


def test_fields_of_added_tokens_and_of_templates_are_looked_at() -> None:
    """The names of special tokens in a template are no fields."""
    template = processors.TemplateProcessing(single="a $A", special_tokens=[("a", VOCABULARY["a"])])
    file = file_of("BPE", post_processor=template)
    open_tokenizer(file)
    token = {"id": 1, "content": "a", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    token |= {"normalized": False, "weight": 2}
    with pytest.raises(ValueError, match=r"the field added_tokens.weight"):
        open_tokenizer(changed(file, "", added_tokens=[token]))


@pytest.mark.parametrize(
    ("normalizer", "names"),
    [(normalizers.NFC(), ("\u212b", "\u00c5")), (normalizers.Lowercase(), ("<Q>", "<q>"))],
    ids=["NFC", "Lowercase"],
)
def test_two_names_that_are_one_to_the_normalizer_are_refused(
    normalizer: normalizers.Normalizer, names: tuple[str, str]
) -> None:
    """The library finds one of them by chance, each time that the file is loaded; others are none of its concern."""
    flags = dict.fromkeys(("special", "single_word", "lstrip", "rstrip"), False)
    tokens = [{"id": 50 + n, "content": name, "normalized": True, **flags} for n, name in enumerate(names)]
    file = changed(file_of("BPE", normalizer=normalizer), "", added_tokens=tokens)
    drawn = {str(Tokenizer.from_str(file).encode(names[1]).ids) for _ in range(64)}
    assert len(drawn) == 2
    with pytest.raises(ValueError, match=re.escape(names[1])) as caught:
        open_tokenizer(file)
    assert "are one name to its normalizer" in str(caught.value) and names[0] in str(caught.value)
    tokens[0]["normalized"] = False
    open_tokenizer(changed(file, "", added_tokens=tokens))
    open_tokenizer(changed(file, "", added_tokens=[tokens[1], tokens[1]]))


def test_what_is_no_tokenizer_is_refused() -> None:
    """With the library's reason."""
    for text in ("{}", "[]", "", '{"model": 3}'):
        with pytest.raises(ValueError, match="it is no tokenizer"):
            open_tokenizer(text)
