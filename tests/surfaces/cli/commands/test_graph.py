"""`cuebook graph`: a playbook as a Mermaid flowchart."""

from __future__ import annotations

from tests.support.command_line import CommandLine
from tests.surfaces.cli.commands.test_validate import TRIAGE


def test_the_flowchart_of_a_playbook(bare_cli: CommandLine) -> None:
    bare_cli.write("triage.md", TRIAGE)
    ran = bare_cli.call("graph", "triage.md")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "flowchart TD\n"
        '    start(["Triage<br/>inputs: report, depth"])\n'
        '    s1["Step 1: Sort<br/>begins with library#58;criteria<br/>sets kind"]\n'
        '    s2_b{"Step 2: Route<br/>which kind?<br/>sets result"}\n'
        '    s2_1_1[["Step 2a: Fetch<br/>calls tracker.find"]]\n'
        '    s2_2_1[/"Step 2b: Ask<br/>asks: Who decides?<br/>one of: Ada, Bob"/]\n'
        '    s3["Step 3: Report"]\n'
        '    finish(["artifact: markdown"])\n'
        "    start --> s1\n"
        "    s1 --> s2_b\n"
        '    s2_b -->|"kind == #34;bug#34;"| s2_1_1\n'
        '    s2_b -->|"otherwise"| s2_2_1\n'
        "    s2_1_1 --> s3\n"
        "    s2_2_1 --> s3\n"
        "    s3 --> finish\n"
    )
    assert bare_cli.call("graph", "triage.md", "--format", "mermaid").out == ran.out
