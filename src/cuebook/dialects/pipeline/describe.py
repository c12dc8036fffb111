"""Describes a pipeline before it runs: its summary, and each step as text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from cuebook.dialects.dialect import OutlinedStep
from cuebook.dialects.dialect import Question as Asked
from cuebook.dialects.pipeline.model import (
    Child,
    Cli,
    Group,
    Http,
    Llm,
    Mcp,
    NodeCall,
    Parallel,
    Pause,
    Pipeline,
    Question,
    Secret,
    Step,
    Web,
    Words,
)
from cuebook.dialects.pipeline.parse.references import as_written
from cuebook.dialects.presentation.summary import Need, Row, Summary, listed, model_needs
from cuebook.formats.words import short


def summary(pipeline: Pipeline) -> Summary:
    models = [step.action for step in pipeline.every if isinstance(step.action, Llm)]
    tools = [step.action.tool for step in pipeline.every if isinstance(step.action, Mcp)]
    names = {
        "tools": list(dict.fromkeys([*tools, *(tool for one in models for tool in one.tools)])),
        "models": list(dict.fromkeys(one.model for one in models)),
        "secrets": list(dict.fromkeys(secret.handle or f"${{{secret.arg}}}" for secret in pipeline.secrets)),
    }
    return Summary(
        title=pipeline.name,
        description=pipeline.description,
        inputs=pipeline.inputs,
        rows=(*_rows(pipeline), *listed(**names, hosts=_hosts(pipeline))),
        data={
            "id": pipeline.id,
            "version": pipeline.version,
            "steps": [_fields(step) for step in pipeline.every],
            "approvals": [step.id for step in pipeline.every if step.approval],
            "changing": [step.id for step in pipeline.every if not step.reads_only],
            **names,
            "allowed_domains": list(pipeline.allowed_domains),
        },
        needs=tuple(dict.fromkeys(_needs(pipeline))),
    )


def _hosts(pipeline: Pipeline) -> list[str]:
    return list(dict.fromkeys([*pipeline.allowed_domains, *(host for step in pipeline.every for host in step.network)]))


def outlined(pipeline: Pipeline) -> tuple[OutlinedStep, ...]:
    """The steps, with the questions that they ask."""
    own = [OutlinedStep(step.id, step.name or step.id, question=_asked(step)) for step in pipeline.every]
    undo = [(step.rollback, step.id) for step in pipeline.every if step.rollback is not None]
    return (*own, *(OutlinedStep(one.id, one.name, within=undone) for one, undone in undo))


def _asked(step: Step) -> Asked | None:
    if not isinstance(step.action, Question):
        return None
    return Asked("input") if step.action.schema is None else Asked("form", schema=step.action.schema)


def _rows(pipeline: Pipeline) -> Iterator[Row]:
    for step in pipeline.steps:
        yield from _rows_of(step, "step")
    for name, steps in (("on failure", pipeline.on_failure), ("finally", pipeline.finally_)):
        for step in steps:
            yield from _rows_of(step, name)


def _rows_of(step: Step, kind: str, indent: str = "") -> Iterator[Row]:
    """The row of a step, and of the steps inside it."""
    name = f" ({step.name})" if step.name else ""
    words = f"{indent}{step.id}{name}: {short(doing(step))}{'; asks first' if step.approval else ''}"
    details = [f"{indent}            if {short(step.condition_text)}"] if step.condition is not None else []
    details += [f"{indent}            {short(one)}" for one in around(step)]
    yield Row(kind, words, tuple(details))
    for part, inner in parts(step):
        for one in inner:
            yield from _rows_of(one, part or kind, f"{indent}  ")


def around(step: Step) -> list[str]:
    """How a step is repeated, as clauses."""
    found: list[str] = []
    if step.each is not None:
        over = as_written(step.each.over) if isinstance(step.each.over, Words) else f"{len(step.each.over)} items"
        at_once = f", {step.each.concurrency} at a time" if step.each.concurrency > 1 else ""
        found.append(f"for each {step.each.name} of {over}{at_once}")
    if step.until is not None:
        every, most = (f"{seconds:g} s" for seconds in (step.until.every, step.until.timeout))
        found.append(f"repeated every {every} until {step.until.text}, for at most {most}")
    for name, reaction in (("denied", step.on_denied), ("expired", step.on_expired)):
        if reaction is not None:
            then = {"continue": "continues", "skip_rest": "skips the rest"}[reaction.then]
            first = f"runs {', '.join(one.id for one in reaction.steps)} and " if reaction.steps else ""
            found.append(f"if its approval is {name}, it {first}{then}")
    return found


def parts(step: Step) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """The lists of steps inside a step, each with its name."""
    match step.action:
        case Group(steps=steps):
            yield "", steps
        case Parallel(lanes=lanes):
            yield from ((lane.name, lane.steps) for lane in lanes)
    for name, reaction in (("denied", step.on_denied), ("expired", step.on_expired)):
        if reaction is not None and reaction.steps:
            yield name, reaction.steps


def _fields(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "name": step.name,
        "namespace": step.namespace,
        "does": doing(step),
        "condition": step.condition_text or None,
        "output": step.output.type if step.output is not None else None,
        **structure(step),
    }


def structure(step: Step) -> dict[str, Any]:
    """The loop, the wait and the inner steps of a step, as JSON; empty for a plain step."""
    found: dict[str, Any] = {}
    if step.each is not None:
        over = as_written(step.each.over) if isinstance(step.each.over, Words) else len(step.each.over)
        found["for_each"] = {"over": over, "as": step.each.name, "concurrency": step.each.concurrency}
    if step.until is not None:
        found["until"] = {"condition": step.until.text, "every": step.until.every, "timeout": step.until.timeout}
    inner = {name or "steps": [one.id for one in steps] for name, steps in parts(step)}
    return {**found, **({"inside": inner} if inner else {})}


def _needs(pipeline: Pipeline) -> Iterator[Need]:
    yield from model_needs((one.name for one in pipeline.models), needs_model=pipeline.needs_model)
    for step in pipeline.every:
        yield from _needs_of(step)
    questions = sum(isinstance(step.action, Question) for step in pipeline.every)
    if questions:
        yield Need("you", "answer a question" if questions == 1 else f"answer {questions} questions")
    approvals = sum(step.approval for step in pipeline.every)
    if approvals:
        yield Need("you", "approve a step" if approvals == 1 else f"approve {approvals} steps")


def _needs_of(step: Step) -> Iterator[Need]:
    match step.action:
        case Cli(argv=argv):
            yield Need("command", as_written(argv[0]))
            yield from (Need("host", host) for host in step.network)
        case Http(url=url, headers=headers):
            host = urlsplit(as_written(url)).netloc
            yield Need("host", host if host and "$" not in host else "depends on the inputs")
            yield from _secrets(headers.values())
        case Web(arguments=arguments):
            yield Need("browser", "Chromium")
            if "url" in arguments:
                host = urlsplit(as_written(arguments["url"])).netloc
                yield Need("host", host if host and "$" not in host else "depends on the inputs")
            yield from _secrets(arguments.values())
        case Mcp(tool=tool):
            yield Need("tool", tool)
        case NodeCall(capability=capability):
            yield Need("node", f"a node that offers {capability}" if step.node is None else as_written(step.node))
        case Llm(tools=tools):
            yield from (Need("tool", tool) for tool in tools)
        case Child(playbook=playbook):
            yield Need("playbook", playbook)
    yield from _secrets(step.env.values())


def _secrets(values: Iterable[Any]) -> Iterator[Need]:
    yield from (Need("secret", one.handle or one.arg) for one in values if isinstance(one, Secret))


def doing(step: Step) -> str:
    """What a step does, in one line."""
    match step.action:
        case Cli(argv=argv):
            return f"cli {' '.join(_token(as_written(word)) for word in argv)}"
        case Http(method=method, url=url):
            return f"http {method} {as_written(url)}"
        case Web(command=command, arguments=arguments):
            target = arguments.get("url") or arguments.get("selector")
            return f"web {command}{f' {_token(as_written(target))}' if isinstance(target, Words) else ''}"
        case Mcp(tool=tool):
            return f"mcp {tool}"
        case NodeCall(capability=capability, action=action):
            return f"node {capability} {action}{f' on {as_written(step.node)}' if step.node is not None else ''}"
        case Llm(model=model):
            return f"llm {model}"
        case Question(text=text):
            return f"asks: {as_written(text)}"
        case Child(playbook=playbook):
            return f"playbook {playbook}"
        case Group(steps=steps):
            return f"{len(steps)} steps"
        case Parallel(mode=mode, lanes=lanes):
            return f"parallel, {mode} of {', '.join(lane.name for lane in lanes)}"
        case Pause(seconds=seconds, at=at):
            return f"wait {as_written(seconds)}" if seconds is not None else f"wait until {as_written(at or Words(()))}"


def _token(text: str) -> str:
    return text if text and not re.search(r"\s", text) else f"'{text}'"


def definition(step: Step) -> dict[str, Any]:
    """What a step does and when, as JSON."""
    return {
        "label": step.id,
        "title": step.name,
        "namespace": step.namespace,
        "command": step.command or doing(step),
        "condition": step.condition_text or None,
        "approval": step.approval,
        "effect": "read" if step.reads_only else "write",
        "on_error": step.on_error,
        "rollback": None if step.rollback is None else doing(step.rollback),
        "output": None if step.output is None else step.output.type,
        **({"files": file_names(step)} if file_names(step) else {}),
        **structure(step),
    }


def file_names(step: Step) -> list[str]:
    """The names of the files that a step produces."""
    download = step.action.download if isinstance(step.action, Http | Web) else ""
    return [*step.files, *([download] if download else [])]


def only_reads(step: Step, *, confined: bool) -> bool:
    """Whether a step provably changes nothing: it runs in a sandbox that prevents writes, or sends a request with a safe
    method. The author's declaration is not proof.
    """
    match step.action:
        case Cli():
            return confined and step.effect == "read" and not step.network
        case Http(method=method):
            return method in ("GET", "HEAD")
        case Llm(tools=tools):
            return not tools
        case Question() | Group() | Parallel() | Pause():
            return True
        case _:
            return False
