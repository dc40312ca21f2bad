"""The measures in plain Python, as their papers define them, over words that are given: slow, and easy to read."""

from __future__ import annotations

import re
from collections import Counter

TERMINAL = (".", "?", "!")


def duplicates(elements: list[str]) -> tuple[int, int]:
    """Elements that repeat an earlier one, and their characters."""
    repeated = [element for k, element in enumerate(elements) if element in elements[:k]]
    return len(repeated), sum(map(len, repeated))


def top_ngram(words: list[str], n: int) -> int:
    """Characters of all occurrences of the most frequent n-gram, with a space between its words."""
    grams = [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]
    if not grams:
        return 0
    gram, count = Counter(grams).most_common(1)[0]
    return len(" ".join(gram)) * count


def duplicate_ngram(words: list[str], n: int) -> int:
    """Characters of n-grams that were read before; reading goes on behind one."""
    seen, k, characters = set(), 0, 0
    while k + n <= len(words):
        gram = tuple(words[k : k + n])
        if gram in seen:
            characters += len("".join(gram))
            k += n
        else:
            seen.add(gram)
            k += 1
    return characters


def slow_measures(text: str, words: list[str]) -> dict[str, float]:
    """The measures of a text that is not empty; undefined ones are left out."""
    measured: dict[str, float] = {}
    lines, paragraphs = re.split("\n+", text), re.split("\n{2,}", text.strip())
    for name, elements in (("line", lines), ("paragraph", paragraphs)):
        count, characters = duplicates(elements)
        measured[f"duplicate_{name}_fraction"] = count / len(elements)
        measured[f"duplicate_{name}_character_fraction"] = characters / len(text)
    for n in (2, 3, 4):
        if len(words) >= n:
            measured[f"top_{n}gram_character_fraction"] = top_ngram(words, n) / len(text)
    for n in range(5, 11):
        if len(words) >= n:
            measured[f"duplicate_{n}gram_character_fraction"] = duplicate_ngram(words, n) / len(text)
    filled = [line for line in text.split("\n") if line.strip()]
    if filled:
        measured["terminal_punctuation_line_fraction"] = sum(line.endswith(TERMINAL) for line in filled) / len(filled)
        measured["short_line_fraction"] = sum(len(line) <= 30 for line in filled) / len(filled)
        without = len(text.replace("\n", ""))
        measured["fineweb_duplicate_line_character_fraction"] = duplicates(filled)[1] / without
    pieces = text.splitlines()
    bullets = [piece for piece in pieces if piece.lstrip().startswith(("•", "-"))]
    ellipses = [piece for piece in pieces if piece.rstrip().endswith(("...", "…"))]
    measured["bullet_line_fraction"] = len(bullets) / len(pieces)
    measured["ellipsis_line_fraction"] = len(ellipses) / len(pieces)
    if words:
        measured["hash_word_ratio"] = text.count("#") / len(words)
        measured["ellipsis_word_ratio"] = (text.count("...") + text.count("…")) / len(words)
        measured["newline_word_ratio"] = text.count("\n") / len(words)
        measured["alphabetic_word_fraction"] = sum(any(map(str.isalpha, word)) for word in words) / len(words)
    measured |= _c4(pieces)
    return measured


def _c4(pieces: list[str]) -> dict[str, float]:
    """What C4's rules say of lines, in their order."""
    counts = dict.fromkeys(
        (
            "c4_kept_line_count",
            "javascript_line_count",
            "policy_line_count",
            "curly_bracket_count",
            "lorem_ipsum_count",
        ),
        0,
    )
    for piece in map(str.strip, pieces):
        line, runs = re.sub(r"\[\d*]|\[edit]|\[citation needed]", "", piece), piece.split()
        if any(len(run) > 1000 for run in runs) or len(runs) < 3:
            continue
        if not line.endswith((".", "?", "!", '"', "'")) or line.endswith("..."):
            continue
        lower = line.lower()
        if "lorem ipsum" in lower:
            counts["lorem_ipsum_count"] += 1
        elif "javascript" in lower:
            counts["javascript_line_count"] += 1
        elif "{" in line:
            counts["curly_bracket_count"] += 1
        elif any(phrase in lower for phrase in ("terms of use", "privacy policy", "use cookies")):
            counts["policy_line_count"] += 1
        else:
            counts["c4_kept_line_count"] += 1
    return dict(counts)
