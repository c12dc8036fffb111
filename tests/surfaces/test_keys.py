"""Keys go into the keyring by a hidden prompt or stdin, and come out only for the provider."""

from __future__ import annotations

from collections.abc import Iterator

import keyring
import pytest
from keyring.backend import KeyringBackend

from cuebook.surfaces.keys import Keys
from cuebook.surfaces.reaching import in_keyring
from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

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


def test_a_key_is_kept_used_and_removed_and_never_shown(desk: Desk, server: ModelServer) -> None:
    (desk.home / "ring").mkdir()
    (desk.home / "ring" / "test_ring.py").write_text(KEYRING)
    desk.environ["PYTHONPATH"] += f":{desk.home / 'ring'}"
    desk.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"
    desk.config.write_text(f'[providers.mine]\nbase_url = "{server.url}"\nkey_env = "MINE_KEY"\n')

    said = [desk.call("keys", "set", "mine", stdin="sk-test-0123456789\n")]
    assert said[0].out == "The key of mine is in the keyring, as MINE_KEY.\n"
    assert "cuebook MINE_KEY" in (desk.home / "ring" / "ring.json").read_text()
    said += [desk.call("keys", "list"), desk.call("doctor", "--json"), desk.call("keys", "list", "--json")]
    assert {"provider": "mine", "key": "MINE_KEY", "source": "keyring"} in said[3].object
    assert said[2].object["keyring"] == {"backend": "test_ring.Keyring", "usable": True}
    ran = desk.call("run", "tea.md", "--model", "mine/x")
    assert (ran.code, server.keys[0]) == (0, "Bearer sk-test-0123456789")
    assert all("sk-test" not in one.out + one.err for one in [*said, ran])

    assert desk.call("keys", "remove", "mine").out == "The key of mine is removed from the keyring.\n"
    assert desk.call("keys", "remove", "mine").out == "The keyring has no key of mine.\n"
    empty = desk.call("keys", "set", "mine", stdin="\n")
    assert (empty.code, "No key was given." in empty.err) == (2, True)
    odd = desk.call("keys", "set", "mine", stdin="not a key\n")
    assert (odd.code, "not a key\n" in odd.err, "blanks" in odd.err) == (2, False, True)
    unset = desk.call("run", "tea.md", "--model", "mine/x")
    assert (unset.code, "MINE_KEY is not set" in unset.err) == (2, True)


class Ring(KeyringBackend):
    """Keeps what it is given in memory."""

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


def test_a_key_is_not_taken_from_the_command_line(desk: Desk) -> None:
    ran = desk.call("keys", "set", "openai", "sk-test-0123456789")
    assert ran.code == 2
