"""Checks what an assistant gives a playbook, before anything is created: it has nobody who would notice a slip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects import registry
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.loading import Playbook
from cuebook.surfaces.reading.answers import check_answers
from cuebook.surfaces.starting import Wanted


def check_given(playbook: Playbook, wanted: Wanted) -> None:
    """`BadInput` for inputs that are missing, unknown or no text where one is wanted, and for answers that fit no question."""
    _check_names(playbook, wanted.inputs)
    missing = [one.name for one in playbook.inputs if one.required and one.name not in wanted.inputs]
    if missing:
        raise BadInput(f"{playbook.name} needs {', '.join(missing)}.", fix="Give the inputs by their names.")
    dialect = playbook.dialect
    texts = () if isinstance(dialect, registry.Typed) else playbook.inputs  # whoever has types checks them
    for one in texts:
        if isinstance(wanted.inputs.get(one.name), (list, dict)):
            raise BadInput(f"The input {one.name} of {playbook.name} takes no list and no object.", fix="Give a text.")
    if wanted.answers and isinstance(dialect, registry.Outlining):
        check_answers(wanted.answers, dialect.outline(playbook.document))


def _check_names(playbook: Playbook, given: Mapping[str, Any]) -> None:
    """A name that is misspelled would be lost."""
    dialect, document = playbook.dialect, playbook.document
    declared = [one.name for one in playbook.inputs]
    places = dialect.places(document, playbook.text) if isinstance(dialect, registry.Filling) else frozenset()
    takes = dialect.takes if isinstance(dialect, registry.Typed) else lambda document, name: False
    strays = [name for name in given if name not in declared and name not in places and not takes(document, name)]
    if strays:
        known = ", ".join(declared) or "none"
        raise BadInput(f"{playbook.name} declares no input {', '.join(strays)[:200]}.", fix=f"Its inputs are: {known}.")
