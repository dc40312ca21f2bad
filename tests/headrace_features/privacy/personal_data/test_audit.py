"""The audit of a dataset that redacts, and texts with what it says taken out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace_features.privacy.personal_data.find import score
from headrace_features.privacy.personal_data.personal_data import AuditConfig, checked_actions, personal_data_audit
from headrace_features.privacy.personal_data.redacted_texts import redacted_batches
from spark_jobs.exceptions import ConfigError
from spark_jobs.filters.judge import PERSONAL_DATA_RULE
from spark_jobs.filters.scorer import check_scorer
from spark_jobs.text.compared_texts import letters_column
from spark_jobs.text.text_rows import text_batches

TEXT = "Mail ada@lovelace.org from 81.3.4.200, card 4111 1111 1111 1111 or 4111 1111 1111 1111"
ACTIONS = {"mail": "replace", "card": "drop"}


def test_the_audit_says_what_is_done() -> None:
    """Each finding with its action; how many the document is dropped for is the signal of the rule."""
    config = AuditConfig(actions=checked_actions(ACTIONS))
    found = check_scorer(personal_data_audit, config, [TEXT]).to_pylist()
    assert [(span["kind"], span["action"]) for span in found[-1]["spans"]] == [
        ("mail", "replace"),
        ("ip", "keep"),
        ("card", "drop"),
        ("card", "drop"),
    ]
    assert [row["drop_count"] for row in found] == [0] * (len(found) - 1) + [2]
    assert PERSONAL_DATA_RULE.source == ("personal_data", "drop_count")
    spans = [{name: value for name, value in span.items() if name != "action"} for span in found[-1]["spans"]]
    assert spans == score(pa.array([TEXT]))["spans"][0].as_py()


def test_unknown_kinds_and_actions_name_the_nearest() -> None:
    """One line each; what is kept is as if it were not named."""
    with pytest.raises(ConfigError, match="redact: no rule finds 'mial'; did you mean 'mail'"):
        checked_actions({"mial": "keep"})
    with pytest.raises(ConfigError, match="redact: mail: there is no action 'replac'; did you mean 'replace'"):
        checked_actions({"mail": "replac"})
    assert checked_actions({"mail": "keep", "card": "drop"}) == {"card": "drop"}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_batches_of_redacted_texts(kind: pa.DataType) -> None:
    """Rows without a span pass as they are; of the others text, letters and edits are new and lead to the source."""
    sources = ["nothing\r\nhere", f"a\r\n{TEXT}", "", f"{TEXT} e\u0301 \r\n" * 3]
    rows = {
        "shard": pa.array([0, 1, 2, 3], pa.int32()),
        "doc_id": pa.array(list("abcd")),
        "kind": pa.array(["prose"] * 4),
        "language": pa.array([None, "en", None, None], pa.string()),
        "content": pa.array(sources, kind),
    }
    (raw,) = text_batches(iter([pa.RecordBatch.from_pydict(rows)]), 32)
    texts = raw.column("content").to_pylist()
    wanted = {"mail", "card"}
    spans: list[list[dict[str, Any]]] = [
        [span for span in own if span["kind"] in wanted] for own in score(pa.array(texts))["spans"].to_pylist()
    ]
    given = raw.append_column("spans", pa.array(spans))
    (made,) = redacted_batches([given], 32)
    assert made.schema.equals(raw.schema)
    assert made.slice(0, 1).equals(raw.slice(0, 1)) and made.slice(2, 1).equals(raw.slice(2, 1))
    for row in (1, 3):
        new = made.column("content")[row].as_py()
        assert "Mail <MAIL_1> from 81.3.4.200, card <CARD_1> or <CARD_1>" in new
        assert (
            made.column("letters_sha256")[row].as_py()
            == letters_column(pa.array([new]), pa.array(["prose"]), 32)[0].as_py()
        )
        edits, source, at, last, built = made.column("edits")[row].as_py(), sources[row].encode(), 0, 0, b""
        replaced = []
        for edit in edits:  # what stands between edits is the source's, and placeholders stand for the values
            built += source[last : edit["start"]]
            at = len(built)
            built += new.encode()[at : at + edit["replacement_length"]]
            last = edit["end"]
            if edit["rule"] == "redacted":
                replaced.append((built[at:].decode(), source[edit["start"] : last].decode()))
        assert (built + source[last:]).decode() == new
        assert replaced[:2] == [("<MAIL_1>", "ada@lovelace.org"), ("<CARD_1>", "4111 1111 1111 1111")]
