"""SPDX 3.0.1 of a dataset, a corpus or a packed table: the profile of datasets, with the licences of the documents.

Each licence expression is related to the package with its count of documents; documents without a stated licence to
`NoAssertion`. A licence that is stated and on no list is a `LicenseRef-stated-..`, whose words are all that is known.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from headrace_features.rights.standards.described import Described
from spark_jobs.sources.licences.expressions import UNKNOWN, ids_in

CONTEXT: Final = "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"
_NO_ASSERTION: Final = "https://spdx.org/rdf/3.0.1/terms/ExpandedLicensing/NoAssertionLicense"
_PROFILES: Final = ("core", "software", "dataset", "simpleLicensing")


def spdx(described: Described, supplier: str | None, now: datetime) -> dict[str, Any]:
    """The document as JSON-LD.

    Args:
        described: what it is of.
        supplier: who gives it to others; None for nobody named.
        now: when the document is made.
    """
    space = f"urn:headrace:{described.name}:{described.version}:"
    tool, package, document = f"{space}tool", f"{space}package", f"{space}document"
    agent = f"{space}supplier" if supplier else tool
    elements: list[dict[str, Any]] = [
        {"type": "SoftwareAgent", "spdxId": tool, "name": "headrace"},
        *([{"type": "Organization", "spdxId": agent, "name": supplier}] if supplier else []),
        {
            "type": "dataset_DatasetPackage", "spdxId": package, "name": described.name, "summary": described.about,
            "software_packageVersion": described.version, "software_primaryPurpose": "data",
            "originatedBy": [agent] if supplier else [], "builtTime": _time(described.landed[-1:]),
            "software_downloadLocation": f"{space}tables", "dataset_datasetType": ["text"],
            "dataset_datasetSize": described.measure if described.unit == "bytes" else None,
            "dataset_dataCollectionProcess": described.collection, "dataset_dataPreprocessing": list(described.steps),
            "dataset_hasSensitivePersonalInformation": "noAssertion",
        },
    ]  # fmt: skip
    texts = {name: f"{space}{name}" for name in described.licence_ids if name.startswith("LicenseRef-")}
    for name, text in texts.items():
        words = name.removeprefix(UNKNOWN).replace("-", " ")
        elements.append({
            "type": "simplelicensing_SimpleLicensingText", "spdxId": text, "name": name,
            "simplelicensing_licenseText": words, "comment": "as it is stated; the text is not known",
        })  # fmt: skip
    for number, (licence, documents, measure) in enumerate(described.licences):
        expression = f"{space}licence-{number}" if licence else _NO_ASSERTION
        if licence:
            stated = [name for name in ids_in(licence) if name in texts]
            named = [{"type": "DictionaryEntry", "key": name, "value": texts[name]} for name in stated]
            elements.append({
                "type": "simplelicensing_LicenseExpression", "spdxId": expression,
                "simplelicensing_licenseExpression": licence, "simplelicensing_customIdToUri": named,
            })  # fmt: skip
        elements.append({
            "type": "Relationship", "spdxId": f"{space}has-licence-{number}", "from": package, "to": [expression],
            "relationshipType": "hasDeclaredLicense", "completeness": "complete",
            "comment": f"{documents:,} documents, {measure:,} {described.unit}",
        })  # fmt: skip
    elements.append({
        "type": "SpdxDocument", "spdxId": document, "name": described.name, "rootElement": [package],
        "profileConformance": list(_PROFILES), "element": [element["spdxId"] for element in elements],
    })  # fmt: skip
    creation = {
        "type": "CreationInfo",
        "@id": "_:made",
        "specVersion": "3.0.1",
        "created": _time((now,)),
        "createdBy": [tool],
    }
    graph = [{**element, "creationInfo": "_:made"} for element in elements]
    filled = [{key: value for key, value in element.items() if value not in (None, "", [])} for element in graph]
    return {"@context": CONTEXT, "@graph": [creation, *filled]}


def _time(moments: tuple[datetime, ...]) -> str | None:
    return f"{moments[0].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if moments else None
