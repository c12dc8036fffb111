"""Files of steps inside loops and branches: each item has its own, and a branch hands its files on."""

from __future__ import annotations

from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness
from tests.dialects.pipeline.run.flow.playbooks import play, same_on_replay


async def test_files_are_passed_on_within_an_item_and_out_of_a_branch(harness: PipelineHarness) -> None:
    harness.allow({**ANYTHING, "files": {"allow": ["read:**", "write:**"]}})
    row = await play(
        harness,
        """
steps:
  - id: each
    for_each: [a, b]
    key: ${item}
    steps:
      - id: make
        command: cli sh -c 'echo $$0 > $$0.txt' ${item}
        files: {note: "${item}.txt"}
      - id: use
        command: cli cat in.txt
        takes: {in.txt: $make.files.note}
  - id: both
    parallel: all
    branches:
      x:
        - id: in_x
          command: cli sh -c 'echo x > x.txt'
          files: {out: x.txt}
      y:
        - {id: in_y, command: cli true}
  - id: last
    command: cli cat from-x.txt
    takes: {from-x.txt: $in_x.files.out}
""",
    )
    assert row.status == "completed", row.error
    outputs = await harness.outputs(row.id)
    assert (outputs["use[a]"], outputs["use[b]"], outputs["last"]) == ("a\n", "b\n", "x\n")
    await same_on_replay(harness, row.id)
