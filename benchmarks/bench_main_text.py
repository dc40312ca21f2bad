"""How near the texts of pages are to gold texts, at what cost, beside peers; and the weights of the article's network.

    python benchmarks/bench_main_text.py SETS               F1 and time of each folder in SETS, in one run
    python benchmarks/bench_main_text.py SETS --held-out    the network learned without the pages that it is measured on
    python benchmarks/bench_main_text.py SETS --learn       learn the weights that the product has, from all pages

SETS holds a folder for each set: NAME/ID.html, and ID.txt, its gold text, or ID.json, what its text has to have and
must not have: {"with": [..], "without": [..]}. The weights are learned from these, all from public packages:

    readability      124   mozilla/readability's pages, in the Go module go-shiori/go-readability
    newspaper4k, unfluff  31   news in 9 languages; pages whose gold is the whole text, of their tests
    trafilatura      983   pages with snippets, in the Go module markusmobius/go-trafilatura 1.12.2
    documentation    574   Node, npm, Rust, Valgrind, Sphinx, MkDocs, Javadoc, Doxygen; Debian's manuals in 20 languages

and from pages that are made here: sentences in many languages between menus, so that small and odd pages are known too.
Where the gold is snippets, the page's other blocks count as trafilatura and resiliparse take them together. F1 is that
of the words as often as they occur, mean over pages; of snippets, that of all snippets.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import numpy as np
from corpora import REAL_DATA
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from headrace_features.formats.web import article_network, main_text
from headrace_features.formats.web.block_features import block_features
from headrace_features.formats.web.html import extract_page
from headrace_features.formats.web.page_blocks import Block, page_blocks
from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.records.extracted import Extracted
from tests.headrace_features.formats.gold_pages import token_scores

WIDTH, EPOCHS, BATCH, FOLDS, MADE = 32, 10, 8, 4, 400
EXTRACTORS = ("both", "resiliparse", "trafilatura")


@dataclass
class Page:
    """A page of a set, and its gold text or snippets."""

    name: str
    set: str
    data: bytes
    gold: str = ""
    snippets: dict[str, list[str]] | None = None
    weight: float = 1.0


@dataclass
class Example:
    """A page's blocks in numbers, and which of them are the article."""

    features: Any
    words: Any
    labels: Any
    weight: float


def sets(folder: Path, limit: int | None) -> dict[str, list[Page]]:
    """The pages of each set; each set counts as the root of its size."""
    found: dict[str, list[Page]] = {}
    for path in sorted(folder.glob("*/*.html")):
        name, pages = path.parent.name, found.setdefault(path.parent.name, [])
        if limit and len(pages) == limit:
            continue
        gold, snippets = path.with_suffix(".txt"), path.with_suffix(".json")
        page = Page(path.stem, name, path.read_bytes())
        page.gold = gold.read_text("utf-8") if gold.exists() else ""
        page.snippets = None if gold.exists() else json.loads(snippets.read_text("utf-8"))
        pages.append(page)
    for pages in found.values():
        for page in pages:
            page.weight = (100 / len(pages)) ** 0.5
    return found


def example(page: Page) -> Example | None:
    """A page as the network sees it; None where it has no block."""
    decoded = decode_page(page.data, None, False)
    tree = HTMLTree.parse(decoded.text) if isinstance(decoded, DecodedPage) else None
    blocks = page_blocks(tree.document.html) if tree and tree.document else []
    if not blocks:
        return None
    title = tree.title or ""
    gold = page.gold if page.snippets is None else taken_together(decoded.text, tree)
    labels = main_text.shared_fractions(blocks, gold)
    for side, label in (("with", 1), ("without", 0)) if page.snippets else ():
        for snippet in filter(None, map(folded, page.snippets[side])):
            labels[[snippet in folded(block.text) for block in blocks]] = label
    features, words = block_features(blocks, title)
    return Example(features, words, labels, page.weight)


def folded(text: str) -> str:
    """A text with one blank for each run of white space."""
    return re.sub(r"\s+", " ", text).strip()


def taken_together(markup: str, tree: HTMLTree) -> str:
    """The lines of resiliparse's text from the first to the last that trafilatura takes too."""
    article = main_text.text_by_trafilatura(markup, fast=True)
    text = extract_plain_text(tree, main_content=True, alt_texts=False, comments=False)
    lines = [Block(line, "", 0, 0, 0, 0, 0, 0, -1, "") for line in text.splitlines() if line.strip()]
    shared = np.flatnonzero(main_text.shared_fractions(lines, article) >= 1) if lines else np.array([])
    return "\n".join(line.text for line in lines[shared[0] : shared[-1] + 1]) if len(shared) else article


def learned(examples: list[Example], seed: int = 0) -> dict[str, Any]:
    """The weights of the network that says best which blocks are the article."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    rng = random.Random(seed)
    features = np.concatenate([one.features for one in examples])
    mean, spread = (torch.tensor(values) for values in (features.mean(0), np.maximum(features.std(0), 0.05)))
    layers = nn.ModuleDict({"features": nn.Linear(features.shape[1], WIDTH), "page": nn.Linear(WIDTH, WIDTH)})
    layers.update({f"around{reach}": nn.Linear(3 * WIDTH, WIDTH) for reach in article_network.REACHES})
    layers["odds"] = nn.Linear(WIDTH, 1)
    drop = nn.Dropout(0.15)

    def odds(seen: Any, words: Any) -> Any:
        hidden = torch.relu(layers["features"](drop((seen - mean) / spread)))
        share = (words + 1) / (words + 1).sum()
        hidden = hidden + torch.relu(layers["page"](share @ hidden))
        for reach in article_network.REACHES:
            around = nn.functional.pad(hidden, (0, 0, reach, reach))
            sides = torch.cat([around[: -2 * reach], hidden, around[2 * reach :]], dim=1)
            hidden = hidden + torch.relu(layers[f"around{reach}"](sides))
        return layers["odds"](drop(hidden))[:, 0]

    pages = [(torch.tensor(p.features), torch.tensor(p.labels, dtype=torch.float32), torch.tensor(p.words), p.weight)
             for p in examples]  # fmt: skip
    optimizer = torch.optim.AdamW(layers.parameters(), lr=2e-3, weight_decay=0.01)
    batches = -(-len(pages) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * batches)
    loss_of = nn.BCEWithLogitsLoss(reduction="none")
    for _ in range(EPOCHS):
        rng.shuffle(pages)
        for start in range(0, len(pages), BATCH):
            loss = 0
            for seen, labels, words, weight in pages[start : start + BATCH]:
                scores = odds(seen, words)
                share = (words + 1.5) / (words + 1.5).sum()
                chances = torch.sigmoid(scores)
                shared = (chances * labels * words).sum()
                f1 = 2 * shared / ((chances * words).sum() + (labels * words).sum() + 1)
                loss = loss + weight * ((loss_of(scores, labels) * share).sum() + (1 - f1) / 2)
            optimizer.zero_grad()
            (loss / BATCH).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():  # features are seen as they are, so the first layer takes their scale over
        layers["features"].weight /= spread
        layers["features"].bias -= layers["features"].weight @ mean
    arrays = {}
    for name, layer in layers.items():
        arrays[name] = layer.weight.detach().numpy().T.astype(np.float16)
        arrays[f"{name}_bias"] = layer.bias.detach().numpy().astype(np.float32)
    arrays["odds"], arrays["odds_bias"] = arrays["odds"][:, 0], arrays["odds_bias"][0]
    return arrays


def made_pages(count: int, seed: int = 7) -> Iterator[Page]:
    """Pages that are made: an article of random blocks at a random depth, with menus and a footer, or without."""
    rng = random.Random(seed)
    texts = sorted((REAL_DATA / "languages").glob("*.txt"))
    for number in range(count):
        sentences = rng.choice(texts).read_text("utf-8").splitlines()
        said = lambda most: " ".join(rng.choice(sentences) for _ in range(rng.randint(1, most)))  # noqa: B023, E731
        short = lambda: " ".join(rng.choice(sentences).split()[: rng.randint(1, 4)])  # noqa: B023, E731
        blocks = []
        for _ in range(rng.randint(1, 12)):
            blocks += [f"<p>{said(5)}</p>"] + [made_block(rng, said, short)] * (rng.random() < 0.5)
        if rng.random() < 0.5:
            rng.shuffle(blocks)  # a list may be the first or the last
        first = [f"<h1>{short()}</h1>"] if rng.random() < 0.7 else []
        around = [
            rng.choice(("div", "main", "article", "section", "div class=content")) for _ in range(rng.randint(0, 4))
        ]
        body = "".join(first + blocks)
        for tag in around:
            body = f"<{tag}>{body}</{tag.split()[0]}>"
        links = lambda most: [f"<a href=/{n}>{short()}</a>" for n in range(rng.randint(1, most))]  # noqa: B023, E731
        menus = ["", "<nav>{}</nav>", "<ul>{}</ul>", "<div>{}</div>", "<header>{}</header>", "<aside>{}</aside>"]
        before, behind = rng.choice(menus), rng.choice([*menus, "<footer>{}</footer>"])
        item = "<li>{}</li>" if rng.random() < 0.5 else "{} "
        markup = before.format("".join(item.format(link) for link in links(12)))
        markup += body + behind.format("".join(item.format(link) for link in links(8)))
        tree = HTMLTree.parse(f"<body>{body}")
        gold = "\n".join(block.text for block in page_blocks(tree.document.html))
        page = f"<!DOCTYPE html><meta charset=utf-8><title>{short()}</title><body>{markup}</body>"
        yield Page(str(number), "made", page.encode(), gold, None, 0.3)


def made_block(rng: random.Random, said: Callable[[int], str], short: Callable[[], str]) -> str:
    """A list, a table, code, a quotation, a heading or a definition."""
    count = range(rng.randint(2, 6))
    text = (lambda: said(1)) if rng.random() < 0.6 else short
    return rng.choice(
        (
            "<ul>{}</ul>".format("".join(f"<li>{text()}</li>" for _ in count)),
            "<ol>{}</ol>".format("".join(f"<li>{text()} <a href=/x>{short()}</a></li>" for _ in count)),
            "<table>{}</table>".format("".join(f"<tr><td>{short()}<td>{text()}</tr>" for _ in count)),
            "<dl>{}</dl>".format("".join(f"<dt>{short()}<dd>{text()}" for _ in count)),
            "<pre>{}</pre>".format("\n".join(short() for _ in count)),
            f"<blockquote>{said(2)}</blockquote>",
            f"<h{rng.randint(2, 4)}>{short()}</h2>",
            *(f"<{tag}>{text()} {text()}</{tag}>" for tag in ("div", "section", "address", "code", "details")),
            "".join(f"<div>{text()}</div>" for _ in count),
        )
    )


def scores(pages: list[Page], texts: list[str]) -> str:
    """Precision, recall and F1 over the pages of one set."""
    if pages[0].snippets is None:
        rows = [token_scores(text, page.gold) for page, text in zip(pages, texts, strict=True)]
        return "  ".join(f"{sum(column) / len(rows):.3f}" for column in zip(*rows, strict=True))
    counts = {}
    for side in ("with", "without"):
        found = [
            folded(snippet) in text
            for page, text in zip(pages, map(folded, texts), strict=True)
            for snippet in page.snippets[side]  # type: ignore[index]
        ]
        counts[side] = (sum(found), len(found))
    (taken, wanted), (wrong, _) = counts["with"], counts["without"]
    return f"{taken / (taken + wrong):.3f}  {taken / wanted:.3f}  {2 * taken / (taken + wrong + wanted):.3f}"


def library_alone(data: bytes) -> str:
    """Resiliparse's own text, as its users call it."""
    decoded = decode_page(data, None, False)
    if not isinstance(decoded, DecodedPage):
        return ""
    return extract_plain_text(HTMLTree.parse(decoded.text), main_content=True, alt_texts=False, comments=False)


def measure(pages: list[Page], extractors: dict[str, Callable[[bytes], str]]) -> None:
    """One line for each extractor: scores, and milliseconds of processor time a page."""
    for name, extractor in extractors.items():
        start = time.process_time()
        texts = [extractor(page.data) for page in pages]
        spent = (time.process_time() - start) / len(pages) * 1000
        print(f"{pages[0].set:16} {len(pages):5} {name:20} {scores(pages, texts)}  {spent:7.1f} ms", flush=True)


def product(extractor: str) -> Callable[[bytes], str]:
    """The product's text of a page."""

    def text(data: bytes) -> str:
        extracted = extract_page(data, extractor)
        return extracted.text if isinstance(extracted, Extracted) else ""

    return text


def held_out(found: dict[str, list[Page]]) -> None:
    """Measure each page with a network that was learned from other pages, and no page of its generator."""
    pages = [page for group in found.values() for page in group]
    groups = sorted({group_of(page) for page in pages})
    random.Random(1).shuffle(groups)
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    examples = {id(page): example(page) for page in pages}
    made = [one for one in map(example, made_pages(MADE)) if one]
    texts: dict[int, str] = {}
    for number in range(FOLDS):
        seen = [examples[id(page)] for page in pages if fold[group_of(page)] != number]
        weights = {
            name: array.astype(np.float64) for name, array in learned([one for one in seen if one] + made).items()
        }
        main_text.network_weights = lambda: weights  # type: ignore[assignment] # noqa: B023
        for page in pages:
            if fold[group_of(page)] == number:
                texts[id(page)] = product("both")(page.data)
    for name, group in found.items():
        print(f"{name:16} {len(group):5} both, left out        {scores(group, [texts[id(page)] for page in group])}")


def group_of(page: Page) -> str:
    """What a page shares its layout with: its generator for documentation, else nothing."""
    return page.set + (re.split(r"[_-]", page.name)[0] if page.set.startswith("docs") else page.name)


def main() -> None:
    """Learn, or measure."""
    parser = command.parser(__doc__)
    parser.add_argument("sets", type=Path, nargs="?", help="folder of sets")
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.set_defaults(pages=None)
    chosen: argparse.Namespace = command.read(parser, pages=3)
    if chosen.sets is None:
        print("left out: no folder of sets was named")
        return
    found = sets(chosen.sets, chosen.pages)
    if chosen.learn:
        pages = [page for group in found.values() for page in group]
        examples = [one for one in map(example, [*pages, *made_pages(MADE)]) if one]
        folder = Path(main_text.__file__).parent
        np.savez_compressed(folder / article_network.WEIGHTS, **learned(examples))
    elif chosen.held_out:
        held_out(found)
    else:
        extractors = {"resiliparse's own": library_alone, **{name: product(name) for name in EXTRACTORS}}
        for pages in found.values():
            measure(pages, extractors)


if __name__ == "__main__":
    main()
