"""`TemporalDispatcher`: wakes a run by a signal to its workflow, which is started if there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from cuebook.kernel.run import RunRow
from cuebook.service.dispatch.dispatcher import Unreachable
from cuebook.service.dispatch.temporal.connection import PATIENCE, Connection, Server, unreachable
from cuebook.service.dispatch.temporal.queues import queue_of
from cuebook.service.dispatch.temporal.workflow import NAME, WAKE, Order

PREFIX = "cuebook-run-"
_POLLS = timedelta(seconds=70)
"""The longest time between two polls of a worker that is up: a poll lasts a minute if nothing happens."""
_TASK = timedelta(seconds=5)
"""Time for a workflow task, which takes milliseconds: a worker that needs longer has been stopped."""


def workflow_id(run: str) -> str:
    return f"{PREFIX}{run}"


class TemporalDispatcher:
    """Brings runs to the workers of one Temporal namespace."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = Connection(server)

    async def connect(self) -> None:
        await self.connection.client()

    async def wake(self, row: RunRow, *, ending: bool = False) -> bool:
        queue = queue_of(self.server.queue, row, ending=ending)
        try:
            client = await self.connection.client()
            await self.connection.finished(
                client.start_workflow(
                    NAME,
                    Order(row.id, queue),
                    id=workflow_id(row.id),
                    task_queue=self.server.queue,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    start_signal=WAKE,
                    start_signal_args=[queue],
                    task_timeout=_TASK,
                    rpc_timeout=PATIENCE,
                )
            )
        except (Unreachable, RPCError) as error:
            self.connection.lost(error if isinstance(error, Unreachable) else unreachable(self.server, error), row.id)
            return False
        self.connection.back()
        return True

    async def has_worker(self, row: RunRow) -> bool:
        asked = DescribeTaskQueueRequest(
            namespace=self.server.namespace,
            task_queue=TaskQueue(name=queue_of(self.server.queue, row)),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        try:
            client = await self.connection.client()
            found = await self.connection.finished(client.workflow_service.describe_task_queue(asked, timeout=PATIENCE))
        except (Unreachable, RPCError):
            return True  # unknown
        since = datetime.now(UTC) - _POLLS
        return any(one.last_access_time.ToDatetime(UTC) > since for one in found.pollers)

    async def close(self) -> None:
        await self.connection.close()
