"""An object store: how long PyArrow tries to reach it, whether it answers at all, and what its errors mean.

PyIceberg finds the functions that make retries by their names in the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyarrow.fs import AwsDefaultS3RetryStrategy, FileType, S3RetryStrategy

from headrace.tables.exceptions import CatalogueError

if TYPE_CHECKING:
    from headrace.tables.settings import LakeSettings

# AWS's default strategy waits 25 ms before the second attempt and twice as long before each further one: 102 s in all.
_ATTEMPTS = 12
_SETTINGS = "PYICEBERG_CATALOG__LAKE__S3__"
_MENDS = {  # by the name of the error, which PyArrow writes in several spellings
    "NETWORKCONNECTION": f"cannot be reached; check {_SETTINGS}ENDPOINT",
    "ACCESSDENIED": f"refuses the keys, or what they may do; check {_SETTINGS}ACCESS_KEY_ID and ..SECRET_ACCESS_KEY",
    "INVALIDACCESSKEYID": f"knows no such key; check {_SETTINGS}ACCESS_KEY_ID",
    "SIGNATUREDOESNOTMATCH": f"refuses the secret of the key; check {_SETTINGS}SECRET_ACCESS_KEY",
    "INVALIDSIGNATURE": f"refuses the secret of the key; check {_SETTINGS}SECRET_ACCESS_KEY",
    "EXPIREDTOKEN": f"says that the keys have expired; renew them and {_SETTINGS}SESSION_TOKEN, then run again",
    "NOSUCHBUCKET": "has no such bucket for these keys; create it, or correct PYICEBERG_CATALOG__LAKE__WAREHOUSE",
}


def patient_retries() -> S3RetryStrategy:
    """AWS's default strategy with more attempts than PyArrow's three, which are over in a tenth of a second."""
    return AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS)


def quick_retries() -> S3RetryStrategy:
    """Three seconds, for a first look: a store that was never reached is more likely misspelt than busy."""
    return AwsDefaultS3RetryStrategy(max_attempts=7)


def store_fault(error: OSError, store: str) -> CatalogueError | None:
    """What an error of PyArrow's S3 means, with its mend; None for other errors."""
    text = " ".join(str(error).split())
    if "AWS Error" not in text:
        return None
    detail = text[text.index("AWS Error") :]
    name = detail.split(" ")[2].upper().replace("_", "")
    mend = _MENDS.get(name) or f"answers {detail[:300]}; nothing was published, run again"
    return CatalogueError(f"store {store}: {mend}")


def require_store(settings: LakeSettings) -> None:
    """Refuse a store that does not answer or refuses the keys, within seconds, before any step starts.

    Raises:
        CatalogueError: names the setting to check.
    """
    from pyiceberg.io import load_file_io

    if not settings.warehouse.startswith("s3://"):
        return
    store = settings.properties.get("s3.endpoint", settings.warehouse)
    bucket = settings.warehouse.removeprefix("s3://").partition("/")[0]
    properties = {
        "s3.connect-timeout": "5",
        **settings.properties,
        "s3.retry-strategy-impl": f"{__name__}.{quick_retries.__name__}",
    }
    files: Any = load_file_io(properties, settings.warehouse)
    try:
        info = files.fs_by_scheme("s3", bucket).get_file_info(bucket)
    except OSError as error:
        fault = store_fault(error, store)
        if fault is None:
            raise
        raise fault from error
    if info.type is FileType.NotFound:
        raise CatalogueError(f"store {store}: {_MENDS['NOSUCHBUCKET'].replace('such bucket', f'bucket {bucket}')}")
