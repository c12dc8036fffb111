"""What an observer can learn about a run that this process drives, in addition to its events."""

from __future__ import annotations

from collections.abc import Collection

from cuebook.kernel.engine.driver import Driver
from cuebook.kernel.journal import Key
from cuebook.kernel.run import RunRow, StepRow


class Sight:
    """A run as its driver knows it now."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def row(self) -> RunRow:
        return self._driver.row

    @property
    def life(self) -> int:
        """How often the run was rewound after it had ended: what is done again is not what was done before."""
        return self._driver.recorded.rewound

    @property
    def open_steps(self) -> Collection[StepRow]:
        return self._driver.writer.state.open.values()

    @property
    def outermost(self) -> str:
        """The run that a person started; this one may be a child of it."""
        return self._driver.outermost.run_id

    @property
    def caller(self) -> tuple[str, int, Key] | None:
        """Of a child: the run that started it, the life of that run, and the effect."""
        above = self._driver.started_by
        return None if above is None else (above.driver.run_id, above.driver.recorded.rewound, above.key)

    def began(self, effect: Key) -> float:
        """When an earlier driver began an effect; 0 if none did."""
        return self._driver.recorded.begun.get(effect, (0, 0.0))[1]

    def opened(self, wait: str) -> float:
        """When an earlier driver opened a wait; 0 if none did."""
        return self._driver.recorded.opened_at.get(wait, 0.0)


def sight_of(driver: Driver | None) -> Sight | None:
    """None if the run is not driven here, or is only about to be."""
    return Sight(driver) if driver is not None and hasattr(driver, "recorded") else None
