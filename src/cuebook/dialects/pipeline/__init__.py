"""The pipeline dialect: ordered steps with typed commands, contracts and approvals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cuebook.dialects.options import Option
from cuebook.dialects.pipeline.args import accept, typed
from cuebook.dialects.pipeline.detect import recognises
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.dialects.pipeline.parse import parse
from cuebook.dialects.pipeline.steps import folder_flaw
from cuebook.dialects.registry import Demand, Named, OutlinedStep, Problem
from cuebook.kernel.effects import Program, SecretNeed
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import AnyOutcome

CWD = Option("cwd", "The folder that commands run in, below the workspace.", "text")
MAX_OUTPUT = Option("max_output", "The most bytes that are kept of what a step gives.", "number")
STRICT_SPEC = Option("strict_spec", "As the format says and nothing beyond: no timeout_ms, retry, on_error, env, cwd, with or effect, no typed arguments.")  # fmt: skip


class Pipelines:
    """Implements `registry.Dialect`, and of what a dialect may have besides the outline, types and postconditions."""

    name = "pipeline"
    interpreter = 1
    options: tuple[Option, ...] = (CWD, MAX_OUTPUT, STRICT_SPEC)

    def recognises(self, text: str, name: str) -> bool:
        return recognises(text, name)

    def parse(self, text: str, name: str) -> Pipeline:
        return parse(text, name)

    def accept(self, document: Pipeline, given: Mapping[str, Any]) -> dict[str, Any]:
        return accept(document, given)

    def start(
        self, document: Pipeline, inputs: Mapping[str, Any], interpreter: int, options: Mapping[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        from cuebook.dialects.pipeline.interpret import interpret

        if interpreter != self.interpreter:
            raise CuebookError(
                f"This run was started by version {interpreter} of the pipeline interpreter, which is not known here.",
                fix="Upgrade Cuebook.",
            )
        return lambda state: interpret(document, inputs, options, state)

    def outline(self, document: Pipeline) -> tuple[OutlinedStep, ...]:
        return tuple(OutlinedStep(step.id, step.name or step.id) for step in document.steps)

    def models(self, document: Pipeline) -> Iterable[Named]:
        return document.models

    def takes(self, document: Pipeline, name: str) -> bool:
        return name in document.args

    def typed(self, document: Pipeline, name: str, text: str) -> Any:
        return typed(document, name, text)

    def gives_data(self, document: Pipeline, label: str) -> bool:
        return all(step.output is None or step.output.type != "text" for step in document.steps if step.id == label)

    def changed(self, document: Pipeline, results: Mapping[str, Any], name: str, text: str) -> Any:
        from cuebook.dialects.pipeline.changing import accepted

        return accepted(document, name, text)

    def check_changes(
        self, document: Pipeline, inputs: Mapping[str, Any], results: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> None:
        from cuebook.dialects.pipeline.changing import check

        check(document, inputs, results, changes)

    def broken(self, document: Pipeline, label: str, outcome: AnyOutcome) -> str:
        from cuebook.dialects.pipeline.outputs import broken

        return next((broken(step, outcome) for step in document.steps if step.id == label), "")

    def unfit(self, document: Pipeline, options: Mapping[str, Any]) -> tuple[Problem, ...]:
        from cuebook.dialects.pipeline.check import beyond_format

        flaw = folder_flaw(str(options.get(CWD.name, "")))
        if flaw:
            raise BadInput(f"The option 'cwd' {flaw}.", fix="Give a path below the workspace.")
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


PIPELINE = Pipelines()
