"""Redaction of secrets: by the name of a property, and in addresses."""

import re
from typing import Final

HIDING_NAMES: Final = (
    "secret|passw|pwd|passphrase|token|credential|(?:access|account|private|api|sse|keystore|signing).?key"
    "|authorization|header[.]|connection.?string|jaas|user.?info|signature|(?:^|[._-])(?:pat|sig)$"
)
"""Part of a regular expression, of Python and of Java, for names of properties that hold secrets."""
_SECRET_PARAMETER: Final = rf"[?&;](?:[^=&;\s]*(?:{HIDING_NAMES})[^=&;\s]*|key|code|pat|sig)="
_NOT_A_PORT: Final = r"(?!\d{1,5}/)[^\s?#]*@"
"""Follows a user and a colon; after a host and a colon comes a port."""
HIDING_ADDRESSES: Final = rf"://[^/@\s?#]+@|://[^/@\s:?#]*:{_NOT_A_PORT}|{_SECRET_PARAMETER}"
"""The same for addresses with a login, or with a parameter that may be a secret."""

_PASSWORD: Final = re.compile(rf"(://[^/@\s:?#]*:){_NOT_A_PORT}")
_PARAMETER: Final = re.compile(rf"({_SECRET_PARAMETER})[^&;\s]+", re.IGNORECASE)
_HIDDEN: Final = "(hidden)"


def redacted(text: str) -> str:
    """Return a text with passwords and secret parameters of the addresses in it hidden."""
    return _PARAMETER.sub(rf"\1{_HIDDEN}", _PASSWORD.sub(rf"\1{_HIDDEN}@", text))
