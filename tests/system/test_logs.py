from __future__ import annotations

import ast
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.system.logs import log_event, logging_to

LOG = logging.getLogger("cuebook.test")


def written(form: str, *, level: str = "info", masked: Any = lambda value: value) -> Any:
    """What is logged below, as lines."""
    stream = io.StringIO()
    with logging_to(stream, level=level, form=form, masked=masked):
        log_event(LOG, "run.started", run="r1", playbook="my tea.md", by="", count=0)
        log_event(LOG, "step.started", logging.DEBUG, run="r1")
        LOG.warning("A disk is %s.", "full", extra={"fields": {"disk": "a"}})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            LOG.exception("A defect.")
        logging.getLogger("another").info("Too quiet.")
        logging.getLogger("another").warning("Loud.")
    log_event(LOG, "run.started", run="after the end")
    return stream.getvalue().splitlines()


def test_text_has_a_line_for_each_event_and_empty_fields_are_left_out() -> None:
    lines = written("text")
    assert lines[0].split(" ", 1)[1] == 'info run.started run=r1 playbook="my tea.md" count=0'
    assert lines[1].endswith("Z warning A disk is full. disk=a")
    assert lines[2].endswith("Z error A defect.")
    assert [line for line in lines[3:-1] if not line.startswith("  ")] == []
    assert lines[-1].endswith("Z warning Loud.")


def test_json_has_an_object_on_each_line() -> None:
    first, full, defect, loud = [json.loads(line) for line in written("json")]
    assert first.pop("time").endswith("Z")
    fields = {"run": "r1", "playbook": "my tea.md", "count": 0}
    assert first == {"level": "info", "logger": "cuebook.test", "event": "run.started", **fields}
    assert (full["message"], full["disk"], loud["logger"]) == ("A disk is full.", "a", "another")
    assert "ValueError: two" in defect["traceback"]


@pytest.mark.parametrize(("level", "count"), [("debug", 5), ("info", 4), ("warning", 3), ("error", 2)])
def test_the_level_is_that_of_our_own_events(level: str, count: int) -> None:
    assert len(written("json", level=level)) == count  # warnings of libraries are always heard


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_that_is_logged_moves_the_cursor_or_makes_a_line(form: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, form=form):
        log_event(LOG, "run.started", playbook="a\x1b[2J\u202e\nb", steps=["x\ny"])
        LOG.warning("a\x1b[2J\u202e\nb")
    text = stream.getvalue()
    assert len(text.splitlines()) == 2
    assert all(one.isprintable() for one in text.splitlines())


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_part_of_a_record_is_masked(form: str) -> None:
    def masked(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("tea", "***").replace("full", "***").replace("two", "***")
        made = {name: masked(one) for name, one in value.items()} if isinstance(value, dict) else value
        return tuple(map(masked, made)) if isinstance(made, tuple) else made

    text = "\n".join(written(form, masked=masked))
    assert text.count("***") >= 3
    assert not {word for word in ("tea", "full", "two\\n", "ValueError: two") if word in text}


OWN_EVENTS: tuple[str, ...] = (
    "service/triggers",
    "service/dispatch/temporal/activities.py",
    "service/dispatch/temporal/schedules.py",
)
OWN_EVENTS += ("service/nodes/nodes.py", "service/nodes/connections.py", "wiring/triggers.py")
OWN_EVENTS += ("surfaces/web/api/hooks.py",)


@pytest.mark.parametrize("place", OWN_EVENTS)
def test_no_words_of_an_error_are_logged(place: str) -> None:
    """A message of an error can quote an input, an address or what another system said."""
    root = Path(cuebook.__file__).parent / place
    for path in root.rglob("*.py") if root.is_dir() else [root]:
        tree = ast.parse(path.read_text())
        errors = {one.name for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler) and one.name}
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith(("log.", "log_event")):
                continue
            given = {ast.unparse(one) for one in [*call.args, *(one.value for one in call.keywords)]}
            assert not given & {words for one in errors for words in (one, f"{one}.message", f"str({one})")}, path
