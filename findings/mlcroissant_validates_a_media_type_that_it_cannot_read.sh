#!/usr/bin/env bash
# mlcroissant 1.1.1, with pandas and pyarrow.
# One would guess: what `mlcroissant validate` passes without a word on its files can be read by mlcroissant, and Parquet
#   may be named by its registered media type, application/vnd.apache.parquet.
# Seen: the document is valid, and reading ends with "None of the provided encoding formats": Parquet is known by
#   application/x-parquet alone.
# Instead: name application/x-parquet, and read a row of what was validated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "mlcroissant==1.1.1" pyarrow
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY' 2>/dev/null
import json

import mlcroissant
import pandas

pandas.DataFrame({"n": [1, 2, 3]}).to_parquet("part.parquet")


def written(media_type):
    source = {"fileSet": {"@id": "files"}, "extract": {"column": "n"}}
    context = {
        "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo", "column": "cr:column",
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "extract": "cr:extract", "field": "cr:field",
        "fileSet": "cr:fileSet", "includes": "cr:includes", "recordSet": "cr:recordSet", "source": "cr:source",
    }
    document = {
        "@context": context, "@type": "sc:Dataset", "name": "numbers", "description": "three numbers",
        "conformsTo": "http://mlcommons.org/croissant/1.1", "license": "https://spdx.org/licenses/MIT",
        "distribution": {
            "@type": "cr:FileSet", "@id": "files", "name": "files", "encodingFormat": media_type,
            "includes": "part.parquet",
        },
        "recordSet": {
            "@type": "cr:RecordSet", "@id": "numbers", "name": "numbers",
            "field": {"@type": "cr:Field", "@id": "numbers/n", "name": "n", "dataType": "cr:Int64", "source": source},
        },
    }
    with open("croissant.json", "w") as file:
        json.dump(document, file)
    return mlcroissant.Dataset("croissant.json")  # raises where the document is not valid


rows = {}
for media_type in ("application/x-parquet", "application/vnd.apache.parquet"):
    dataset = written(media_type)
    try:
        rows[media_type] = len(list(dataset.records("numbers")))
    except Exception as error:
        rows[media_type] = str(error.__cause__ or error)[:52]
    print(f"{media_type}: valid, reads {rows[media_type]}")
raise SystemExit(0 if rows["application/x-parquet"] == 3 and rows["application/vnd.apache.parquet"] != 3 else 1)
PY
