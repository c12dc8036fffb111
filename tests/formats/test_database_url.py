"""The URL of a database: its secrets are separate from everything that is shown, and unclear texts are refused."""

from __future__ import annotations

import pytest

from cuebook.formats.database_url import DatabaseUrl, check_file
from cuebook.kernel.errors import BadInput

CANARY = "SuperCanary99"


def refused(url: str) -> str:
    with pytest.raises(BadInput) as caught:
        DatabaseUrl(url)
    assert CANARY not in f"{caught.value} {caught.value.fix} {caught.value!r}"
    return f"{caught.value}"


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://postgres:12/{CANARY}@127.0.0.1:1/x",
        f"postgresql://postgres:12/{CANARY}@127.0.0.1/x",
        f"postgresql://postgres:12/3?{CANARY}@127.0.0.1/x",
        f"postgresql://post/{CANARY}@127.0.0.1/x",
        f"postgresql://{CANARY}/@127.0.0.1/x",
    ],
)
def test_a_password_that_is_not_percent_encoded_is_refused_and_not_repeated(url: str) -> None:
    assert "Percent-encode special characters in a password" in refused(url)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://postgres:{CANARY}/1@127.0.0.1/x",
        f"postgresql://postgres:12?{CANARY}@127.0.0.1/x",
        f"postgresql://postgres:12#{CANARY}@127.0.0.1/x",
        f"postgresql://postgres:[{CANARY}@127.0.0.1/x",
        f"postgresql://h/x?sslmode=require;password={CANARY}",
        f"jdbc:postgresql://h/x?password={CANARY}",
    ],
)
def test_any_other_invalid_url_is_not_repeated(url: str) -> None:
    assert "not a valid Postgres URL" in refused(url)


def test_a_percent_encoded_password_is_decoded() -> None:
    url = DatabaseUrl("postgresql://me:12%2FSuper%40Canary@h:1/x")
    assert url.password == "12/Super@Canary"
    assert url.shown == "postgresql://me@h:1/x"


@pytest.mark.parametrize("name", ["password", "sslpassword", "oauth_client_secret", "scram_client_key"])
def test_secret_settings_are_kept_apart(name: str) -> None:
    url = DatabaseUrl(f"postgresql://me@h/x?{name}={CANARY}&sslmode=require")
    assert url.secrets == {name: CANARY}
    assert CANARY not in f"{url} {url!r} {url.conninfo}"
    assert "sslmode=require" in url.conninfo


def test_one_of_two_passwords_is_used_and_neither_is_shown() -> None:
    url = DatabaseUrl(f"postgresql://me:{CANARY}-1@h/x?password={CANARY}-2")
    assert url.password == f"{CANARY}-1"
    assert CANARY not in f"{url} {url!r} {url.conninfo}"


@pytest.mark.parametrize(
    "text",
    [
        f"host=127.0.0.1 password={CANARY}",
        f"password={CANARY}",
        f"host=h PASSWORD = '{CANARY}'",
        f"host=h user={CANARY}",
        f"host = 'a b' user = {CANARY}",
        f"/x?sslpassword={CANARY}",
        f"postgresql:me:{CANARY}@h/x",
        f"postgres:/me:{CANARY}@h/x",
        f"me:{CANARY}@h/x",
    ],
)
def test_text_for_a_database_is_not_taken_for_a_file(text: str) -> None:
    with pytest.raises(BadInput, match="neither the path of a file nor a Postgres URL") as caught:
        check_file(text)
    assert "postgresql://" in caught.value.fix
    assert CANARY not in f"{caught.value} {caught.value.fix} {caught.value!r}"


@pytest.mark.parametrize("path", ["runs.db", "/data/a=b c=d/runs.db", "~/my runs.db", "a=b.db", "/data/me@work/x:y.db"])
def test_a_path_is_accepted(path: str) -> None:
    check_file(path)
