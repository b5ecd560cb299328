"""Redaction of secrets: by the name of a property, and in addresses."""

import re
from typing import Final

HIDING_NAMES: Final = (
    "secret|passw|pwd|passphrase|token|credential|(?:access|account|private|api|sse|keystore|signing).?key"
    "|authorization|header[.]|connection.?string|jaas|user.?info|signature|(?:^|[._-])(?:pat|sig|pass|pw)$"
)
"""Part of a regular expression, of Python and of Java, for names of properties that hold secrets."""
_SECRET_PARAMETER: Final = rf"[?&;](?:[^=&;\s]*(?:{HIDING_NAMES})[^=&;\s]*|key|code|pat|sig)="
_NOT_A_PORT: Final = r"(?!\d{1,5}/)\S*@"
"""Follows a user and a colon, in a password with any sign; after a host and a colon comes a port."""
HIDING_ADDRESSES: Final = rf"://[^/@\s?#]+@|://[^/@\s:?#]*:{_NOT_A_PORT}|^jdbc:\S*@|{_SECRET_PARAMETER}"
"""The same for addresses with a login, or with a parameter that may be a secret."""

_PASSWORD: Final = re.compile(rf"(://[^/@\s:?#]*:){_NOT_A_PORT}")
# Before the `@` of these addresses is the name of a container.
_LOGIN: Final = re.compile(r"(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)(://)[^/@\s:?#]+@")
_HEADER: Final = re.compile(
    r"(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic)\s+)?)[^\s,;\"']+", re.IGNORECASE
)
_ASSIGNED: Final = rf"(?:^|[\s,;(\"'])[\w.-]*(?:{HIDING_NAMES})[\w.-]*="
_PARAMETER: Final = re.compile(rf"((?:{_SECRET_PARAMETER}|{_ASSIGNED}))[^&;\s,)\"']+", re.IGNORECASE)
_HIDDEN: Final = "(hidden)"


def redacted(text: str) -> str:
    """Return a text with passwords, tokens and secret parameters in it hidden."""
    text = _LOGIN.sub(rf"\1{_HIDDEN}@", _PASSWORD.sub(rf"\1{_HIDDEN}@", text))
    return _HEADER.sub(rf"\1{_HIDDEN}", _PARAMETER.sub(rf"\1{_HIDDEN}", text))
