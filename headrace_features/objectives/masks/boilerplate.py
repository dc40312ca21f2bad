"""The rules `boilerplate` and `template_lines`: lines that pages have around what they say.

`boilerplate` needs one text alone: lines of nothing but the words of menus, buttons and footers (`Home | About | Log
in`), and short lines about cookies, terms and rights. `template_lines` needs the table of this name of each dataset
(`scorers: {templates: {}}`), the lines that many documents of a sample share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headrace_features.objectives.masks.rules import MaskedText, mask_rule

_MOST: Final = 240  # characters of a line of a banner or a footer; a paragraph that speaks of cookies is a text
_WORDS: Final = (
    r"home(?: ?page)?|menu|main menu|about(?: us)?|contact(?: us)?|faqs?|blog|search|site ?map|careers|my account|"
    r"advertise(?: with us)?|advertisement|(?:skip|jump) to (?:main )?(?:content|navigation)|toggle navigation|"
    r"(?:back|go|return|scroll) to (?:the )?top|log ?in|sign ?in|log ?out|sign ?out|sign ?up|register|newsletter|"
    r"subscribe(?: now)?|rss(?: feed)?|next (?:page|post|article)|prev(?:ious)? (?:page|post|article)|next|previous|"
    r"older posts|newer posts|(?:read|show|load|see|view|learn) (?:more|less|all)|continue reading|"
    r"leave a (?:comment|reply)|share(?: this)?(?: on)?|tweet|follow us(?: on)?|facebook|twitter|linkedin|"
    r"instagram|pinterest|youtube|whatsapp|e-?mail this|print this page|copy link|close|cancel|submit|"
    r"related (?:posts|articles|links)|recent (?:posts|comments)|categories|archives|privacy(?: policy| notice)?|"
    r"cookies?(?: policy| settings| preferences)?|(?:accept|reject)(?: all)?(?: cookies)?|all rights reserved|"
    r"terms(?: (?:and|&) conditions| of (?:use|service))?|imprint|legal(?: notice)?|disclaimer|accessibility|"
    r"impressum|datenschutz(?:erklärung)?|agb|kontakt|startseite|accueil|connexion|mentions légales|inicio|contacto"
)
_BETWEEN: Final = r"[\s|·•»«›‹→←/,&*#–—…+.-]"  # neither quotes nor brackets: `close()` is code
_MENU: Final = re.compile(rf"(?i){_BETWEEN}*+(?>(?:{_WORDS})(?:{_BETWEEN}++|\Z))+")
_BANNER: Final = re.compile(
    r"(?i)\b(?:site|website|we|page|service)s? (?:also )?uses? (?:\w+ ){0,3}cookies"
    r"|\b(?:accept|manage|enable|allow)(?: \w+)? cookies|\bcookie (?:policy|settings|consent)"
    r"|\bby (?:continuing|using|browsing|clicking)\b.{0,80}\b(?:agree|accept|consent)"
    r"|\ball rights reserved|^\W*(?:copyright\b|\(c\)|©).{0,60}\b(?:19|20)\d\d\b"
    r"|\b(?:terms of (?:use|service)|privacy policy)\W*$"
    r"|\bpowered by (?:wordpress|drupal|joomla|blogger|disqus|discourse|phpbb|vbulletin|mediawiki|shopify)"
    r"|\b(?:enable|turn on) javascript|your browser does not support|sign up (?:for|to) (?:our|the) newsletter"
    r"|\bseite (?:verwendet|nutzt) cookies|\bsite utilise des cookies|\b(?:sitio|web) utiliza cookies"
)

_OF_BANNERS: Final = (
    *("cookie", "reserved", "copyright", "(c)", "©", "terms of", "privacy", "powered by", "javascript", "browser"),
    *("newsletter", "agree", "accept", "consent"),
)
"""One of them is in every banner; most lines have none, and need not be searched."""


@mask_rule(version="1")
def boilerplate(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Lines of menus, buttons, footers and banners."""
    for start, line in _lines(document.text):
        if len(line) <= _MOST and (_MENU.fullmatch(line) or _is_banner(line)):
            yield start, start + len(line)


@mask_rule(version="1", reads="template_lines")
def template_lines(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Lines that many documents of the dataset share."""
    from spark_jobs.filters.heuristics.template_kernel import score_templates

    lines = [*_lines(document.text)]
    hashes = document.template_lines if document.template_lines is not None else np.zeros(0, np.int64)
    scores = score_templates(pa.array([line for _, line in lines], pa.string()), hashes)["template_fraction"]
    for (start, line), share in zip(lines, scores.to_pylist(), strict=True):
        if share == 1:
            yield start, start + len(line)


def _is_banner(line: str) -> bool:
    small = line.lower()
    return any(words in small for words in _OF_BANNERS) and _BANNER.search(line) is not None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, each with its place."""
    start = 0
    for line in text.split("\n"):
        if line.strip():
            yield start, line
        start += len(line) + 1
