"""Test results as JUnit XML, in the form that most tools accept: a suite for each file, a testcase for each case.

It does not depend on where the report is written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

import msgspec

from cuebook.testing.expectations import Mismatch
from cuebook.testing.runner import Ran

# XML cannot contain these, not even escaped.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report(results: Iterable[Ran], began: float) -> bytes:
    """`began` is the start time, in seconds since the epoch."""
    root = ET.Element("testsuites")
    by_file: dict[str, list[Ran]] = {}
    for ran in results:
        by_file.setdefault(str(ran.file.path), []).append(ran)
    for number, (path, several) in enumerate(by_file.items()):
        _suite(root, number, path, several, began)
    ET.indent(root)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode").encode() + b"\n"


def _suite(root: ET.Element, number: int, path: str, several: Sequence[Ran], began: float) -> None:
    suite = ET.SubElement(
        root,
        "testsuite",
        id=str(number),
        name=_text(path),
        package=_text(path),
        hostname="localhost",
        # Without a time zone, as the schema requires.
        timestamp=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)),
        tests=str(len(several)),
        failures=str(sum(bool(ran.mismatches) for ran in several)),
        errors=str(sum(bool(ran.error) for ran in several)),
        skipped="0",
        time=_seconds(sum(ran.seconds for ran in several)),
    )
    ET.SubElement(suite, "properties")
    for ran in several:
        _case(suite, path, ran)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")


def _case(suite: ET.Element, path: str, ran: Ran) -> None:
    case = ET.SubElement(
        suite, "testcase", name=_text(ran.case.name), classname=_text(path), time=_seconds(ran.seconds)
    )
    if ran.error:
        error = ET.SubElement(case, "error", type="error", message=_text(_first_line(ran.error)))
        error.text = _text(f"{path}:{ran.case.line}: {ran.error}")
    elif ran.mismatches:
        first = ran.mismatches[0]
        message = f"{first.about}: expected {_first_line(first.expected)}, got {_first_line(first.got)}"
        failure = ET.SubElement(case, "failure", type="expectation", message=_text(message))
        failure.text = _text("\n".join(in_words(path, mismatch) for mismatch in ran.mismatches))


def in_words(path: str, mismatch: Mismatch) -> str:
    """One mismatch as text: the location, the expected and the actual value."""
    step = f" (step {mismatch.step})" if mismatch.step and "step" not in mismatch.about else ""
    lines = [f"{path}:{mismatch.line}: {mismatch.about}{step}"]
    for name, text in (("expected", mismatch.expected), ("got", mismatch.got or "an empty string")):
        first, *rest = text.rstrip("\n").split("\n")
        lines += [f"  {name + ':':<10}{first}", *(f"            {line}" for line in rest)]
    return "\n".join(lines)


_LONGEST = 1_500
"""The maximum number of characters of a value in a failure that is shown in part."""


def shortened(mismatch: Mismatch) -> Mismatch:
    """A mismatch without the middle of a long value."""
    if len(mismatch.got) <= _LONGEST:
        return mismatch
    half = _LONGEST // 2
    cut = f"{mismatch.got[:half]}\n[{len(mismatch.got) - 2 * half} characters omitted]\n{mismatch.got[-half:]}"
    return msgspec.structs.replace(mismatch, got=cut)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 200 else f"{line[:200]}…"


def _text(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
