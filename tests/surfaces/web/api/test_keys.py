"""Keys that are entered on the page: a served process keeps them in a real keyring, uses them, and never shows them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.commands.test_keys import KEYRING
from tests.surfaces.web.test_serve import Serving

KEY = "sk-test-0123456789abcdef"
ONE = "# One\n\n## STEP 1: A\n\nDo A.\n"


@pytest.fixture
def ring(cli: CommandLine, server: ModelServer) -> Path:
    """Makes a file the keyring."""
    folder = cli.home / "ring"
    folder.mkdir()
    (folder / "test_ring.py").write_text(KEYRING)
    cli.environ["PYTHONPATH"] += f":{folder}"
    cli.environ["PYTHON_KEYRING_BACKEND"] = "test_ring.Keyring"
    cli.config.write_text(f'[providers.mine]\nbase_url = "{server.url}"\nkey_env = "MINE_KEY"\n')
    cli.write("one.md", ONE)
    return folder / "ring.json"


@pytest.fixture
def serving(cli: CommandLine, ring: Path) -> Iterator[Serving]:
    made = Serving(cli)
    yield made
    made.client.close()
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def shown(serving: Serving) -> str:
    page = serving.client.get("/settings/connections", headers={"Accept": "text/html"})
    assert page.status_code == 200
    return page.text


def provider(serving: Serving) -> dict[str, object]:
    message = serving.client.get("/api/connections").json()
    return dict(next(one for one in message["providers"] if one["name"] == "mine"))


def test_a_key_is_entered_used_and_removed_and_never_shown_again(
    cli: CommandLine, server: ModelServer, ring: Path, serving: Serving
) -> None:
    assert (provider(serving)["usable"], provider(serving)["key_from"]) == (False, None)
    assert "Enter a key" in shown(serving)
    said = []

    kept = serving.client.put("/api/connections/mine/key", json={"key": f" {KEY}\n"})
    assert (kept.status_code, kept.content) == (204, b"")
    assert KEY in ring.read_text()
    assert (provider(serving)["usable"], provider(serving)["key_from"]) == (True, "keyring")
    said += [shown(serving), serving.client.get("/api/connections").text, serving.client.get("/api/models").text]
    assert "Replace the key" in said[0]

    server.replies = [f"Your key is {KEY}.", 401]  # a provider that repeats what it was sent
    for wanted in ("completed", "paused"):  # paused: it waits for another key
        started = serving.client.post("/api/runs", json={"playbook": "one", "model": "mine/x"}).json()
        message = serving.until(started["run"], wanted)
        said += [str(message), serving.client.get(f"/runs/{message['run']}").text]
        said += [serving.client.get(f"/api/runs/{message['run']}/events").text]
        if wanted == "paused":
            serving.client.post(f"/api/runs/{message['run']}/cancel", json={})
        said += [str(serving.read(message["run"]))]
    assert server.keys[:2] == [f"Bearer {KEY}"] * 2

    for odd in ("two words", "späh", "a\nb", " "):
        refused = serving.client.put("/api/connections/mine/key", json={"key": odd})
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
        assert odd == " " or odd not in refused.text
    long = serving.client.put("/api/connections/mine/key", json={"key": KEY * 100})
    wrong = serving.client.put("/api/connections/mine/key", json={"kay": KEY})
    broken = serving.client.put(
        "/api/connections/mine/key", content=f'{{"key": {KEY}}}', headers={"Content-Type": "application/json"}
    )
    assert [one.status_code for one in (long, wrong, broken)] == [422, 422, 400]
    said += [one.text for one in (long, wrong, broken)]
    assert KEY in ring.read_text(), "what was refused changed nothing"

    assert serving.client.request("DELETE", "/api/connections/mine/key", json={}).status_code == 204
    assert KEY not in ring.read_text()
    assert provider(serving)["key_from"] is None
    code, log = serving.end()
    assert code == 130
    said += [log, *kept_in(cli.store)]
    assert [text[:200] for text in said if KEY in text] == []


def kept_in(store: Path) -> list[str]:
    """The whole content of a store, as text."""
    found = []
    with closing(sqlite3.connect(store)) as kept:
        for (table,) in kept.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in kept.execute(f'SELECT * FROM "{table}"'):
                found += [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in row]
    assert any("Your key is" in text for text in found), "it is read as it is kept"
    return found


def test_a_keyring_failure_is_reported_without_the_key(cli: CommandLine, ring: Path, serving: Serving) -> None:
    ring.mkdir()  # nothing can be written there
    refused = serving.client.put("/api/connections/mine/key", json={"key": KEY})
    assert (refused.status_code, refused.json()["code"]) == (422, "no_keyring")
    assert "denied access" in refused.json()["detail"]
    assert "MINE_KEY" in refused.json()["fix"]
    _, log = serving.end()
    assert KEY not in refused.text + log


def test_the_command_on_the_sign_in_page_creates_a_valid_token(cli: CommandLine, serving: Serving) -> None:
    serving.client.cookies.clear()
    lost = serving.client.get(serving.link)
    assert lost.status_code == 401
    typed = re.search(r'<pre class="code"[^>]*>cuebook (.*?)</pre>', lost.text)
    assert typed is not None
    said = cli.call(*typed[1].split())
    assert said.code == 0
    token = said.out.strip().rpartition(" ")[2]
    assert serving.client.post("/sign-in", data={"token": token}).status_code == 303
    assert serving.client.get("/api/runs").status_code == 200
    assert serving.client.get("/settings/connections").status_code == 200
