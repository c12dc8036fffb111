"""Makes comparisons for the tests of their pages."""

from __future__ import annotations

from cuebook.dialects.playbook import Playbook
from cuebook.gate.roles import Principal
from cuebook.testing.comparison.driver import drive_all, unfinished
from cuebook.testing.comparison.plan import plan, read_cases
from tests.surfaces.web.served_app import ServedApp

BREW = "# Brew\n\n## INPUTS\n\n- `kind` (string: green): Which tea\n\n## STEP 1: Brew\n\nBrew {{kind}} tea.\n"


async def compared(web: ServedApp, cases: str, who: Principal = Principal(), name: str = "brew.md") -> str:
    """The id of a comparison of two models, whose runs have ended."""
    file = web.work / "cases.yaml"
    file.write_text(cases)
    playbook = Playbook.from_text(BREW, name)
    made = plan(web.site.wiring, [playbook], ["test/one", "test/two"], read_cases(file, playbook), file, 2)
    comparison = await web.service.comparisons.add(made.comparison(web.service, who), who)
    left = unfinished(comparison, {}, who.tenant)
    await drive_all(web.service, made, comparison, {}, left, lambda cell, row, problem: None, who)
    return comparison.id
