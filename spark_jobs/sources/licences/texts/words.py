"""Words of a text as SPDX's matching guidelines compare them, and those possible in a name or a notice.

    Copyright © 2020 Ada Lovelace   ->  copyright 2020 ada lovelace
    # The licence's non-exclusive   ->  the license s non exclusive

Case, punctuation, quotes, dashes, bullets without letters, marks of comments and accents are no part of a word; words
called equal in the guidelines become one (`equivalentwords.txt` of SPDX's list). Texts are compared as the words'
letters without what is between them, so that `sub-license`, `sublicense` and a word cut at a line's end are equal.
Source: https://spdx.github.io/spdx-spec/v2.3/license-matching-guidelines-and-templates/
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property
from typing import Final


def listed(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())


def _without_marks(text: str) -> str:
    """A text without accents, in compatible characters: syllables of Korean become their letters."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


# SPDX's words that are equal, as `other:compared`, with their plurals.
EQUIVALENT: Final[dict[str, str]] = dict(
    pair.split(":")
    for pair in listed("""
    acknowledgement:acknowledgment acknowledgements:acknowledgments analogue:analog analyse:analyze
    artefact:artifact artefacts:artifacts authorisation:authorization authorised:authorized calibre:caliber
    cancelled:canceled capitalisations:capitalizations catalogue:catalog categorise:categorize centre:center
    emphasised:emphasized favour:favor favourite:favorite fulfil:fulfill fulfilment:fulfillment
    initialise:initialize judgement:judgment labelling:labeling labour:labor licence:license licences:licenses
    licenced:licensed maximise:maximize modelled:modeled modelling:modeling offence:offense optimise:optimize
    organisation:organization organisations:organizations organise:organize practise:practice programme:program
    programmes:programs realise:realize recognise:recognize recognised:recognized signalling:signaling
    sublicence:sublicense utilisation:utilization whilst:while wilfull:willful wilful:willful https:http
    """)
)
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff"
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_COPYRIGHT_SIGNS: Final = re.compile(
    r"(?i)(?:©|copyright)(?:\s*(?:©|\(c\)))*|\(c\)(?:\s*(?:©|copyright)|(?=\s*(?:\d{4}|<year|\[yyyy|yyyy)))"
)
_OWNER: Final = re.compile(r"(?i)(?<=copyright)(\W+)owner")
# The Free Software Foundation moved thrice, and has its licences say "see <https://www.gnu.org/licenses/>" since.
_FSF_ADDRESS: Final = (
    r"(?:51\W+Franklin\W+St(?:reet)?\W+(?:Fifth|5th)\W+Floor|59\W+Temple\W+Pl(?:ace)?(?:\W+Suite\W+330)?"
    r"|675\W+Mass(?:achusetts)?\W+Ave(?:nue)?|31\W+Milk\W+Street\W+960789)"
    r"\W+(?:Boston|Cambridge)\W+MA(?:\W+(?:02110|02111|02139|02196)(?:\W+13(?:01|07|35))?)?(?:\W+USA)?"
)
_FSF: Final = re.compile(
    rf"(?i)\b(?:write\W+to\W+the\W+Free\W+Software\W+Foundation(?:\W+Inc\b)?(?:\W+{_FSF_ADDRESS})?|{_FSF_ADDRESS}"
    r"|https?://(?:www\.)?fsf\.org/?(?=\W))"
)
_IDEA: Final = re.compile(r"(?i)\ba\s+brief\s+idea\b")
_COPYLEFT: Final = re.compile(r"(?i)(?<=www\.gnu\.org/)(?:copyleft|philosophy)(?=/)")
_LINK: Final = re.compile(r"\[([^\[\]]{1,300})\]\([^()\s]{1,300}\)")
_HTML: Final = re.compile(r"(?i)<(?:html|body|head|div|p|br|h[1-6]|pre)\b[^<>]*>")
_HIDDEN: Final = (("<script", "</script>"), ("<style", "</style>"), ("<title", "</title>"), ("<!--", "-->"))
_TAG: Final = re.compile(r"<[/!?]?[A-Za-z][^<>]*>")
_COMMENT_WORD: Final = re.compile(r"(?i)(?:[ \t]*(?:dnl|rem)\b[^\n]*(?:\n|\Z)|[ \t]*\n)+")
_COMMENT_MARK: Final = re.compile(r"(?im)^[ \t]*(?:dnl|rem)\b")
_RTF_GROUP: Final = re.compile(r"\{\\(?:\*|fonttbl|colortbl|stylesheet|info|pict)(?:[^{}]|\{[^{}]*\})*\}")
_RTF: Final = re.compile(r"\\'([0-9a-fA-F]{2})|\\(par|line|tab|[~_-])(?![a-z])-?\d* ?|\\[a-z]+-?\d* ?|\\\*|[{}]")

_MARK: Final = re.compile(
    r"\d{1,3}[a-z]?|[a-z]|[ivxl]{1,6}|article|artikel|section|part|clause|appendix|preamble|[第条一二三四五六七八九十]"
)
_ADDRESS: Final = re.compile(r"@|://|^\W*www\.|[A-Za-z0-9]\.[A-Za-z]{2,}")
_VERSION: Final = re.compile(r"v\d+")
_NO_NOTICE: Final = listed("holder holders notice notices law laws statement license interest and or")
_SENTENCE_END: Final = re.compile(r"[.!?]\s")
_RESTRICTS: Final = re.compile(  # in scripts without capitals, or in sentences that are set in capitals
    _without_marks(
        "禁止|商用|商业|商業|不得|不可|不能|仅|限于|限定|只能|训练|訓練|学習|使用|利用|許可|许可|금지|상업|학습|용도|تجاري|تدريب"
        "|коммерч|запрещ|только|обучени|εμπορικ|μονο|απαγορ"
    ),
    re.IGNORECASE,
)
_SHORTENED: Final = listed("co corp inc jr ltd st v ver")
_NOTICE_REACH: Final = 24  # words behind `copyright` that may be names without a capital

# Small words of names, notices of copyright and titles.
_SMALL: Final = listed("""
    a affiliates al all an and at author authors below by c co company complete contact contributor contributors
    copyright corporation da de del der des dev developer developers dos du e e-mail ed email et every everyone file
    following for foundation from full gmbh group her his holder holders homepage http in inc individual its la lab
    labs le license licenses list llc ltd mail maintainer maintainers md more name names notice of on onwards or org
    organization original other others owner owners page parts portions present project projects reserved respective
    revised rights rst see some subsidiaries team text the their txt und university url van various version von web
    website with y year yyyy
""")
# Words of conditions, grants and negations: none of them is part of a name, a notice or a title.
_CONDITION: Final = listed("""
    comercial comerciais commerciale commerciali commerciaux interdit interdite kommerziell kommerzielle
    kommerziellen nichtkommerziell nichtkommerzielle nichtkommerziellen prohibida prohibido proibida proibido
    untersagt verboten vietata vietato
    academic accept acknowledge acknowledges addendum addition additional additionally advertising agree agreed
    agrees ai allow allowed also alternatively amended amendment applicable applied applies apply attribution ban
    banned be been being belong belongs buy can cannot clause commercial commercially compliance comply condition
    conditions confidential consent copies copy copying could credit did disallowed disclaim disclaimer disclaims
    distribute distributed distribution do does dual dually educational either endorse evaluation evil except
    exception exceptions exclude excluded excluding fee fees forbid forbidden good grant granted granting grants has
    have he however if instead is it law laws learning liability liable licensed limitation machine mandatory
    military model models modification modifications modified modify must need needs neither never no non
    noncommercial none nonprofit nor not nuclear obtain only owe owes patent patents pay payment permit permits
    permitted profit prohibit prohibited prohibits promote proprietary provided provision provisions purpose
    purposes redistribute redistribution redistributions relicense relicensed remain remains require required
    requirement requires resale restrict restricted restriction restrictions revoke revoked rider royalties royalty
    sale sell selling shall she should sold solely stay subject sublicense supplement terminate terminates
    termination that these they this those train trained training unless usage use used useful user users uses using
    violate violates warranties warranty was we weapons were which who whom whose without you your
""")
# Of these, such as names of holders have: `Human Who Codes`.
_OF_NAMES_TOO: Final = listed("ai copy distribution free is it law learning machine that this user users uses who")
# Names of licences in titles: beside a text they are its own or contradict it.
LICENCE_NAMES: Final = listed("""
    agpl agplv3 apache artistic boost bsd bsl busl cc0 cddl cecill commons eclipse elastic epl eupl gnu gpl gpl2
    gpl3 gplv3 isc lgpl lgplv3 mit mozilla mpl mulan ncsa ofl openrail openssl polyform psf rail sil sspl unlicense
    wtfpl zlib
""")
# Of these, such as are holders' too.
_HOLDERS: Final = listed("apache boost cecill commons eclipse elastic gnu isc mit mozilla ncsa openssl sil")


def decoded(data: bytes) -> str:
    """The text of a file in UTF-8, UTF-16, UTF-32 or Latin-1, without RTF's and HTML's marks."""
    if data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        text = data.decode("utf-32", "replace")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
    if text.startswith("{\\rtf"):
        text = _RTF.sub(_rtf_character, _RTF_GROUP.sub("", text))
    elif _HTML.search(text):
        text = html.unescape(_TAG.sub(" ", _shown(text)))
    elif "&" in text:
        text = html.unescape(text)
    return text


def _copyright(match: re.Match[str]) -> str:
    return match[0] if match[0].lower() == "copyright" else "Copyright"


def _fsf(match: re.Match[str]) -> str:
    return " see http://www.gnu.org/licenses " if "write" in match[0].lower() else " "


_REPLACED: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (("fsf.org", "free software", "franklin", "temple", "mass"), _FSF, _fsf),
    (("brief",), _IDEA, "an idea"),
    (("gnu.org/",), _COPYLEFT, "licenses"),
    (("©", "(c)"), _COPYRIGHT_SIGNS, _copyright),
    (("owner",), _OWNER, r"\1holder"),
)


class LicenceWords:
    """The words of a text, and `letters`: the same without what is between them.

    Attributes:
        text: the text of the words.
        words: in their compared form.
        starts: where each word begins in `letters`, and the length of `letters` as the last.
    """

    def __init__(self, text: str) -> None:
        """Take the words out of a text."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if not text.isascii():
            text = _without_marks(text.replace("®", "").replace("™", ""))
        if "](" in text:
            text = _LINK.sub(r"\1", text)
        if _COMMENT_WORD.fullmatch(text):
            text = _COMMENT_MARK.sub("", text)
        folded = text.casefold()
        for signs, pattern, replacement in _REPLACED:  # a search for signs is much faster than for a pattern
            if any(sign in folded for sign in signs):
                text = pattern.sub(replacement, text)
        self.text = text
        self.words: list[str] = [EQUIVALENT.get(word, word) for word in _WORD.findall(self.text.casefold())]
        self.letters = "".join(self.words)
        self.starts = [0]
        place = 0
        for word in self.words:
            place += len(word)
            self.starts.append(place)

    @cached_property
    def index(self) -> dict[int, int]:
        """The ordinal of the word beginning at a place of `letters`."""
        return {start: k for k, start in enumerate(self.starts)}

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        return [match.span() for match in _WORD.finditer(self.text)]

    def word_at(self, place: int) -> int:
        """The ordinal of the first word beginning at a place of `letters` or behind it."""
        return bisect_left(self.starts, place)

    def raw(self, first: int, end: int) -> str:
        """The part of the text from one word to before another, on one line."""
        if first >= end:
            return ""
        return " ".join(self.text[self._spans[first][0] : self._spans[end - 1][1]].split())

    def is_number(self, k: int) -> bool:
        """Whether a word is a number."""
        return self.words[k].isdigit()

    def is_mark(self, k: int) -> bool:
        """Whether a word can be the number of a list's item."""
        return _MARK.fullmatch(self.words[k]) is not None

    def is_no_condition(self, k: int) -> bool:
        """Whether a word can be part of a name between words of a licence, and of no other sentence."""
        if self.is_name(k):
            return True
        return self.words[k] not in _CONDITION and not (self._ends_sentence(k - 1) or self._ends_sentence(k))

    def _ends_sentence(self, k: int) -> bool:
        if not 0 <= k < len(self.words) - 1:
            return False
        return _SENTENCE_END.search(self.text, self._spans[k][1], self._spans[k + 1][0] + 1) is not None

    @cached_property
    def _names(self) -> dict[int, bool]:
        return {}

    def is_name(self, k: int) -> bool:
        """Whether a word can be part of a name, a notice of copyright, an address or a title, and of no condition."""
        if k not in self._names:
            self._names[k] = self._can_be_name(k)
        return self._names[k]

    def _can_be_name(self, k: int) -> bool:
        word, (first, end) = self.words[k], self._spans[k]
        if word in _OF_NAMES_TOO and self._follows_notice(k):
            return True
        if word == "clause":  # BSD 3-Clause
            return k > 0 and self.words[k - 1] in ("0", "1", "2", "3", "4", "two", "three", "four", "zero")
        if word in ("may", "will", "hope", "grant") and self.text[first].isupper():
            return not self.text[first:end].isupper()
        if _is_address(self.text, first, end):
            return True
        if not word.isascii() and not unicodedata.name(word[0], "").startswith("LATIN"):
            return self._is_line_of_notice(first, end)
        if word in _CONDITION:
            return False
        if word in _SMALL or word.isdigit() or len(word) == 1 or _VERSION.fullmatch(word):
            return True
        is_capital = any(character.isupper() for character in self.text[first:end])
        return is_capital or self._follows_notice(k) or self._is_paragraph(k)

    def _is_short(self, k: int) -> bool:
        """Whether a point behind a word ends no sentence: `Inc.`, an initial."""
        return len(self.words[k]) == 1 or self.words[k] in _SHORTENED

    def names_licence(self, k: int) -> bool:
        """Whether a word is the name of a licence, and of no holder: `Copyright Mozilla Foundation`."""
        word = self.words[k]
        if word not in LICENCE_NAMES:
            return False
        is_title = self.words[k + 1 : k + 2] and self.words[k + 1] in ("license", "licenses", "public")
        return word not in _HOLDERS or bool(is_title) or not self._follows_notice(k)

    def _is_capital(self, k: int) -> bool:
        return self.text[self._spans[k][0]].isupper()

    def _is_paragraph(self, k: int) -> bool:
        """Whether a word, or its hyphenated neighbours with it, is all that stands between two empty lines."""
        first, end = _chunk(self.text, *self._spans[k])
        return not self.text[max(0, first - 2) : first].strip("\n") and not self.text[end : end + 2].strip("\n")

    def _is_line_of_notice(self, first: int, end: int) -> bool:
        """Whether `copyright` stands in the line of a word in another script, and nothing restrictive there."""
        line = (
            self.text[max(0, first - 300) : first].rpartition("\n")[2] + self.text[first : end + 300].partition("\n")[0]
        )
        return "copyright" in line.lower() and not _RESTRICTS.search(line)

    def _follows_notice(self, k: int) -> bool:
        """Whether `copyright` stands shortly before a word, in its sentence and line."""
        for j in range(k - 1, max(-1, k - 1 - _NOTICE_REACH), -1):
            between = self.text[self._spans[j][1] : self._spans[j + 1][0]]
            if "\n" in between or (_SENTENCE_END.search(between) and not self._is_short(j)):
                return False
            if self.words[j] == "copyright" and self.words[j + 1] not in _NO_NOTICE and self._is_capital(j):
                return True
        return False


def is_condition(words: list[str]) -> bool:
    """Whether one of some words is a sign of a condition."""
    return not _CONDITION.isdisjoint(set(words) - _OF_NAMES_TOO)


def _chunk(text: str, first: int, end: int) -> tuple[int, int]:
    """What stands around a word up to the next spaces, at most 300 characters."""
    while first > 0 and not text[first - 1].isspace() and end - first < 300:
        first -= 1
    while end < len(text) and not text[end].isspace() and end - first < 300:
        end += 1
    return first, end


def _is_address(text: str, first: int, end: int) -> bool:
    """Whether a word stands in an address of the web or of mail, or in the name of a file."""
    first, end = _chunk(text, first, end)
    return _ADDRESS.search(text[first:end]) is not None


def _shown(text: str) -> str:
    """HTML without scripts, styles, its title and comments."""
    for begin, end in _HIDDEN:
        pieces, place = [], 0
        while (start := text.find(begin, place)) >= 0 and (stop := text.find(end, start)) >= 0:
            pieces.append(text[place:start])
            place = stop + len(end)
        text = " ".join([*pieces, text[place:]])
    return text


def _rtf_character(match: re.Match[str]) -> str:
    if match[1]:
        return bytes([int(match[1], 16)]).decode("cp1252", "replace")
    return "\n" if match[2] in ("par", "line") else " " if match[2] else ""
