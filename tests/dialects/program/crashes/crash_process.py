"""A process that drives a program and kills itself at its N-th write: `crash_process.py FOLDER RUN WHEN N`.

The program has one of each: a user who is asked, Python that calls a listing, calls that run at the same time, a trigger, a
loop, a reply that is refused, and checkpoints in between. The model's replies depend only on the prompts.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from cuebook.dialects.program.machine import machine
from cuebook.kernel.ports import Store
from cuebook.service.service import Service
from cuebook.stores.sqlite import SqliteStore
from cuebook.testing import ScriptedModel
from tests.dialects.program.harness import ProgramHarness
from tests.kernel.engine.crash_process import die_at

PROGRAM = """# Desk
Does some of everything.

```python
@playbook
async def Both(word: str) -> str:
    await Say("user", f"looking at {word}")
    return f"{word} {await Shout(word=word)}"
```

## Main() -> str
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE Say(user, Ask for $word:str)
- 02:YLD for user
- 03:QUE $both:str = Both(word=$word)
- 04:QUE $size:int = Size(word=$word)
- 05:YLD for call
- 06:CND While $size < 6
  - 06.01:EXE $size = $size + 1
  - 06.02:JMP 06
- 07:EXE Judge $mood:str
- 08:RET $both

## Shout($word:str) -> str
### Steps
- 01:EXE Make $loud:str of $word
- 02:RET $loud

## Size($word:str) -> int
### Steps
- 01:RET the number of letters of $word

## Enough() -> None
### Triggers
- T1:CND When $size >= 5
### Steps
- 01:QUE Say(user, Say that it is enough)
- 02:RET
"""


def said(request: Any) -> str:
    """The reply for the line to be executed."""
    shown = "\n".join(turn.text for turn in request.messages)
    last = request.messages[-1].text
    head = "recap – so\nplan – so\n"
    if "Executing Shout(" in shown:
        return f'{head}`Step["Shout:01:EXE"]` `Var[$loud, "FOUR"]`\ntrig? no\n`Step["Shout:02:RET"]` `Return[$loud]` `Var[$__, "ok"]`\nyld return'
    if "Executing Size(" in shown:
        return f'{head}`Step["Size:01:RET"]` `Return[4]` `Var[$__, "ok"]`\nyld return'
    if "Executing Enough(" in shown:
        return f'{head}`Step["Enough:01:QUE"]` `Say("user", "enough")`\ntrig? no\n`Step["Enough:02:RET"]` `Return[]` `Var[$__, "ok"]`'
    if "The user says" not in shown:
        return f'{head}`Step["Main:01:QUE"]` `Say("user", "a word?")`\ntrig? no\n`Step["Main:02:YLD"]` yld user'
    if "Main:02 was executed" in last:
        return (
            f'{head}`Var[$word, "four"]`\ntrig? no\n`Step["Main:03:QUE"]` `$both = Both(word=$word)`\ntrig? no\n'
            '`Step["Main:04:QUE"]` `$size = Size(word=$word)`\ntrig? no\n`Step["Main:05:YLD"]` yld call'
        )
    if "was refused" not in last:
        return f'{head}`Step["Main:09:EXE"]`\nyld call'
    return f'{head}`Step["Main:07:EXE"]` `Var[$mood, "good"]`\ntrig? no\nyld call'


def service_on(store: Store) -> Service:
    return ProgramHarness(store=store).service(ScriptedModel(said))


async def settle(service: Service, run: str) -> str:
    """Drives a run to its end; the user answers every question."""
    while True:
        row = await service.drive(run)
        waits = await service.waits(run)
        if not waits:
            return row.status
        for wait in waits:
            await service.answer(wait.id, "four")


async def main(folder: Path, run: str) -> None:
    store = SqliteStore(folder / "store.db")
    service = service_on(store)
    await settle(service, run)
    await service.close()
    await store.close()


if __name__ == "__main__":
    machine.CHECKPOINT_EVERY = 3
    die_at(sys.argv[3], int(sys.argv[4]), slow=False)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
