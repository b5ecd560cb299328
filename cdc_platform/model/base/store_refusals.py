"""Refusals of object stores, in the errors of Arrow and of Iceberg's Java side."""

import re
from typing import Final

DENIED: Final = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|InvalidToken"
    "|PERMISSION_DENIED|UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed"
    "|HTTP status 40[13]|Status Code: 40[13]|Unable to load (?:credentials|region)|access denied"
)
"""Errors of stores that refuse credentials, or access to a file."""
