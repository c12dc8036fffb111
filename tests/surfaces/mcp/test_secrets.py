"""An assistant learns which secret a run waits for, but can neither provide nor see one."""

from __future__ import annotations

from tests.gate.test_secret_canaries import forms, leaked
from tests.support.command_line import CommandLine
from tests.surfaces.mcp.clients import over_stdio

CANARY = "s3cr3t-Canary/of+the&desk"
BOOK = """
name: Secretive
args:
  note: {type: string, default: ""}
steps:
  - {id: early, command: cli cat leak.txt, effect: read}
  - {id: use, command: cli sh -c 'test -n "$T"', env: {T: "secret:env:TOK"}, effect: read}
"""


async def test_an_assistant_learns_which_secret_is_missing_and_resumes(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n[secrets]\nallow = ["*"]\n')
    cli.write("secretive.yml", BOOK)
    cli.write("leak.txt", "\n".join(forms(CANARY).values()))
    async with over_stdio(cli) as visit:
        waiting = await visit.call("execute_playbook", playbook_id="secretive")
        assert waiting["status"] == "paused"
        assert "env:TOK has no value" in str(waiting)
        assert waiting["next"]["tool"] == "resume_playbook_execution"
    cli.environ["TOK"] = CANARY
    async with over_stdio(cli) as visit:
        refused = await visit.refused("execute_playbook", playbook_id="secretive", inputs={"note": f"it is {CANARY}"})
        ended = await visit.call("resume_playbook_execution", execution_id=waiting["execution_id"])
        assert ended["status"] == "completed"
    stored = b"".join(path.read_bytes() for path in cli.store.parent.iterdir())
    assert leaked(str([waiting, refused, ended]), CANARY) == []
    assert leaked(stored, CANARY) == []
    assert len(cli.call("runs", "--json").object) == 1
