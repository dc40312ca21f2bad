"""Words for phone, mobile phone and fax in the languages of CLDR, marking digits as a phone number.

From the annotations of the signs for telephone, mobile phone and fax (U+260E, U+1F4F1, U+1F4E0) in CLDR 48.2 (npm
`cldr-annotations-full` 48.2.0, Unicode License v3): the words of their names and keywords that a language uses for
signs of phones at least as often as for others, without those meaning a machine, a message or a call as well. Words
of scripts written without blanks are cut to seven characters, the most that the scan looks up.
"""

from __future__ import annotations

from typing import Final

CLDR_PHONE_WORDS: Final = """
    bréfsími cellulaire cellulare celular faaksii faase faasị facs facsála fagisi
    fakis fakiska faks faksa faksas fakse faksi faksilaite faksimasin faksimili
    faksmasjien faksmaskin fakso faksowak fakss farsími fartelefon fastnet
    fasttelefon fax faxa faxader faxapparaat faxgerät faxkészülék faxmaskine faxovat
    faxpaq fekesa fekese festnetz ffacs ffôn foni fono foon founo fáks fákìsì fòn
    fón fóònù handy ifeksi ifoni ifowuni iselfowuni iselula komóra komórka komórkowy
    kännykkä landline landlyn lankapuhelin matkapuhelin mobaa mobaayila mobaayilaa
    mobaele mobiel mobiele mobiil mobiili mobiililaite mobiiltelefon mobil mobilais
    mobile mobilni mobilnik mobilno mobilny mobilní mobilný mobiltelefon mobilusis
    mobitel moobil mowbajl mòbil mòbile móbil móvel móvil mọ́bail mọ́baíl natel
    pellgomz pellgomzer phone ponsel puhelin rádiótelefon selefouno selfoon seluler
    simu smartfon smartfone smartphone symudol sími sɛɛfon sẹl teileafón telecopia
    telecopiader teleefoona telefaks telefax teleffon telefon telefonar telefonas
    telefone telefoneddu telefoni telefoniczny telefonieren telefonin telefono
    telefonoa telefonovat telefonować telefons telefonu telefony telefoněrowaś
    telefoon telefoona telefoonka telefown telefón telemóvel telephone telepon
    telepono telpon telèfon telèfono telèfonu teléfono thelefouno thoại toʻotoʻo
    tzellulare télécopieur téléphone tālrunis tɛlefon tɛlifóònù tẹlifóònù tẹlífon
    wefeksi ìbánisɔ̀rɔ̀ ìbánisọ̀rọ̀ κινητό τηλέφωνο φαξ клетъчен мабільны мабільнік
    мобайл мобилдик мобилен мобиллӗ мобилни мобиль мобильник мобильный мобилӣ
    мобільний смартфон сотавы сотовый стільниковий суурин телефакс телефон телефони
    тэлефон факс факсимільний факсын факсімільны ұялы բջջային հեռախոս շարժական ֆաքս
    ֆաքսի טלפון נייד סלולרי פקס פקסימיליה ءموبيلدى تلفاكس تلفن تليفون تېلېفون
    تەلەفون جوال دورنگار فاكس فاكسچى فاکس فون فيڪس فکس فیکس محمول موبائل موبائيل
    موبايل موبایل نمابر هاتف همراه يانفون ٹیلی ٹیلیفون ټليفون ټيليفون ټیلیفون
    ټېلیفون ٽيليفون ګرځنده گوشی चलभाष टेलिफोन टेलीफ़ो दूरभाष फ़ैक्स फ़ोन फॅक्स फोन
    फ्याक्स मोबाइल मोबाईल मोबायल টেলিফোন ফেক্স ফোন ফ্যাক্স মোবাইল ਟੈਲੀਫ਼ੋ ਟੈਲੀਫੋਨ
    ਫ਼ੋਨ ਫੈਕਸ ਫੋਨ ਮੋਬਾਇਲ ਸੈੱਲਫੋਨ ટેલિફોન દૂરભાષ ફૅક્સ ફોન મોબાઇલ ଟେଲିଫୋନ ଫୋନ୍
    ଫ୍ୟାକ୍ସ ମୋବାଇଲ୍ ஃபேக்ஸ் ஃபோன் செல்பேச செல்போன டெலிஃபோ டெலிபோன தொலைநகல தொலைபேச
    தொலைப்ப பேக்ஸ் மொபைல் టెలిఫోన టెలీఫోన ఫోన్ ఫ్యాక్స మొబైల్ ಟೆಲಿಫೋನ ದೂರವಾಣಿ ಫೋನ್
    ಫ್ಯಾಕ್ಸ ಮೊಬೈಲ್ ടെലിഫോൺ ഫാക് ഫാക്സ് ഫോൺ മൊബൈൽ ජංගම ටෙලිෆෝන දුරකථනය ෆැක්ස් ෆෝන්
    มือถือ แฟกซ์ โทรศัพท ມືຖື ແຟັກ ໂທລະສັບ တယ်လီဖုန်း တႄႇလီႇၾူၼ်း ဖက်စ် ဖုန်း
    မိုဘိုင်း မူဝ်ႇပၢႆး ၶိူင်ႈၾႅၵ်ႉသ် ၾူၼ်း ၾႅၵ်ႉသ် მობილური ტელეფონი ფაქსი ფიჭური
    ሞባይል ስልኪ ስልክ ተለፎን ቴሌፎን ዋህዮ ፋክስ ទូរសព្ទ ទូរសព្ទចល័ត ទូរសព្ទដៃ ទូរស័ព្ចល័ត
    ទូរស័ព្ទ ទូរស័ព្ទដៃ ទូរស័ព្ទទ ទូរស័ព្ទលើតុ ម៉ាស៊ីនហ្វាក់ スマホ スマートフォン ファックス モバイル
    传真 传真号 传真机 傳真 傳真機 固定电话 固定電話 固话 座机 手提电话
    手提電話 手机 手機 携帯 携帯電話 智能手机 流動 电话 移动电话 行動電話
    電話 電話筒 黒電話 ꭰꮣꮕꮟꮩꭿ ꮒꮣꮟꮃꮫꮎ ꮧꮅꮓꭾꮣ ꮧꮯꮓꭾꮧ ꮧꮯꮓꮅꮧ ꮩꮄꮃꮚ ꮻꭶꮕꭵꮝꭹ 모바일폰 셀폰 유선전화 전화 전화기 팩스
    팩스기 팩시밀리 휴대전화 휴대폰
"""
