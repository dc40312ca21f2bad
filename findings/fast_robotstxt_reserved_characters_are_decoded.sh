#!/usr/bin/env bash
# fast-robotstxt 1.1.0.
# One would guess: of percent-encoded octets only those of unreserved characters are decoded before paths are compared
#   (RFC 9309, 2.2.2), so a rule about /a%2Fb, a name with a slash in it, says nothing of /a/b.
# Seen: %2F of a rule is decoded too. `Disallow: /a%2Fb` closes /a/b, which protego and gpyrobotstxt leave open.
# Instead: decode letters, digits, - . _ ~ alone, and compare all other octets as %XX.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "fast-robotstxt==1.1.0" "protego==0.7.0"
"$folder/venv/bin/python" - <<'PY'
from protego import Protego
from robotstxt import RobotsMatcher

text = "User-agent: *\nDisallow: /a%2Fb\n"
answers = {
    path: (
        RobotsMatcher().is_allowed(text, "AnyBot", f"https://example.org{path}"),
        Protego.parse(text).can_fetch(f"https://example.org{path}", "AnyBot"),
    )
    for path in ("/a%2Fb", "/a/b")
}
for path, (fast, protego) in answers.items():
    print(f"{path:8} fast-robotstxt: {'open' if fast else 'closed':8} protego: {'open' if protego else 'closed'}")
raise SystemExit(0 if answers == {"/a%2Fb": (False, False), "/a/b": (False, True)} else 1)
PY
