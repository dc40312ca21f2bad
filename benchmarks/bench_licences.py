"""How many texts of licences are recognised rightly, and how fast, beside other recognisers.

    python benchmarks/bench_licences.py [--files FOLDER ..] [--peers PYTHON] [--only NAME ..] [--every N]

The texts are the 728 of SPDX's list in its own rendering, some of them with other terms (none is right), and files of
licences below folders. `--peers` is a Python with spdx-matcher, licenseid, scancode-toolkit-mini or identify;
$ASKALONO the program of askalono-cli. A text is right where its id has the same text (GPL-2.0-only and -or-later), none
without an answer, another's else. Seconds are CPU's, the memory is the process's at its peak.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import resource
import time
from pathlib import Path

import command

_TEXTS = Path(__file__).parents[1] / "tests/spark_jobs/sources/licences/spdx_texts.json.xz"
_NAMES = re.compile(r"(?i)(?:un)?licen[cs]e(?:[-_.].*)?|copying(?:[-_.].*)?")
_CONDITIONS = (
    "This software may not be used to train machine learning models.",
    "The Software shall be used for Good, not Evil.",
    "“Commons Clause” License Condition v1.0: the grant of rights does not include the right to Sell the Software.",
    "Commercial use requires a separate licence.",
)
_RENAMED = {"BSD-2-Clause-FreeBSD": "BSD-2-Clause-Views", "Nunit": "zlib-acknowledgement", "StandardML-NJ": "SMLNJ"}
PEERS = ("spdx_matcher", "licenseid", "scancode", "identify", "askalono")


def main() -> None:
    """Print a line for each recogniser."""
    parser = command.parser(__doc__)
    parser.add_argument("--files", nargs="*", default=[], help="folders of licence files")
    parser.add_argument("--peers", help="the Python of the peers")
    parser.add_argument("--only", nargs="*", default=PEERS, help="these peers")
    parser.add_argument("--every", type=int, default=1, help="one of so many official texts: some peers are slow")
    given = command.read(parser, every=20)
    every: dict[str, str] = json.loads(lzma.decompress(_TEXTS.read_bytes()))
    official, traps = dict(list(every.items())[:: given.every]), with_other_terms(every)
    files = sorted({path.read_text("utf-8", "replace") for folder in given.files for path in licence_files(folder)})
    texts = [*official.values(), *traps, *files]
    show("headrace", official, len(traps), own(texts))
    for name in given.only if given.peers else ():
        command.attempt(beside, name, given, official, len(traps), texts)


def with_other_terms(official: dict[str, str]) -> list[str]:
    """Texts with a condition more, before and behind the warranty, and such with half of the terms."""
    names = ("MIT", "Apache-2.0", "BSD-3-Clause", "ISC")
    behind = [official[name] + "\n\n" + more + "\n" for name in names for more in _CONDITIONS]
    inside = [f"\n\n{more}\n\n".join(official[name].rsplit("\n\n", 1)) for name in names for more in _CONDITIONS]
    return [*behind, *inside, *(official[name][: len(official[name]) // 2] for name in names[:2])]


def licence_files(folder: str) -> list[Path]:
    """The files below a folder that are named as licences are."""
    return [path for path in Path(folder).rglob("*") if _NAMES.fullmatch(path.name) and path.is_file()]


def own(texts: list[str]) -> dict[str, object]:
    """What headrace answers."""
    from spark_jobs.sources.licences.texts import known_text

    before = time.perf_counter()
    known_text(b"load " * 9)
    load, cpu = time.perf_counter() - before, time.process_time()
    answers = [known_text(text.encode()) for text in texts]
    return {"answers": answers, "load": load, "seconds": time.process_time() - cpu}


def beside(name: str, given: argparse.Namespace, official: dict[str, str], traps: int, texts: list[str]) -> None:
    """Ask a peer about the same texts."""
    script = str(Path(__file__).with_name("licence_peers.py"))
    answer = command.peer(given.peers, script, name, given=json.dumps(texts))
    show(name, official, traps, json.loads(answer.splitlines()[-1]))


def show(name: str, official: dict[str, str], traps: int, answer: dict[str, object]) -> None:
    """Print what was right."""
    answers = answer["answers"]
    assert isinstance(answers, list)
    first, rest = answers[: len(official)], answers[len(official) + traps :]
    right = sum(
        licence is not None and family(licence) == family(key) for key, licence in zip(official, first, strict=True)
    )
    none = first.count(None)
    wrong = [f"{k}: {a}" for k, a in zip(official, first, strict=True) if a is not None and family(a) != family(k)]
    let = traps - answers[len(official) : len(official) + traps].count(None)
    seconds, load = float(str(answer["seconds"])), float(str(answer["load"]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000 if name == "headrace" else 0
    print(
        f"{name}: of {len(official)} right {right}, none {none}, another's {len(wrong)}; of {traps} with other terms "
        f"{let} pass; of {len(rest)} files recognised {len(rest) - rest.count(None)}; {len(answers) / seconds:.0f} "
        f"texts/s, load {load:.1f} s" + (f", memory {peak:.0f} MB" if peak else "") + f" {wrong[:12]}",
        flush=True,
    )


def family(name: str) -> str:
    """What ids with one text have in common."""
    name = re.sub(r"(?:-or-later|-only|\+)$", "", _RENAMED.get(name, name))
    return re.sub(r"(?:-(?:no-)?(?:invariants|RFN)|-no-copyleft-exception|-Combined-Work-Exception)$", "", name)


if __name__ == "__main__":
    main()
