"""Redaction of secrets: by the name of a property, and in addresses."""

import re
from typing import Final

HIDING_NAMES: Final = (
    "secret|passw|pwd|passphrase|token|credential|(?:access|account|private|api|sse|keystore|signing).?key"
    "|authorization|header[.]|connection.?string|jaas|user.?info|signature|(?:^|[._-])(?:pat|sig|pass|pw)$"
)
"""Part of a regular expression, of Python and of Java, for names of properties that hold secrets."""
_SECRET_PARAMETER: Final = rf"[?&;](?:[^=&;\s]*(?:{HIDING_NAMES})[^=&;\s]*|key|code|pat|sig|pass|pw)="
_NOT_A_PORT: Final = r"(?!\d{1,5}/)\S*@"
"""Follows a user and a colon, in a password with any sign; after a host and a colon comes a port."""
HIDING_ADDRESSES: Final = rf"://[^/@\s?#]+@|://[^/@\s:?#]*:{_NOT_A_PORT}|^jdbc:\S*@|{_SECRET_PARAMETER}"
"""The same for addresses with a login, or with a parameter that may be a secret."""

_PASSWORD: Final = re.compile(rf"(://[^/@\s:?#]*:){_NOT_A_PORT}")
# Before the `@` of these addresses is the name of a container.
_LOGIN: Final = re.compile(r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)(://)[^/@\s:?#]+@")
_SCHEME: Final = r"(?:(?:bearer|basic|token|negotiate|digest)\s+)?"
_HEADER: Final = re.compile(rf"(authorization[\"']?\s*[:=]\s*[\"']?){_SCHEME}[^\s,;\"']+", re.IGNORECASE)
_PARAMETER: Final = re.compile(rf"({_SECRET_PARAMETER})[^&;\s]+", re.IGNORECASE)
_NAME: Final = rf"[\w.-]*(?:{HIDING_NAMES}|(?:\b|_)(?:pat|sig|pass|pw)(?==))[\w.-]*"
_ASSIGNED: Final = re.compile(
    rf"((?:^|[\s,;(\"']){_NAME}=)(?!\(hidden)[^&;\s,)\"']+",
    re.IGNORECASE,
)
_HIDDEN: Final = "(hidden)"


def redact(text: str) -> str:
    """Return a text with passwords, tokens and secret parameters in it hidden."""
    for pattern, hidden in (
        (_PASSWORD, rf"\1{_HIDDEN}@"),
        (_LOGIN, rf"\1{_HIDDEN}@"),
        (_HEADER, rf"\1{_HIDDEN}"),
        (_PARAMETER, rf"\1{_HIDDEN}"),
        (_ASSIGNED, rf"\1{_HIDDEN}"),
    ):
        text = pattern.sub(hidden, text)
    return text
