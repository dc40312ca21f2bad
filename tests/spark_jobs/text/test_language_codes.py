"""A language that is named by another word than its code is refused, with the code."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace_features.privacy.profanity.profanity import LISTS, listed
from spark_jobs.code.ordered import OrderedConfig
from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.languages.languages import installed_model_path, load_model
from spark_jobs.sources.languages import code_language_names
from spark_jobs.text.language_codes import code_of, require_codes


def test_what_documents_have_is_taken_as_it_is() -> None:
    """All labels of the model of languages, all languages that a file's name tells, and labels of other models."""
    labels = load_model(installed_model_path()).labels
    for one in (*labels, "gsw", *code_language_names(), *LISTS, "eng_Latn", "mul", "xx-custom"):
        assert code_of(one) == one


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *[("english", "en"), ("English", "en"), ("eng", "en"), ("EN", "en"), ("en-US", "en"), ("en_GB", "en")],
        *[("German", "de"), ("ger", "de"), ("deu", "de"), ("pt-BR", "pt"), ("farsi", "fa"), ("zh-Hans", "zh")],
        *[("python", "Python"), ("go", "Go"), ("c++", "C++"), ("javascript", "JavaScript"), (" en", "en")],
    ],
)
def test_other_words_are_refused_with_the_code(given: str, code: str) -> None:
    """Names in English, codes of three letters where there are two, regions, other letters."""
    with pytest.raises(ValueError, match=f"write {code.replace('+', '.')}$"):
        require_codes(["fr", given])


def test_every_setting_of_languages_says_what_to_write() -> None:
    """Lists of words and orders of files too; those of rules are among the mistakes of policies."""
    for code, name in LISTS.items():
        with pytest.raises(ConfigError, match=f"no list '{name}'; write {code}"):
            listed({"languages": [name], "words": [], "file": None, "without": []})
    with pytest.raises(ValidationError, match="write Go"):
        OrderedConfig(two_level_languages=("golang", "go"))
