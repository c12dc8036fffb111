"""Replays a program on its journal alone, to its end or to the end of the journal. Performs nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.kernel.effects import All, Branch, Breakpoint, Checkpoint, Effect, Program, WithTexts
from cuebook.kernel.errors import CuebookError, NonDeterminism
from cuebook.kernel.events import YIELDED_EVENTS, AnyEvent, RunFinished
from cuebook.kernel.fold.replay import ALL, Cursor, Recorded
from cuebook.kernel.journal import ROOT, Entry, Key, Place, branch_path, plain
from cuebook.kernel.outcomes import SUPERSEDED, Cancelled, Done, EffectFailed, Failed, Resumed
from cuebook.kernel.run import RunRow


class Rehearsal(msgspec.Struct):
    """The result of a replay."""

    complete: bool
    """Whether the program reached its end; false if the journal ended first."""
    result: Any = None
    failed: Failed | None = None
    effects: int = 0
    events: list[AnyEvent] = []


class _JournalEnds(BaseException):
    """The program asks for an effect that has not happened yet."""


def rehearse(
    programs: Callable[[RunRow, str, dict[str, Any], dict[str, Any]], Callable[[Any], Program[Any]]],
    row: RunRow,
    text: str,
    entries: list[Entry],
    assumed: Mapping[Key, Failed] | None = None,
) -> Rehearsal:
    """Replays a program. With `assumed`, effects without an outcome fail with the given failure."""
    recorded = Recorded(entries, row.parent_seq if row.parent else 0, checkpoints=False)
    stage = _Stage(recorded, assumed or {})
    shown = Rehearsal(complete=True, events=stage.events)
    try:
        shown.result = plain(stage.follow(Cursor(ROOT), programs(row, text, recorded.inputs, recorded.options)(None)))
    except EffectFailed as error:
        shown.failed = error.failed
    except Cancelled:
        shown.failed = Failed("cancelled", "Cancelled.")
    except _JournalEnds:
        shown.complete = False
    except NonDeterminism:
        raise
    except CuebookError as error:
        shown.failed = Failed(error.code, error.message)
    except Exception as error:
        shown.failed = Failed("program_error", f"{type(error).__name__}: {error}")
    shown.effects = stage.effects
    _compare(shown, recorded.finished)
    return shown


def _compare(shown: Rehearsal, finished: RunFinished | None) -> None:
    if finished is None or finished.status == "cancelled":
        return
    same = shown.complete and (
        shown.result == finished.result if finished.status == "completed" else shown.failed is not None
    )
    if not same:
        raise NonDeterminism(f"The run {finished.status}, but replaying its journal now produces a different result.")


class _Stage:
    def __init__(self, recorded: Recorded, assumed: Mapping[Key, Failed]) -> None:
        self.recorded = recorded
        self.assumed = assumed
        self.effects = 0
        self.events: list[AnyEvent] = []

    def follow(self, cursor: Cursor, program: Program[Any]) -> Any:
        send: Any = None
        throw: BaseException | None = None
        while True:
            try:
                asked = program.send(send) if throw is None else program.throw(throw)
            except StopIteration as stop:
                self.recorded.require_spent(cursor.path, "ends")
                return stop.value
            send = throw = None
            if isinstance(asked, YIELDED_EVENTS):
                send = self._tell(cursor, asked)
                continue
            outcome = self._all(cursor, asked) if isinstance(asked, All) else self._effect(cursor, asked)
            if type(outcome) is Failed:
                throw = Cancelled() if outcome.code in ("cancelled", SUPERSEDED) else EffectFailed(outcome)
            else:
                send = outcome

    def _effect(self, cursor: Cursor, effect: Effect) -> Any:
        key = cursor.next_effect()
        entry = self.recorded.take(key, effect.fingerprint)
        if entry is not None:
            self.effects += 1
            return entry.event.outcome  # type: ignore[union-attr]
        if key in self.assumed:
            return self.assumed[key]
        if isinstance(effect, Breakpoint | Checkpoint):
            return Resumed()
        self.recorded.require_spent(cursor.path, f"asks for '{effect.fingerprint}' at {Place(*key)}")
        raise _JournalEnds(Place(*key))

    def _all(self, cursor: Cursor, asked: All) -> Any:
        key = cursor.next_effect()
        recorded = self.recorded.take(key, ALL)
        outcomes, ends = [], None
        decided = recorded is not None and isinstance(recorded.event.outcome, Done)  # type: ignore[union-attr]
        for number, branch in enumerate(asked.branches):
            path = branch_path(cursor.path, key[1], key[2], key[3], number)
            if recorded is not None and not self.recorded.has_begun(path):
                outcomes.append(Failed(SUPERSEDED, ""))
                continue
            try:
                outcomes.append(self._branch(Cursor(path), branch))
            except _JournalEnds as end:
                ends = end
        if ends is not None:
            raise ends
        return tuple(outcomes) if recorded is None or decided else recorded.event.outcome  # type: ignore[union-attr]

    def _branch(self, cursor: Cursor, branch: Effect | Branch) -> Any:
        if isinstance(branch, Effect):
            return self._effect(cursor, branch)
        try:
            value = self.follow(cursor, branch.start(None))
            if isinstance(value, WithTexts):
                return (plain(value.value), value.texts) if value.texts else plain(value.value)
            return plain(value)
        except EffectFailed as error:
            return error.failed
        except Cancelled:
            ended = self.recorded.branches.get(cursor.path)
            return (ended and ended.failed) or Failed("cancelled", "Cancelled.")
        except NonDeterminism:
            raise
        except CuebookError as error:
            return Failed.of(error)
        except Exception as error:
            return Failed("program_error", f"{type(error).__name__}: {error}")

    def _tell(self, cursor: Cursor, event: AnyEvent) -> Any:
        place, seen_before, reply = self.recorded.tell(cursor, event)
        if not seen_before:
            raise _JournalEnds(place)
        self.events.append(event)
        return reply
