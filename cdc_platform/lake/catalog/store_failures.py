"""Errors of object stores, in terms of the settings of the lake."""

import re
from typing import Final

from cdc_platform.errors import CdcError, LakeAccessDenied, LakeUnreachable, SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings
from cdc_platform.lake.catalog.object_store import ObjectStore
from cdc_platform.model.base.store_refusals import DENIED

_NO_BUCKET: Final = re.compile("NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound")
_EXPIRED: Final = re.compile(
    "EXPIRED_TOKEN|ExpiredToken|token has expired"
    # S3's answer to a HEAD request has no text.
    r"|HTTP status 400\) during HeadObject|S3Exception: (?:Bad Request )?\(Service: S3, Status Code: 400"
)
"""Errors of stores for temporary credentials that have expired."""
_OTHER_TIME: Final = re.compile("REQUEST_TIME_TOO_SKEWED|RequestTimeTooSkewed|REQUEST_EXPIRED")
_SILENT: Final = re.compile(
    "AWS Error (?:NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
    r"|THROTTLING|NO_SUCH_UPLOAD)|Status\(UNAVAILABLE|HTTP status (?:429|5..)|curlCode"
    "|Status Code: (?:429|5..)|Unable to execute HTTP request"
    # An answer that ends within a file, which the client of Java does not request again.
    "|ConnectionClosedException|ChunkCodingException|TruncatedChunkException|NoHttpResponseException"
    "|java.net.Socket(?:Timeout)?Exception"
)


def explain_store(settings: LakeSettings, store: ObjectStore, text: str) -> CdcError | None:
    """Return the platform's error for an error of an object store; None if it is unrelated to the store.

    Args:
        settings: the lake.
        store: the kind of its object store.
        text: the error of pyarrow, or of Iceberg's Java side.
    """
    if _NO_BUCKET.search(text):
        return SettingError(
            "lake.path",
            f"is in a bucket that does not exist, {settings.warehouse}: {cause_in(text, _NO_BUCKET)}",
        )
    if _OTHER_TIME.search(text):
        return LakeUnreachable(
            "The clocks of this machine and of the object store differ; correct this machine's clock: "
            f"{cause_in(text, _OTHER_TIME)}"
        )
    if _EXPIRED.search(text) and settings.has_vended_credentials:
        return LakeUnreachable(
            f"The credentials for {settings.warehouse} have expired, or the store refuses them without a "
            "reason. If the lake's catalog vends them, the next cycle gets others; otherwise renew those of "
            "this machine, and check `s3.endpoint` and `s3.region` in the setting `lake.catalog`: "
            f"{cause_in(text, _EXPIRED)}"
        )
    sign = next((sign for sign in (DENIED, _EXPIRED) if sign.search(text)), None)
    if sign is not None:
        names = ", ".join(f"`{name}`" for name in store.credentials)
        return LakeAccessDenied(
            f"The object store denies access at {settings.warehouse}; check {names} in the setting "
            f"`lake.catalog`, or the credentials of this machine if they are not set: "
            f"{cause_in(text, sign)}"
        )
    if _SILENT.search(text):
        return LakeUnreachable(
            f"The object store does not answer for {settings.warehouse}; check the setting `lake.path`, "
            f"and `s3.endpoint` or its equivalent in `lake.catalog`: {cause_in(text, _SILENT)}"
        )
    return None


def cause_in(stack: str, sign: re.Pattern[str]) -> str:
    """Return the line of an error, such as a Java stack, that matches a pattern."""
    return next((line.strip() for line in stack.splitlines() if sign.search(line)), "")
