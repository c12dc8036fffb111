"""LangGraph: durable steps through its SQLite savers, in the mode in which a step is on disk before the next begins.

It uses one node that loops instead of a chain of nodes: that is as fast at 10 and 100 steps, and faster at several hundred.
Tasks of the functional API are not used: their results are written in the background, even with `durability="sync"`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import aiosqlite
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from bench.peers.report import THREADS, VALUE, Options, options, report, timed, timed_async

PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


class State(TypedDict):
    left: int
    value: str


def looping(step: Any) -> StateGraph[State]:
    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["left"] else END, ["step", END])
    return graph


def advance(state: State) -> State:
    return {"left": state["left"] - 1, "value": VALUE}


async def advance_async(state: State) -> State:
    return advance(state)


def call(name: str, steps: int) -> dict[str, Any]:
    return {
        "input": {"left": steps, "value": ""},
        "config": {"configurable": {"thread_id": name}, "recursion_limit": steps + 10},
        "durability": "sync",
    }


def run_sync(chosen: Options) -> float:
    database = sqlite3.connect(beside(Path(chosen.db), "sync"), check_same_thread=False)
    for pragma in PRAGMAS:
        database.execute(pragma)
    graph = looping(advance).compile(checkpointer=SqliteSaver(database))
    graph.invoke(**call("warm-up", 3))

    def all_runs() -> None:
        with ThreadPoolExecutor(min(THREADS, chosen.runs)) as pool:
            for done in [pool.submit(graph.invoke, **call(f"run-{n}", chosen.steps)) for n in range(chosen.runs)]:
                assert done.result()["left"] == 0

    try:
        return timed(all_runs)
    finally:
        database.close()


async def run_async(chosen: Options) -> float:
    async with aiosqlite.connect(beside(Path(chosen.db), "async")) as database:
        for pragma in PRAGMAS:
            await database.execute(pragma)
        graph = looping(advance_async).compile(checkpointer=AsyncSqliteSaver(database))
        await graph.ainvoke(**call("warm-up", 3))

        async def all_runs() -> None:
            ended = await asyncio.gather(*(graph.ainvoke(**call(f"run-{n}", chosen.steps)) for n in range(chosen.runs)))
            assert all(state["left"] == 0 for state in ended)

        return await timed_async(all_runs)


def beside(path: Path, way: str) -> str:
    return str(path.with_name(f"{path.name}.{way}"))


def main() -> None:
    chosen = options(__doc__)
    report("langgraph", chosen, {"sync": run_sync(chosen), "async": asyncio.run(run_async(chosen))})


if __name__ == "__main__":
    main()
