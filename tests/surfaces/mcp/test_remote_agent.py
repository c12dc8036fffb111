"""A program whose agent is on another Cuebook server: our own client against our own server."""

from __future__ import annotations

import json

from tests.support.command_line import CommandLine, Ran
from tests.support.model_server import ModelServer
from tests.surfaces.mcp.clients import Served, token_of

ORDER = '# Order\n\n## STEP 1: Ask\n\n@elicit(select, "Which tea?", "green", "black")\n'
HERE = """\
# Here

You are brief.

## Main() -> str

### Triggers

- T1:BGN At the beginning

### Steps

- 01:QUE $said:str = There.Order()
- 02:YLD for call
- 03:RET $said

# There

metadata:
remote:
  type: cuebook
  url: {url}
  auth: {{type: bearer, token: "${{THERE_TOKEN}}"}}
---
Another server.
"""
POLICY = '[tools]\nallow = ["*"]\n\n[egress]\nallow = ["127.0.0.1"]\n\n[secrets]\nallow = ["env:THERE_TOKEN"]\n'


def agreed(cli: CommandLine, ran: Ran) -> Ran:
    """A person agrees to this server, and to its tools, until the program needs something else."""
    while ran.object["status"] == "awaiting_approval":
        ran = cli.call("decide", ran.object["run"], "approve", "--no-ask", "--json")
    return ran


def test_a_question_of_another_server_is_asked_here(
    cli: CommandLine, served: list[Served], server: ModelServer
) -> None:
    cli.write("order.md", ORDER)
    served.append(one := Served(cli))
    cli.environ["THERE_TOKEN"] = token_of(cli, "far", "runner")
    (cli.config.parent / "policy.toml").write_text(POLICY)
    cli.write("here.pbasm", HERE.format(url=one.url))
    ran = agreed(cli, cli.call("run", "here.pbasm", "--no-ask", "--json"))
    assert ran.object["waits"][0]["options"] == ["green", "black"]
    after = agreed(cli, cli.call("answer", ran.object["run"], "black", "--no-ask", "--json"))
    assert after.code == 0, (after.out, after.err)
    runs = {run["playbook"]: run for run in cli.call("runs", "--json").object}
    assert runs["order.md"]["status"] == "completed"
    assert '"black"' in json.dumps(after.object["program"]["variables"])
