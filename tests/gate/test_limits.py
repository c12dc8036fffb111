"""The limits of an effect: the configured ones, the requested ones, and the maximum that it can request."""

from __future__ import annotations

import pytest

from cuebook.gate.limits import Ceilings
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.ports import Limits


@pytest.mark.parametrize(("timeout", "granted"), [(None, 60.0), (5.0, 5.0), (120.0, 120.0), (4000.0, 3600.0)])
def test_an_effect_gets_the_time_it_asks_for_up_to_the_configured_limit(timeout: float | None, granted: float) -> None:
    ceilings = Ceilings(max_seconds=3600.0)
    assert ceilings.for_effect(RunCommand(("true",), timeout=timeout)).seconds == granted


def test_without_a_cpu_time_limit_it_follows_the_time_of_the_effect() -> None:
    given = Ceilings(max_seconds=3600.0, cpu_follows=True).for_effect(RunCommand(("true",), timeout=900.0))
    assert given.cpu_seconds >= 900


def test_a_cpu_time_limit_that_was_set_applies() -> None:
    ceilings = Ceilings(Limits(cpu_seconds=7), max_seconds=3600.0)
    assert ceilings.for_effect(RunCommand(("true",), timeout=900.0)).cpu_seconds == 7
