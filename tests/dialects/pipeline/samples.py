"""Sample pipelines: one with every feature, and short ones built from a few lines."""

from __future__ import annotations

import pytest

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.parse import parse, read

MINIMAL = """\
name: Say hello
steps:
  - id: hello
    command: cli echo hello
"""

FULL = """\
id: release
name: Release it
description: Every field of the format, and every one of ours.
version: "1.2"
args:
  version: {type: string, description: The version.}
  token: {secret: true, default: "env:HOOK_TOKEN"}
  count: {type: integer, default: 3, enum: [1, 2, 3]}
  draft: {type: boolean, required: false}
allowed_domains: [api.example.com, "*.Example.org"]
consent_boundary: Nothing is sent before a person agreed.
steps:
  - id: test
    name: Run the tests
    command: cli make "unit tests" VERSION=${version}
    output: {type: text, max_bytes: 100000}
    timeout_ms: 120000
    effect: read
    env: {LEVEL: 3, TOKEN: "Bearer ${token}", QUIET: true}
    cwd: packages/core
  - id: notes
    command: llm
    stdin: $test.stdout
    condition: $test.exit_code == 0 && !($test.skipped || ${count} < 2)
    llm:
      model: anthropic/claude-sonnet-4
      prompt: Notes for ${version}.
      max_tool_calls: 2
      tools: {allow: [read, WebFetch, github.get_issue]}
      max_tokens: 5000
      max_repairs: 2
    output:
      type: json
      schema: {type: object, required: [title], properties: {title: {type: string}}}
  - id: tag
    command: cli git tag
    with: {args: ["v${version}", -n, 5]}
    approval: required
    rollback_hint: git tag -d
    on_error: stop
  - id: post
    command: http POST https://api.example.com/hook
    with:
      headers: {Authorization: "Bearer ${token}", X-Kind: release}
      query: {v: "${version}", n: 2}
      json: {notes: $notes.json, all: ["${count}", null, 1.5]}
    postcondition:
      assertions:
        - {type: http_status, equals: 201}
        - {type: json_path, path: "$.items[0].name", equals: {a: [1, null]}}
      owner: team
    retry: {max_attempts: 3, delay_ms: 500, backoff: exponential, max_delay_ms: 2000, jitter: true}
    on_error: continue
  - id: tell
    command: mcp chat.say text=done
    with: {arguments: {title: "${notes.json.title}", token: "secret:chat"}}
    condition: $post.error != true
    on_error: skip_rest
"""


def pipeline(text: str) -> Pipeline:
    return parse(text, "pipeline.yml")


def problems(text: str) -> tuple[Problem, ...]:
    """All problems of an invalid pipeline; there must be at least one."""
    with pytest.raises(InvalidPlaybook) as caught:
        parse(text, "pipeline.yml")
    return caught.value.problems


def problem(text: str) -> Problem:
    (only,) = problems(text)
    assert only.fix, only
    assert only.code, only
    return only


def warned(text: str) -> tuple[Problem, ...]:
    found = read(text, "pipeline.yml")
    assert not found.errors, found.errors
    return found.warnings


# --- one step ---


def with_step(*lines: str, args: str = "") -> str:
    """A pipeline with a step `first` on line 4 or 5, then one called `it`, which has these lines."""
    head = f"name: Test\n{args}steps:\n  - id: first\n    command: cli echo 1\n  - id: it\n"
    return head + "".join(f"    {line}\n" for line in lines)


def step(*lines: str, args: str = "") -> Step:
    return pipeline(with_step(*lines, args=args)).steps[1]
