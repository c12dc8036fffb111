"""Finds the playbooks in the Python blocks of a program, with their decorators and signatures.

A block is parsed into a syntax tree and never executed here.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

import msgspec

from cuebook.dialects.findings import Problem
from cuebook.dialects.program.model import Param, Playbook
from cuebook.dialects.program.parse.lists import triggers_of
from cuebook.dialects.program.parse.outline import Fence

DECORATOR = "playbook"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Block(msgspec.Struct, frozen=True):
    playbooks: list[Playbook]
    problems: list[Problem]


def is_python(fence: Fence) -> bool:
    """Whether the first word after the fence is `python`."""
    return fence.info.lower().split(" ", 1)[0] in ("python", "py", "python3")


def declares_playbooks(fence: Fence) -> bool:
    """Whether a block has a function that is a playbook. A block without such a function may be an example."""
    return any(line.startswith(f"@{DECORATOR}") for line in fence.text.split("\n"))


def block_of(fence: Fence) -> Block:
    found = Block([], [])
    tree = _tree(fence, found)
    for node in tree.body if tree is not None else ():
        if isinstance(node, _Function):
            decorator = next((one for one in node.decorator_list if _is_playbook(one)), None)
            if decorator is not None:
                found.playbooks.append(_playbook(node, decorator, fence, found))
    return found


def _tree(fence: Fence, found: Block) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings, which are up to the author
            return ast.parse(fence.text)
    except SyntaxError as error:
        line = fence.number + (error.lineno or 1)
        found.problems.append(Problem(f"Invalid Python: {error.msg}.", line, "Correct it.", "PYTHON"))
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "it is nested too deeply"
        found.problems.append(Problem(f"This Python cannot be parsed: {said}.", fence.number, "Simplify it.", "PYTHON"))
    return None


def _is_playbook(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(named, ast.Name) and named.id == DECORATOR


def _playbook(node: _Function, decorator: ast.expr, fence: Fence, found: Block) -> Playbook:
    line = fence.number + node.lineno
    metadata: dict[str, Any] = {}
    triggers: list[tuple[str, int]] = []
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        value = _literal(keyword.value)
        if keyword.arg is None or value is _UNKNOWN or (keyword.arg == "triggers" and not _are_texts(value)):
            message = f"The argument {keyword.arg or '**'} of @{DECORATOR} on '{node.name}' is not a literal."
            fix = "Write strings, numbers, lists and dicts: a block is not run when it is parsed."
            found.problems.append(Problem(message, fence.number + keyword.value.lineno, fix, "DECORATOR"))
        elif keyword.arg == "triggers":
            triggers = [(text, line) for text in value]
        else:
            metadata[keyword.arg] = value
    words = (ast.get_docstring(node) or "").strip().split("\n", 1)[0].strip()
    return Playbook(
        node.name,
        "python",
        params=_params(node.args),
        returns=_written(node.returns),
        description=words,
        metadata=metadata,
        triggers=triggers_of(triggers),
        source=fence.text,
        open=node.args.kwarg is not None or node.args.vararg is not None,
        line=line,
    )


def _params(args: ast.arguments) -> tuple[Param, ...]:
    places = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [*[None] * (len(places) - len(args.defaults)), *args.defaults]
    given = [*zip(places, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return tuple(_param(one, default) for one, default in given)


def _param(arg: ast.arg, default: ast.expr | None) -> Param:
    type = _written(arg.annotation)
    if default is None:
        return Param(arg.arg, type)
    value = _literal(default)
    return Param(arg.arg, type, None if value is _UNKNOWN else value, True)


def _written(annotation: ast.expr | None) -> str:
    """A type as written, without quotes."""
    if annotation is None:
        return ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    try:
        return ast.unparse(annotation)
    except RecursionError:
        return ""


_UNKNOWN = object()


def _literal(node: ast.expr) -> Any:
    """The value of a literal; `_UNKNOWN` for anything that would have to be executed."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _UNKNOWN
    return _plain(value)


def _plain(value: Any) -> Any:
    """The value as JSON data, because documents are stored."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            items = [_plain(one) for one in value]
            return _UNKNOWN if _UNKNOWN in items else items
        case dict():
            pairs = {str(key): _plain(one) for key, one in value.items()}
            return _UNKNOWN if _UNKNOWN in pairs.values() else pairs
    return _UNKNOWN


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
