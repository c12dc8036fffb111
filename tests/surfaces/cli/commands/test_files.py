"""`cuebook files` lists the files of a run and writes one out; `show` and `store copy` know them too."""

from __future__ import annotations

from tests.support.command_line import CommandLine

MAKES = """\
name: Makes
steps:
  - id: make
    command: cli sh -c 'printf "one\\n" > a.txt; printf "\\377\\000" > b.bin'
    files: {text: a.txt, data: b.bin}
  - id: more
    command: cli sh -c 'printf "two\\n" > a.txt'
    files: {text: a.txt}
"""


def made(cli: CommandLine) -> str:
    cli.write("makes.yml", MAKES)
    run = str(cli.call("run", "makes.yml", "--no-ask", "--json").object["run"])
    codes = [cli.call("decide", run, "approve").code for _ in range(2)]
    assert codes == [3, 0]
    return run


def test_files_are_listed_shown_and_written(cli: CommandLine) -> None:
    run = made(cli)
    listed = cli.call("files", run).out.splitlines()
    assert [line.split("  ")[0] for line in listed] == ["make/text", "make/data", "more/text"]
    found = cli.call("files", run, "--json").object
    assert [(one["step"], one["name"], one["size"]) for one in found] == [
        ("make", "text", 4),
        ("make", "data", 2),
        ("more", "text", 4),
    ]
    assert "file data: 2 bytes" in cli.call("show", run).out
    assert cli.call("show", run, "--json").object["files"] == found
    assert cli.call("files", run, "make/text").out == "one\n"
    to = cli.home / "copy"
    assert cli.call("files", run, "data", "--to", to).code == 0
    assert to.read_bytes() == b"\xff\x00"
    refused = cli.call("files", run, "data", "--to", to)
    assert (refused.code, "File exists" in refused.err) == (2, True)


def test_a_name_that_is_unknown_or_means_two_files_is_refused(cli: CommandLine) -> None:
    run = made(cli)
    assert "Write one of make/text, more/text." in cli.call("files", run, "text").err
    assert "Did you mean 'data'?" in cli.call("files", run, "dta").err
    assert cli.call("files", run, "--to", "x").code == 2


def test_a_copied_store_has_the_files(cli: CommandLine) -> None:
    run = made(cli)
    copied = cli.call("store", "copy", cli.store, cli.home / "other.db")
    assert copied.code == 0, copied.err
    assert cli.call("files", run, "make/text", "--store", cli.home / "other.db").out == "one\n"
    assert cli.call("audit", run, "--verify", "--store", cli.home / "other.db").code == 0
