"""How well and how fast the scans of quarantine find things.

    python benchmarks/bench_filters_scans.py [FILES] [RFCS.parquet]

Texts are installed Python files and RFCs as they are (false alarms), and some with a thing planted in each (misses).
"""

from __future__ import annotations

import random
import string
import sysconfig
import time
from collections import Counter
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.parquet as pq
from corpora import rfcs

from headrace_features.privacy.scans.malware import SHIPPED
from headrace_features.privacy.scans.scans import findings

EICAR = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
KINDS = ("malware", "secret", "personal_data", "fixture")


def planted(rng: random.Random) -> dict[str, str]:
    """One of each thing, made up."""

    def some(count: int, letters: str) -> str:
        return "".join(rng.choices(letters, k=count))

    letters = string.ascii_letters + string.digits
    return {
        "secret.aws": f"AWS_ACCESS_KEY_ID = 'AKIA{some(16, string.ascii_uppercase + string.digits)}'",
        "secret.github_token": f"token: ghp_{some(36, letters)}",
        "secret.slack": f"xoxb-{some(12, string.digits)}-{some(12, string.digits)}-{some(24, letters)}",
        "secret.assigned_secret": f'password = "{some(10, letters)}{some(4, string.digits)}"',
        "personal_data.mail": f"write to {some(8, string.ascii_lowercase)}@{some(7, string.ascii_lowercase)}.de",
        "fixture.lorem_ipsum": "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
        "fixture.faker": "81273 Smith Mews\nSuite 412\nUSNS Hill\nFPO AP 71234",
    }


def main() -> None:
    """Print counts, misses and speed."""
    parser = command.parser(__doc__)
    parser.add_argument("files", nargs="?", type=int, default=10_000, help="installed Python files")
    parser.add_argument("rfcs", nargs="?", help="a Parquet file of texts; those of REAL_DATA_DIR by default")
    parser.set_defaults(documents=2000)
    given = command.read(parser, files=60, documents=20)
    limit = given.files
    folder = Path(sysconfig.get_paths()["purelib"])
    files = sorted(folder.rglob("*.py"))
    files = files[:: max(len(files) // limit, 1)][:limit]
    texts = [file.read_text(errors="replace") for file in files]
    paths = [str(file.relative_to(folder)) for file in files]
    rules = SHIPPED.read_text()
    findings(paths[:10], pa.array(texts[:10]), rules)  # compiles the kernels
    started = time.perf_counter()
    found = [
        one
        for at in range(0, len(texts), 500)
        for one in findings(paths[at : at + 500], pa.array(texts[at : at + 500]), rules)
    ]
    seconds = time.perf_counter() - started
    size = sum(map(len, texts)) / 1e6
    print(f"{len(texts):,} Python files, {size:.0f} MB: {size / seconds:.1f} MB/s on one core")
    rules_found = Counter(rule for one in found for rule in one)
    for rule, count in sorted(rules_found.items()):
        print(f"  {rule:<36} {count:>6,} files")
    for kind in KINDS:
        print(f"  {kind}: {sum(any(r.startswith(kind) for r in one) for one in found):,} of {len(found):,} files")
    for rule in rules_found:
        if rule.startswith(("secret", "fixture.faker", "malware")):
            named = [path for path, one in zip(paths, found, strict=True) if rule in one]
            print(f"  {rule}: {random.Random(1).sample(named, min(8, len(named)))}")
    rng = random.Random(7)
    missed: Counter[str] = Counter()
    chosen = rng.sample(range(len(texts)), min(500, len(texts)))
    for at in chosen:
        for rule, text in planted(rng).items():
            lines = texts[at].split("\n")
            lines.insert(rng.randrange(len(lines) + 1), text)
            before = found[at].get(rule, 0)
            (now,) = findings(["a.py"], pa.array(["\n".join(lines)]), rules)
            missed[rule] += now.get(rule, 0) <= before and not any(
                r.split(".")[0] == rule.split(".")[0] and c > found[at].get(r, 0) for r, c in now.items()
            )
    for rule in planted(rng):
        print(f"  planted {rule:<30} {len(chosen) - missed[rule]:,} of {len(chosen):,} found")
    print("  EICAR", findings(["e"], pa.array([EICAR]), rules), findings(["e"], pa.array([f"see {EICAR}"]), rules))
    content = pa.array(texts_of(given.rfcs)[: given.documents] if given.rfcs else rfcs(given.documents))
    many = findings(["rfc.txt"] * len(content), content, rules)
    print(f"{len(content):,} RFCs:", Counter(rule for one in many for rule in one))


def texts_of(file: str) -> list[str]:
    """Texts of a Parquet file."""
    table = pq.read_table(file)
    column = next(name for name in ("text", "content", "body") if name in table.column_names)
    texts: list[str] = table[column].to_pylist()
    return texts


if __name__ == "__main__":
    main()
