"""The graph dialect: a workflow of nodes that call models, and edges that a model chooses between."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from os.path import splitext
from typing import TYPE_CHECKING, Any, ClassVar

from cuebook.dialects.dialect import Dialect, EditableSteps, Named, OutlinedStep, Surroundings, World, said_by
from cuebook.dialects.findings import Codes, Finding, Problem
from cuebook.dialects.options import Option
from cuebook.dialects.presentation.notes import Note
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.effects import AskModel, Program, SecretNeed
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.events import Performed
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.children import ChildUse
    from cuebook.dialects.graph.model import Workflow
    from cuebook.dialects.presentation.drawing import Drawing, Progress
    from cuebook.dialects.presentation.panels import Panel
    from cuebook.dialects.presentation.preview import Preview
    from cuebook.dialects.presentation.summary import Summary

UNTIL_DECISION = Option("until_decision", "Stop after the first node whose edges have conditions.")
ON_FAILURE = Option("on_failure", "Whether the run continues after a failed node.", "choice", ("continue", "halt"))
MAX_STEPS = Option("max_steps", "The maximum number of node visits.", "number")
OFFLINE = Option("offline", "Do not fetch anything; URL sources fail.")
PARALLEL = Option("parallel", "Take several edges without a condition that leave one node at once.")
STRICT_SPEC = Option("strict_spec", "Use only what the format defines: no guards, projection or parallel nodes.")

_NODES = re.compile(r"^nodes\s*:|\"nodes\"\s*:", re.MULTILINE)


class Graph(Dialect):
    """Nodes that call models, and edges between them."""

    name = "graph"
    title = "Workflow graphs: nodes that call models, and edges that a model chooses between"
    suffixes = (".yml", ".yaml", ".json")
    default_name = "workflow.yml"
    noun = "workflow graph"
    is_data = True
    recognised_by = "a workflow graph ends in .yml, .yaml or .json and has id, name, entry, nodes and edges"
    interpreter = 3
    """1 had fewer built-in tools, and neither compaction, a closing turn nor sub-agents. In 2, each sub-agent could use the whole
    budget of its node, and sub-agents had turns of their own."""
    templates: ClassVar[Mapping[str, str]] = {
        "branching": "a node that classifies a message, and an answer for each kind"
    }
    guides: ClassVar[Mapping[str, str]] = {"graph": "Workflow graphs: nodes, edges and conditions in plain words"}
    draft_prompt_file = "draft.md"
    typed_inputs = True
    reads_secrets = True
    options = (UNTIL_DECISION, ON_FAILURE, MAX_STEPS, OFFLINE, PARALLEL, STRICT_SPEC)

    def recognises(self, text: str, name: str) -> bool:
        if splitext(name)[1] and not name.lower().endswith(self.suffixes):
            return False
        from cuebook.dialects.graph.detect import recognises

        return recognises(text, name)

    def parse(self, text: str, name: str) -> Workflow:
        from cuebook.dialects.graph.parse import parse

        return parse(text, name)

    def check(self, text: str, name: str, around: Surroundings) -> list[Finding]:
        from cuebook.dialects.graph.check import check

        return check(text, name, around)

    @property
    def codes(self) -> Codes:
        from cuebook.dialects.graph.check import CODES

        return CODES

    def editable(self, document: Workflow) -> EditableSteps:
        digests = {
            node.id: said_by(
                node,
                [(one.to, one.when, one.max_iterations) for one in document.out_edges.get(node.id, ())],
                [document.skills.get(one) for one in node.skills],
                document.extras.nodes.get(node.id),
                [
                    (document.edges[one.edge].to, one.output_matches, one.output_required)
                    for one in document.extras.guards
                    if document.edges[one.edge].from_ == node.id
                ],
            )
            for node in document.nodes.values()
        }
        asked = [id for id, one in document.extras.nodes.items() if one.input is not None and id in document.nodes]
        alone: dict[str, World] = dict.fromkeys(asked, "none")  # other nodes see the results of all before them
        return EditableSteps(digests, (document.entry,), dict.fromkeys(asked, frozenset()), alone)

    def children(self, document: Workflow) -> tuple[ChildUse, ...]:
        from cuebook.dialects.children import ChildUse
        from cuebook.dialects.graph.run.sources import PLAYBOOK

        return tuple(
            ChildUse(skill.removeprefix(PLAYBOOK), node.id, node.line)
            for node in document.nodes.values()
            for skill in node.skills
            if skill.startswith(PLAYBOOK)
        )

    def accept(self, document: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
        from cuebook.dialects.graph.inputs import accept

        return accept(document, given)

    def start(
        self, document: Workflow, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        from cuebook.dialects.graph.run.interpret import interpret

        if not 1 <= interpreter <= self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the graph interpreter, which this version does not support.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state, interpreter)

    def claims(self, text: str, name: str) -> bool:
        # A file with an id and a name is often other data, not a broken workflow.
        return self.recognises(text, name) and (not name.lower().endswith(".json") or '"nodes"' in text)

    def resembles(self, text: str, name: str) -> bool:
        return name.lower().endswith(self.suffixes) and _NODES.search(text) is not None

    def definition(self, document: Workflow) -> dict[str, Any]:
        data = self.summary(document).data
        return {
            **super().definition(document),
            **{name: data[name] for name in ("entry", "nodes", "edges", "parallel")},
        }

    def summary(self, document: Workflow) -> Summary:
        from cuebook.dialects.graph.describe import summary

        return summary(document)

    def drawing(self, document: Workflow, progress: Progress | None = None) -> Drawing:
        from cuebook.dialects.graph.drawing import drawing, state_of
        from cuebook.dialects.graph.observe import events

        state = None if progress is None else state_of(document, events(document, progress.entries))
        return drawing(document, state)

    def preview(self, document: Workflow, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
        from cuebook.dialects.graph.preview import preview

        return preview(document, given, settings)

    def models(self, document: Workflow) -> Iterable[Named]:
        from cuebook.dialects.graph.check import named_models

        return named_models(document)

    def secrets(self, document: Workflow) -> Iterable[SecretNeed]:
        """The environment variables that are passed to the tool servers of its inline skills."""
        servers = [skill.mcp for skill in document.skills.values() if skill.mcp is not None]
        return [SecretNeed(f"env:{name}", required=False) for server in servers for name in server.env]

    def secrets_in(self, performed: Performed) -> Iterable[SecretNeed]:
        """The environment variables needed by a skill that was read from a file."""
        from cuebook.dialects.graph.run.sources import skill_of

        skill = skill_of(performed)
        return () if skill is None or skill.server is None else skill.server.needs

    def unfit(self, document: Workflow, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        from cuebook.dialects.graph.parse.forks import ambiguous

        return tuple(ambiguous(document, options))

    def needed_options(self, document: Workflow) -> tuple[Option, ...]:
        return (PARALLEL,) if self.unfit(document, {}) and not self.unfit(document, {PARALLEL.name: True}) else ()

    def outline(self, document: Workflow) -> tuple[OutlinedStep, ...]:
        from cuebook.dialects.graph.describe import outlined

        return outlined(document)

    def takes(self, document: Workflow, name: str) -> bool:
        from cuebook.dialects.graph.inputs import taken

        return taken(document, name)

    def typed(self, document: Workflow, name: str, text: str) -> Any:
        from cuebook.dialects.graph.inputs import typed_value

        return typed_value(document, name, text)

    def changed(self, document: Workflow, results: Mapping[str, Any], name: str, text: str) -> Any:
        from cuebook.dialects.graph.changes import read

        return read(document, results, name, text)

    def check_changes(
        self, document: Workflow, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        from cuebook.dialects.graph.changes import check

        check(document, inputs, results, changes)
        return dict(changes)

    def gives_data(self, document: Workflow, label: str) -> bool:
        return True

    def observe(self, document: Workflow, run: str = "") -> Projection:
        from cuebook.dialects.graph.observe import GraphProjection

        return GraphProjection(document, run)

    def panels(self, document: Workflow) -> tuple[Panel, ...]:
        from cuebook.dialects.graph.observe import PANELS

        return PANELS

    def choices(self, asked: AskModel) -> tuple[str, ...]:
        from cuebook.dialects.graph.run.route import choices_in

        return tuple(choices_in(asked))

    def note(self, name: str, data: Mapping[str, Any]) -> Note:
        from cuebook.dialects.graph.observe import note

        return note(name, data)


GRAPH = Graph()
