"""The workflow that Temporal starts at each moment of a schedule: it asks a worker to fire the schedule, and ends.

Its history contains the id of Temporal's schedule and moments, and nothing else. What became of a firing is in the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey

NAME = "cuebook.fire"
FIRE = "cuebook.fire"
_PLANNED = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
_AT_MOST = timedelta(seconds=60)


@dataclass(frozen=True)
class Due:
    """A firing that is due."""

    timer: str
    """The id of Temporal's schedule."""
    at: float


@workflow.defn(name=NAME, sandboxed=False)
class FireWorkflow:
    @workflow.run
    async def fire(self, timer: str) -> None:
        planned = workflow.info().typed_search_attributes.get(_PLANNED) or workflow.info().start_time
        await workflow.execute_activity(
            FIRE, Due(timer, planned.timestamp()), start_to_close_timeout=_AT_MOST, retry_policy=_RETRIES
        )
