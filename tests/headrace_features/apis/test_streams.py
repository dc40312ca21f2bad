"""Streams: micro-batches become pages, pages become increments, and a crash at any moment repeats nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from headrace_features.apis.stream_config import StreamSource
from headrace_features.apis.streams import _Inbox, follow, kafka_options, pages_of
from spark_jobs.exceptions import ConfigError, StepRunError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_lines_become_pages() -> None:
    """Blank lines are none; what is no JSON is kept, to be refused with its place."""
    assert list(pages_of(['{"a": 1}', "", "no json", " ", None])) == [[{"a": 1}, "no json"]]
    assert [len(page) for page in pages_of("1" for _ in range(45_000))] == [20_000, 20_000, 5_000]


def kafka(**security: Any) -> DocumentsConfig:
    """A dataset that follows a topic."""
    topic = {"servers": "broker:9093", "topic": "articles", **({"security": security} if security else {})}
    source = {"kind": "stream", "kafka": topic, "text_column": "t", "id_column": "id"}
    return DocumentsConfig.model_validate({"dataset": "feed", "source": source})


def options_of(config: DocumentsConfig) -> dict[str, str]:
    """What the client of Kafka is told, beside what Spark is."""
    assert isinstance(config.source, StreamSource) and config.source.kafka is not None
    found = kafka_options(config.source.kafka)
    return {name.removeprefix("kafka."): value for name, value in found.items() if name.startswith("kafka.")}


def test_certificates_and_a_login_reach_the_client_of_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files and environment variables; no secret is in the config, which tables keep, nor decides it any row."""
    password = 'a "word"; \\ of\npassing'
    for name, value in {"FEED_USER": "ada the first", "FEED_PASSWORD": password, "FEED_KEY": "key word"}.items():
        monkeypatch.setenv(name, value)
    for name in ("ca.pem", "client.pem"):
        (tmp_path / name).touch()
    files = {"ca": str(tmp_path / "ca.pem"), "certificate": str(tmp_path / "client.pem"), "key_password": "FEED_KEY"}
    login = {"mechanism": "SCRAM-SHA-512", "user": "FEED_USER", "password": "FEED_PASSWORD"}
    config = kafka(protocol="SASL_SSL", login=login, **files)
    assert options_of(config) == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files["ca"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files["certificate"],
        "ssl.key.password": "key word",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada the first" password="a \\"word\\"; \\\\ of\\npassing";',
    }
    plain = options_of(kafka(protocol="SASL_PLAINTEXT", login={**login, "mechanism": "PLAIN"}))
    assert plain["sasl.jaas.config"].startswith("org.apache.kafka.common.security.plain.PlainLoginModule required ")
    assert options_of(kafka()) == {"bootstrap.servers": "broker:9093"}
    written = config.model_dump_json()
    assert not any(secret in written for secret in ("ada the", "of\\npassing", "key word"))
    assert config_json(config) == config_json(kafka()), "credentials may change, and no row is computed anew"


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"protocol": "SASL_SSL"}, "declare login"),
        ({"protocol": "SSL", "login": {"mechanism": "PLAIN", "user": "U", "password": "P"}}, "write SASL_SSL"),
        ({"protocol": "SSL", "key_password": "P"}, "name its file in certificate"),
        ({"protocol": "PLAINTEXT"}, "Input should be"),
        ({"protocol": "SSL", "ca": "/nowhere.pem"}, "security.ca: /nowhere.pem cannot be read"),
        (
            {"protocol": "SASL_SSL", "login": {"mechanism": "PLAIN", "user": "UNSET_USER", "password": "P"}},
            "the environment variable UNSET_USER is not set",
        ),
    ],
)
def test_security_that_cannot_hold_is_refused(security: dict[str, Any], said: str) -> None:
    """Before anything is read: fields that do not fit each other, files and variables that are not there."""
    with pytest.raises((ValidationError, ConfigError), match=said):
        options_of(kafka(**security))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_folder_that_grows_lands_once(
    lake_at: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over restarts, a crash before Spark's checkpoint, and the loss of that checkpoint."""
    lake, folder, state = lake_at(tmp_path / "lake"), tmp_path / "in", tmp_path / "state"
    folder.mkdir()
    source = {"kind": "stream", "path": str(folder), "text_column": "t", "id_column": "id", "files": 1}
    config = DocumentsConfig.model_validate({"dataset": "feed", "source": {**source, "seal_records": 5}})
    assert isinstance(config.source, StreamSource)
    sealed = list[tuple[str, ...]]()

    def put(name: str, *keys: int) -> None:
        beside = tmp_path / name
        beside.write_text("".join(json.dumps({"id": key, "t": f"text {key}"}) + "\n" for key in keys) + "no json\n")
        os.rename(beside, folder / name)

    def seal() -> None:
        done = materialize(lake, Binding(documents, "feed", {}, config, driving_table="feed.arrivals"))
        sealed.append(done[0].computed)

    def run() -> int:
        assert isinstance(config.source, StreamSource)
        objects = ObjectFolder.of(lake.catalogue, "feed")
        return follow("feed", config.source, lake.catalogue, objects, lake.session(), seal, state, once=True)

    def landed() -> list[str]:
        rows = lake.session().table("lake.feed.documents").select("path").collect()
        return sorted((row["path"] for row in rows), key=lambda path: int(path.partition("#")[2]))

    put("a.jsonl", 1, 2, 3)
    put("b.jsonl", 3, 4)
    assert run() == 7 and landed() == [f"in#{key}" for key in (1, 2, 3, 4)]
    assert run() == 0 and sealed[-1] == ()
    put("c.jsonl", 5, 6)
    take = _Inbox.take

    def crashing(self: Any, batch: DataFrame, number: int) -> None:
        take(self, batch, number)
        raise OSError("killed after the page was kept")

    with monkeypatch.context() as patch:
        patch.setattr(_Inbox, "take", crashing)
        with pytest.raises(StepRunError, match="killed after"):
            run()
    assert run() == 0  # the same micro-batch, which is there already
    assert landed() == [f"in#{key}" for key in range(1, 7)]
    refused = lake.session().table("lake.feed.arrivals").where("reason = 'bad_record'").count()
    assert refused == 3
    os.rename(state, tmp_path / "lost")
    put("d.jsonl", 7)
    run()
    assert landed() == [f"in#{key}" for key in range(1, 8)]
