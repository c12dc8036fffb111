"""`cuebook test` for programs, and `cuebook run --call`: what is printed, and the exit codes."""

from __future__ import annotations

import json

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer

PROGRAM = """\
# Desk
Counts.

```python
@playbook
async def Size(word: str) -> int:
    return len(word)
```

## Main($word:str) -> int
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Greet the user)
- 02:QUE $size:int = Size(word=$word)
- 03:YLD for call
- 04:RET $size
"""

GOOD = """\
- name: it greets and counts
  inputs: {word: four}
  replies:
    - |
      `Step["Main:01:QUE"]` `Say("user", "Hello!")`
      trig? no
      `Step["Main:02:QUE"]` `$size = Size(word=$word)`
      trig? no
      `Step["Main:03:YLD"]` yld call
  real: [Size]
  expect:
    messages: [MESSAGE]
    result: 4
    refusals: []
"""


def test_a_failure_says_what_was_expected_and_what_came(bare_cli: CommandLine) -> None:
    bare_cli.write("desk.pbasm", PROGRAM)
    bare_cli.write("desk.test.yaml", GOOD.replace("MESSAGE", "Good evening!"))
    ran = bare_cli.call("test", "desk.pbasm", "--real")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines()[3:7] == [
        "it greets and counts (desk.test.yaml:1)",
        "  desk.test.yaml:12: message 1",
        "    expected: Good evening!",
        "    got:      Hello!",
    ]


def test_python_is_run_for_real_only_with_the_flag(bare_cli: CommandLine) -> None:
    bare_cli.write("desk.pbasm", PROGRAM)
    bare_cli.write("desk.test.yaml", GOOD.replace("MESSAGE", "Hello!"))
    ran = bare_cli.call("test", "desk.pbasm")
    assert (ran.code, "for real, which was not allowed" in ran.out) == (1, True)
    ran = bare_cli.call("test", "desk.pbasm", "--real", "--json")
    assert ran.code == 0, ran.out
    [case] = json.loads(ran.out)["cases"]
    assert (case["status"], case["run"]["messages"], case["run"]["ran"][0]) == ("passed", ["Hello!"], "Main:01")


def test_replies_of_a_real_model_are_recorded_once(cli: CommandLine, server: ModelServer) -> None:
    """The server writes prose: each of its replies is refused, and recorded."""
    cli.write("desk.pbasm", PROGRAM)
    cli.write(
        "desk.test.yaml",
        "- name: prose\n  inputs: {word: four}\n  model: test/echo-1\n  recorded: said.jsonl\n"
        "  expect: {status: failed, refusals: [S3, S3, S3], messages: []}\n",
    )
    ran = cli.call("test", "desk.pbasm", "--record")
    assert ran.code == 0, ran.out + ran.err
    asked = len(server.requests)
    assert asked == 3
    ran = cli.call("test", "desk.pbasm")
    assert (ran.code, len(server.requests)) == (0, asked), ran.out


def test_a_playbook_is_called_and_needs_no_inputs_of_what_begins(cli: CommandLine) -> None:
    cli.write("desk.pbasm", PROGRAM)
    ran = cli.call("run", "desk.pbasm", "--call", "Size(word='seven')")
    assert ran.code == 0, ran.err
    ran = cli.call("run", "desk.pbasm", "--call", "Sise(word='seven')")
    assert (ran.code, "There is no playbook 'Sise' in desk. Did you mean 'Size'?" in ran.err) == (2, True)
