"""Values that steps inside loops and branches keep: visible after them in the same run, and to later runs."""

from __future__ import annotations

import pytest

from cuebook.dialects.pipeline.parse import read
from cuebook.dialects.pipeline.run import state
from cuebook.dialects.pipeline.run.flow import loops
from tests.dialects.pipeline.harness import PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import play, same_on_replay

TURN = """
while [ $1 = 0 ] && ! grep -q 1 made || [ $1 = 2 ] && ! grep -q 3 made; do sleep 0.01; done
echo $1 >> made
"""
"""Of two items at the same time, the second one ends first."""
KEEPING = """
steps:
  - id: each
    for_each: [a, b, c, d]
    concurrency: 2
    on_error: continue
    steps:
      - id: turn
        command: cli sh turn.sh ${loop.index}
        state: {last: "${item}"}
      - id: sees
        command: cli printf %s ${state.last}${default(state.x, 0)}
      - id: fails
        command: cli test ${item} != b
  - id: both
    parallel: all
    branches:
      x:
        - {id: in_x, command: cli printf 7, state: {x: "$in_x.json"}}
        - {id: in_x_again, command: "cli printf '%s' '${state.x} ${default(state.y, 0)}'"}
      y:
        - id: in_y
          for_each: [1, 2]
          command: cli printf '%s' ${item}
          state: {y: $in_y.json}
  - id: after
    command: cli echo ${state.last} ${state.x} ${state.y} ${in_x_again.stdout}
  - id: breaks
    for_each: [1]
    steps:
      - {id: keeps, command: cli true, state: {broken: 5}}
      - {id: stops, command: cli false}
finally:
  - {id: end, command: 'cli echo ${state.broken}'}
"""


async def test_what_branches_keep_is_visible_after_them(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "PART", 2)
    monkeypatch.setattr(state, "STRETCH", 1)
    (harness.workspace / "made").touch()
    (harness.workspace / "turn.sh").write_text(TURN)
    row = await play(harness, KEEPING)
    assert row.status == "failed"
    outputs = await harness.outputs(row.id)
    assert [outputs[f"sees[{number}]"] for number in range(4)] == ["a0", "b0", "c0", "d0"]
    assert outputs["after"] == "d 7 2 7 0\n"
    assert outputs["end"] == "5\n"
    kept = {one["name"]: one["value"] for one in (await harness.store.kept("local", "state")).values()}
    assert kept == {"last": "d", "x": 7, "y": 2, "broken": 5}  # although c ended after d
    await same_on_replay(harness, row.id)


def test_two_branches_that_keep_the_same_value_are_refused_with_the_line() -> None:
    text = """\
name: A
steps:
  - id: p
    parallel: all
    branches:
      a: [{id: x, command: cli true, state: {k: 1}}]
      b:
        - id: y
          for_each: [1]
          command: cli true
          state: {k: 2}
"""
    (found,) = read(text, "a.yml").errors
    assert (found.line, found.code) == (8, "BAD_STRUCTURE")
    assert "the branches a and b both keep 'k'" in found.message
    assert not read(text.replace("parallel: all", "parallel: any"), "a.yml").errors
