"""The Python API of `import cuebook`: load a playbook, run it, and continue a run that is waiting.

Every function has an async twin whose name starts with `a`. The module connects wiring and service, and depends on no dialect.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Input
from cuebook.dialects.findings import Finding, InvalidPlaybook, Problem
from cuebook.dialects.playbook import Playbook, read
from cuebook.kernel.effects import Effort
from cuebook.kernel.engine.engine import Observer
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import Budget
from cuebook.performers.files.neighbours import instead_of, reader
from cuebook.performers.models.model import Model
from cuebook.performers.tools.functions import python_tool as tool
from cuebook.service.service import Service
from cuebook.surfaces.python.results import (
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
from cuebook.surfaces.python.watch import Published, Watch, published, said
from cuebook.wiring.wiring import Wiring

if TYPE_CHECKING:
    from cuebook.dialects.presentation.projection import Said

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

# --- loading ------------------------------------------------------------------------------------------------

Source: TypeAlias = "str | os.PathLike[str] | Playbook"
"""A path, the text of a playbook (recognized by a line break), or a loaded playbook."""


def load(path: str | os.PathLike[str]) -> Playbook:
    """Load a playbook from a file. Raises `BadInput` if it cannot be read, and `InvalidPlaybook` with all problems."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            text = registry.text_of(file.read(registry.LARGEST + 1))
    except UnicodeDecodeError:
        raise BadInput(f"{place} is not UTF-8 text.", fix="Save it as UTF-8.") from None
    except FileNotFoundError:
        raise BadInput(f"There is no file {place}.", fix=instead_of(place)) from None
    except (OSError, ValueError) as error:  # a path may have invalid characters
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{place} cannot be read: {why}.", fix="Check the path.") from None
    return read(text, place.name, path=place, neighbour=reader(place))


async def aload(path: str | os.PathLike[str]) -> Playbook:
    """The async version of `load`."""
    return await asyncio.to_thread(load, path)


def playbook_of(source: Source) -> Playbook:
    if isinstance(source, Playbook):
        return source
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return read(source)
    return load(source)


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
    effort: Effort | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    call: str | None = None,
    answer: Say | None = None,
    decide: Decide | None = None,
    on_event: Observer | None = None,
    on_published: Callable[[Published], None] | None = None,
    on_say: Callable[[Said], None] | None = None,
) -> Result:
    """Run a playbook until it ends or waits for a person.

    - `model`: `provider/model`, `local`, a chain such as `openai/gpt-5, then local`, or a model object; by default the
      configured model. `effort`: how much it reasons (`low`, `medium` or `high`).
    - `answers`: answers to the run's questions, by step label. `unattended`: nobody is present, so questions take their
      defaults and breakpoints are skipped.
    - `tools`: Python functions that the playbook calls with `@tool(python, name)`. They go through the gate like all tools: unless a
      tool only reads (`tool(f, reads_only=True)`) or a policy allows it, it waits for an approval.
    - `store`: the file or store for the run; by default the configured one, which the command line also uses.
    - `options`: `strict` (a warning fails the run), `stop_on_no` (answering a confirmation with no stops the run), `worktree`
      (the run works in a git worktree of its own), and the dialect's own options.
    - `call`: the playbook to call, as in `Rate(x=3)`, for a dialect whose files may contain several.
    - `answer`: called with each question of the run (a `Wait`, whose `prompt` is the last message). It returns the answer, or
      None to leave the question open. It may be a coroutine.
    - `decide`: called with each approval of the run (a `Wait`, whose `details` have the preview). It returns "approve" or
      "deny", alone or in a pair with the reason, or None to leave the approval open.
    - `on_event` is called with every event as it happens; `on_published` with the events that the playbook's format defines;
      `on_say` with each message of a conversation, once, as soon as it is verified, while the model is still writing.

    All other settings come from the configuration, as for the command line.
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
        effort=effort,
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
    effort: Effort | None = None,
    budget: Budget | None = None,
    options: Mapping[str, Any] | None = None,
    call: str | None = None,
    answer: Say | None = None,
    decide: Decide | None = None,
    on_event: Observer | None = None,
    on_published: Callable[[Published], None] | None = None,
    on_say: Callable[[Said], None] | None = None,
) -> Result:
    """The async version of `run`."""
    book = playbook_of(playbook)
    folder = book.path.absolute().parent if book.path is not None else None
    flags: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "effort": effort}
    watches: list[Watch[Any]] = [] if on_published is None else [Watch("on_published", on_published, published)]
    watches += [] if on_say is None else [Watch("on_say", on_say, said)]
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
        return (await service.start(book, inputs or {}, chosen)).id

    return await session.driven(begin)


def _check_labels(book: Playbook, labels: Iterable[str]) -> None:
    known = book.labels
    for label in labels:
        if label not in known:
            raise BadInput(f"{book.name} has no step {label}.", fix=f"It has: {', '.join(known)}.")


def find(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """Find an earlier run by its id or a prefix of it, without driving it.

    Pass the tools and the model it was started with if they were objects.
    """
    return finished(afind(run, model=model, tools=tools, store=store), "afind")


async def afind(run: str, *, model: Model | None = None, tools: Tools = (), store: Where = None) -> Result:
    """The async version of `find`."""
    session = Session(model, tools, store)
    async with session.opened() as (service, _):
        return await session.result(service, (await service.get(run)).id)
