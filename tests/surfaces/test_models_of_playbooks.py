"""A playbook may name models, but not a server that its own project brought."""

from __future__ import annotations

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer

FLOW = """\
id: w
name: W
entry: a
nodes:
  a: {name: Read, instruction: Read it., model: theirs/m}
edges: []
"""


@pytest.mark.usefixtures("server")
def test_prompts_go_to_a_server_of_the_project_only_where_its_user_says_so(desk: Desk) -> None:
    theirs = ModelServer()
    theirs.replies = ["Done."]
    try:
        (desk.work / "cuebook.toml").write_text(f'[providers.theirs]\nbase_url = "{theirs.url}"\n')
        desk.write("w.yml", FLOW)
        refused = desk.call("run", "w.yml")
        assert (refused.code, len(theirs.requests)) == (2, 0)
        assert "every prompt would go there" in refused.err
        assert desk.call("run", "w.yml", "--model", "theirs/m").code == 0
        assert len(theirs.requests) == 1
    finally:
        theirs.close()
