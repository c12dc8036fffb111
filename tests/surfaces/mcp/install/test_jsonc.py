"""An entry is added to JSON with comments, as editors use it: everything else stays exactly the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cuebook.surfaces.mcp.install.edit import CannotEdit, comments_of, into_json, read_json
from tests.support.command_line import CommandLine
from tests.surfaces.mcp.install.test_clients import ENTRY, SERVERS


def entry(indent: str = "  ", end: str = "\n") -> str:
    """Our entry among other servers."""
    return '"cuebook": ' + json.dumps(ENTRY, indent=indent).replace("\n", end + 2 * indent)


MADE = f'"mcpServers": {{\n    {entry()}\n  }}\n}}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("// mine", f"// mine\n{{\n  {MADE}\n"),
        ("{// mine\n}", f"{{// mine\n  {MADE}"),
        ("{ /* mine */ }", f"{{ /* mine */\n  {MADE}"),
        ('{"a": 1,}', f'{{"a": 1,\n  {MADE}'),
        ('{"a": [1, 2,], // b\n}\n', f'{{"a": [1, 2,], // b\n  {MADE}\n'),
        ('{"a": 1 // b\n}\n', f'{{"a": 1, // b\n  {MADE}\n'),
        (
            '\ufeff{\r\n\t"a": 1, // one\r\n\t/* two,\r\n\t   three } */\r\n}\r\n',
            '\ufeff{\r\n\t"a": 1, // one\r\n\t/* two,\r\n\t   three } */\r\n\t"mcpServers": {\r\n\t\t'
            + entry("\t", "\r\n")
            + "\r\n\t}\r\n}\r\n",
        ),
        (
            '{\n  "mcpServers": { // "cuebook": {}\n    "x": {"url": "http://x", "args": ["}", "//",],},\n    // y is off\n  },\n}\n',
            '{\n  "mcpServers": { // "cuebook": {}\n    "x": {"url": "http://x", "args": ["}", "//",],},\n    // y is off\n'
            f"    {entry()}\n  }},\n}}\n",
        ),
    ],
    ids=[
        "a comment and nothing else",
        "a line comment in an empty object",
        "a comment in an empty object",
        "a trailing comma",
        "trailing commas and a comment",
        "a comment behind the last value",
        "line ends, tabs and a byte order mark",
        "beside another server",
    ],
)
def test_an_entry_is_added_among_others(before: str, after: str) -> None:
    assert into_json(before, SERVERS, ENTRY) == after
    assert into_json(after, SERVERS, ENTRY) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{ // ours\n      "command": "old", // what\n      "args": ["a",],\n      "env": {"A":"1"}, // mine\n    }',
            '{ // ours\n      "command": "/bin/cuebook", // what\n      "args": [\n        "mcp"\n      ],\n'
            '      "env": {"A":"1"}, // mine\n    }',
        ),
        (
            '{\n      "url": "http://x", // stale\n      "command": "/bin/cuebook",\n      "args": ["mcp"],\n      "serverUrl": ""\n    }',
            '{\n       // stale\n      "command": "/bin/cuebook",\n      "args": ["mcp"]\n    }',
        ),
        (
            '{\n      // there\n      "url": "http://x",\n      "headers": {}, /* none */\n    }',
            '{\n      // there\n       /* none */\n      "command": "/bin/cuebook",\n      "args": [\n        "mcp"\n      ]\n    }',
        ),
        ("null /* none */", json.dumps(ENTRY, indent=2).replace("\n", "\n    ") + " /* none */"),
    ],
    ids=["renewed", "with keys that are stale", "that reached the server another way", "that was none"],
)
def test_an_existing_entry_is_updated_and_keeps_its_comments(before: str, after: str) -> None:
    around = '{\n  // servers\n  "mcpServers": {\n    "cuebook": %s,\n    "x": {}, // the last\n  },\n}\n'
    assert into_json(around % before, SERVERS, ENTRY) == around % after
    assert into_json(around % after, SERVERS, ENTRY) == around % after


def test_comments_are_allowed_anywhere() -> None:
    """Each of many texts is amended, and keeps all its content in order."""
    chance = random.Random(7)

    def blank() -> str:
        return "".join(chance.choices(["", " ", "\n  ", "/* } , */", '// ", {\n', "\r\n\t"], [6, 3, 2, 1, 1, 1], k=2))

    def braced(members: list[str]) -> str:
        return f"{{{','.join(members)}{chance.choice(['', ',']) if members else ''}{blank()}}}"

    def member(key: str, value: str) -> str:
        return f'{blank()}"{key}"{blank()}:{blank()}{value}{blank()}'

    def value(depth: int) -> str:
        if not depth or chance.random() < 0.3:
            return chance.choice(["1.50", "null", '"a // b"', '"/* \\" */"', "true", "{}", "[1,]"])
        return braced([member(f"k{number}", value(depth - 1)) for number in range(chance.randrange(4))])

    for _ in range(500):
        members = [member("z", value(2)), member("mcpServers", braced([member("x", value(2))])), member("y", value(1))]
        text = f"{blank()}{braced(members[: chance.randrange(4)])}{blank()}"
        after = into_json(text, SERVERS, ENTRY)
        letters = iter(after)
        assert all(letter in letters for letter in text), text
        assert comments_of(after) == comments_of(text)
        reached = into_json(after, SERVERS, {"url": "http://x"})
        assert comments_of(reached) == comments_of(text)
        assert read_json(reached)["mcpServers"]["cuebook"] == {"url": "http://x"}
        assert read_json(into_json(reached, SERVERS, ENTRY)) == read_json(after)


def test_a_file_with_comments_is_written_and_the_assistant_finds_the_entry(cli: CommandLine) -> None:
    """Like the one that Zed ships."""
    text = '// Zed settings\n{\n  "theme": "One", // dark\n  /* "context_servers": {}, */\n}\n'
    file = cli.write("settings.json", text)
    ran = cli.call("mcp", "install", "--client", "zed", "--write", "--file", file)
    assert (ran.code, "wrote the entry to" in ran.err) == (0, True)
    after = file.read_text()
    assert after.startswith(text.removesuffix("\n}\n"))
    assert "mcp" in read_json(after)["context_servers"]["cuebook"]["args"]
    assert sorted(path.name for path in Path(cli.work).iterdir()) == ["settings.json", "tea.md"]


@pytest.mark.parametrize("text", ['{"a":"' + '\\"' * 200_000, '{"a": 1 ' + "/*" * 200_000, '{"a": "' + "\\" * 200_001])
def test_unclosed_strings_are_scanned_once(text: str) -> None:
    with pytest.raises(CannotEdit):
        read_json(text)
