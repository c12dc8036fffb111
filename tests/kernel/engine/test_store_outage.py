"""A store that cannot be used for a while ends a drive, and is never the failure of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.engine.approval import UNGUARDED
from cuebook.kernel.errors import StoreError
from cuebook.kernel.ports import Store
from tests.support.programs import begin, engine_on, lines


class Gate:
    """A gate that needs the store, which is away the first time."""

    def __init__(self) -> None:
        self.examined = 0

    async def examine(self, effect: Any, case: Any) -> Any:
        self.examined += 1
        if self.examined == 1:
            raise StoreError("The database cannot be reached.")
        return UNGUARDED

    def shown(self, words: str, parts: Any) -> Any:
        return words, parts, {}


async def test_a_store_that_is_away_while_an_effect_is_examined_is_no_refusal(store: Store, tmp_path: Path) -> None:
    engine = engine_on(store, tmp_path)
    engine.gate = Gate()  # type: ignore[assignment]
    await begin(engine, "nested")
    with pytest.raises(StoreError, match="cannot be reached"):
        await engine.drive("run")
    assert lines(tmp_path) == []
    assert (await engine.drive("run")).status == "completed"
    assert len(lines(tmp_path)) == 8
