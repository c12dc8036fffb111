"""The settings of a node, what they offer, and what they must not offer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.errors import BadInput
from cuebook.node.capabilities import desktop
from cuebook.node.settings import NodeSettings, capabilities, folder_for, load, token_of
from cuebook.performers.nodes.protocol import Call, Finished, Refused
from tests.node.conftest import Started
from tests.node.scripted_server import ScriptedServer
from tests.node.test_requests import ended


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., NodeSettings]:
    def made(**flags: Any) -> NodeSettings:
        usual: dict[str, Any] = {"server": "https://cuebook.example.com", "no_desktop": True}
        return load({**usual, **flags}, {"HOME": str(tmp_path / "home")})

    return made


def written(folder: Path, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "node.toml").write_text(text)
    return str(folder / "node.toml")


def test_a_file_has_every_setting_relative_to_itself_and_the_command_line_wins(
    given: Callable[..., NodeSettings], tmp_path: Path
) -> None:
    for name in ("shop", "reports", "inbox"):
        (tmp_path / name).mkdir()
    config = written(
        tmp_path / "etc",
        """
        connect = "https://cuebook.example.com/tools"
        folder = "../shop"
        allow = ["make test", "git log *"]
        network = ["github.com"]
        files = ["../reports", "../inbox:rw"]
        desktop = false
        sandbox = "none"
        memory = "2G"
        at_once = 2
        seconds = 600
        data = "../data"
        """,
    )
    found = given(server=None, config=config, at_once="3", allow=("true",))
    assert str(found.server) == "https://cuebook.example.com/tools"
    assert found.folder.resolve() == tmp_path / "shop"
    assert [(str(root.path), root.writable) for root in found.files] == [
        (str(tmp_path / "reports"), False),
        (str(tmp_path / "inbox"), True),
    ]
    assert (found.allow, found.network, found.sandbox) == (("true",), ("github.com",), "none")
    assert (found.memory, found.at_once, found.seconds, found.desktop) == (2 << 30, 3, 600.0, False)
    assert sorted(capabilities(found, print)) == ["command", "files"]
    assert folder_for(found).name == "cuebook.example.com_tools"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"server": None}, "address of the server is missing"),
        ({"server": "ftp://example.com"}, "--connect: .* scheme 'ftp'"),
        ({"server": "https://example.com/?a=b"}, "has no query"),
        ({"server": "http://example.com"}, "would not be encrypted"),
        ({"server": "ws://192.168.0.7:8765"}, "would not be encrypted"),
        ({"files": ("missing",)}, "--files: missing is not a folder"),
        ({"folder": "missing"}, "--folder: .*missing is not a folder"),
        ({"network": ("https://a",)}, "--network"),
        ({"at_once": "0"}, "--at-once: .*at least 1"),
        ({"seconds": "-1"}, "--seconds: .*not be negative"),
        ({"config": "missing.toml"}, "cannot be read"),
    ],
)
def test_a_mistake_names_its_flag(given: Callable[..., NodeSettings], flags: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        given(**flags)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conect = 'https://a'", r"node.toml:1: there is no setting 'conect'. Did you mean 'connect'\?"),
        ("\ntoken = 'x'", "node.toml:2: 'token' looks like a key"),
        ("allow = 'make test'", "node.toml:1: expected a list of texts"),
        ("desktop = 'no'", "node.toml:1: expected true or false"),
        ("insecure = 1", "node.toml:1: expected true or false"),
        ("allow = [", "node.toml:1: invalid TOML"),
    ],
)
def test_a_mistake_in_the_file_names_its_line(
    given: Callable[..., NodeSettings], tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(BadInput) as found:
        given(config=written(tmp_path, text), no_desktop=False)
    import re

    assert re.search(message, str(found.value)), found.value


def test_an_unencrypted_connection_is_for_loopback_or_on_request(given: Callable[..., NodeSettings]) -> None:
    assert given(server="http://localhost:8765").server.host == "localhost"
    assert given(server="http://192.168.0.7:8765", insecure=True).server.host == "192.168.0.7"


def test_the_key_and_the_settings_of_the_node_are_out_of_reach(
    given: Callable[..., NodeSettings], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for flags in ({"files": (str(home),)}, {"allow": ("*",), "folder": str(home)}):
        with pytest.raises(BadInput, match="node's own key"):
            given(**flags)
    config = written(tmp_path / "etc", "")
    with pytest.raises(BadInput, match="change the node's settings"):
        given(config=config, files=(f"{tmp_path / 'etc'}:rw",))
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(BadInput, match="node's own key"):
        given(files=(str(tmp_path / "link"),))


def test_a_writable_folder_that_commands_work_in_is_warned_about(
    given: Callable[..., NodeSettings], tmp_path: Path
) -> None:
    shop, inbox = tmp_path / "shop", tmp_path / "shop" / "inbox"
    inbox.mkdir(parents=True)
    for folder, warned in ((f"{shop}:rw", True), (f"{inbox}:rw", True), (str(shop), False)):
        said: list[str] = []
        capabilities(given(allow=("make test",), folder=str(shop), files=(folder,), sandbox="none"), said.append)
        assert any("decides what they do" in line for line in said) == warned


def test_a_token_comes_from_the_command_line_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    assert token_of("given", {"CUEBOOK_NODE_TOKEN": "other"}) == "given"
    assert token_of(f"@{tmp_path}/token", {}) == "from-a-file"
    assert token_of(None, {"CUEBOOK_NODE_TOKEN": " other\n"}) == "other"
    with pytest.raises(BadInput, match="--token: cannot read"):
        token_of("@missing", {})


PACKAGE = """
from cuebook import CuebookError
from cuebook.node import Action, Capability, Result

SCHEMA = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"]}
STARTED = []

async def switch(arguments, work):
    work.output("stdout", b"switching\\n")
    if arguments["color"] == "red":
        raise CuebookError("The lamp is broken.", fix="Replace it.")
    return {"color": arguments["color"], "step": work.step}

async def fail(arguments, work):
    raise ZeroDivisionError("of the package")

async def odd(arguments, work):
    return {"made": object()}

def lights():
    STARTED.append(1)
    return Capability("lights", (
        Action("switch", "Switches the light", switch, SCHEMA),
        Action("fail", "Fails", fail),
        Action("odd", "Returns what is not JSON", odd),
    ))

def wrong():
    return "lights"

def taken():
    return Capability("files", (Action("read", "Reads", switch),))

raised = 1
"""
POINTS = """[cuebook.capabilities]
lights = lights_of_the_tests:lights
wrong = lights_of_the_tests:wrong
taken = lights_of_the_tests:taken
raised = lights_of_the_tests:raised
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with capabilities."""
    site = tmp_path / "site"
    info = site / "lights_of_the_tests-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "lights_of_the_tests.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lights-of-the-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "lights_of_the_tests", raising=False)


@pytest.mark.usefixtures("package")
async def test_a_capability_of_a_package_is_offered_only_if_named(
    server: ScriptedServer, started: Callable[..., Started], given: Callable[..., NodeSettings]
) -> None:
    assert "lights" not in capabilities(given(allow=("true",)), print)
    assert "lights_of_the_tests" not in sys.modules
    started(offer=("lights",))
    peer = await server.peer()
    (offered,) = peer.hello.capabilities
    assert [action.name for action in offered.actions] == ["switch", "fail", "odd"]

    async def asked(action: str, **arguments: Any) -> Finished | Refused:
        call = Call(id=f"{action}{arguments}", capability="lights", action=action, arguments=arguments, step="lamp")
        return await ended(peer, call)

    found = await asked("switch", color="green")
    assert isinstance(found, Finished)
    assert found.value == {"color": "green", "step": "lamp"}
    for action, arguments, code, began in (
        ("switch", {"color": "red"}, "error", True),
        ("switch", {"color": "blue"}, "bad_arguments", False),
        ("fail", {}, "failed", True),
        ("odd", {}, "bad_result", True),
    ):
        found = await asked(action, **arguments)
        assert isinstance(found, Refused)
        assert (found.code, found.began) == (code, began), found


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "there is no such capability. Installed: .*lights"),
        ("wrong", "not a cuebook.node.Capability"),
        ("taken", "'files', which is built in"),
        ("raised", "could not provide it: TypeError"),
    ],
)
def test_a_capability_that_cannot_be_used_is_refused_at_the_start(
    given: Callable[..., NodeSettings], name: str, message: str
) -> None:
    import re

    with pytest.raises(BadInput) as found:
        capabilities(given(offer=(name,)), print)
    assert re.search(message, str(found.value)), found.value


def test_a_node_that_offers_nothing_does_not_start(given: Callable[..., NodeSettings]) -> None:
    with pytest.raises(BadInput, match="would offer nothing"):
        capabilities(given(), print)


async def test_a_notice_is_shown_by_the_program_of_the_desktop(
    server: ScriptedServer, started: Callable[..., Started], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(desktop, "PROGRAMS", {"notify-send": desktop.PROGRAMS["notify-send"]})
    script = programs / "notify-send"
    script.write_text(
        f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/shown\n[ "$3" != bad ] || {{ echo no >&2; exit 1; }}\n'
    )
    script.chmod(0o755)
    started(desktop=True)
    peer = await server.peer()
    assert [one.name for one in peer.hello.capabilities] == ["desktop"]
    for title, kind in (("--help", Finished), ("bad", Refused)):
        arguments = {"title": title, "text": "5 < 6 <b>"}
        call = Call(id=title, capability="desktop", action="notify", arguments=arguments)
        found = await ended(peer, call)
        assert isinstance(found, kind), found
        assert (tmp_path / "shown").read_text() == f"--app-name=Cuebook|--|{title}|5 &lt; 6 &lt;b&gt;|"
    script.unlink()
    assert desktop.capability() is None
