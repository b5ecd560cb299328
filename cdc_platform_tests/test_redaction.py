"""Secrets in texts and properties are hidden, for any names."""

import re

import pytest

from cdc_platform.errors import CdcError, SettingError
from cdc_platform.lake.catalog.lake_settings import LakeSettings, holds_secret, is_secret
from cdc_platform.redaction import HIDING_ADDRESSES, redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:(hidden)@h/db"),
        ("postgresql://u:p@ss@h/db", "postgresql://u:(hidden)@h/db"),
        ("postgresql://u:pa/ss@h/db", "postgresql://u:(hidden)@h/db"),
        ("jdbc:x://h/d?user=u&password=p now", "jdbc:x://h/d?user=u&password=(hidden) now"),
        ("https://h/x?sv=1&sig=S%2B", "https://h/x?sv=1&sig=(hidden)"),
        ("https://h/x?X-Amz-Signature=S&a=1", "https://h/x?X-Amz-Signature=(hidden)&a=1"),
        ("https://h/x?key=K&Pat=P", "https://h/x?key=(hidden)&Pat=(hidden)"),
        ("postgresql://u:pa?ss@h/db", "postgresql://u:(hidden)@h/db"),
        ("https://me:hu#sh@c/api", "https://me:(hidden)@c/api"),
        ("https://ghp_TOKEN@host/x", "https://(hidden)@host/x"),
        ("http://h:80/x?a=me@y and sqlite:////c.db?timeout=5", None),
        ("abfss://container@account.dfs/x", None),
    ],
)
def test_secrets_of_addresses_are_hidden(text: str, shown: str | None) -> None:
    """A password may have any sign that people write in it; what is not a secret stays."""
    assert redact(text) == (shown or text)
    assert str(CdcError(text)) == (shown or text)
    assert shown is None or re.search(HIDING_ADDRESSES, text, re.IGNORECASE) is not None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=S, then", "password=(hidden), then"),
        ("AccountName=a;AccountKey=S;b", "AccountName=a;AccountKey=(hidden);b"),
        ("header Authorization: Bearer S", "header Authorization: (hidden)"),
        ("header.Authorization=Bearer S, x", "header.Authorization=(hidden), x"),
        ("https://h/x?password=ab,cd&y=1", "https://h/x?password=(hidden)&y=1"),
        ("https://h/x?pass=ab;pw=c", "https://h/x?pass=(hidden);pw=(hidden)"),
        ("the key=5 of the row", None),
        ("Setting `engine.password` is not set: set it", None),
    ],
)
def test_secrets_outside_addresses_are_hidden(text: str, shown: str | None) -> None:
    """An assignment to a name of a secret, and a header with a login, show no value."""
    assert redact(text) == (shown or text)


@pytest.mark.parametrize(
    "name", ["spark.sql.hive.metastore.client.pat", "fs.x.sig", "request.signature", "spark.x.pw", "a.pass"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    """Short names of access tokens and signatures count where they are the last part."""
    assert holds_secret(name, "x")
    assert not holds_secret(f"{name}tern.size", "x") or "signature" in name
    assert not holds_secret("spark.sql.passive", "x")


def test_an_address_with_a_token_is_a_secret() -> None:
    """A login without a password can be a token."""
    assert is_secret("uri", "https://TOKEN@host/")
    for uri in ("https://me:hu?sh@c/api", "jdbc:oracle:thin:u/hush@h"):
        assert is_secret("uri", uri)
    assert not is_secret("uri", "jdbc:sqlite:/lake/catalog.db?busy_timeout=60000")


def test_a_password_with_a_slash_is_a_wrong_setting() -> None:
    """An address cannot hold it as it is; the error names the setting that can, and does not show it."""
    with pytest.raises(SettingError, match=r"lake\.catalog\.password") as caught:
        LakeSettings("s3://b/l", {"type": "sql", "uri": "postgresql://u:se/cret@h/d"})
    assert caught.value.setting == "lake.catalog.uri"
    assert "cret" not in str(caught.value)
