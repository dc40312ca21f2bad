"""What may be a secret is refused wherever it is declared, and hidden wherever it is shown."""

from __future__ import annotations

import base64
import json
import logging
import random
import string
import threading
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from pydantic import BaseModel, ValidationError

from headrace_features.apis.api_config import ApiSource
from headrace_features.synthetic.generated_config import ModelEndpoint
from headrace_features.synthetic.labels.rubric import JudgeConfig
from spark_jobs import credentials
from spark_jobs.credentials import (
    HIDDEN,
    hide,
    is_plain,
    is_tainted,
    may_be_secret,
    shown_words,
    with_variables,
    without_known,
    without_literals,
    without_secrets,
)
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.sources.config.iceberg_source import IcebergSource
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource, PackagesSource
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import is_nightly

API = {"kind": "api", "text_column": "body", "id_column": "id"}
FILES = {"kind": "files"}
ICEBERG = {"kind": "iceberg", "table": "a.b", "text_column": "t", "id_column": "i"}
MODEL = {"model": "m"}
STEMS = (
    "api_key apikey key k sig signature sign jwt token access_token auth code pass pwd password secret client_secret "
    "sv X-Amz-Signature X-Amz-Security-Token X-Amz-Credential X-Goog-Signature X-Goog-Credential Key-Pair-Id Policy "
    "se sp session sid otp pin hmac hash digest nonce state ticket assertion bearer cred creds credential license "
    "serial uid x y q s v id ref t h d hub.verify_token awsAccessKeyId subscription-key ocp-apim-subscription-key "
    "shared_key sas sastoken passphrase private_key webhook hook signed_request share invite magic tk ak sk"
)
NAMES = [f"{before}{stem}" for before in ("", "x-", "my_") for stem in STEMS.split()]


def secret(kind: int, drawn: random.Random) -> str:
    """A secret as services make them."""
    letters = string.ascii_letters + string.digits
    text = "".join(drawn.choices(letters, k=40))
    made = (
        f"{drawn.getrandbits(128):032x}",
        f"{drawn.getrandbits(256):064x}",
        base64.b64encode(drawn.randbytes(32)).decode(),
        base64.urlsafe_b64encode(drawn.randbytes(24)).decode().rstrip("="),
        str(uuid.UUID(int=drawn.getrandbits(128), version=4)),
        f"sk-live-{text[:24]}",
        f"ghp_{text[:36]}",
        f"AKIA{text[:16].upper()}",
        ".".join(base64.urlsafe_b64encode(drawn.randbytes(30)).decode().rstrip("=") for _ in range(3)),
        f"{drawn.randint(10**9, 10**10)}:AA{text[:33]}",
        "-".join("".join(drawn.choices(string.ascii_uppercase + string.digits, k=5)) for _ in range(5)),
        f"p@ss{text[:8]}/+&=%{drawn.randint(10, 99)}",
    )
    return made[kind % len(made)]


PLACES: dict[str, Callable[[str, str], tuple[type[BaseModel], dict[str, Any]]]] = {
    "query": lambda n, v: (ApiSource, {**API, "url": f"https://h.example/v1?a=1&{quote(n)}={quote(v, safe='')}"}),
    "raw query": lambda n, v: (ApiSource, {**API, "url": f"https://h.example/v1?{n}={quote(v, safe='/+=:')}"}),
    "fragment": lambda n, v: (ApiSource, {**API, "url": f"https://h.example/v1#{n}={quote(v, safe='')}"}),
    "bare query": lambda n, v: (ApiSource, {**API, "url": f"https://h.example/v1?{quote(v, safe='')}"}),
    "user": lambda n, v: (ApiSource, {**API, "url": f"https://{quote(v, safe='')}@h.example/v1"}),
    "password": lambda n, v: (ApiSource, {**API, "url": f"https://me:{quote(v, safe='')}@h.example/v1"}),
    "param": lambda n, v: (ApiSource, {**API, "url": "https://h.example/v1", "params": {n: v}}),
    "header": lambda n, v: (ApiSource, {**API, "url": "https://h.example/v1", "headers": {n: v}}),
    "endpoint": lambda n, v: (
        ApiSource,
        {**API, "endpoints": {"a": {"url": f"https://h.example/?{n}={quote(v, '')}"}}},
    ),
    "endpoint's": lambda n, v: (
        ApiSource,
        {**API, "endpoints": {"a": {"url": "https://h.example/", "params": {n: v}}}},
    ),
    "token_url": lambda n, v: (
        ApiSource,
        {
            **API,
            "url": "https://h.example/v1",
            "auth": {
                "kind": "oauth2",
                "token_url": f"https://h/?{n}={quote(v, '')}",
                "client_id": "A",
                "client_secret": "B",
            },
        },
    ),
    "variable": lambda n, v: (ApiSource, {**API, "url": "https://h.example/", "auth": {"kind": "bearer", "token": v}}),
    "tree": lambda n, v: (FilesSource, {**FILES, "path": f"https://h.example/f?{n}={quote(v, safe='')}"}),
    "store": lambda n, v: (FilesSource, {**FILES, "path": f"s3://k:{quote(v, safe='')}@bucket/f"}),
    "store option": lambda n, v: (FilesSource, {**FILES, "path": f"s3://bucket/f?{n}={quote(v, safe='')}"}),
    "list": lambda n, v: (FilesSource, {**FILES, "urls": f"https://h.example/f?{n}={quote(v, safe='')}"}),
    "facts": lambda n, v: (FilesSource, {**FILES, "path": "/a", "repositories": f"s3://b/f?{n}={quote(v, safe='')}"}),
    "packages": lambda n, v: (PackagesSource, {"kind": "packages", "path": f"s3://k:{quote(v, safe='')}@b/f"}),
    "catalogue": lambda n, v: (IcebergSource, {**ICEBERG, "catalogue": {"type": "rest", n: v}}),
    "database": lambda n, v: (
        IcebergSource,
        {**ICEBERG, "catalogue": {"uri": f"postgresql://u:{quote(v, safe='')}@h/d"}},
    ),
    "model": lambda n, v: (ModelEndpoint, {**MODEL, "url": f"https://h.example/v1?{n}={quote(v, safe='')}"}),
    "model's field": lambda n, v: (
        ModelEndpoint,
        {**MODEL, "url": "https://h.example/v1", "more": {"extra_body": {n: v}}},
    ),
    "model's key": lambda n, v: (ModelEndpoint, {**MODEL, "url": "https://h.example/v1", "key": v}),
    "evidence": lambda n, v: (
        DocumentsConfig,
        {
            "dataset": "a",
            "source": {"kind": "files", "path": "/a"},
            "provenance": {"licence_evidence": f"https://h.example/?{n}={quote(v, safe='')}"},
        },
    ),
}


def test_a_literal_secret_is_refused_under_every_name_at_every_place() -> None:
    """In one line that names the place and the mend, and not the value."""
    drawn, missed = random.Random(54), []
    names = NAMES if is_nightly() else drawn.sample(NAMES, 40)
    for number, name in enumerate(names):
        for place, declared in PLACES.items():
            value = secret(number + len(place), drawn)
            model, fields = declared(name, value)
            try:
                model.model_validate(fields)
            except ValidationError as error:
                assert value not in str(error) and quote(value, safe="") not in str(error), (place, name)
            else:
                missed.append((place, name, value))
    assert not missed, missed[:5]


def test_the_same_as_a_variable_or_declared_public_is_taken_and_changes_no_key() -> None:
    """`public` is not among what decides rows, so declarations of before have the key of before."""
    plain = ApiSource.model_validate({**API, "url": "https://h.example/v1?page=1"})
    for name in NAMES[:40]:
        for place in ("query", "param", "header", "endpoint", "endpoint's", "store option", "catalogue", "model"):
            model, fields = PLACES[place](name, "${MY_KEY}")
            if "%24%7B" not in json.dumps(fields):
                model.model_validate(fields)
            model, fields = PLACES[place](name, "dQw4w9WgXcQ")
            model.model_validate({**fields, "public": [name]})
            model.model_validate({**fields, "public": ["*"]})
    ApiSource.model_validate({**API, "url": "https://${USER}:${PASSWORD}@h.example/v1?key=${KEY}"})
    ApiSource.model_validate({**API, "url": "https://h.example/", "headers": {"Authorization": "Bearer ${TOKEN}"}})
    with pytest.raises(ValidationError, match="looks like a secret"):
        ApiSource.model_validate({**API, "url": "https://h.example/", "headers": {"X-A": "${TOKEN}9f86d081884c"}})
    assert "public" not in config_json(DocumentsConfig(dataset="a", source=plain))
    judge = {"endpoint": {"url": "http://127.0.0.1:8000/v1", "model": "m", "public": ["x"]}, "documents": 5}
    if "documents" in JudgeConfig.model_fields:
        assert "public" not in config_json(JudgeConfig.model_construct(endpoint=ModelEndpoint(**judge["endpoint"])))


PLAIN = (
    "1 100 20261129 1732886400000 2026-01-01 2026-01-01T00:00:00Z 2026-11-29T10:11:12.123+01:00 20130524T000000Z v1 "
    "v2.3.1 1.2.3 utf8 utf-8 en en-US zh-Hant pt_BR published created_at,updated_at id,title,body,author.name asc true "
    "meta.next issues us-east-1 eu-central1 application/json text/html;charset=utf-8 gzip AWS4-HMAC-SHA256 iso8601 90d "
    "10k headrace/1.0 mozilla contents:read sort:updated-desc internationalization responsibilities straightforward "
    "rest sql vended-credentials SnapshotIds camelCaseField updatedSince language_code 48.8566,2.3522 "
    "max-age=3600 py-io-impl"
)


@pytest.mark.parametrize(
    "value", [*PLAIN.split(), "state of the art", "Zürich", "日本語", "repo:a/b is:open label:good-first-issue"]
)
def test_ordinary_values_need_no_declaration(value: str) -> None:
    """Numbers, dates, languages, versions, lists of fields, media types and words."""
    assert is_plain(value) and not may_be_secret("q", value)


def test_what_servers_and_libraries_repeat_is_hidden_in_every_form(known_is_restored: None) -> None:
    """Rows, logs, errors behind errors, bodies and next addresses; a next address asks with the value again."""
    for kind in range(12):
        value = secret(kind, random.Random(kind))
        hide(value, "MY_KEY")
        forms = [value, quote(value), quote(value, safe=""), quote_plus(value), json.dumps({"a": value})]
        forms += [base64.b64encode(value.encode()).decode(), f"https://h/?k={quote(value, safe='')}&x=1"]
        for form in forms:
            assert value not in without_secrets(f"cannot open {form}: no")
            assert value.encode() not in without_known(f"<p>{form}</p>".encode())
        assert with_variables(f"https://h/?k={quote(value, safe='')}&p=2") == "https://h/?k=${MY_KEY}&p=2"
        assert value not in Refusal(Reason.NO_ANSWER, f"Error at {value}").detail
        assert value not in logging.getLogger("x").makeRecord("x", 20, "f", 1, "got %s", (value,), None).getMessage()
        try:
            try:
                raise OSError(f"connection to https://h/?k={value}")
            except OSError as error:
                raise ValueError("outer") from error
        except ValueError as error:
            assert is_tainted(error)
    hide("mill", "MY_WORD")  # a word stays in texts, and is hidden in messages
    assert without_known(b"the mill race") == b"the mill race" and without_secrets("the mill") == "the ${MY_WORD}"


def test_literals_of_a_declaration_are_hidden_where_it_is_shown() -> None:
    """Names of variables and ordinary values stay readable."""
    drawn = random.Random(7)
    for kind in range(12):
        value = secret(kind, drawn)
        quoted = quote(value, safe="")
        declared = {
            "source": {
                "catalogue": {"type": "rest", "token": value, "s3.secret-access-key": value, "x": value},
                "params": {"page": "1", "v": value},
                "url": f"https://u:{quoted}@h.example/v1?page=1&sig={quoted}#t={quoted}",
                "auth": {"kind": "bearer", "token": value},
                "path": "/data/2026-11-25/part-0001.parquet",
            }
        }
        shown = json.dumps(without_literals(declared))
        assert value not in shown and quoted not in shown and HIDDEN in shown
        assert '"page": "1"' in shown and "h.example/v1?page=1&sig=" in shown and "part-0001" in shown
        word = f"source.params.sig={value}"
        assert value not in " ".join(shown_words(["dataset", "add", "--set", word]))
    assert without_literals({"auth": {"token": "ITEMS_TOKEN"}}) == {"auth": {"token": "ITEMS_TOKEN"}}
    assert without_literals({"catalogue": {"token": "${T}"}}) == {"catalogue": {"token": "${T}"}}
    words = ["doc", "excise", "5f1c0a9be2d84c7785a0c1f0e6b2d3a4", "--reason", "ticket 4711"]
    assert shown_words(words) == words


def test_threads_that_hide_at_once_lose_none(known_is_restored: None) -> None:
    """Each value is hidden for all."""
    values = [f"{number:08d}-value-of-a-thread" for number in range(200)]

    def some(start: int) -> None:
        for value in values[start::4]:
            hide(value, "V")

    threads = [threading.Thread(target=some, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("${V}" in without_secrets(f"a {value}") for value in values)


@pytest.fixture
def known_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test hides is forgotten after it."""
    monkeypatch.setattr(credentials, "_known", [()])
