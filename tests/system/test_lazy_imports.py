"""Requests that arrive while a library is being imported wait until it is complete."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cuebook.system import lazy_imports
from tests.support.sampling import THOROUGH

WAYS = ["http", "openai", "anthropic", "together"] if THOROUGH else ["http", "together"]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_requests_of_a_process_that_come_together_all_succeed(way: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.system.first_use_process", way], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


async def test_a_missing_library_is_an_import_error_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ImportError):
            await lazy_imports.load("cuebook_has_no_such_module")
