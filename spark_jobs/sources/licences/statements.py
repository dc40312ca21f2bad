"""What a repository, package or distribution states about its licence: in manifests, metadata and texts of licences.

    recognised            MIT OR Apache-2.0
    stated and unknown    LicenseRef-stated-Foo-Corp-License; its words are in `detail`
    not stated            None; the next source is asked, and only then

A manifest or metadata count before texts. A text equal to no licence is `LicenseRef-stated-near-MIT-1f2e3d4c`, where
`detail` says what it has more and less than the nearest one; equal texts have equal ids.
"""

from __future__ import annotations

import configparser
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from spark_jobs.sources.licences.expressions import canonical, ids_in, is_recognised, joined, unknown
from spark_jobs.sources.licences.headers import sentence_licence
from spark_jobs.sources.licences.names import families, says_nothing, spdx_expression, stated
from spark_jobs.sources.licences.texts import recognised
from spark_jobs.sources.licences.texts.words import LicenceWords, decoded, is_condition, listed

LICENCE_FILE: Final = re.compile(
    r"(?i:(?!.*\.(?:c|cc|cpp|cs|css|go|h|java|jsx?|json|kt|mjs|php|py|rb|rs|sh|spdx|svg|swift|toml|tsx?|ya?ml)\Z)"
    r"(?:[A-Z0-9.]{2,12}[-_])?(?:(?:LICEN[CS]E|COPYING|UNLICEN[CS]E)\d*(?:[-._][^/]*)?|LICEN[CS]ES(?:\.md|\.txt)?))"
)
"""Names of files that are texts of licences: `LICENSE.md`, `MIT-LICENSE`, `COPYING3`, and no code."""
MANIFESTS: Final = ("pyproject.toml", "package.json", "Cargo.toml", "composer.json", "setup.cfg", "setup.py")
"""Manifests that state licences, at the root of a repository."""
MAX_LICENCE_BYTES: Final = 1 << 18
_SHORT_BYTES = 400  # texts up to this length may be the name of a licence, or a sentence
_SHOWN = 600  # characters of a detail
_SENTENCE = re.compile(r"[.;:!]\s|\n\s*\n")
_OF_STATEMENTS: Final = listed("distributed dual dually either is it licensed provided that this use used you your")
_NPM_FILE = re.compile(r"(?i)\s*see\s+licen[cs]e\s+in\s+<?([^<>]+?)>?\s*")
_STATING = re.compile(  # a licence in a manifest that is not parsed
    r"""(?m)(?:^|[{,(\s])["']?licen[cs]e["']?[ \t]*[:=][ \t]*"""
    r"""(?:\{\s*["']?(?:text|type|name)["']?\s*[:=]\s*)?(?P<quote>["'])(?P<words>[^"'\n]+)(?P=quote)"""
)
_SETUP_CLASSIFIER = re.compile(r"""(["'])(License ::[^"'\n]+)\1""")
_CHOICE_OF_CRATES = re.compile(r"[^\s()/]+(?:\s*/\s*[^\s()/]+)+")  # `/` once stood for OR
_CLASSIFIER = "License ::"
_OTHER_CLASSIFIERS: Final = frozenset({"License :: OSI Approved", "License :: DFSG approved"})  # they name none


class LicenceStatement(NamedTuple):
    """What is stated about the licence of a whole.

    Attributes:
        licence: a canonical expression, its unknown parts as `LicenseRef-stated-..`; None where nothing is stated.
        evidence: the files or fields with the statement.
        detail: the unrecognised words, and of texts the nearest licence with the difference.
    """

    licence: str | None = None
    evidence: str = ""
    detail: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """Evidence and detail as metadata of a repository."""
        named = {"licence_evidence": self.evidence, "licence_detail": self.detail[:_SHOWN]}
        return {key: text for key, text in named.items() if text}


class ManifestLicence(NamedTuple):
    """What a manifest says: words for a licence, or the name of a file with its text."""

    words: str | None = None
    file: str | None = None


def of_repository(content: Callable[[str], bytes | None], names: Sequence[str]) -> LicenceStatement:
    """What the root of a repository states: its manifests, else its texts of licences.

    Several manifests with different licences, and several texts, give `A AND B`, as nothing says that either will do.

    Args:
        content: the bytes of a file by its name; None where it is not there, cannot be read or is too large.
        names: of the files at the root.
    """
    files = [name for name in names if LICENCE_FILE.fullmatch(name)]
    statements = list[tuple[str, str]]()
    for name in MANIFESTS:
        if name not in names:
            continue
        data = content(name)
        declared = declared_in(name, data) if data is not None else ManifestLicence(f"file {name}")
        if declared.words is not None:
            statements.append((name, declared.words))
        elif declared.file is not None and declared.file not in files:
            files.append(declared.file)
    return _of_words(statements, lambda: of_texts({name: content(name) for name in files}))


def of_distribution(
    expression: str | None, classifiers: Sequence[str], text: str | None, texts: Mapping[str, bytes | None]
) -> LicenceStatement:
    """What the core metadata of a distribution state.

    An expression decides. Else a classifier for one licence counts before the loose words of `License`, a source for
    how several are joined; where the two contradict each other the licence is unknown.

    Args:
        expression: `License-Expression`.
        classifiers: all trove classifiers.
        text: `License`, a name or a whole text of a licence.
        texts: files of licences, asked where the metadata state none or a vague one (`BSD`).
    """
    if expression is not None and expression.strip():
        return _of_words([("License-Expression", expression)], LicenceStatement)
    named = [c for c in classifiers if c.startswith(_CLASSIFIER) and c not in _OTHER_CLASSIFIERS]
    last_parts = [c.rpartition(" :: ")[2] for c in named]
    exact = {licence for name in last_parts if (licence := spdx_expression(name)) is not None}
    vague = {families(name): name for name in last_parts if spdx_expression(name) is None}
    words = None if says_nothing(text) else str(text)
    licence, whole = spdx_expression(words), LicenceStatement()
    if licence is None and words is not None and len(words) > _SHORT_BYTES:
        whole = of_texts({"License": words.encode(errors="replace")})
        licence = whole.licence if is_recognised(whole.licence) else None
    if licence is not None:
        return _agreed(licence, exact, vague, LicenceStatement(licence, "License"))
    if whole.licence is not None:
        return whole._replace(licence=joined("AND", [*sorted(exact), whole.licence]))
    if words is not None and families(words):
        vague.setdefault(families(words), words)
    elif words is not None and not (exact and _is_loose(words)):
        return _of_words([*(("Classifier", name) for name in sorted(exact)), ("License", words)], LicenceStatement)
    if exact and all(any(licence.startswith(begins) for licence in exact) for begins in vague):
        return LicenceStatement(joined("AND", sorted(exact)), "Classifier")
    statement = LicenceStatement() if exact else of_texts(texts)
    if statement.licence is not None and (not vague or is_recognised(statement.licence)):
        return _agreed(statement.licence, exact, vague, statement)
    unclear = _of_words([("Classifier", name) for name in (*sorted(exact), *vague.values())], LicenceStatement)
    return unclear._replace(detail="; ".join(filter(None, (unclear.detail, statement.detail))))


def _agreed(
    licence: str, exact: Set[str], vague: Mapping[tuple[str, ...], str], statement: LicenceStatement
) -> LicenceStatement:
    """A statement with the licences of all classifiers, or some of them; else one of their contradiction.

    Args:
        licence: of the statement.
        exact: the licences named in classifiers; they say whether later versions will do.
        vague: classifiers for a family, by the beginnings of its ids.
        statement: what is given where all agree.
    """
    leaves = set(ids_in(licence))
    if not exact and (not vague or all(any(map(leaf.startswith, vague)) for leaf in leaves)):
        return statement
    fits = all(any(_same(leaf, other) for leaf in leaves) for other in exact)
    if fits and all(any(leaf.startswith(begins) for leaf in leaves) for begins in vague):
        is_later = len(leaves) == len(exact) == 1 and min(exact).endswith("-or-later") and licence.endswith("-only")
        return statement._replace(licence=min(exact)) if is_later else statement
    if not vague and all(any(_same(leaf, other) for other in exact) for leaf in leaves):
        return LicenceStatement(joined("AND", sorted(exact)), "Classifier")
    others = " and ".join((*sorted(exact), *vague.values()))
    return LicenceStatement(unknown(f"{licence} or {others}"), "License, Classifier", f"{licence} contradicts {others}")


def of_texts(texts: Mapping[str, bytes | None]) -> LicenceStatement:
    """What some files of licence texts state.

    Args:
        texts: their bytes by their names; None for one too large or unreadable.
    """
    licences, evidence, details = dict[str, None](), list[str](), list[str]()
    for name in sorted(texts):
        data = texts[name]
        licence, detail = (unknown(f"file {name}"), f"{name} was not read") if data is None else _of_text(name, data)
        if licence is not None:
            licences[licence] = None
            evidence.append(name)
            details += [detail] if detail else []
    if not licences:
        return LicenceStatement()
    if any(licence.startswith("LGPL-3.0") for licence in licences):
        licences.pop("GPL-3.0-only", None)  # LGPL 3 adds permissions to this text, and comes with it
    return LicenceStatement(joined("AND", sorted(licences)), ", ".join(evidence), "; ".join(details))


def declared_in(name: str, data: bytes) -> ManifestLicence:
    """What a manifest says of the licence; nothing where it cannot be read.

    Args:
        name: one of `MANIFESTS`.
        data: its bytes; a byte order mark does not matter.
    """
    text = decoded(data)
    stating = _STATING.search(text)
    words = stating["words"] if stating else None
    try:
        if name.endswith(".json"):
            return _of_json(json.loads(text), "composer" in name)
        if name == "setup.cfg":
            parser = configparser.RawConfigParser(strict=False)
            parser.read_string(text)
            metadata = dict(parser["metadata"]) if "metadata" in parser else {}
            lines = metadata.get("classifiers", metadata.get("classifier", "")).splitlines()
            words = " ".join(metadata.get("license", metadata.get("licence", "")).split())
            return _of_metadata([line.strip() for line in lines], words)
        if name == "setup.py":
            return _of_metadata([line[2] for line in _SETUP_CLASSIFIER.finditer(text)], words)
        return (_of_crate if name == "Cargo.toml" else _of_project)(tomllib.loads(text))
    except (ValueError, RecursionError, AttributeError, configparser.Error):
        return ManifestLicence(words)  # it cannot be read, but what it says of a licence can


def _of_json(manifest: Any, either: bool) -> ManifestLicence:
    """The licence of a package.json, in its forms of all times, or of a composer.json, with lists as choices."""
    licence, several = manifest.get("license", manifest.get("licence")), manifest.get("licenses")
    entries = licence if isinstance(licence, list) else several if isinstance(several, list) else [several]
    choices = [words for entry in entries if (words := _type(entry))]
    choice = joined("OR", map(_stated, choices)) if len(choices) > 1 else next(iter(choices), None)
    name = _type(licence)
    if choice and name and _stated(name) != _stated(choice):
        return ManifestLicence(joined("AND", [_stated(name), _stated(choice)]))
    if choice:
        return ManifestLicence(choice)
    file = _NPM_FILE.fullmatch(name) if name and not either else None
    return ManifestLicence(file=file[1].removeprefix("./")) if file else ManifestLicence(name)


def _stated(words: str) -> str:
    return stated(words) or unknown(words)


def _type(entry: Any) -> str | None:
    """The words of an entry for a licence: a text, or an object with its type, name or address."""
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("type", "name", "url") if isinstance(entry.get(key), str)), None)
    return entry if isinstance(entry, str) and entry.strip() else None


def _of_crate(manifest: dict[str, Any]) -> ManifestLicence:
    """The licence of a Cargo.toml, its own or that of its workspace; `/` once stood for OR."""
    package, workspace = manifest.get("package", {}), manifest.get("workspace", {}).get("package", {})
    licence, file = package.get("license"), package.get("license-file")
    if isinstance(licence, dict) or not package:
        licence = workspace.get("license")
    if isinstance(file, dict) or not package:
        file = workspace.get("license-file")
    words = licence if isinstance(licence, str) and licence.strip() else None
    if words is not None:
        choices = _CHOICE_OF_CRATES.sub(lambda names: f"({names[0].replace('/', ' OR ')})", words)
        words = canonical(choices) or words
    return ManifestLicence(words) if words else ManifestLicence(file=file if isinstance(file, str) else None)


def _of_project(manifest: dict[str, Any]) -> ManifestLicence:
    """The licence of a pyproject.toml: that of `project` in its forms of all times, else Poetry's or Flit's."""
    project, tools = manifest.get("project", {}), manifest.get("tool", {})
    poetry = tools.get("poetry") or tools.get("flit", {}).get("metadata", {})
    licence = project.get("license")
    if isinstance(licence, dict) and isinstance(licence.get("file"), str):
        return ManifestLicence(file=licence["file"].removeprefix("./"))
    words = licence.get("text") if isinstance(licence, dict) else licence
    classifiers = [*strings_in(project.get("classifiers")), *strings_in(poetry.get("classifiers"))]
    return _of_metadata(classifiers, words if isinstance(words, str) else poetry.get("license"))


def _of_metadata(classifiers: Sequence[str], words: str | None) -> ManifestLicence:
    """The licence stated by classifiers and words together."""
    statement = of_distribution(None, classifiers, words, {}) if classifiers else LicenceStatement()
    return ManifestLicence(statement.licence or (None if says_nothing(words) else words))


def strings_in(value: object) -> list[str]:
    """The strings in a list; none for a value other than a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _of_words(statements: Sequence[tuple[str, str]], texts: Callable[[], LicenceStatement]) -> LicenceStatement:
    """What words in some places state together; texts say it where there are none, or which of a family is meant."""
    if not statements:
        return texts()
    licences, details = dict[str, None](), list[str]()
    for _, words in statements:
        licence = stated(words)
        if licence is None:
            continue
        begins = families(words)
        if begins and spdx_expression(words) is None:
            statement = texts()
            if statement.licence is not None and _fits(statement.licence, begins):
                return statement
        if not is_recognised(licence):
            details.append(f"not recognised: {' '.join(words.split())}")
        licences[licence] = None
    where = ", ".join(dict.fromkeys(place for place, _ in statements))
    return LicenceStatement(joined("AND", list(licences)), where, "; ".join(details)) if licences else texts()


def _of_text(name: str, data: bytes) -> tuple[str | None, str]:
    """The licence of a text, and where it equals none the nearest with the difference; None of an empty one."""
    match = recognised(data)
    if match.licence is not None:
        return match.licence, ""
    text = " ".join(data.decode(errors="replace").lstrip("\ufeff").split())
    if not text or says_nothing(text):
        return None, ""
    if len(text) <= _SHORT_BYTES and (licence := spdx_expression(text)):
        return licence, ""
    if len(text) <= _SHORT_BYTES and not any(map(_is_condition, _SENTENCE.split(decoded(data)))):
        licence = sentence_licence(text)
        if licence is not None:
            return licence, ""
    digest = hashlib.sha256(text.lower().encode()).hexdigest()[:8]
    if match.nearest is None:
        return unknown(f"text {digest}"), f"{name} is near no licence: {text[:100]}"
    difference = "".join(
        f"; {what}: {words}" for what, words in (("added", match.added), ("missing", match.missing)) if words
    )
    return unknown(f"near {match.nearest} {digest}"), f"{name} is nearest to {match.nearest}{difference}"


def _is_condition(sentence: str) -> bool:
    """Whether a sentence of a short text can be a condition: more than that something is under a licence."""
    words = set(LicenceWords(sentence).words)
    return is_condition(list(words - _OF_STATEMENTS if words & {"license", "licensed", "licenses"} else words))


def _fits(licence: str, begins: tuple[str, ...]) -> bool:
    """Whether all ids of an expression begin in one of some ways."""
    return all(name.startswith(begins) for name in ids_in(licence))


def _same(licence: str, other: str) -> bool:
    """Whether two ids are one licence, for all that they say of later versions: LGPL-2.1-only and LGPL-2.0-or-later."""
    (name, version, terms), (other_name, other_version, other_terms) = map(_gnu_parts, (licence, other))
    if name != other_name or not (terms and other_terms):
        return licence == other
    return version == other_version or (other_terms == "or-later" and version > other_version)


def _gnu_parts(licence: str) -> tuple[str, str, str]:
    """Family, version and terms of an id of GNU, `GPL`, `2.0`, `or-later`; the others have no terms."""
    parts = re.fullmatch(r"([A-Z]+)-([0-9.]+)-(only|or-later)", licence)
    return (parts[1], parts[2], parts[3]) if parts else (licence, "", "")


def _is_loose(words: str) -> bool:
    """Whether unrecognised words leave to classifiers what the licence is: nothing in them restricts it."""
    return not re.search(r"(?i)proprietary|commercial|restrict|all rights|confidential|except|\bno[nt]\b", words)
