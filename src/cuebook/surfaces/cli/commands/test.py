"""`cuebook test`: runs the test cases of playbooks and prints their results; `cuebook.testing` interprets the cases."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cuebook.formats.values import BadFile
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import options
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import Part, complain, say
from cuebook.testing import runner
from cuebook.testing.junit import in_words, report, shortened
from cuebook.testing.runner import CaseFile, Ran, Real


@command(
    "test",
    [
        click.Argument(["paths"], nargs=-1),
        click.Option(["-k", "word"], metavar="WORD", help="Only run cases with this word in their name."),
        click.Option(["--record"], is_flag=True, help="Call the real model for missing replies, and record them."),
        click.Option(["--real"], is_flag=True, help="Perform the steps that cases mark as real, in the sandbox."),
        click.Option(["--junit"], metavar="FILE", help="Also write the results as JUnit XML."),
        options.AS_JSON,
        options.NO_COLOR,
    ],
    epilog="Exit codes: 0 all passed, 1 some failed, 2 a test file is invalid or missing.",
)
def test_command(given: Given) -> int:
    """Run playbook tests.

    NAME.test.yaml contains the test cases of the playbook NAME in the same folder, which may be in any dialect. PATHS are
    test files, playbooks, or folders to search; by default the current folder. Each case provides the replies of models
    and the results of tools, commands, requests and questions: nothing is asked, run, sent or stored. With --real, the
    steps that a case lists under `real` are performed in the playbook's folder without any policy, so read the case first.
    """
    files = _loaded([Path(path) for path in given["paths"]] or [Path()])
    chosen = _chosen(files, given["word"])
    printer = _Json() if given["as_json"] else _Lines(color=_colored(given))
    began, clock = time.time(), time.perf_counter()
    results = asyncio.run(_run(chosen, printer, _real() if given["record"] else None, given["real"]))
    printer.end(results, time.perf_counter() - clock)
    if given["junit"]:
        _write(given["junit"], report(results, began))
    return 0 if all(ran.passed for ran in results) else 1


def _loaded(paths: list[Path]) -> list[CaseFile]:
    """Loads all test files; the error lists the problems in all of them."""
    found = runner.find(paths)
    if not found:
        where = ", ".join(str(path.absolute()) for path in paths)
        raise BadInput(
            f"There are no tests in {where}.",
            fix=f"Write NAME.test.yaml in the folder of a playbook: {_named(runner.playbook_suffixes())}.",
        )
    files, wrong = [], []
    for path in found:
        try:
            files.append(runner.load(path))
        except BadFile as error:
            wrong.append(str(error))
    if wrong:
        raise BadFile("\n".join(wrong))
    return files


def _named(suffixes: Sequence[str]) -> str:
    *others, last = [f"NAME{suffix}" for suffix in suffixes]
    return f"{', '.join(others)} or {last}"


def _chosen(files: list[CaseFile], word: str | None) -> list[tuple[CaseFile, Any]]:
    chosen = [(file, case) for file in files for case in file.cases]
    if word is None:
        return chosen
    fitting = [(file, case) for file, case in chosen if word.casefold() in case.name.casefold()]
    if not fitting:
        raise BadInput(f"None of the {len(chosen)} cases has '{word}' in its name.", fix="Choose another word.")
    return fitting


def _real() -> Real:
    from cuebook.config import load
    from cuebook.wiring.wiring import Wiring

    providers = Wiring(load()).providers

    def real(name: str) -> Any:
        providers.check(name)
        return providers.resolve(name).answers

    return real


async def _run(
    chosen: list[tuple[CaseFile, Any]], printer: _Json | _Lines, real: Real | None, real_steps: bool
) -> list[Ran]:
    results = []
    for file, case in chosen:
        results.append(await runner.run(file, case, real, real_steps=real_steps))
        printer.see(results[-1])
    return results


def _write(path: str, data: bytes) -> None:
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise BadInput(f"--junit: {path} cannot be written: {error.strerror}.", fix="Choose another path.") from None


def _colored(given: Given) -> bool:
    return not given["no_color"] and not os.environ.get("NO_COLOR") and sys.stdout.isatty()


# --- printing ---------------------------------------------------------------------------------------------


class _Lines:
    """Prints a line for each case as it finishes, then the failures, then the totals."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._file: Path | None = None

    def see(self, ran: Ran) -> None:
        if ran.file.path != self._file:
            self._file = ran.file.path
            self._say(str(self._file))
        mark = ("passed", "green") if ran.passed else ("FAILED", "red")
        self._say("  ", mark, f"  {ran.case.name}  ", (f"{ran.seconds:.2f} s", "bright_black"))

    def end(self, results: list[Ran], seconds: float) -> None:
        failed = [ran for ran in results if not ran.passed]
        for ran in failed:
            self._say("")
            self._say((f"{ran.case.name} ({ran.file.path}:{ran.case.line})", "red"))
            if ran.error:
                self._say(f"  {ran.error}")
            for mismatch in ran.mismatches:
                self._say(_indented(in_words(str(ran.file.path), shortened(mismatch))))
        self._say("")
        passed = len(results) - len(failed)
        words = f"{passed} passed" + (f", {len(failed)} failed" if failed else "")
        self._say((f"{words} in {seconds:.2f} s", "red" if failed else "green"))

    def _say(self, *parts: Part) -> None:
        say(*parts, color=self._color)
        sys.stdout.flush()


class _Json:
    """Prints one JSON object at the end."""

    def see(self, ran: Ran) -> None:
        if not ran.passed:
            complain(f"failed: {ran.file.path}:{ran.case.line}: {ran.case.name}")

    def end(self, results: list[Ran], seconds: float) -> None:
        from cuebook.surfaces.cli.terminal.views import json_line

        passed = sum(ran.passed for ran in results)
        shown = {"passed": passed, "failed": len(results) - passed, "seconds": seconds}
        sys.stdout.write(json_line({**shown, "cases": [_object(ran) for ran in results]}))


def _object(ran: Ran) -> dict[str, Any]:
    outcome = ran.outcome
    return {
        "file": str(ran.file.path),
        "line": ran.case.line,
        "name": ran.case.name,
        "status": "passed" if ran.passed else "error" if ran.error else "failed",
        "seconds": ran.seconds,
        "error": ran.error or None,
        "failures": [
            {"line": one.line, "step": one.step or None, "about": one.about, "expected": one.expected, "got": one.got}
            for one in ran.mismatches
        ],
        "run": None
        if outcome is None
        else {
            "status": outcome.status or "refused",
            "ran": outcome.ran,
            "skipped": outcome.skipped,
            "variables": outcome.variables,
            "artifact": outcome.artifact,
            "messages": outcome.messages,
            "warnings": outcome.warnings,
        },
    }


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
