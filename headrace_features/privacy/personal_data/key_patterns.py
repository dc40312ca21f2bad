"""What the keys of services look like: by detect-secrets' patterns, and by the services' documented forms."""

from __future__ import annotations

import importlib
import re
from typing import Final

from spark_jobs.threads import made_once

# Microsoft's marks of the keys of its services, at the end of their base64 (github.com/microsoft/security-utilities).
_MARKED: Final = re.compile(
    r".{76}(?:\+(?:ASt|ABa|AMC|AIoT|ARm|ASb|AEh|ACR|ACDb|ACAD)|ACDb|AIoT|APIM|AzFu|AzSe|AzCa|AzEG)"
)
_NAMED: Final = re.compile(
    r"(?i)(?:account|access|shared|primary|secondary|storage|master)_?-?key[\"']?\s?[=:]\s?[\"']?$"
)


def is_expected(name: str, key: str, before: str) -> bool:
    """Whether what has the form of any base64 or signature is a key, by its own marks or the name before it."""
    if name == "azure_key":
        return _NAMED.search(before) is not None or (len(key) == 88 and _MARKED.match(key) is not None)
    return name != "azure_sas" or before.endswith("sig=")


_END: Final = r"(?![\w-])"
# Forms as the services document them; prefixes and lengths as gitleaks 8.30 (MIT) lists them too.
_KEYS: Final = (
    (
        "private_key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?:[A-Za-z0-9\s+/=:,.\\()<>@\"']|-(?!-)){64,8000}"
        r"-----END [A-Z0-9 ]+-----)?",
    ),
    ("github_token", r"github_pat_\w{40,}"),
    ("google_api_key", r"AIza[\w-]{35}"),
    ("npm_token", r"npm_[A-Za-z0-9]{36}"),
    ("hugging_face_token", r"hf_[A-Za-z0-9]{30,}"),
    ("slack", r"xox[abeposr][.-][\w.-]{10,}|xapp-\d-[\w-]{10,}"),
    ("digitalocean_token", r"do[oprt]_v1_[a-f0-9]{64}"),
    ("shopify_token", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    ("groq_key", r"gsk_[A-Za-z0-9]{40,}"),
    ("grafana_token", r"gl(?:sa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|c_[A-Za-z0-9+/=]{32,})"),
    ("stripe_webhook", r"whsec_[A-Za-z0-9+/=]{32,}"),
    ("docker_token", r"dckr_pat_[\w-]{27,}"),
    ("linear_key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    ("notion_token", r"ntn_[A-Za-z0-9]{40,}"),
    ("google_oauth_secret", r"GOCSPX-[\w-]{28}"),
    ("postman_key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("age_key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    ("supabase_key", r"sbp_[a-f0-9]{40}"),
    ("openai_token", r"sk-(?:proj-|ant-|svcacct-)?(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{32,}"),
    ("stripe_key", r"[rs]k_(?:live|test)_[0-9A-Za-z]{24,}"),
    ("telegram_bot", r"\d{8,10}:AA[\w-]{33}" + _END),
    ("azure_client_secret", r"[\w.~]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])"),
    ("azure_devops_token", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}" + _END),
    (
        "azure_cognitive_key",
        r"[A-Za-z0-9]{52}JQQJ9[9D][A-Za-z0-9][A-L][A-Za-z0-9]{16}[A-Za-z][A-Za-z0-9]{7}(?:[A-Za-z0-9]{2}==)?",
    ),
    ("azure_key", r"(?:[A-Za-z0-9+/]{86}==|[A-Za-z0-9+/]{43}=)(?![\w=])"),
    ("azure_sas", r"(?:[A-Za-z0-9+/]|%2[BbFf]){43}(?:%3[Dd]|=)"),
    ("replicate_token", r"r8_[A-Za-z0-9]{37}" + _END),
    ("xai_key", r"xai-[A-Za-z0-9]{70,90}" + _END),
    ("atlassian_token", r"AT[AC]TT3[A-Za-z0-9+/=_-]{120,300}|ATBB[A-Za-z0-9]{24}[A-F0-9]{8}" + _END),
    ("perplexity_key", r"pplx-[A-Za-z0-9]{48}" + _END),
    ("nvidia_key", r"nvapi-[\w-]{60,70}"),
    ("tavily_key", r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{32}" + _END),
    ("together_key", r"tgp_v1_[\w-]{43}"),
    ("fireworks_key", r"fw_[A-Za-z0-9]{22,24}" + _END),
    ("jina_key", r"jina_[a-f0-9]{32}[A-Za-z0-9_-]{28}"),
    ("langsmith_key", r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}" + _END),
    ("cerebras_key", r"csk-[a-z0-9]{48}" + _END),
    ("supabase_key", r"sb_secret_[\w-]{22}_[\w-]{8}"),
    ("posthog_key", r"phx_[A-Za-z0-9]{43,}"),
    ("figma_token", r"figd_[\w-]{40,}"),
    ("prefect_token", r"pnu_[A-Za-z0-9]{36}" + _END),
    ("pulumi_token", r"pul-[a-f0-9]{40}" + _END),
    ("readme_token", r"rdme_[a-z0-9]{70}" + _END),
    ("rubygems_token", r"rubygems_[a-f0-9]{48}" + _END),
    ("sentry_token", r"sntryu_[a-f0-9]{64}|sntrys_eyJpYXQiO[A-Za-z0-9+/]{30,400}={0,2}_[A-Za-z0-9+/]{43}"),
    ("shippo_token", r"shippo_(?:live|test)_[a-fA-F0-9]{40}" + _END),
    ("sourcegraph_token", r"sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40}" + _END),
    ("square_token", r"sq0atp-[\w-]{22,60}"),
    ("brevo_key", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}" + _END),
    (
        "1password_key",
        r"ops_eyJ[A-Za-z0-9+/]{250,}={0,3}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"
        + _END,
    ),
    ("adobe_secret", r"p8e-[A-Za-z0-9]{32}" + _END),
    ("planetscale_key", r"pscale_(?:tkn|oauth|pw)_[\w=.-]{32,64}"),
    ("fly_token", r"fo1_[\w-]{43}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{100,}={0,3}"),
    ("frameio_token", r"fio-u-[\w=-]{64}"),
    ("infracost_key", r"ico-[A-Za-z0-9]{32}" + _END),
    ("duffel_token", r"duffel_(?:test|live)_[\w=-]{43}"),
    ("flutterwave_key", r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{32}-X"),
    ("heroku_key", r"HRKU-AA[\w-]{58}"),
    ("octopus_key", r"API-[A-Z0-9]{26}" + _END),
    ("gitlab_token", r"gl(?:ffct|imt|rt|soat)-[\w-]{20,}|glagent-[\w-]{50}|gloas-[\w-]{64}"),
    ("clojars_token", r"CLOJARS_[a-z0-9]{60}"),
    ("databricks_token", r"dapi[a-f0-9]{32}(?:-\d)?" + _END),
    ("alibaba_key_id", r"LTAI[A-Za-z0-9]{20}" + _END),
    ("artifactory_key", r"AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59}" + _END),
    ("clickhouse_key", r"4b1d[A-Za-z0-9]{38}" + _END),
    ("facebook_token", r"EAA[MC][A-Za-z0-9]{100,}"),
    ("vault_token", r"hv[sbr]\.[\w-]{80,300}" + _END),
    ("doppler_token", r"dp\.(?:ct|pt|sa|scim|audit|st(?:\.[a-z0-9_-]{2,35})?)\.[A-Za-z0-9]{40,44}" + _END),
    ("dropbox_token", r"sl\.(?:u\.)?[\w=-]{130,}"),
    ("dynatrace_token", r"dt0c01\.[A-Z2-7]{24}\.[A-Z2-7]{64}" + _END),
    ("slack_webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/]{40,60}"),
    ("discord_webhook", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{17,20}/[\w-]{60,72}"),
    ("pinecone_key", r"pcsk_\w{60,80}" + _END),
    ("e2b_key", r"e2b_[a-f0-9]{40}" + _END),
    ("firecrawl_key", r"fc-[a-f0-9]{32}" + _END),
    ("voyage_key", r"pa-(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{43}" + _END),
    # Of services that serve models, without the capitals that openai_token asks for.
    ("model_service_key", r"sk-(?:or-v1-[a-f0-9]{64}|lf-[a-f0-9-]{36}|[a-f0-9]{32})" + _END),
    ("elevenlabs_key", r"sk_[a-f0-9]{48}" + _END),
    ("easypost_key", r"EZ[AT]K[A-Za-z0-9]{54}" + _END),
    ("jwt", r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
)

_PLUGINS: Final = {
    "aws": "AWSKeyDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
}
"""Detectors of detect-secrets, by their modules."""


@made_once
def key_patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Patterns of the keys of services, by rule: those of detect-secrets, and newer ones missing there."""
    patterns = [(name, re.compile(pattern, re.ASCII)) for name, pattern in _KEYS]
    for module, plugin in _PLUGINS.items():
        detector = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), plugin)
        flags = [pattern.flags & ~re.UNICODE | re.ASCII for pattern in detector.denylist]
        patterns += [(module, re.compile(p.pattern, f)) for p, f in zip(detector.denylist, flags, strict=True)]
    return patterns
