"""The workflow of a run: it activates the run on a worker, waits until someone wakes it or a deadline passes, and repeats.

Its history contains ids of runs and names of queues, and nothing else about a run. Workers of a later release replay the
histories of open workflows, so a change of what this module asks Temporal to do needs `workflow.patched`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

NAME = "cuebook.run"
WAKE = "wake"
ACTIVATE = "cuebook.activate"
CANCEL = "cuebook.cancel"

HEARTBEAT = 10.0
"""Seconds without a heartbeat after which a worker counts as dead. The store's lease has the last word."""
AT_MOST = 40
"""Activations in one history; then the workflow continues as new. Histories stay short because workers cache none."""
_LONGEST = timedelta(days=30)
_AFTER_DEFECT, _AFTER_MANY = 5.0, 300.0
"""Seconds after which a run that could not be driven is retried. The delay doubles each time, up to the second number."""
_DEFECTS = 10
"""Retries after which only a wake-up makes another attempt."""
_HURRIED = 5
"""How often in a row a run is activated again at once."""
_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))


@dataclass(frozen=True)
class Order:
    """The input of the workflow and of its activities."""

    run: str
    queue: str = ""


@dataclass(frozen=True)
class Rest:
    """What an activation left behind."""

    over: bool = False
    """Whether nothing is left to do until someone wakes the run."""
    queue: str = ""
    """Where the run can be driven next."""
    again: bool = False
    """Whether it can be driven at once, on that queue."""
    seconds: float | None = None
    """Time until its next wait expires, by the clock of the store."""


@workflow.defn(name=NAME, sandboxed=False)
class RunWorkflow:
    """Delivers one run until it has ended."""

    @workflow.init
    def __init__(self, order: Order) -> None:
        self._run = order.run
        self._queue = order.queue
        self._woken = True
        self._activations = 0
        self._defects = 0
        self._hurried = 0
        self._pending: dict[str, workflow.ActivityHandle[Rest]] = {}
        """The activations under way, by their queue. There are several if the run's needs changed in the meantime."""

    @workflow.signal(name=WAKE)
    def wake(self, queue: str) -> None:
        self._queue = queue or self._queue
        self._woken = True

    @workflow.run
    async def deliver(self, order: Order) -> None:
        try:
            await self._until_over()
        except asyncio.CancelledError:  # someone cancelled the workflow, and means the run
            await workflow.execute_activity(
                CANCEL, order, start_to_close_timeout=timedelta(seconds=60), retry_policy=_RETRIES
            )
            await self._until_over()
            raise

    async def _until_over(self) -> None:
        while True:
            rest = await self._activated()
            if rest.over and not self._woken:
                return
            self._queue = self._queue if self._woken else rest.queue or self._queue
            self._hurried = self._hurried + 1 if rest.again else 0
            if not rest.again:
                await self._wait(rest.seconds)
            elif self._hurried > _HURRIED:  # it claims to have work, and does none
                await self._wait(min(2.0 ** (self._hurried - _HURRIED), _AFTER_MANY))

    async def _activated(self) -> Rest:
        """Activates the run, and returns what the first activation that finished left behind."""
        while True:
            if not self._pending:
                self._continue_as_new_if_long()
            if self._queue not in self._pending:
                self._woken = False  # what it was woken for is in the store, so this activation sees it
                self._pending[self._queue] = self._begin(self._queue)
            await workflow.wait_condition(self._has_news)
            finished = [queue for queue, handle in self._pending.items() if handle.done()]
            if finished:
                break
        handle = self._pending.pop(finished[0])
        for other in self._pending.values():  # no worker took it, or it was refused because the run is driven elsewhere
            other.cancel()
        self._pending.clear()
        try:
            rest = handle.result()
        except ActivityError:
            self._defects += 1
            pause = min(_AFTER_DEFECT * 2 ** (self._defects - 1), _AFTER_MANY)
            return Rest(queue=finished[0], seconds=pause if self._defects <= _DEFECTS else None)
        self._defects = 0
        return rest

    def _has_news(self) -> bool:
        moved = self._woken and self._queue not in self._pending
        return moved or any(handle.done() for handle in self._pending.values())

    def _begin(self, queue: str) -> workflow.ActivityHandle[Rest]:
        self._activations += 1
        return workflow.start_activity(
            ACTIVATE,
            Order(self._run, queue),
            task_queue=queue,
            result_type=Rest,
            start_to_close_timeout=_LONGEST,
            heartbeat_timeout=timedelta(seconds=HEARTBEAT),
            retry_policy=_RETRIES,
            cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        )

    async def _wait(self, seconds: float | None) -> None:
        timeout = None if seconds is None else min(timedelta(seconds=max(0.05, seconds)), _LONGEST)
        try:
            await workflow.wait_condition(lambda: self._woken, timeout=timeout)
        except TimeoutError:
            pass

    def _continue_as_new_if_long(self) -> None:
        if self._activations >= AT_MOST or workflow.info().is_continue_as_new_suggested():
            workflow.continue_as_new(Order(self._run, self._queue))
