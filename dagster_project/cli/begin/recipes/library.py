"""A library in small: three books, one of them twice, tables, exercises, two scanned pages, an exam."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from dagster_project.cli.begin.recipes.sample_texts import Article, read_articles

_BOOKS = {"at_home": range(0, 36, 3), "out_of_doors": range(1, 37, 3), "by_hand": range(2, 38, 3)}
_PAGES = (38, 39)
_PREFACE = "The second edition has been read anew. The author thanks all who wrote in with their remarks."
_EXAM = {
    "A mill has two pairs of stones and grinds nine sacks of rye a day with each of them. How many sacks are ground in "
    "a week in which one pair stands still for three days?": "Ninety-nine sacks.",
    "A boat needs eleven minutes for each lock of a canal and forty for the water between two locks. How long does it "
    "take from the first lock to the end of the sixth?": "Two hundred and sixty-six minutes.",
    "Which of the three lamps in the tower has to be lit first if the green one may never burn beside the red one and "
    "the white one is needed at dusk?": "The white one, since the others exclude each other.",
    "Why does the keeper of a weir lower the gates before a thunderstorm although the level of the river is still far "
    "below the mark?": "Because the water that falls in the hills arrives hours later.",
}


def write_library(folder: Path) -> None:
    """Write `library`: texts and pictures of pages; and `exam.jsonl`, the benchmark forbidden in texts."""
    articles = read_articles("english.txt")
    library = folder / "library"
    library.mkdir(parents=True)
    books = {name: _book(name, [articles[at] for at in chapters]) for name, chapters in _BOOKS.items()}
    books["at_home_second_edition"] = f"{_PREFACE}\n\n{books['at_home']}"
    books["tables"] = "\n".join(
        f"{day:3d} {day * 37 % 24:02d}:{day * 17 % 60:02d} {day * 83 % 700}" for day in range(366)
    )
    question, answer = next(iter(_EXAM.items()))
    exercises = articles[37].paragraphs[0]
    books["exercises"] = f"{exercises}\n\n{question} {answer}\n\n{_PREFACE} {articles[37].paragraphs[1]}\n"
    for name, text in books.items():
        (library / f"{name}.txt").write_text(text, "utf-8")
    for number, at in enumerate(_PAGES, 1):
        _draw_page(articles[at], library / f"scan_{number}.png")
    with (folder / "exam.jsonl").open("w", encoding="utf-8") as exam:
        exam.writelines(json.dumps({"question": prompt, "answer": reply}) + "\n" for prompt, reply in _EXAM.items())


def _book(name: str, chapters: list[Article]) -> str:
    """A book as plain text, its lines wrapped as those of scanned and proofread books are."""
    parts = [name.replace("_", " ").upper()]
    for number, (title, paragraphs) in enumerate(chapters, 1):
        parts += [f"Chapter {number}. {title}", *(textwrap.fill(paragraph, 72) for paragraph in paragraphs)]
    return "\n\n".join(parts) + "\n"


def _draw_page(article: Article, path: Path) -> None:
    """Draw an article as the picture of a page, for OCR alone to read."""
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("L", (1240, 1000), 255)
    lines = [article.title, "", *(line for text in article.paragraphs for line in [*textwrap.wrap(text, 62), ""])]
    ImageDraw.Draw(page).multiline_text(
        (110, 90), "\n".join(lines), fill=0, font=ImageFont.load_default(32), spacing=14
    )
    page.quantize(4).save(path, optimize=True)
