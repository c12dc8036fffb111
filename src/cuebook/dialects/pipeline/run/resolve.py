"""Resolves references and conditions from the results of earlier steps. Pure.

A reference that cannot be resolved fails the step that uses it: `EffectFailed`, with the line.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from copy import copy
from typing import Any

import msgspec
from msgspec import to_builtins

from cuebook.dialects.inputs import alike
from cuebook.dialects.pipeline.model import (
    ArgRef,
    Constant,
    Function,
    LocalRef,
    Operation,
    Pipeline,
    Ref,
    RunRef,
    Secret,
    Step,
    StepRef,
    Words,
)
from cuebook.dialects.pipeline.run.results import Facts, Item, Result, items_of, without_line_end, written
from cuebook.kernel.browser_trail import Trail
from cuebook.kernel.context import Text
from cuebook.kernel.files import FileRef
from cuebook.kernel.outcomes import EffectFailed, Failed

_MISSING = object()
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]{1,1000}")


_OUTPUTS = ("stdout", "json", "results", "items")
"""The fields that a skipped step does not have."""


class Scope:
    """The values that a step can refer to: the arguments, and the results of the steps before it."""

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, Any]) -> None:
        self._pipeline = pipeline
        self._is_text = {step.id: step.output is not None and step.output.type == "text" for step in pipeline.every}
        self.args: MutableMapping[str, Any] = dict(inputs)
        self.results: MutableMapping[str, Result] = {}
        self.run: dict[str, str] = {}
        """The id of the run, and the date on which it started."""
        self.previous: dict[str, Result | None] = {}
        """The results of steps in the previous successful run; None for a step without one."""
        self.changes: dict[str, Any] = {}
        """The latest request for changes; empty if there is none."""
        self.state: dict[str, Any] = {}
        """The values kept by earlier runs, and by this run."""
        self.kept: dict[str, Any] = {}
        """Those of them that were set in this part of the pipeline."""
        self.trail = Trail()
        """The page of the run's browser, and how to get back to it."""
        self.locals: dict[str, Any] = {}
        """The values that exist only in this part of the pipeline: a loop's item, the loop, the failure."""

    def inside(self, **locals: Any) -> Scope:
        """A scope for steps inside another one. It sees everything here; what it adds stays inside."""
        made = copy(self)
        made.args, made.results = ChainMap({}, self.args), ChainMap({}, self.results)
        made.state = dict(self.state)  # what a branch sees must not depend on how fast the others are
        made.kept = {}
        made.locals = {**self.locals, **locals}
        return made

    def keep(self, values: Mapping[str, Any]) -> None:
        """Makes values that are kept for later runs visible to later steps."""
        self.state.update(values)
        self.kept.update(values)

    def override(self, values: Mapping[str, Any]) -> None:
        """Replaces arguments and step results with values from the user. A name that is both refers to the argument,
        as it did when the value was checked.
        """
        for name, value in values.items():
            if name in self._is_text and name not in self._pipeline.args:
                before = self.results[name].facts if name in self.results else Facts()
                facts = Facts(
                    self._is_text[name], approved=before.approved, exit_code=before.exit_code, status=before.status
                )
                self.results[name] = Result(Text(written(value)), facts)
            else:
                self.args[name] = value

    @property
    def domains(self) -> tuple[str, ...]:
        """The hosts that the run's browser may reach in addition to the host of its page."""
        return self._pipeline.allowed_domains

    def is_secret(self, name: str) -> bool:
        """Whether an argument is the handle of a secret."""
        arg = self._pipeline.args.get(name)
        return arg is not None and arg.secret

    # --- values and text ---

    def value(self, words: Words) -> Any:
        """The resolved value: a single reference keeps the type of its value, anything else is a string."""
        if len(words.parts) == 1 and not isinstance(words.parts[0], str):
            part = words.parts[0]
            return self._computed(part) if isinstance(part, Function) else self._found(part, words.line)
        return self.text(words)

    def text(self, words: Words) -> str:
        """The resolved text. A missing value fails: the word null would look like a value."""
        return "".join(part if isinstance(part, str) else self.written(part, words.line) for part in words.parts)

    def written(self, ref: Ref | Function, line: int) -> str:
        """The value of a reference or a function, for use within text."""
        value = self._computed(ref) if isinstance(ref, Function) else self._found(ref, line)
        if value is None:
            raise _nothing(ref, line)
        return written(value)

    def handed(self, words: Words) -> str:
        """The stdin of a program or the body of a request. A single reference to an output keeps its trailing
        newline, and a JSON null stays null.
        """
        ref = words.parts[0] if len(words.parts) == 1 else ""
        if isinstance(ref, StepRef) and ref.path[0] in ("json", "stdout"):
            return written(self._found(ref, words.line, whole=True))
        return self.text(words)

    def field(self, value: Any) -> Any:
        """A value of an action with all references resolved and without its secrets."""
        match value:
            case Words():
                return self.value(value)
            case dict():
                return {name: self.field(one) for name, one in value.items()}
            case list() | tuple():
                return [self.field(one) for one in value]
            case _:
                return value

    def file(self, given: StepRef | FileRef, line: int = 0) -> FileRef:
        """A file of an earlier step. Fails if that step did not produce it."""
        if isinstance(given, FileRef):
            return given
        result = self.results.get(given.step, Result(facts=Facts(skipped=True)))
        name = str(given.path[1])
        if name not in result.facts.files:
            was = "was skipped" if result.facts.skipped else "did not produce it"
            message = f"it takes the file {name} of step {given.step}, which {was}"
            raise _unresolved("missing_value", message, line, "Add a condition, as in `!$step.skipped`.")
        return result.facts.files[name]

    def has(self, secret: Secret) -> bool:
        """Whether a secret has a handle. An optional argument may have none."""
        return bool(secret.handle or self.args.get(secret.arg))

    def handle(self, secret: Secret) -> str:
        """The handle of a secret, either its own or its argument's."""
        if not self.has(secret):
            fix = f"Pass it as --{secret.arg} HANDLE. Only a variable, a header or a tool argument can be left out."
            raise _unresolved("missing_argument", f"the secret argument '{secret.arg}' is missing", secret.line, fix)
        return (secret.handle or str(self.args[secret.arg])).removeprefix("secret:")

    # --- conditions ---

    def holds(self, condition: Any) -> bool:
        value = self._operand(condition)
        return value is not _MISSING and _truth(value)

    def _operand(self, operand: Any) -> Any:
        match operand:
            case Constant(value=value):
                return value
            case Operation(operator="&&", operands=(left, right)):
                return self.holds(left) and self.holds(right)
            case Operation(operator="||", operands=(left, right)):
                return self.holds(left) or self.holds(right)
            case Operation(operator="!", operands=(one,)):
                return not self.holds(one)
            case Operation(operator=operator, operands=(left, right)):
                ordered = operator not in ("==", "!=")
                return _COMPARISONS[operator](self._compared(left, ordered), self._compared(right, ordered))
            case Function():
                return self._computed(operand)
            case _:
                return self._found(operand, 0, asked=True)

    def _computed(self, function: Function) -> Any:
        """The value of a function. Values that do not exist reach it as null."""
        found = (self._operand(one) for one in function.operands)
        values = [None if value is _MISSING else value for value in found]
        try:
            return _FUNCTIONS[function.name](*values)
        except ValueError as why:
            fix = "Use default(...) for a value that may be missing."
            raise _unresolved(
                "missing_value", f"{function.text or function.name} cannot be computed: {why}", 0, fix
            ) from None

    def _compared(self, operand: Any, ordered: bool) -> Any:
        """An operand of a comparison. A missing value cannot be ordered, so `<`, `>` and the like fail."""
        value = self._operand(operand)
        if ordered and value is _MISSING:
            fix = f"Check the output of that step, or test it first, as in `{_shown(operand)} != null && ...`."
            raise _unresolved(
                "missing_value", f"its condition compares {_shown(operand)}, which does not exist", 0, fix
            )
        return None if value is _MISSING else value

    # --- references ---

    def _found(self, ref: Ref, line: int, *, asked: bool = False, whole: bool = False) -> Any:
        """The value of a reference. It may be missing in a condition (`asked`) but nowhere else. An output loses its
        trailing newline unless it is passed on `whole`.
        """
        if isinstance(ref, ArgRef):
            value = self.args.get(ref.name)
            if value is None and not asked and ref.name not in self.args:
                raise _nothing(ref, line)
            return value
        if isinstance(ref, RunRef):
            return self._of_runs(ref, line)
        if isinstance(ref, LocalRef):
            value = _within(self.locals.get(ref.name), ref.path)
            if value is _MISSING and not asked:
                raise _unresolved("missing_value", f"there is no {_shown(ref)}", line, "Check the list of the loop.")
            return value
        result = self.results.get(ref.step, Result(facts=Facts(skipped=True)))
        field, rest = ref.path[0], ref.path[1:]
        if result.facts.skipped and field in _OUTPUTS:
            if asked:
                return None
            message = f"it refers to step {ref.step}, which was skipped"
            raise _unresolved("skipped_reference", message, line, "Add a condition, as in `!$step.skipped`.")
        if field in ("stdout", "json"):
            _check_complete(ref.step, result, line, "no_json" if field == "json" else "incomplete_output")
        if field == "stderr" and result.facts.stderr_cut and not result.facts.may_be_cut:
            raise _cut(f"the error output of step {ref.step}", ref.step, "", line, "incomplete_output")
        if field == "headers":
            rest = tuple(str(part).lower() for part in rest)
        value = _within(_FIELDS[str(field)](ref.step, result, line), rest)
        if value is _MISSING:
            if asked:
                _check_path(ref, _FIELDS[str(field)](ref.step, result, line))
                return _MISSING
            raise _unresolved("missing_value", f"there is no {_shown(ref)}", line, "Check the output of that step.")
        return without_line_end(value) if field in ("stdout", "stderr") and not whole else value

    def _of_runs(self, ref: RunRef, line: int) -> Any:
        """What is known of the run and of earlier runs; null if there is nothing."""
        match ref.source:
            case "run":
                return self.run.get(str(ref.path[0]))
            case "changes":
                return self.changes.get(str(ref.path[0]), 0 if ref.path[0] == "count" else "")
            case "state":
                value = _within(self.state.get(str(ref.path[0])), ref.path[1:])
                return None if value is _MISSING else value
        step = str(ref.path[0])
        result = self.previous.get(step)
        if result is None:
            return None
        where = f"{step} in the previous run"
        _check_complete(where, result, line, "incomplete_output")
        if ref.path[1] == "stdout":
            return without_line_end(str(result.text))
        value = _within(_json(where, result, line), ref.path[2:])
        return None if value is _MISSING else value


def _cut(what: str, step: str, kept: str, line: int, code: str) -> EffectFailed:
    message = f"it refers to {what}, which was cut{f': {kept}' if kept else ''}"
    fix = (
        f"Set a larger output.max_bytes for step {step}, up to `max_output` under [limits] in the configuration; have it"
        " write a file; or accept it with `truncated: accept` in its output."
    )
    return _unresolved(code, message, line, fix)


def _check_complete(step: str, result: Result, line: int, code: str) -> None:
    """Rejects an output that was cut or had bytes replaced: everything derived from it would be silently wrong."""
    facts = result.facts
    if facts.truncated and not facts.may_be_cut:
        of = f" of {facts.size:,}" if facts.size else ""
        kept = f"the first {len(str(result.text).encode()):,}{of} bytes were kept"
        raise _cut(f"the output of step {step}", step, kept, line, code)
    if facts.replaced:
        message = f"it refers to the output of step {step}, in which invalid UTF-8 bytes were replaced"
        fix = f"Have step {step} print text, for example base64, or write a file."
        raise _unresolved(code, message, line, fix)


def _json(step: str, result: Result, line: int) -> Any:
    try:
        return result.json()
    except ValueError as why:
        message = f"it refers to the JSON of step {step}, which is not JSON: {why}"
        raise _unresolved("no_json", message, line, f"Refer to ${step}.stdout, or have that step print JSON.") from None


_FIELDS: dict[str, Callable[[str, Result, int], Any]] = {
    "stdout": lambda step, result, line: str(result.text),
    "json": _json,
    "approved": lambda step, result, line: result.facts.approved,
    "skipped": lambda step, result, line: result.facts.skipped,
    "error": lambda step, result, line: bool(result.facts.error),
    "errorMessage": lambda step, result, line: result.facts.message or None,
    "exit_code": lambda step, result, line: result.facts.exit_code,
    "status": lambda step, result, line: result.facts.status,
    "stderr": lambda step, result, line: result.facts.stderr,
    "headers": lambda step, result, line: result.facts.headers,
    "truncated": lambda step, result, line: result.facts.truncated,
    "files": lambda step, result, line: {name: to_builtins(one) for name, one in result.facts.files.items()},
    "denied": lambda step, result, line: result.facts.refused == "denied",
    "expired": lambda step, result, line: result.facts.refused == "expired",
    "items": lambda step, result, line: msgspec.to_builtins(_complete(step, result, line)),
    "results": lambda step, result, line: _results(step, result, line),
    "winner": lambda step, result, line: result.facts.winner or None,
}
"""The fields of a result that a reference can read."""


def _complete(step: str, result: Result, line: int) -> list[Item]:
    found = items_of(result)
    cut = next((item for item in found if item.incomplete), None)
    if cut is not None:
        message = f"it refers to the results of step {step}, but the output of {cut.key} was cut or is not UTF-8"
        fix = f"Set a larger output.max_bytes for step {step}, or have it print less."
        raise _unresolved("incomplete_output", message, line, fix)
    return found


def _results(step: str, result: Result, line: int) -> Any:
    """The outputs of the items in order, or of the branches by name."""
    found = _complete(step, result, line)
    return {item.key: item.output for item in found} if result.facts.keyed else [item.output for item in found]


def _within(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        if isinstance(value, dict) and str(part) in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return _MISSING
    return value


def _check_path(ref: StepRef, value: Any) -> None:
    """Rejects a path into a scalar, or a name in a list: it can never exist, so it is a mistake."""
    for number, part in enumerate(ref.path[1:], 1):
        if isinstance(value, list) and isinstance(part, int):
            return
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else "null" if value is None else "a single value"
            place = _shown(StepRef(ref.step, ref.path[:number]))
            message = f"its condition uses {_shown(ref)}, but {place} is {kind} and has no '{part}'"
            if value is None:
                return
            raise _unresolved("missing_value", message, 0, "Correct the path, or the output of that step.")
        if str(part) not in value:
            return
        value = value[str(part)]


def _nothing(ref: Ref | Function, line: int) -> EffectFailed:
    if isinstance(ref, Function):
        fix = "Use default(...) for a value that may be missing."
        return _unresolved("missing_value", f"{ref.text} is null, which cannot be inserted into text", line, fix)
    if isinstance(ref, ArgRef):
        fix = f"Pass a value, or add a condition to the step, as in `${{{ref.name}}} != null`."
        return _unresolved("missing_argument", f"the argument '{ref.name}' has no value", line, fix)
    fix = f"Add a condition to the step, as in `{_shown(ref)} != null`."
    return _unresolved("missing_value", f"{_shown(ref)} is null, which cannot be inserted into text", line, fix)


def _unresolved(code: str, message: str, line: int, fix: str) -> EffectFailed:
    where = f"line {line}: " if line else ""
    return EffectFailed(Failed(code, f"{where}{message}.", fix))


def _shown(ref: Any) -> str:
    if isinstance(ref, Function):
        return ref.text
    match ref:
        case RunRef(source=name) | StepRef(step=name) | LocalRef(name=name):
            return f"${name}.{'.'.join(map(str, ref.path))}" if ref.path else f"${{{name}}}"
        case _:
            return f"${{{ref.name}}}"


# --- functions ---


def _length(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise ValueError("a string, a list or an object has a length, and this is neither")


def _contains(value: Any, part: Any) -> bool:
    if isinstance(value, str):
        return part is not None and written(part) in value
    if isinstance(value, dict):
        return isinstance(part, str) and part in value
    return isinstance(value, list) and any(alike(one, part) for one in value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda value, other: other if value is None else value,
    "contains": _contains,
    "length": _length,
    "trim": lambda value: value.strip() if isinstance(value, str) else value,
}


# --- comparisons, as in Lobster ---


def _truth(value: Any) -> bool:
    """Whether a value is truthy: everything except false, null, 0 and the empty string. Empty lists and objects are truthy."""
    return value not in (None, False, "", 0) if not isinstance(value, list | dict) else True


def _ordered(compare: Callable[[int | float, int | float], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        one, other = _number(left), _number(right)
        return one is not None and other is not None and compare(one, other)

    return compared


def _number(value: Any) -> int | float | None:
    """Returns a number, possibly parsed from a string, or None. Integers stay exact."""
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            return None
        value = int(text) if _WHOLE.fullmatch(text) else float(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": alike,
    "!=": lambda left, right: not alike(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
}


# --- references between steps ---


def _referring(step: Step) -> tuple[Any, ...]:
    """The fields of a step that may refer to earlier steps."""
    return (
        step.action,
        step.stdin,
        step.env,
        step.condition,
        step.state,
        step.asked,
        step.files,
        step.takes,
        step.postcondition,
    )


def referred(step: Step) -> list[str]:
    """The steps that a step refers to, each once, in the order of its fields."""
    more = (step.each, step.until, step.on_denied, step.on_expired)
    found = dict.fromkeys(ref.step for ref in refs((_referring(step), more)))
    return [name for name in found if name != step.id]


def undo_refs(step: Step) -> set[str]:
    """The steps whose results the rollback of a step needs."""
    return set() if step.rollback is None else {ref.step for ref in refs(step.rollback)}


def own_refs(step: Step) -> Iterator[StepRef]:
    """The references of a step, without those of the steps inside it."""
    action = None if step.is_structure and step.inner else step.action
    return refs((action, *_referring(step)[1:], step.each, step.until))


def refs(value: Any) -> Iterator[StepRef]:
    """The references to steps within a value of the document."""
    return (ref for ref in all_refs(value) if isinstance(ref, StepRef))


def run_refs(value: Any) -> Iterator[RunRef]:
    """The references to the run and to earlier runs within a value of the document."""
    return (ref for ref in all_refs(value) if isinstance(ref, RunRef))


def all_refs(value: Any) -> Iterator[Ref]:
    """The references within a value of the document."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Ref):
            yield one
        elif isinstance(one, dict):
            waiting += reversed(one.values())
        elif isinstance(one, list | tuple):
            waiting += reversed(one)
        elif hasattr(one, "__struct_fields__"):
            waiting += [getattr(one, name) for name in reversed(one.__struct_fields__)]
