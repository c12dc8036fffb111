"""Answers that are given beforehand: `--answer STEP=VALUE` and `--answers FILE`.

They are held against the playbook's questions, so that one which cannot be used is told before anything is started.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from cuebook.dialects.registry import Dialect, Outlining
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli.inputs import read_table
from cuebook.surfaces.cli.options import Given, value_of
from cuebook.surfaces.reading.answers import check_answers


class Source(NamedTuple):
    """A playbook as it was read."""

    dialect: Dialect
    document: Any


Answers = dict[str, str | tuple[str, ...]]
"""By label. Several are given in turn, each time that it is asked."""


def gathered_answers(given: Given, source: Source | None) -> Answers:
    """All answers by label: the file's, then those of `--answer`, the later ones winning."""
    answers: Answers = {}
    if given["answers"]:
        table = read_table(given["answers"], "--answers", lists=True)
        answers.update((label, _several(label, value)) for label, value in table.items())
    for one in given["answer"]:
        label, equals, value = one.partition("=")
        if not equals or not label:
            raise BadInput(f"--answer {one}: this is no STEP=VALUE.", fix="Write it as in --answer 2=yes.")
        answers[label] = value_of(f"--answer {label}", value)
    if source is not None and isinstance(source.dialect, Outlining):
        check_answers(answers, source.dialect.outline(source.document))
    return answers


def _several(label: str, value: Any) -> str | tuple[str, ...]:
    return tuple(_text(label, one) for one in value) if isinstance(value, list) else _text(label, value)


def _text(label: str, value: Any) -> str:
    """An answer is a text; what a file holds besides is taken as it is written in JSON."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"The answer for step {label} is no valid text.", fix="Correct it.") from None
    return text


def labels_of(source: Source) -> list[str]:
    """Every step that can be named: those of the plan, and where the playbook tells them, sub-steps."""
    dialect, document = source
    steps: Sequence[Any] = dialect.outline(document) if isinstance(dialect, Outlining) else document.plan
    return list(dict.fromkeys(step.label for step in steps))
