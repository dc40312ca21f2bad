"""Keys of services, drawn by the forms that each documents: found in any company, and left alone where they are cut."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace_features.privacy.personal_data.find import score

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
Draw = Callable[[str, int], str]

FORMS: dict[str, Callable[[Draw], str]] = {
    "telegram_bot": lambda d: f"{d('123456789', 9)}:AA{d(WORD, 32)}{d(ALNUM, 1)}",
    "azure_client_secret": lambda d: f"{d(ALNUM, 3)}{d('0123456789', 1)}Q~{d(WORD + '~.', 33)}{d(ALNUM, 1)}",
    "azure_devops_token": lambda d: f"{d(ALNUM, 76)}AZDO{d(ALNUM, 4)}",
    "azure_cognitive_key": lambda d: f"{d(ALNUM, 52)}JQQJ99B{d('ABCDEFGHIJKL', 1)}{d(ALNUM, 16)}XJ{d(ALNUM, 6)}",
    "replicate_token": lambda d: f"r8_{d(ALNUM, 37)}",
    "xai_key": lambda d: f"xai-{d(ALNUM, 80)}",
    "atlassian_token": lambda d: f"AT{d('AC', 1)}TT3xFfGF0{d(WORD, 172)}={d('0123456789ABCDEF', 8)}",
    "perplexity_key": lambda d: f"pplx-{d(ALNUM, 48)}",
    "nvidia_key": lambda d: f"nvapi-{d(WORD, 64)}",
    "databricks_token": lambda d: f"dapi{d(HEX, 32)}",
    "alibaba_key_id": lambda d: f"LTAI5t{d(ALNUM, 18)}",
    "artifactory_key": lambda d: f"AKCp8{d(ALNUM, 68)}",
    "rubygems_token": lambda d: f"rubygems_{d(HEX, 48)}",
    "pulumi_token": lambda d: f"pul-{d(HEX, 40)}",
    "shippo_token": lambda d: f"shippo_live_{d(HEX, 40)}",
    "sourcegraph_token": lambda d: f"sgp_{d(HEX, 16)}_{d(HEX, 40)}",
    "brevo_key": lambda d: f"xkeysib-{d(HEX, 64)}-{d(ALNUM, 16)}",
    "sentry_token": lambda d: f"sntryu_{d(HEX, 64)}",
    "1password_key": lambda d: f"A3-{d(UPPER, 6)}-{d(UPPER, 11)}-{d(UPPER, 5)}-{d(UPPER, 5)}-{d(UPPER, 5)}",
    "prefect_token": lambda d: f"pnu_{d(ALNUM, 36)}",
    "readme_token": lambda d: f"rdme_{d(string.ascii_lowercase + string.digits, 70)}",
    "heroku_key": lambda d: f"HRKU-AA{d(WORD, 57)}{d(ALNUM, 1)}",
    "octopus_key": lambda d: f"API-{d(UPPER, 26)}",
    "fly_token": lambda d: f"fo1_{d(WORD, 42)}{d(ALNUM, 1)}",
    "facebook_token": lambda d: f"EAAM1{d(ALNUM, 119)}",
    "easypost_key": lambda d: f"EZAK9{d(ALNUM, 53)}",
    "vault_token": lambda d: f"hvs.{d(WORD, 91)}{d(ALNUM, 1)}",
    "doppler_token": lambda d: f"dp.{d('ps', 1)}t.{d(ALNUM, 43)}",
    "dropbox_token": lambda d: f"sl.{d(WORD, 135)}{d(ALNUM, 1)}",
    "dynatrace_token": lambda d: f"dt0c01.{d(string.ascii_uppercase + '234567', 24)}.{d(string.ascii_uppercase, 64)}",
    "pinecone_key": lambda d: f"pcsk_{d(ALNUM, 5)}_{d(ALNUM, 63)}",
    "e2b_key": lambda d: f"e2b_{d(HEX, 40)}",
    "firecrawl_key": lambda d: f"fc-{d(HEX, 32)}",
    "voyage_key": lambda d: f"pa-{d(WORD, 40)}{d('0123456789', 1)}{d(string.ascii_uppercase, 2)}",
    "model_service_key": lambda d: f"sk-or-v1-{d(HEX, 64)}",
    "elevenlabs_key": lambda d: f"sk_{d(HEX, 48)}",
    "langsmith_key": lambda d: f"lsv2_pt_{d(HEX, 32)}_{d(HEX, 10)}",
    "tavily_key": lambda d: f"tvly-{d(ALNUM, 32)}",
    "figma_token": lambda d: f"figd_{d(WORD, 40)}",
    "gitlab_token": lambda d: f"glrt-{d(WORD, 19)}{d(ALNUM, 1)}",
    "clojars_token": lambda d: f"CLOJARS_{d(string.ascii_lowercase + string.digits, 60)}",
}
COMPANIES = [
    "{}",
    "the key is {}",
    "KEY={}",
    'token = "{}"',
    "export X='{}'",
    "`{}`",
    "({}), so",
    "<td>{}</td>",
    "{}\nnext",
]


def secrets(texts: list[str]) -> list[list[tuple[str, str]]]:
    """Rule and text of each secret that has a rule of its own."""
    spans = score(pa.array(texts))["spans"].to_pylist()
    return [
        [
            (span["rule"], text.encode()[span["start"] : span["end"]].decode())
            for span in of_text
            if span["kind"] == "secret" and span["rule"] != "assigned_secret"
        ]
        for text, of_text in zip(texts, spans, strict=True)
    ]


def drawn(seed: int) -> Draw:
    """Characters of an alphabet, the same for a seed."""
    draw = random.Random(seed)
    return lambda alphabet, count: "".join(draw.choices(alphabet, k=count))


@pytest.mark.parametrize("rule", FORMS)
def test_keys_by_their_documented_form_are_found(rule: str) -> None:
    """Twenty of each, in each company: the whole key and nothing else."""
    keys = [FORMS[rule](drawn(seed)) for seed in range(20)]
    texts = [company.format(key) for key in keys for company in COMPANIES]
    wanted = [key for key in keys for _ in COMPANIES]
    missing = [
        (text, found)
        for text, key, found in zip(texts, wanted, secrets(texts), strict=True)
        if (rule, key) not in found
    ]
    assert missing == []


@pytest.mark.parametrize("rule", FORMS)
def test_half_a_key_and_a_key_inside_of_a_longer_word_are_none(rule: str) -> None:
    """What is cut, and what goes on with letters before it."""
    keys = [FORMS[rule](drawn(seed)) for seed in range(20)]
    cut = [key[: len(key) // 2 - 2] for key in keys]
    assert [found for found in secrets(cut) if any(name == rule for name, _ in found)] == []
    if rule != "telegram_bot":
        inside = [f"some{key}" for key in keys]
        assert [found for found in secrets(inside) if any(name == rule for name, _ in found)] == []


def test_a_key_may_begin_with_many_letters() -> None:
    """One in some hundred has no digit among its first 32 characters."""
    draw = drawn(11)
    keys = [f"AKCp{draw(string.ascii_letters, 40)}{draw(ALNUM, 28)}1" for _ in range(20)]
    assert secrets(keys) == [[("artifactory_key", key)] for key in keys]


def test_webhooks_are_keys() -> None:
    """Who has the address may post: of Slack and Discord, wherever a text has it; other pages of both are none."""
    draw = drawn(13)
    for company in COMPANIES[:6]:
        slack = f"hooks.slack.com/services/T{draw(UPPER, 8)}/B{draw(UPPER, 10)}/{draw(ALNUM, 24)}"
        discord = f"discord.com/api/webhooks/{draw('123456789', 18)}/{draw(WORD, 67)}{draw(ALNUM, 1)}"
        texts = [company.format(f"https://{key}") for key in (slack, discord)]
        assert secrets(texts) == [[("slack_webhook", slack)], [("discord_webhook", discord)]]
    assert secrets(["https://discord.com/channels/123456789012345678/1", "hooks.slack.com/services", "dp.pt. sl."]) == [
        [],
        [],
        [],
    ]


def test_keys_of_azure_in_their_strings() -> None:
    """Storage accounts, service buses and shared access signatures: base64 that nothing but its name tells."""
    draw = random.Random(7)
    for _ in range(30):
        long, short = (base64.b64encode(draw.randbytes(size)).decode() for size in (64, 32))
        signature = short.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
        marked = f"{long[:76]}+ASt{long[80:]}"
        texts = [
            f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={long};EndpointSuffix=core.windows.net",
            f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={short}",
            f"https://x.blob.core.windows.net/c?sv=2022-11-02&se=2030-01-01&sr=c&sp=r&sig={signature}",
            f'key: "{marked}"',
            f"digest {long}",
            f"sha256-{short}",
        ]
        rules = [("azure_key", long), ("azure_key", short), ("azure_sas", signature), ("azure_key", marked)]
        assert secrets(texts) == [[rule] for rule in rules] + [[], []]
