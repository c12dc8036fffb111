"""Cuebook from Python: load a playbook, run it, and go on with a run that waits. What `import cuebook` offers.

Every function has an async twin, whose name begins with `a`; the others are those, run to their end. It joins wiring and
service, and knows no dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.dialects.registry import Finding, Input, InvalidPlaybook, Problem
from cuebook.kernel.engine import Observer
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import Budget
from cuebook.performers.models.port import Model
from cuebook.performers.python import python_tool as tool
from cuebook.service import Service
from cuebook.surfaces.loading import Playbook, Source, aload, load, playbook_of
from cuebook.surfaces.publishing import Published, Watch, named, saying
from cuebook.surfaces.results import (
    Artifact,
    Decide,
    Result,
    Say,
    Session,
    Step,
    Tools,
    Wait,
    Where,
    check_callable,
    checked_answer,
    finished,
)
from cuebook.surfaces.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.dialects.program.observe import Said

__all__ = [
    "Artifact",
    "BadInput",
    "CuebookError",
    "Finding",
    "Input",
    "InvalidPlaybook",
    "Playbook",
    "Problem",
    "Result",
    "Step",
    "Wait",
    "afind",
    "aload",
    "arun",
    "find",
    "load",
    "run",
    "tool",
]

# --- running ------------------------------------------------------------------------------------------------


def run(
    playbook: Source,
    inputs: Mapping[str, Any] | None = None,
    *,
    model: str | Model | None = None,
    answers: Mapping[str, str] | Mapping[int, str] | None = None,
    unattended: bool = False,
    breakpoints: Iterable[str | int] = (),
    tools: Tools = (),
    store: Where = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    call: str | None = None,
    answer: Say | None = None,
    decide: Decide | None = None,
    on_event: Observer | None = None,
    on_published: Callable[[Published], None] | None = None,
    on_say: Callable[[Said], None] | None = None,
) -> Result:
    """Runs a playbook until it ends, or waits for someone.

    - `model`: `provider/model`, `local`, or an object that answers; otherwise what is configured.
    - `answers`: by step label, for questions that the run asks. `unattended`: nobody is there to ask, so questions are
      answered by their defaults and breakpoints are passed.
    - `tools`: Python functions that the playbook calls by `@tool(python, name)`. They pass the gate like all others: what
      does not say that it only reads (`tool(f, reads_only=True)`) waits for an approval, unless a policy allows it.
    - `store`: the file or store that keeps the run; otherwise the configured one, which the command line sees, too.
    - `options`: `strict` (a warning fails the run), `stop_on_no` (a confirmation that is answered with no stops it), and
      what the dialect has of its own.
    - `call`: of a program, the playbook that is called, as in `Rate(x=3)`, instead of what begins with it.
    - `answer`: called with each question that the run waits for (a `Wait`, whose `prompt` is what was said last); gives the
      answer, or None to leave it waiting. It may be a coroutine.
    - `decide`: called with each approval that the run waits for (a `Wait`, whose `details` have the preview); gives
      "approve" or "deny", alone or in a pair with the reason, or None to leave it waiting.
    - `on_event` is called with everything that happens, as it happens; `on_published` with the events that the playbook's
      format has for it: of a workflow graph, `workflow:start` to `workflow:end`; `on_say` with what a program says, each
      thing once, as soon as it is verified, while the model still writes.

    Whatever the settings leave open is configured as for the command line.
    """
    work = arun(
        playbook,
        inputs,
        model=model,
        answers=answers,
        unattended=unattended,
        breakpoints=breakpoints,
        tools=tools,
        store=store,
        max_tokens=max_tokens,
        temperature=temperature,
        budget=budget,
        options=options,
        call=call,
        answer=answer,
        decide=decide,
        on_event=on_event,
        on_published=on_published,
        on_say=on_say,
    )
    return finished(work, "arun")


async def arun(
    playbook: Source,
    inputs: Mapping[str, Any] | None = None,
    *,
    model: str | Model | None = None,
    answers: Mapping[str, str] | Mapping[int, str] | None = None,
    unattended: bool = False,
    breakpoints: Iterable[str | int] = (),
    tools: Tools = (),
    store: Where = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    call: str | None = None,
    answer: Say | None = None,
    decide: Decide | None = None,
    on_event: Observer | None = None,
    on_published: Callable[[Published], None] | None = None,
    on_say: Callable[[Said], None] | None = None,
) -> Result:
    """As `run`, from a coroutine."""
    book = playbook_of(playbook)
    folder = book.path.absolute().parent if book.path is not None else None
    flags: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    watches: list[Watch[Any]] = [] if on_published is None else [Watch("on_published", on_published, named)]
    watches += [] if on_say is None else [Watch("on_say", on_say, saying)]
    check_callable(answer=answer, decide=decide, on_event=on_event, on_published=on_published, on_say=on_say)
    session = Session(model, tools, store, on_event, flags, decide, answer, watches)
    given = {str(label): checked_answer(answer, f"for step {label}") for label, answer in (answers or {}).items()}
    paused = tuple(str(label) for label in breakpoints)
    _check_labels(book, (*given, *paused))
    settings = {
        "answers": given,
        "unattended": unattended,
        "breakpoints": paused,
        "options": {**(options or {}), **({} if call is None else {"call": call})},
        **({"budget": budget} if budget is not None else {}),
    }

    async def begin(service: Service, wiring: Wiring) -> str:
        chosen = msgspec.structs.replace(wiring.settings(folder=folder, document=book.document), **settings)
        wiring.check_models(book.dialect, book.document, chosen)
        return (await service.start(book.text, book.name, inputs or {}, chosen)).id

    return await session.driven(begin)


def _check_labels(book: Playbook, labels: Iterable[str]) -> None:
    known = book.labels
    for label in labels:
        if label not in known:
            raise BadInput(f"{book.name} has no step {label}.", fix=f"It has: {', '.join(known)}.")


def find(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """A run that was started before, here or elsewhere, by its id or the beginning of it. It is not driven.

    Give the tools and the model that it was started with if they were objects.
    """
    return finished(afind(run, model=model, tools=tools, store=store), "afind")


async def afind(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """As `find`, from a coroutine."""
    session = Session(model, tools, store)
    async with session.opened() as (service, _):
        return await session.result(service, (await service.get(run)).id)
