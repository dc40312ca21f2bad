"""The code of a language, by any of its names: `english`, `eng` and `en-US` -> `en`.

Documents name languages of texts by ISO 639 (`en`; three letters where there are no two, `arz`), those of code by
Linguist (`Python`), as the scorer `languages` and the readers write them. A rule for `english` would match none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_jobs.sources.languages import code_language_names
from spark_jobs.threads import made_once

_TABLE: Final = """
aa: aar, afar; ab: abk, abkhazian; ae: ave, avestan; af: afr, afrikaans; ak: aka, fat, twi, akan; am: amh, amharic;
an: arg, aragonese; ar: ara, arb, arabic; as: asm, assamese; av: ava, avaric; ay: aym, ayr, aymara; az: aze, azj,
azerbaijani; ba: bak, bashkir; be: bel, belarusian; bg: bul, bulgarian; bi: bis, bislama; bm: bam, bambara; bn: ben,
bangla, bengali; bo: bod, tib, tibetan; br: bre, breton; bs: bos, bosnian; ca: cat, catalan; ce: che, chechen; ch:
cha, chamorro; co: cos, corsican; cr: cre, cwd, cree; cs: ces, cze, czech; cu: chu, church slavic; cv: chv, chuvash;
cy: cym, wel, welsh; da: dan, danish; de: deu, ger, german; dv: div, divehi; dz: adp, dzo, dzongkha; ee: ewe; el:
ell, gre, greek, modern greek; en: eng, english; eo: epo, esperanto; es: spa, spanish, castilian; et: ekk, est,
estonian; eu: baq, eus, basque; fa: fas, per, pes, persian, farsi; ff: fuc, ful, fula; fi: fin, finnish; fj: fij,
fijian; fo: fao, faroese; fr: fra, fre, french; fy: fry, western frisian, frisian; ga: gle, irish; gd: gla, scottish
gaelic; gl: glg, galician; gn: grn, gug, guarani; gu: guj, prp, gujarati; gv: glv, manx; ha: hau, hausa; he: heb,
hebrew; hi: hin, hindi; ho: hmo, hiri motu; hr: hrv, scr, croatian; ht: hat, haitian creole, haitian; hu: hun,
hungarian; hy: arm, hye, armenian; hz: her, herero; ia: ina, interlingua; id: ind, indonesian; ie: ile, interlingue;
ig: ibo, igbo; ii: iii, sichuan yi; ik: esk, ipk, inupiaq; io: ido; is: ice, isl, icelandic; it: ita, italian; iu:
ike, iku, inuktitut; ja: jpn, japanese; jv: jav, javanese; ka: geo, kat, georgian; kg: kng, kon, kongo; ki: kik,
kikuyu; kj: kua, kuanyama; kk: kaz, kazakh; kl: kal, kalaallisut, greenlandic; km: khm, khmer; kn: kan, kannada; ko:
kor, korean; kr: kau, knc, kanuri; ks: kas, kashmiri; ku: kmr, kur, kurdish; kv: kom, kpv, komi; kw: cor, cornish;
ky: kir, kyrgyz, kirghiz; la: lat, latin; lb: ltz, luxembourgish; lg: lug, ganda; li: lim, limburgish; ln: lin,
lingala; lo: lao; lt: lit, lithuanian; lu: lub, luba-katanga; lv: lav, lvs, latvian; mg: mlg, plt, malagasy; mh:
mah, marshallese; mi: mao, mri, māori, maori; mk: mac, mkd, macedonian; ml: mal, malayalam; mn: drh, khk, mon,
mongolian; mr: mar, marathi; ms: may, msa, zsm, malay; mt: mlt, maltese; my: bur, mya, burmese; na: nau, nauru; nb:
nob, norwegian bokmål, norwegian bokmal; nd: nde, north ndebele; ne: nep, npi, nepali; ng: ndo, ndonga; nl: dut,
nld, dutch, flemish; nn: nno, norwegian nynorsk; no: nor, norwegian; nr: nbl, south ndebele; nv: nav, navajo; ny:
nya, nyanja; oc: oci, occitan; oj: ojg, oji, ojibwa; om: gaz, orm, oromo; or: ori, ory, odia, oriya; os: oss,
ossetic; pa: pan, punjabi, panjabi; pi: pli, pali; pl: pol, polish; ps: pbu, pus, pashto, pushto; pt: por,
portuguese; qu: que, quz, quechua; rm: roh, romansh; rn: run, rundi; ro: mol, ron, rum, romanian; ru: rus, russian;
rw: kin, kinyarwanda; sa: cls, san, sanskrit; sc: src, srd, sardinian; sd: snd, sindhi; se: sme, northern sami; sg:
sag, sango; sh: serbo-croatian; si: sin, sinhala, sinhalese; sk: slk, slo, slovak; sl: slv, slovenian, slovene; sm:
smo, samoan; sn: sna, shona; so: som, somali; sq: alb, sqi, albanian; sr: scc, srp, serbian; ss: ssw, swati;
st: sot, southern sotho; su: sun, sundanese; sv: swe, swedish; sw: swa, swh, swahili; ta: tam, tamil; te: tel,
telugu; tg: tgk, tajik; th: tha, thai; ti: tir, tigrinya; tk: tuk, turkmen; tl: tagalog; tn: tsn, tswana; to: ton,
tongan; tr: tur, turkish; ts: tso, tsonga; tt: tat, tatar; tw: twi; ty: tah, tahitian; ug: uig, uyghur, uighur; uk:
ukr, ukrainian; ur: urd, urdu; uz: uzb, uzn, uzbek; ve: ven, venda; vi: vie, vietnamese; vo: vol, volapük, volapuk;
wa: wln, walloon; wo: wol, wolof; xh: xho, xhosa; yi: ydd, yid, yiddish; yo: yor, yoruba; za: zha, zyb, zhuang; zh:
chi, cmn, zho, chinese, mandarin; zu: zul, zulu;
"""
"""Codes of ISO 639-1, each with its codes of three letters (ISO 639-2, -3) and its names in English (Unicode CLDR),
without `als`, which lid.176 has for Alemannic."""


def require_codes(languages: Iterable[str]) -> None:
    """Raise if a language is given by another word than the code that documents have.

    Raises:
        ValueError: `english` is no code; the message has the one to write.
    """
    for language in languages:
        if (code := code_of(language)) != language:
            raise ValueError(
                f"{language!r} is no language as documents have it, so nothing would be meant; write {code}"
            )


def code_of(language: str) -> str:
    """The code or name that documents have for a language: `german` -> `de`; an unknown word is returned as it is."""
    words, names_by_code = _words(), code_language_names()
    if language in names_by_code or language in words.values():
        return language
    word = language.strip().casefold()
    first = re.split(r"[-_]", word)[0]  # a region or a script, as in en-US; not so for `eng_Latn`, a label of models
    by_region = words.get(first, "") if len(first) == 2 or "-" in word else ""
    return (
        words.get(word)
        or next((name for name in names_by_code if name.casefold() == word), "")
        or by_region
        or language
    )


@made_once
def _words() -> dict[str, str]:
    """Code by each lower-case name or code of a language: {"de": "de", "deu": "de", "german": "de", ..}."""
    codes = dict[str, str]()
    for entry in " ".join(_TABLE.split()).rstrip(";").split("; "):
        code, words = entry.split(": ")
        codes |= dict.fromkeys((code, *words.split(", ")), code)
    return codes
