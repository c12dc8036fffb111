"""The pipeline dialect: ordered steps with typed commands, contracts and approvals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from os.path import splitext
from typing import TYPE_CHECKING, Any, ClassVar

from cuebook.dialects.dialect import Demand, Dialect, EditableSteps, Named, OutlinedStep, Surroundings, said_by
from cuebook.dialects.findings import Codes, Finding, Problem
from cuebook.dialects.options import Option
from cuebook.dialects.presentation.notes import Note
from cuebook.dialects.presentation.projection import Projection
from cuebook.kernel.effects import Program, SecretNeed
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.events import StepFinished
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import AnyOutcome
from cuebook.kernel.run import Settings

if TYPE_CHECKING:
    from cuebook.dialects.children import ChildUse
    from cuebook.dialects.pipeline.model import Pipeline
    from cuebook.dialects.presentation.drawing import Drawing, Progress
    from cuebook.dialects.presentation.panels import Panel
    from cuebook.dialects.presentation.preview import Preview
    from cuebook.dialects.presentation.summary import Summary

CWD = Option("cwd", "The folder that commands run in, below the workspace.", "text")
MAX_OUTPUT = Option("max_output", "The maximum number of bytes of a step's output to keep.", "number")
STRICT_SPEC = Option(
    "strict_spec",
    "Accept only the published format: no field that Cuebook adds, such as timeout_ms, retry, env or with.",
)

_STEPS = re.compile(r"^steps\s*:|\"steps\"\s*:", re.MULTILINE)


class Pipelines(Dialect):
    """Ordered steps with typed commands."""

    name = "pipeline"
    title = "Pipelines: commands, requests, tools and models, step by step"
    suffixes = (".yml", ".yaml", ".json")
    default_name = "pipeline.yml"
    noun = "pipeline"
    is_data = True
    recognised_by = (
        "a pipeline ends in .yml, .yaml or .json and has a name and a list of steps, each with an id and a command"
    )
    interpreter = 1
    templates: ClassVar[Mapping[str, str]] = {"linear": "commands in sequence, with an approval"}
    guides: ClassVar[Mapping[str, str]] = {"pipeline": "Pipelines: commands, requests, tools and models, step by step"}
    draft_prompt_file = "draft.md"
    typed_inputs = True
    options = (CWD, MAX_OUTPUT, STRICT_SPEC)

    def recognises(self, text: str, name: str) -> bool:
        if splitext(name)[1] and not name.lower().endswith(self.suffixes):
            return False
        from cuebook.dialects.pipeline.detect import recognises

        return recognises(text, name)

    def near_miss(self, text: str, name: str) -> Problem | None:
        from cuebook.dialects.pipeline.detect import lacks_steps

        return lacks_steps(text, name)

    def parse(self, text: str, name: str) -> Pipeline:
        from cuebook.dialects.pipeline.parse import parse

        return parse(text, name)

    def check(self, text: str, name: str, around: Surroundings) -> list[Finding]:
        from cuebook.dialects.pipeline.check import check

        return check(text, name, around)

    @property
    def codes(self) -> Codes:
        from cuebook.dialects.pipeline.check import CODES

        return CODES

    def accept(self, document: Pipeline, given: Mapping[str, Any]) -> dict[str, Any]:
        from cuebook.dialects.pipeline.inputs import accept

        return accept(document, given)

    def start(
        self, document: Pipeline, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        from cuebook.dialects.pipeline.run.interpret import interpret

        if interpreter != self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the pipeline interpreter, which this version does not support.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state)

    def resembles(self, text: str, name: str) -> bool:
        return name.lower().endswith(self.suffixes) and _STEPS.search(text) is not None

    def definition(self, document: Pipeline) -> dict[str, Any]:
        from cuebook.dialects.pipeline.describe import definition

        return {**super().definition(document), "steps": [definition(step) for step in document.every]}

    def only_reads(self, document: Pipeline, *, confined: bool) -> bool:
        from cuebook.dialects.pipeline.describe import only_reads

        return all(only_reads(step, confined=confined) for step in document.every)

    def outline(self, document: Pipeline) -> tuple[OutlinedStep, ...]:
        from cuebook.dialects.pipeline.describe import outlined

        return outlined(document)

    def summary(self, document: Pipeline) -> Summary:
        from cuebook.dialects.pipeline.describe import summary

        return summary(document)

    def drawing(self, document: Pipeline, progress: Progress | None = None) -> Drawing:
        from cuebook.dialects.pipeline.drawing import drawing

        return drawing(document, progress)

    def preview(self, document: Pipeline, given: Mapping[str, Any], settings: Settings) -> Program[Preview]:
        from cuebook.dialects.pipeline.preview import preview
        from cuebook.dialects.presentation.preview import ready

        return ready(preview(document, given, settings))

    def editable(self, document: Pipeline) -> EditableSteps:
        from cuebook.dialects.pipeline.order import uses, world

        steps = document.steps
        alone = {step.id: kind for step in steps if (kind := world(step)) is not None}
        return EditableSteps(
            {step.id: said_by(step) for step in steps},
            tuple(step.id for step in steps),
            {step.id: uses(steps, step) for step in steps if step.id in alone},
            alone,
        )

    def children(self, document: Pipeline) -> tuple[ChildUse, ...]:
        return document.children

    def models(self, document: Pipeline) -> Iterable[Named]:
        return document.models

    def takes(self, document: Pipeline, name: str) -> bool:
        return name in document.args

    def typed(self, document: Pipeline, name: str, text: str) -> Any:
        from cuebook.dialects.pipeline.inputs import typed

        return typed(document, name, text)

    def step_group(self, label: str) -> str:
        step, item, _ = label.partition("[")
        return step if item else ""

    def gives_data(self, document: Pipeline, label: str) -> bool:
        step = document.step(label)
        return step is None or step.output is None or step.output.type != "text"

    def changed(self, document: Pipeline, results: Mapping[str, Any], name: str, text: str) -> Any:
        from cuebook.dialects.pipeline.changes import accepted

        return accepted(document, name, text)

    def check_changes(
        self, document: Pipeline, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        from cuebook.dialects.pipeline.changes import check

        check(document, inputs, results, changes)
        return dict(changes)

    def results(self, document: Pipeline, entries: Iterable[Entry]) -> dict[str, Any]:
        return {entry.event.label: entry.event.output for entry in entries if isinstance(entry.event, StepFinished)}

    def broken_promise(self, document: Pipeline, label: str, outcome: AnyOutcome) -> str:
        from cuebook.dialects.pipeline.run.outputs import broken

        step = document.step(label)
        return broken(step, outcome) if step is not None and not step.is_structure else ""

    def unfit(self, document: Pipeline, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        from cuebook.dialects.pipeline.check import beyond_format
        from cuebook.dialects.pipeline.parse.steps import folder_flaw

        flaw = folder_flaw(str(options.get(CWD.name, "")))
        if flaw:
            raise BadInput(f"The option 'cwd' {flaw}.", fix="Use a path below the workspace.")
        return beyond_format(document) if options.get(STRICT_SPEC.name) else ()

    def demands(self, document: Pipeline) -> tuple[Demand, ...]:
        return document.demands

    def secrets(self, document: Pipeline) -> Iterator[SecretNeed]:
        for secret in document.secrets:
            yield SecretNeed(secret.handle, secret.arg)
        for arg in document.args.values():
            if arg.secret:
                yield SecretNeed(argument=arg.name)

    def unverified(self, document: Pipeline) -> tuple[Problem, ...]:
        from cuebook.dialects.pipeline.check import unverified

        return unverified(document)

    def observe(self, document: Pipeline, run: str = "") -> Projection:
        from cuebook.dialects.pipeline.observe import PipelineProjection

        return PipelineProjection(document)

    def panels(self, document: Pipeline) -> tuple[Panel, ...]:
        from cuebook.dialects.pipeline.observe import PANELS

        return PANELS

    def note(self, name: str, data: Mapping[str, Any]) -> Note:
        from cuebook.dialects.pipeline.observe import note

        return note(name, data)


PIPELINE = Pipelines()
