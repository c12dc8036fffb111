"""Everything that is wrong or odd with a playbook, whatever dialect it is in, as `validate` tells it."""

from __future__ import annotations

from cuebook.dialects.findings import Finding
from cuebook.dialects.graph import GRAPH
from cuebook.dialects.markdown.check import check
from cuebook.dialects.pipeline import PIPELINE
from cuebook.dialects.program import PROGRAM
from cuebook.dialects.program.check import check as check_program
from cuebook.dialects.registry import UNKNOWN
from cuebook.performers.beside import reader
from cuebook.surfaces.reading import pipelines, workflows


def checked(text: str, name: str) -> list[Finding]:
    if PROGRAM.recognises(text, name):
        return check_program(text, name, read=reader(name))
    if PIPELINE.recognises(text, name):
        return pipelines.findings(text, name)
    if not workflows.is_workflow(text, name):
        return check(text, name)
    found = workflows.findings(text, name)
    if GRAPH.recognises(text, name) or any(one.code == "PARSE" for one in found):
        return found
    return [Finding(UNKNOWN.code, "error", f"T{UNKNOWN.message[1:]}", 1, fix=UNKNOWN.fix)]
