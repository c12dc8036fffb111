"""Keys are stored in the keyring from a hidden prompt or stdin, and are read only for the provider."""

from __future__ import annotations

from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend

from cuebook.wiring.keys import Keys, in_keyring
from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

KEYRING = """\
import json, pathlib
from keyring.backend import KeyringBackend

class Keyring(KeyringBackend):
    priority = 1
    path = pathlib.Path(__file__).with_name("ring.json")

    def _all(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def get_password(self, service, username):
        return self._all().get(f"{service} {username}")

    def set_password(self, service, username, password):
        self.path.write_text(json.dumps({**self._all(), f"{service} {username}": password}))

    def delete_password(self, service, username):
        ring = self._all()
        del ring[f"{service} {username}"]
        self.path.write_text(json.dumps(ring))
"""


def test_a_key_is_kept_used_and_removed_and_never_shown(cli: CommandLine, server: ModelServer) -> None:
    (cli.home / "ring").mkdir()
    (cli.home / "ring" / "test_ring.py").write_text(KEYRING)
    cli.environ["PYTHONPATH"] += f":{cli.home / 'ring'}"
    cli.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"
    cli.config.write_text(f'[providers.mine]\nbase_url = "{server.url}"\nkey_env = "MINE_KEY"\n')

    said = [cli.call("keys", "set", "mine", stdin="sk-test-0123456789\n")]
    assert said[0].out == "Stored the key for mine in the keyring as MINE_KEY.\n"
    assert "cuebook MINE_KEY" in (cli.home / "ring" / "ring.json").read_text()
    said += [cli.call("keys", "list"), cli.call("doctor", "--json"), cli.call("keys", "list", "--json")]
    assert {"provider": "mine", "key": "MINE_KEY", "source": "keyring"} in said[3].object
    assert said[2].object["keyring"] == {"backend": "test_ring.Keyring", "usable": True}
    ran = cli.call("run", "tea.md", "--model", "mine/x")
    assert (ran.code, server.keys[0]) == (0, "Bearer sk-test-0123456789")
    assert all("sk-test" not in one.out + one.err for one in [*said, ran])

    assert cli.call("keys", "remove", "mine").out == "Removed the key for mine from the keyring.\n"
    assert cli.call("keys", "remove", "mine").out == "The keyring has no key for mine.\n"
    empty = cli.call("keys", "set", "mine", stdin="\n")
    assert (empty.code, "The key is empty." in empty.err) == (2, True)
    odd = cli.call("keys", "set", "mine", stdin="not a key\n")
    assert (odd.code, "not a key\n" in odd.err, "whitespace" in odd.err) == (2, False, True)
    unset = cli.call("run", "tea.md", "--model", "mine/x")
    assert (unset.code, "MINE_KEY is not set" in unset.err) == (2, True)


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1.0
    kept: dict[str, str]

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[username] = password


@pytest.fixture
def ring() -> Iterator[Ring]:
    before, made = keyring.get_keyring(), Ring()  # type: ignore[no-untyped-call]
    made.kept = {}
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_a_secret_that_is_put_into_the_keyring_later_is_found_by_the_same_process(ring: Ring) -> None:
    keys = Keys({})
    find = in_keyring(keys)
    assert (find("db"), keys.in_keyring("db")) == (None, None)
    ring.set_password("cuebook", "db", "a-long-password")
    assert find("db") == "a-long-password"


def test_a_key_is_not_taken_from_the_command_line(cli: CommandLine) -> None:
    ran = cli.call("keys", "set", "openai", "sk-test-0123456789")
    assert ran.code == 2
