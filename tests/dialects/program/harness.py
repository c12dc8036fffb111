"""Runs programs on the real engine: a service over a store, with a scripted model and real Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.program.conversation import ProgramConversation
from cuebook.dialects.registry import WATCHES
from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource, RunPython, Send
from cuebook.kernel.events import ENDED, RunFinished
from cuebook.kernel.journal import Entry
from cuebook.kernel.ports import Performer, Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.messages import MessagePerformer
from cuebook.performers.python.performer import PythonPerformer
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.toolbox import Toolbox
from cuebook.service.service import Service
from cuebook.testing import Line, MemoryStore, ScriptedModel, model_performer


class Played:
    """The outcome of a run."""

    def __init__(self, row: RunRow, entries: list[Entry], model: ScriptedModel) -> None:
        self.row, self.entries, self.model = row, entries, model
        self.seen = ProgramConversation.of(entries)

    @property
    def status(self) -> str:
        return self.row.status

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = self.seen.result
        return found

    @property
    def error(self) -> Any:
        return next(one.event.error for one in reversed(self.entries) if isinstance(one.event, RunFinished))

    @property
    def lines(self) -> list[str]:
        return self.seen.lines

    @property
    def messages(self) -> list[str]:
        return self.seen.messages

    def variables(self, agent: str = "Desk") -> dict[str, Any]:
        return self.seen.variables.get(agent, {})

    def prompt(self, number: int) -> str:
        """The full prompt of one model turn."""
        return "\n\n".join(turn.text for turn in self.model.requests[number].messages)


class ProgramHarness:
    """Runs programs. `says` are the model's replies, `answers` the user's."""

    def __init__(self, folder: Path | None = None, store: Store | None = None, box: Toolbox | None = None) -> None:
        self.store = store or MemoryStore()
        self.folder = folder
        self.box = box or Toolbox()

    def service(self, model: ScriptedModel) -> Service:
        made: dict[type[Effect], Performer] = {
            AskModel: model_performer(model),
            Send: MessagePerformer(),
            RunPython: PythonPerformer(choose("auto")),
            CallTool: self.box,
        }
        if self.folder is not None:
            made[ReadSource] = SourcePerformer(
                [self.folder], http=HttpPerformer(), tools=self.box.specs, brought=self.box
            )
        return Service(self.store, made, watches=WATCHES)

    async def play(
        self,
        text: str,
        says: Iterable[Line] | Any = (),
        answers: Iterable[str] = (),
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Played:
        model = says if isinstance(says, ScriptedModel) else ScriptedModel(says if callable(says) else list(says))
        service = self.service(model)
        settings = Settings(model="scripted/model", options=options)
        row = await service.start(Playbook.from_text(text, "program.pbasm"), dict(inputs or {}), settings)
        return await self.drive(service, row.id, model, answers)

    async def drive(self, service: Service, run: str, model: ScriptedModel, answers: Iterable[str] = ()) -> Played:
        left = iter(answers)
        row = await service.drive(run)
        while row.status not in ENDED:
            [wait] = await self.store.waits(run=run)
            answer = next(left, None)
            if answer is None:
                break
            await service.answer(wait.id, answer)
            row = await service.drive(run)
        entries = [entry async for entry in service.entries(run)]
        return Played(row, entries, model)
