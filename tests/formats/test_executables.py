"""The classification of programs by name."""

from __future__ import annotations

import pytest

from cuebook.formats.executables import is_interpreter


@pytest.mark.parametrize(
    "word", ["sh", "/bin/bash-5.1", "python3.11", "C/python3.11.exe", "Rscript", "sqlite3", "redis-cli", "node18"]
)
def test_an_interpreter_is_recognised_by_its_path_and_with_its_version(word: str) -> None:
    assert is_interpreter(word)


@pytest.mark.parametrize("word", ["sort", "sha256sum", "shuf", "pythons", "", "3.11", "1" * 1_000_000 + "x"])
def test_other_programs_are_not_interpreters(word: str) -> None:
    assert not is_interpreter(word)
