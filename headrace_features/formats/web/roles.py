"""What an element of a page is for, as far as its name, its classes, its id and its ARIA role say.

Each role is one bit, so that those of all elements around a block are one number.
"""

from __future__ import annotations

import re

_WORDS = {
    "navigation": (
        "nav navbar navigation menu menubar menuitem navlinks topnav sidenav navbox toctree breadcrumb breadcrumbs "
        "crumb crumbs pager pagination skip skiplink tab tabs tablist toolbar drawer hamburger dropdown jump"
    ),
    "header": "header masthead topbar banner logo branding siteheader",
    "footer": "footer foot contentinfo colophon copyright legal bottom footnav siteinfo imprint disclaimer",
    "aside": "aside sidebar side rail complementary widget widgets secondary right left module box",
    "comments": (
        "comment comments commentlist disqus replies reply respond discussion forum review reviews kommentar "
        "kommentare livefyre"
    ),
    "related": (
        "related recommend recommended recommendations more further popular trending latest recent next prev previous "
        "teaser teasers promo suggested also outbrain taboola recirc recirculation mostread topstories headlines "
        "carousel slider"
    ),
    "share": (
        "share sharing social socials facebook twitter tweet pinterest whatsapp linkedin follow addthis sharedaddy "
        "bookmark"
    ),
    "advertisement": (
        "ad ads adsense advert advertisement advertising sponsor sponsored sponsors dfp adslot adunit shopping "
        "affiliate partner paid offer offers deal deals"
    ),
    "byline": (
        "byline author authors date time timestamp published updated meta metadata postmeta dateline tag tags "
        "category categories topic topics keywords credit credits source info profile bio avatar vcard posted editor"
    ),
    "content": (
        "content contents entry post article articlebody body text story main maincontent prose markdown page "
        "document hentry bodytext storybody paragraph copy blog rst documentwrapper mw description summary abstract "
        "lead intro"
    ),
    "hidden": (
        "hidden hide invisible modal popup overlay lightbox cookie cookies consent gdpr alert dialog collapsed "
        "collapse offscreen paywall gate notice sronly visuallyhidden screenreader noprint print noexcerpt toast "
        "tooltip"
    ),
    "caption": (
        "caption captions figure figcaption image images img photo photos gallery media video thumb thumbnail picture "
        "slideshow"
    ),
    "form": (
        "form search searchbox login signin signup register subscribe subscription newsletter email input contact "
        "poll quiz captcha button btn buttons cta account cart checkout price rating ratings feedback vote votes"
    ),
    "contents": (
        "toc tableofcontents outline onthispage index genindex sitemap directory permalink headerlink anchor "
        "editsection edit editlink infobox metadata reference references reflist citation citations footnote "
        "footnotes bibliography notes"
    ),
    "code": (
        "code highlight highlighted source listing pre prettyprint codehilite snippet terminal console lineno linenos "
        "gutter"
    ),
    "wrapper": "wrapper wrap container outer inner layout grid row column col region root site app primary",
    "title": "title headline heading subtitle kicker deck dek standfirst subhead hero pagetitle",
}
_TAGS = (
    *("nav", "header", "footer", "aside", "article", "main", "section", "form", "figure", "figcaption", "blockquote"),
    *("table", "ul", "ol", "dl", "li", "details", "noscript", "address", "pre", "h1", "h2", "h3", "h4", "h5", "h6"),
)
_ARIA_HIDDEN = len(_WORDS) + len(_TAGS)
ROLE_COUNT = _ARIA_HIDDEN + 1
"""How many bits there are."""
_TAG_BITS = {name: 1 << (len(_WORDS) + place) for place, name in enumerate(_TAGS)}
_WORD_BITS: dict[str, int] = {}
for _place, _words in enumerate(_WORDS.values()):
    for _word in _words.split():
        _WORD_BITS[_word] = _WORD_BITS.get(_word, 0) | 1 << _place
_BESIDE = ("navigation", "header", "footer", "aside", "comments", "related", "share", "advertisement", "hidden", "form")
BESIDE = sum(1 << place for place, role in enumerate(_WORDS) if role in _BESIDE) | 1 << _ARIA_HIDDEN
BESIDE |= sum(_TAG_BITS[name] for name in ("nav", "footer", "aside", "form"))
"""Roles of what stands beside an article."""
_SPLIT = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def role_bits(name: str, labels: str, is_aria_hidden: bool) -> int:
    """The roles of an element.

    Args:
        name: of the element.
        labels: its classes, id and role, with blanks between.
        is_aria_hidden: whether it is hidden from readers of screens.
    """
    bits = _TAG_BITS.get(name, 0)
    if labels:
        for word in _SPLIT.findall(labels):
            bits |= _WORD_BITS.get(word.lower(), 0)
    return bits | is_aria_hidden << _ARIA_HIDDEN
