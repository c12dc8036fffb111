"""Which playbooks coding agents may execute."""

from __future__ import annotations

import pytest

from cuebook.dialects import registry
from cuebook.dialects.dialect import Surroundings
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from tests.performers.agents.harness import AgentHarness

PIPELINE = """
name: Ask
steps:
  - id: ask
    command: llm
    output: json
    llm: {model: MODEL, prompt: Hello}
"""
PROGRAM = """# Helper
metadata:
  model: MODEL
---
A helper.

## Main()
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Hello)
- 02:RET
"""


@pytest.mark.parametrize(("text", "name"), [(PIPELINE, "ask.yaml"), (PROGRAM, "ask.pbasm")])
def test_an_agent_is_refused_where_a_step_holds_its_model_to_a_contract(text: str, name: str) -> None:
    def errors(model: str) -> list[str]:
        found = registry.check(text.replace("MODEL", model), name, Surroundings())
        return [one.message for one in found if one.severity == "error"]

    assert errors("openai/gpt-5") == []
    assert any("coding agent" in message for message in errors("acp/opencode"))


def test_an_agent_cannot_be_the_model_of_such_a_run(harness: AgentHarness) -> None:
    pipeline = Playbook.from_text(PIPELINE.replace("MODEL", "default"), "ask.yaml")
    with pytest.raises(BadInput, match="acp/test is a coding agent"):
        harness.open().wiring.settings(document=pipeline.document, model="acp/test")
