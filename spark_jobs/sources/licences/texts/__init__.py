"""Recognise the text of a licence: it is the one equal to it after SPDX's matching guidelines, else none.

    text       MIT License / Copyright (c) 2020 Ada / Permission is hereby granted, ... / The Software shall do no evil.
    licence    none
    nearest    MIT
    added      The Software shall do no evil.

Where several ids have one text, it is the one without `-or-later`, without an exception, the shortest. Texts of several
licences in one file are all of them (`A AND B`), an exception behind its licence is `A WITH E`. Beside the texts stand
notices of copyright, titles, names and addresses, nothing like a condition.
"""

from spark_jobs.sources.licences.texts.recognition import TextMatch, known_text, recognised

__all__ = ["TextMatch", "known_text", "recognised"]
