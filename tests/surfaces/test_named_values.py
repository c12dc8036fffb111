"""Values that steps have named are changed like inputs when a run goes on or is forked."""

from __future__ import annotations

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

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


def test_a_value_that_a_step_named_is_changed_when_the_run_goes_on(desk: Desk, server: ModelServer) -> None:
    desk.write("sort.md", BOOK)
    run = desk.call("run", "sort.md", "--break", "1", "--json").object["run"]
    ran = desk.call("resume", run, "--set", "kind=green", "--set", "words=7")
    assert (ran.code, server.prompts[-1]) == (0, "Say that it is green, in 7 words.")
    forked = desk.call("fork", run, "2", "--set", "kind=blue", "--set", "end=!")
    assert (forked.code, server.prompts[-1]) == (0, "Say that it is blue, in 7 words!")


def test_a_value_that_nothing_has_named_is_refused_with_those_that_there_are(desk: Desk) -> None:
    desk.write("sort.md", BOOK)
    run = desk.call("run", "sort.md", "--break", "1", "--json").object["run"]
    refused = desk.call("resume", run, "--set", "kinds=green")
    assert refused.code == 2
    assert refused.err == "cuebook: sort.md has no value named 'kinds'. It has: words, kind, end.\n"
    assert desk.call("resume", run, "--set", "words=many").code == 2
