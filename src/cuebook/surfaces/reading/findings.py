"""Everything that is wrong or odd with a playbook, whatever dialect it is in, as `validate` tells it."""

from __future__ import annotations

from os.path import splitext

from cuebook.dialects.findings import Finding
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.check import check
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.program.check import check as check_program
from cuebook.dialects.registry import unknown
from cuebook.performers.beside import reader
from cuebook.surfaces.reading import pipelines, workflows


def checked(text: str, name: str) -> list[Finding]:
    if PROGRAM.recognises(text, name):
        return check_program(text, name, read=reader(name))
    if PIPELINE.recognises(text, name):
        return pipelines.findings(text, name)
    if GRAPH.recognises(text, name):
        return workflows.findings(text, name)
    if MARKDOWN.recognises(text, name) or not splitext(name)[1]:
        return check(text, name)
    problem = unknown(text, name)
    words = problem.message[:1].upper() + problem.message[1:].removesuffix(".") + "."
    return [Finding(problem.code, "error", words, problem.line or 1, fix=problem.fix)]
