"""The chat templates of trl and axolotl: transformers' text and mask, and what each of them loses.

Nightly: the packages come from the package index, alone, into a folder of the test.
"""

from __future__ import annotations

import copy
import datetime
import re
import subprocess
import sys
import venv
from typing import Any

import pytest
from tokenizers import Tokenizer

from headrace_features.conversations.encoding import ConversationEncoder, added_tokens
from headrace_features.conversations.parts import KINDS
from headrace_features.conversations.rendering import Renderer, RenderingRules
from headrace_features.conversations.templates import TemplateRefusedError, TemplateSettings
from tests.headrace_features.conversations.chat_templates import SPECIAL, odd_conversation, tokenizer_file

pytestmark = pytest.mark.nightly
PACKAGES = ("trl==1.16.0", "axolotl==0.19.0")
DAY = datetime.date(2026, 1, 31)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The templates of both packages, by package and name."""
    folder = tmp_path_factory.mktemp("packages")
    venv.create(folder / "bare", with_pip=True, symlinks=True)
    pip = [str(folder / "bare" / "bin" / "python"), "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder)]
    done = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no packages: {done.stderr[-200:]}")
    sources = {}
    for wheel in folder.glob("*.whl"):
        subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder / wheel.stem)], check=True)
        for file in (folder / wheel.stem).rglob("*.jinja"):
            sources[f"{wheel.stem.partition('-')[0]}:{file.stem}"] = file.read_text("utf-8")
    assert len(sources) == 108
    return sources


_CONTROL = re.compile(
    r"<\|[\w|]+\|?>|<｜[^｜<>]+｜>|</?(?:think|tool_call|tool_response|\w+_of_\w+)>|\[/?[A-Z_]+\]|<\|?turn\|?>"
)


@pytest.fixture(scope="module")
def file_text(templates: dict[str, str]) -> str:
    """A tokenizer with all control tokens that stand in the templates."""
    tokenizer = Tokenizer.from_str(tokenizer_file())
    tokenizer.add_special_tokens(sorted({name for source in templates.values() for name in _CONTROL.findall(source)}))
    return str(tokenizer.to_str())


class _Day(datetime.datetime):
    """A clock that stands."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """The day of the test."""
        return cls(DAY.year, DAY.month, DAY.day)


def test_all_templates_give_transformers_text_ids_and_mask(
    templates: dict[str, str], file_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every conversation that transformers renders and of which nothing is lost."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    monkeypatch.setattr(utils, "datetime", _Day)
    tokenizer, added, compared = Tokenizer.from_str(file_text), added_tokens(file_text), 0
    for name, source in templates.items():
        train = "template" if "generation %}" in source or "generation -%}" in source else "all"
        settings = TemplateSettings(source, SPECIAL | {"pad_token": None, "unk_token": None}, {}, DAY)
        try:
            rendering = Renderer(RenderingRules(settings, added, train, False, frozenset(KINDS)))
        except TemplateRefusedError as error:
            assert "no control token" in str(error), name
            continue
        encoder = ConversationEncoder(file_text, rendering.control_names, overlaps=True)
        for seed in range(40):
            messages = odd_conversation(seed)
            try:
                row = rendering.render(copy.deepcopy(messages), [])
                texts, spans = utils.render_jinja_template(
                    conversations=[rendering._as_taken(messages)],
                    chat_template=source,
                    return_assistant_tokens_mask=True,
                    **SPECIAL,
                )
            except Exception:  # noqa: BLE001  what a template raises, with both
                continue
            assert row.text == texts[0], (name, seed)
            if row.lost or row.has_quotes:
                continue
            if train == "template":
                assert row.trained == [tuple(span) for span in spans[0] if span[0] < span[1]], (name, seed)
            (encoded,) = encoder.encode([row])
            whole = tokenizer.encode(row.text, add_special_tokens=False)
            assert encoded.ids.tolist() == whole.ids, (name, seed)
            overlaps = [any(low < end and start < high for start, end in row.trained) for low, high in whole.offsets]
            assert encoded.trainable.tolist() == overlaps, (name, seed)
            compared += 1
    assert compared > 200


def test_what_templates_lose_is_what_was_measured(templates: dict[str, str], file_text: str) -> None:
    """Counts over the 77 templates (of those with a twin for training by that): the notes say the same."""
    question = {"role": "user", "content": "What is 12*12?"}
    answer = {"role": "assistant", "content": "144", "reasoning_content": "It is a dozen dozens."}
    again = [
        {"role": "user", "content": "And 13?"},
        answer | {"content": "169", "reasoning_content": "Thirteen twice."},
    ]
    system = {"role": "system", "content": "Be brief, please."}
    counts = {"all": 0, "first": 0, "system": 0}
    twins = [name for name in templates if name.endswith("_training")]
    for name in sorted(set(templates) - set(twins)):
        source = templates.get(f"{name}_training", templates[name])
        settings = TemplateSettings(source, SPECIAL | {"pad_token": None, "unk_token": None}, {}, DAY)
        rules = RenderingRules(settings, added_tokens(file_text), "all", False, frozenset(KINDS))
        rendering = Renderer(rules)
        lost = _lost(rendering, [question, answer, *again])
        counts["all"] += {"reasoning", "reasoning_before_last"} <= lost
        counts["first"] += lost == {"reasoning_before_last"}
        plain = [system, question, {"role": "assistant", "content": "144"}]
        counts["system"] += "system" in _lost(rendering, plain)
    assert counts == {"all": 58, "first": 13, "system": 3}


def _lost(rendering: Renderer, messages: list[dict[str, Any]]) -> set[str]:
    try:
        return {lost.kind for lost in rendering.render(copy.deepcopy(messages), []).lost}
    except TemplateRefusedError:
        return set()
