"""The rules to find structured personal data: which shapes of characters, which words beside them, which check.

A *shape* is a text with each digit written as D and each letter as L: `123-45-6789` has the shape `DDD-DD-DDDD`
(blanks and dashes of Unicode count as ASCII's). A rule
looks at a shape in `alone` wherever it stands, and at one in `beside_words` only where one of the rule's words stands
in the 48 bytes before it or right after it. Most numbers of people are plain digits whose checksum one number in ten
passes by chance, so a word beside them is what tells them from the ids, hashes and timestamps of code and logs.

Every rule ends in an exact check (see `checks.py`): a checksum, a date or a range. Confidences are judgements, not
frequencies: from .5 a finding is reported by default, from .9 a checksum and a word or an unmistakable form agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_features.privacy.personal_data.phone_words import CLDR_PHONE_WORDS

KINDS: Final = ("mail", "phone", "card", "iban", "ip", "mac", "national_number", "secret")
"""What patterns find; a model of names adds the kinds of its labels."""


@dataclass(frozen=True)
class DetectionRule:
    """How one form of personal data is found.

    Attributes:
        name: of the rule, as in `spans.rule`.
        kind: one of `KINDS`.
        alone: shapes looked at wherever they stand.
        beside_words: shapes looked at beside one of `words`.
        words: lower-case words, separated by blanks.
        confidence: of a finding without such a word.
        confidence_beside_words: of a finding with one.
        check: the module of python-stdnum with the deciding `is_valid`; "" if a function of `checks.py` does.
    """

    name: str
    kind: str
    alone: tuple[str, ...] = ()
    beside_words: tuple[str, ...] = ()
    words: str = ""
    confidence: float = 0.7
    confidence_beside_words: float = 0.95
    check: str = ""


_ANY_NATIONAL = " national identity citizen taxpayer resident"


def _national(  # one row of a table
    name: str, check: str, words: str, alone: str = "", beside: str = "", confidence: float = 0.7
) -> DetectionRule:
    """A rule for a national number; shapes are separated by `|`."""
    shapes = [tuple(filter(None, text.split("|"))) for text in (alone, beside)]
    return DetectionRule(name, "national_number", shapes[0], shapes[1], words + _ANY_NATIONAL, confidence, 0.95, check)


_CARD_WORDS: Final = (
    "card cards credit debit visa mastercard amex cc payment maestro discover tarjeta "
    "tarjetas 信用卡 銀行卡 银行卡 卡号 卡號 カード कार्ड بطاقة البطاقة carte ক্রেডিট কার্ড cartão cartao "
    "карта карты карте картой карту کارڈ kreditkarte karte kreditkarten kartu kart kartı "
    "karta 카드 carta kaart creditcard thẻ บัตร"
)
_D9, _D10, _D11, _D13 = ("D" * count for count in (9, 10, 11, 13))

RULES: Final = (
    # Found by their own code in scan.py; the others of this table by their shapes.
    DetectionRule("mail", "mail", confidence=0.95),
    DetectionRule(
        "ipv4", "ip", words="ip ipv4 address addr host client server remote peer from src dst", confidence=0.85
    ),
    DetectionRule("ipv6", "ip", words="ip ipv6 address addr host client server remote peer", confidence=0.85),
    DetectionRule("mac", "mac", words="mac ether hwaddr bssid ethernet", confidence=0.8),
    DetectionRule("iban", "iban", words="iban account konto compte cuenta", confidence=0.95, check="iban"),
    DetectionRule(
        "phone_international",
        "phone",
        words="phone telephone tel telefon telefono teléfono téléphone mobile mobil móvil cell "
        "cellphone fax whatsapp sms gsm dial hotline desk handy portable tlf ph "
        "телефон тел landline phones pager voicemail 电话 電話 手机 手機 传真 傳真 座机 热线 熱線 携帯 "
        "ファックス ファクス celular cel telefax fijo फ़ोन फोन मोबाइल टेलीफोन दूरभाष هاتف الهاتف "
        "جوال الجوال موبايل الموبايل تلفون تليفون محمول المحمول فاكس الفاكس tél fixe "
        "ফোন মোবাইল ফ্যাক্স telefone telemóvel telemovel fone телефона телефону "
        "телефоны моб мобильный мобильного сотовый факс فون موبائل فیکس rufnummer "
        "telefonnummer handynummer mobilnummer mobiltelefon durchwahl telepon telp ponsel "
        "handphone cellulare 전화 휴대폰 휴대전화 핸드폰 연락처 팩스 telefonu faks komórka telefoon mobiel thoại "
        "sđt đt dđ โทร มือถือ טלפון נייד τηλέφωνο τηλ κιν τηλεομοιότυπο puhelin تماس تلفکس "
        # What CLDR lacks: short forms, and forms that stand before the number.
        "puh mob whats טל הטלפון ტელ ტელეფონის հեռ тэл тлф tālr tālruņa telefonszám telefonszáma telefonní telefónne "
        "telefoonnummer telefoonnr telefoninumero telefoninumber puhelinnumero puhelinnro telefonnr mobilnr mobilszám "
        "símanúmer telefonas telefonul telefonului telefones teléfonos téléphones телефонен телефонний "
        "telefona mobitela telefonem telefonního " + CLDR_PHONE_WORDS,
        confidence=0.8,
    ),
    DetectionRule("phone_national", "phone", words="", confidence=0.6, confidence_beside_words=0.85),
    DetectionRule("known_key", "secret", confidence=0.95),
    DetectionRule("password_in_url", "secret", confidence=0.9),
    DetectionRule("assigned_secret", "secret", confidence=0.6),
    DetectionRule(
        "phone_north_america",
        "phone",
        alone=("DDD-DDD-DDDD", "DDD.DDD.DDDD", "DDD) DDD-DDDD", "DDD)DDD-DDDD", "D-DDD-DDD-DDDD", "D (DDD) DDD-DDDD"),
        words="phone telephone tel mobile cell fax call text",
    ),
    DetectionRule(
        "card_grouped",
        "card",
        alone=tuple(
            shape.replace(" ", separator)
            for shape in ("DDDD DDDD DDDD DDDD", "DDDD DDDDDD DDDDD", "DDDD DDDDDD DDDD")
            for separator in " -."
        ),
        beside_words=("DDDD DDDD DDDD DDDD DDD", "DDDD-DDDD-DDDD-DDDD-DDD", "DDDD.DDDD.DDDD.DDDD.DDD"),
        words=_CARD_WORDS,
        confidence=0.85,
    ),
    DetectionRule(
        "card_plain",
        "card",
        alone=tuple("D" * count for count in (14, 15, 16)),
        beside_words=tuple("D" * count for count in (12, 13, 17, 18, 19)),
        words=_CARD_WORDS + " pan",
        confidence=0.6,
    ),
    _national("us_ssn", "us.ssn", "ssn social security", "DDD-DD-DDDD", f"DDD DD DDDD|{_D9}"),
    _national("ca_sin", "ca.sin", "sin social insurance nas", "", f"DDD-DDD-DDD|DDD DDD DDD|{_D9}"),
    _national("gb_nino", "", "nino insurance ni", "LLDDDDDDL", "LL DD DD DD L"),
    _national("gb_nhs", "gb.nhs", "nhs patient", "", f"DDD DDD DDDD|DDD-DDD-DDDD|{_D10}"),
    _national(
        "fr_nir",
        "fr.nir",
        "nir sécurité sociale insee sécu nss",
        "D DD DD DD DDD DDD DD|D DD DD DL DDD DDD DD",
        "D" * 15,
    ),
    _national("es_dni", "es.dni", "dni nif documento", "DDDDDDDDL|DDDDDDDD-L", "DDDDDDDD L"),
    _national("es_nie", "es.nie", "nie extranjero", "LDDDDDDDL|L-DDDDDDD-L"),
    _national("it_codice_fiscale", "it.codicefiscale", "codice fiscale cf", "LLLLLLDDLDDLDDDL", confidence=0.95),
    _national(
        "de_idnr",
        "de.idnr",
        "steuer steuerid idnr identifikationsnummer steueridentifikationsnummer steuernummer tin",
        "",
        f"DD DDD DDD DDD|{_D11}",
    ),
    _national("nl_bsn", "nl.bsn", "bsn burgerservicenummer sofinummer", "", f"{_D9}|DDDD.DD.DDD|DDDD DD DDD"),
    _national(
        "be_nn",
        "be.nn",
        "rijksregisternummer rijksregister registre niss insz",
        "DD.DD.DD-DDD.DD",
        f"{_D11}|DDDDDD-DDD-DD",
    ),
    _national("pl_pesel", "pl.pesel", "pesel", "", _D11),
    _national(
        "se_personnummer", "se.personnummer", "personnummer samordningsnummer", "DDDDDD-DDDD|DDDDDDDD-DDDD", _D10, 0.6
    ),
    _national(
        "fi_hetu", "fi.hetu", "hetu henkilötunnus personbeteckning", "DDDDDD-DDDL|DDDDDD-DDDD|DDDDDDLDDDL|DDDDDDLDDDD"
    ),
    _national("dk_cpr", "dk.cpr", "cpr personnummer", "", f"DDDDDD-DDDD|{_D10}"),
    _national(
        "no_fodselsnummer", "no.fodselsnummer", "fødselsnummer fodselsnummer personnummer", "", f"{_D11}|DDDDDD DDDDD"
    ),
    _national("br_cpf", "br.cpf", "cpf", "DDD.DDD.DDD-DD", _D11, 0.9),
    _national("in_aadhaar", "in_.aadhaar", "aadhaar aadhar uidai", "", "DDDD DDDD DDDD|DDDD-DDDD-DDDD|" + "D" * 12),
    _national("in_pan", "in_.pan", "pan permanent", "LLLLLDDDDL", confidence=0.6),
    _national("cn_ric", "cn.ric", "身份证", "D" * 18 + "|" + "D" * 17 + "L", confidence=0.9),
    _national("kr_rrn", "kr.rrn", "rrn 주민등록번호", "DDDDDD-DDDDDDD", _D13, 0.8),
    _national("au_tfn", "au.tfn", "tfn tax", "", f"DDD DDD DDD|{_D9}"),
    _national("cz_rc", "cz.rc", "rodné rodne číslo rč", "DDDDDD/DDDD", _D10),
    _national("ro_cnp", "ro.cnp", "cnp", "", _D13),
    _national("bg_egn", "bg.egn", "egn егн", "", _D10),
    _national("tr_tckimlik", "tr.tckimlik", "kimlik tckn tc", "", _D11),
    _national("za_idnr", "za.idnr", "rsa", "", f"{_D13}|DDDDDD DDDD DD D|DDDDDD DDDD DDD"),
    _national("mx_curp", "mx.curp", "curp", "LLLLDDDDDDLLLLLLDD|LLLLDDDDDDLLLLLLLD", confidence=0.95),
    _national(
        "cl_rut", "cl.rut", "rut run", "DD.DDD.DDD-D|DD.DDD.DDD-L|D.DDD.DDD-D|D.DDD.DDD-L", "DDDDDDDD-D|DDDDDDDD-L", 0.9
    ),
    _national("ch_ahv", "ch.ssn", "ahv avs ahvn13", "DDD.DDDD.DDDD.DD", _D13, 0.95),
    _national("ee_isikukood", "ee.ik", "isikukood", "", _D11),
    _national("il_idnr", "il.idnr", "teudat zehut", "", _D9),
    _national("ar_cuit", "ar.cuit", "cuit cuil", "DD-DDDDDDDD-D", _D11),
)
(
    MAIL,
    IPV4,
    IPV6,
    MAC,
    IBAN,
    PHONE_INTERNATIONAL,
    PHONE_NATIONAL,
    KNOWN_KEY,
    PASSWORD_IN_URL,
    ASSIGNED_SECRET,
    PHONE_NORTH_AMERICA,
) = range(11)

# Words that belong to no rule of their own; their masks are bits above those of the rules.
NUMBER_OF_A_THING, OUTLINE, CALLING, PLACE_OF_PHONE = (1 << bit for bit in range(55, 59))
SECRET_NAME, KEY_NAME, KEY_OF = (1 << bit for bit in range(59, 62))
OTHER_WORDS: Final = {
    NUMBER_OF_A_THING: "id ids uuid guid hash sha md5 order tracking serial isbn issn timestamp time ts seq "
    "offset commit build checksum digest invoice ticket ref reference tweet status imei epoch nonce seed version "
    "license licence passport",
    OUTLINE: "section sections sec chapter appendix clause paragraph version versions release build rev oid ver v "
    "figure object identifier table item step upgrade upgraded schema firmware",
    CALLING: "call calls called calling answer answering message messages text reach contact number registered "
    "caller dialed",
    PLACE_OF_PHONE: "office home work desk switchboard",
    SECRET_NAME: "password passwd pwd passphrase secret token apikey passwort credential kennwort contraseña "
    "clave senha пароль 密码 密碼 口令 パスワード 비밀번호 पासवर्ड পাসওয়ার্ড sandi şifre hasło",
    KEY_NAME: "key",
    KEY_OF: "api access private auth encryption signing master account client app",
}
KEY_PREFIXES: Final = (
    "ghp gho ghu ghs ghr github sk rk npm glpat gldt glft glrt glcbt glptt xoxa xoxb xoxe xoxp xoxo xoxs xoxr "
    "xapp pypi sq0csp hf dop doo dor dot shpat shpca shppa shpss gsk glsa glc whsec dckr lin ntn GOCSPX PMAK AGE sbp "
    "r8 xai pplx pnu pul rdme rubygems sntrys sntryu shippo sgp sq0atp xkeysib ops p8e pscale fo1 fm1a fm1r fm2 fio "
    "ico duffel FLWSECK HRKU API glffct glimt glagent gloas glsoat A3 nvapi fw tgp tvly jina lsv2 csk sb phx figd "
    "CLOJARS dapi LTAI AKCp cmVm 4b1d EAAM EAAC ATAT ATCT ATBB EZAK EZTK "
    "pcsk e2b fc pa hvs. hvb. hvr. dp. sl. dt0c01. hooks. discord. discordapp."
)
"""Words before the first `_`, `-` or `.` (that with its point) of well-known keys; and four letters with which those
begin that have none of them."""
