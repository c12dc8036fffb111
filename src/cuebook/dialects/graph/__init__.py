"""The graph dialect: a workflow of nodes that ask models, and of edges that a model chooses among."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cuebook.dialects.graph.detect import recognises
from cuebook.dialects.graph.inputs import accept, taken, typed_value
from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.options import Option
from cuebook.dialects.registry import Named, OutlinedStep, Publisher
from cuebook.kernel.effects import Program, SecretNeed
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import Performed
from cuebook.kernel.journal import Entry

UNTIL_DECISION = Option("until_decision", "Stop after the first node that a condition follows.")
ON_FAILURE = Option("on_failure", "What a failed node does to the run.", "choice", ("continue", "halt"))
MAX_STEPS = Option("max_steps", "The most nodes that are visited.", "number")
OFFLINE = Option("offline", "Sources at addresses fail.")
STRICT_SPEC = Option("strict_spec", "As the format says and nothing beyond: no guards, projection or nodes at once.")


class Graph:
    """Implements `registry.Dialect`, and of what a dialect may have besides all but an exported state."""

    name = "graph"
    interpreter = 1
    options: tuple[Option, ...] = (UNTIL_DECISION, ON_FAILURE, MAX_STEPS, OFFLINE, STRICT_SPEC)

    def recognises(self, text: str, name: str) -> bool:
        return recognises(text, name)

    def parse(self, text: str, name: str) -> Workflow:
        return parse(text, name)

    def accept(self, document: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(
        self, document: Workflow, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        from cuebook.dialects.graph.interpret import interpret

        if interpreter != self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the graph interpreter, which is not known here.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state)

    def outline(self, document: Workflow) -> tuple[OutlinedStep, ...]:
        return tuple(OutlinedStep(node.id, node.name) for node in document.nodes.values())

    def models(self, document: Workflow) -> Iterable[Named]:
        from cuebook.dialects.graph.check import named_models

        return named_models(document)

    def secrets(self, document: Workflow) -> Iterable[SecretNeed]:
        """The variables that the servers of its own skills are given."""
        servers = [skill.mcp for skill in document.skills.values() if skill.mcp is not None]
        return [SecretNeed(f"env:{name}", required=False) for server in servers for name in server.env]

    def secrets_in(self, performed: Performed) -> Iterable[SecretNeed]:
        """Those of a skill that lies in a file."""
        from cuebook.dialects.graph.material import skill_of

        skill = skill_of(performed)
        return () if skill is None or skill.server is None else skill.server.needs

    def takes(self, document: Workflow, name: str) -> bool:
        return taken(document, name)

    def typed(self, document: Workflow, name: str, text: str) -> Any:
        return typed_value(document, name, text)

    def changed(self, document: Workflow, results: Mapping[str, Any], name: str, text: str) -> Any:
        from cuebook.dialects.graph.changing import read

        return read(document, results, name, text)

    def check_changes(
        self, document: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> None:
        from cuebook.dialects.graph.changing import check

        check(document, inputs, results, changes)

    def gives_data(self, document: Workflow, label: str) -> bool:
        return True

    def publisher(self, document: Workflow, run: str) -> Publisher:
        from cuebook.dialects.graph.observe import Publisher as Published

        return Published(document, run)

    def trace(self, document: Workflow, entries: Iterable[Entry]) -> dict[str, Any]:
        from cuebook.dialects.graph.observe import seen

        projection = seen(document, entries)
        return {"trace": projection.trace(), "results": projection.results}

    def values(self, document: Workflow, entries: Iterable[Entry]) -> dict[str, Any]:
        from cuebook.dialects.graph.observe import results

        return {node: result["data"] for node, result in results(document, entries).items()}


GRAPH = Graph()
