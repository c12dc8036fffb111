"""Values that steps have named are changed like inputs when a run is resumed or forked."""

from __future__ import annotations

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

BOOK = """\
# Sort

## INPUTS

- `words` (number: 5): How many

## STEP 1: Sort

Sort it.

@output(kind)

## STEP 2: Say

Say that it is {{kind}}, in {{words}} words{{end:string:.}}
"""


def test_a_value_that_a_step_named_is_changed_on_resume(cli: CommandLine, server: ModelServer) -> None:
    cli.write("sort.md", BOOK)
    run = cli.call("run", "sort.md", "--break", "1", "--json").object["run"]
    ran = cli.call("resume", run, "--set", "kind=green", "--set", "words=7")
    assert (ran.code, server.prompts[-1]) == (0, "Say that it is green, in 7 words.")
    forked = cli.call("fork", run, "2", "--set", "kind=blue", "--set", "end=!")
    assert (forked.code, server.prompts[-1]) == (0, "Say that it is blue, in 7 words!")


def test_a_value_that_nothing_has_named_is_refused_with_those_that_there_are(cli: CommandLine) -> None:
    cli.write("sort.md", BOOK)
    run = cli.call("run", "sort.md", "--break", "1", "--json").object["run"]
    refused = cli.call("resume", run, "--set", "kinds=green")
    assert refused.code == 2
    assert refused.err == "cuebook: The playbook has no value named 'kinds'. It has: words, kind, end.\n"
    assert cli.call("resume", run, "--set", "words=many").code == 2
