"""A process that drives a pipeline and kills itself at its N-th write: `crash_process.py FOLDER RUN WHEN N`.

The pipeline has one of each: commands, a skipped step, a failure that is passed over, attempts, a model with a tool, a
contract, a postcondition, and checkpoints in between. The model's replies depend only on the prompts.
With WHEN `never` it drives the run until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cuebook.dialects.pipeline.model import (
    Constant,
    JsonPath,
    Llm,
    Operation,
    Output,
    Postcondition,
    Retry,
    Step,
)
from cuebook.dialects.pipeline.run import state
from cuebook.kernel.context import ToolCall
from cuebook.performers.models.model import Request
from cuebook.testing import Line, Says, ScriptedModel, model_performer
from tests.dialects.pipeline.harness import PipelineHarness, pipeline, ref, shell, words
from tests.kernel.engine.crash_process import die_at

state.STRETCH = 2

PIPELINE = pipeline(
    shell("draft", "echo draft >> made; echo '{\"n\": 3}'", output=Output("json", {"type": "object"})),
    shell("never", "echo never >> made", condition=Operation("==", (ref("draft", "json", "n"), Constant(4)))),
    shell("odd", "echo odd >> made; echo so far; exit 3", on_error="continue"),
    shell("again", "echo again >> made; test $(grep -c again made) -ge 2", retry=Retry(3, delay=0.0)),
    Step("ask", Llm("default", words("Say it."), ("Bash",), 1, max_repairs=1), output=Output("json")),
    shell("look", "cat made", effect="read"),
    shell(
        "tag",
        'echo tag >> made; echo "{\\"said\\": $(cat)}"',
        stdin=words(ref("ask", "json", "said")),
        postcondition=Postcondition((JsonPath(("said",), 5),)),
    ),
    shell("end", "cat; echo end >> made", stdin=words(ref("odd", "stdout"), ref("odd", "exit_code"), "\n")),
)

SLOW = pipeline(
    shell("first", "echo first >> made"),
    shell("slow", "echo begun >> made; sleep 60 & wait; echo done >> made"),
    shell("last", "echo last >> made"),
)

LOOKING = pipeline(shell("look", "test -e there || sleep 60", effect="read"), shell("last", "echo last >> made"))

PIPELINES = {"every": PIPELINE, "slow": SLOW, "looking": LOOKING}


def reply(request: Request) -> Line:
    turns = [message.role for message in request.messages]
    if "tool" not in turns:
        return Says("", (ToolCall("1", "Bash", {"command": "echo tool >> made"}),))
    return '{"said": 5}' if turns[-1] == "user" else "It is five."


def harness_on(folder: Path, name: str = "every") -> PipelineHarness:
    folder.mkdir(exist_ok=True)
    harness = PipelineHarness(folder, model=model_performer(ScriptedModel(reply)))
    harness.pipeline = PIPELINES[name]
    return harness


async def main(folder: Path, run: str, name: str) -> None:
    harness = harness_on(folder, name)
    await harness.service.drive(run)
    await harness.close()


if __name__ == "__main__":
    if sys.argv[3] != "never":
        die_at(sys.argv[3], int(sys.argv[4]), False)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[5] if len(sys.argv) > 5 else "every"))
