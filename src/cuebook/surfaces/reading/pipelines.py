"""Pipelines at the commands that read playbooks: telling them apart, and what `summary` says of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cuebook.beginnings import requirement
from cuebook.config import config_folder
from cuebook.dialects.findings import Finding
from cuebook.dialects.pipeline import PIPELINE, check
from cuebook.dialects.pipeline.draw import doing
from cuebook.dialects.pipeline.model import Llm, Mcp, Pipeline, Step
from cuebook.gate.policy import load_policy
from cuebook.surfaces.reading.workflows import input_words
from cuebook.surfaces.wording import short


def pipeline_of(text: str, name: str) -> Pipeline | None:
    """None for a text that is none."""
    return PIPELINE.parse(text, name) if PIPELINE.recognises(text, name) else None


def findings(text: str, name: str) -> list[Finding]:
    """What is wrong or odd in it, also by the policy that holds in this folder."""
    found = check.check(text, name)
    if not any(one.code == check.UNVERIFIED for one in found):
        return found
    required = requirement(load_policy(config_folder(os.environ), Path.cwd(), lambda path, digest: False))
    return [_refused(one, required) if required and one.code == check.UNVERIFIED else one for one in found]


def _refused(one: Finding, required: str) -> Finding:
    return msgspec.structs.replace(one, severity="error", message=f"{one.message} {required}")


def summary_of(pipeline: Pipeline) -> dict[str, Any]:
    actions = [step.action for step in pipeline.steps]
    models = [action for action in actions if isinstance(action, Llm)]
    tools = [action.tool for action in actions if isinstance(action, Mcp)] + [
        tool for one in models for tool in one.tools
    ]
    return {
        "dialect": PIPELINE.name,
        "id": pipeline.id,
        "title": pipeline.name,
        "description": pipeline.description,
        "version": pipeline.version,
        "inputs": [{"name": one.name, "type": one.type, "required": one.required} for one in pipeline.inputs],
        "steps": [_step(step) for step in pipeline.steps],
        "approvals": [step.id for step in pipeline.steps if step.approval],
        "changing": [step.id for step in pipeline.steps if not step.reads_only],
        "tools": list(dict.fromkeys(tools)),
        "models": list(dict.fromkeys(one.model for one in models)),
        "secrets": list(dict.fromkeys(secret.handle or f"${{{secret.arg}}}" for secret in pipeline.secrets)),
        "allowed_domains": list(pipeline.allowed_domains),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "name": step.name,
        "namespace": step.namespace,
        "does": doing(step),
        "condition": step.condition_text or None,
        "output": step.output.type if step.output is not None else None,
    }


def summary_lines(pipeline: Pipeline) -> Iterator[str]:
    made = summary_of(pipeline)
    yield pipeline.name
    if pipeline.description:
        yield f"\n{pipeline.description}\n"
    for declared in pipeline.inputs:
        yield f"input     {input_words(declared)}"
    for step in pipeline.steps:
        name = f" ({step.name})" if step.name else ""
        yield f"step      {step.id}{name}: {short(doing(step))}{'; asks first' if step.approval else ''}"
        if step.condition is not None:
            yield f"            if {short(step.condition_text)}"
    for title in ("tools", "models", "secrets"):
        if made[title]:
            yield f"{title:<10}{', '.join(made[title])}"
    if pipeline.allowed_domains:
        yield f"hosts     {', '.join(pipeline.allowed_domains)}"
