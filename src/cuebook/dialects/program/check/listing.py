"""Finds errors and oddities in a compiled listing. It accepts any listing and reports problems as findings."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.findings import Codes, Finding
from cuebook.dialects.program.listing import END, Listing, jump_of, known_code

CODES: Codes = {
    "DUPLICATE_LINE": ("error", "Two lines have the same number."),
    "DANGLING_JUMP": ("error", "A JMP goes to a line that does not exist."),
    "UNKNOWN_CODE": ("error", "A line has an unknown code."),
    "ORPHAN_LINE": ("error", "The line above a nested line is missing."),
    "UNREACHABLE_LINE": ("warning", "The line cannot be reached from the first line."),
    "LOOP_WITHOUT_JUMP": ("warning", "A loop has no JMP back as its last line."),
    "MISSING_RETURN": ("warning", "The listing ends without RET, YLD or JMP."),
    "REPEATED_BODY": ("warning", "The body of a condition is repeated after it."),
    "OTHERWISE_ALONE": ("warning", "An Otherwise does not follow an If."),
    "EMPTY_CONDITION": ("note", "A condition has no body."),
    "NO_LINES": ("warning", "The listing has no lines."),
}


def lint(listing: Listing) -> list[Finding]:
    """All findings, in line order."""
    if not listing.lines:
        return [_finding("NO_LINES", f"The listing of '{listing.name}' has no lines.", None, "Compile it again.")]
    findings = [*_numbers(listing), *_lines(listing), *_flow(listing)]
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def _finding(code: str, message: str, line: int | None, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line or None, fix=fix)


def _numbers(listing: Listing) -> Iterator[Finding]:
    for number, indexes in listing.by_number.items():
        for index in indexes[1:]:
            message = f"The number {number} is used {len(indexes)} times."
            yield _finding("DUPLICATE_LINE", message, listing.lines[index].line, "Renumber the lines.")


def _lines(listing: Listing) -> Iterator[Finding]:
    for index, line in enumerate(listing.lines):
        above = line.number.rpartition(".")[0]
        if above and above not in listing.by_number:
            yield _finding(
                "ORPHAN_LINE",
                f"{line.number} is nested below {above}, which does not exist.",
                line.line,
                f"Add {above}.",
            )
        if not known_code(line.code):
            fix = "The codes are EXE, TNK, QUE, CND, CHK, RET, JMP and YLD."
            yield _finding("UNKNOWN_CODE", f"{line.number} has the unknown code {line.code}.", line.line, fix)
        if line.code == "JMP" and jump_of(line) not in listing.by_number:
            target = f"{jump_of(line)}, which does not exist" if jump_of(line) else "no line"
            yield _finding(
                "DANGLING_JUMP",
                f"{line.number} jumps to {target}.",
                line.line,
                "Use the number of a line in the listing.",
            )
        if line.code == "CND":
            yield from _condition(listing, index)


def _condition(listing: Listing, index: int) -> Iterator[Finding]:
    line, below = listing.lines[index], listing.children.get(index, [])
    if not below:
        yield _finding(
            "EMPTY_CONDITION",
            f"{line.number} has no body.",
            line.line,
            "Nest the lines that it controls below it.",
        )
        return
    if listing.kinds[index] in ("else", "elif") and not listing.in_chain(index):
        fix = "Put it directly after the If it belongs to."
        yield _finding("OTHERWISE_ALONE", f"{line.number} does not follow an If.", line.line, fix)
    if listing.kinds[index] == "loop" and not _comes_back(listing, index):
        fix = f"End its body with JMP {line.number}."
        yield _finding("LOOP_WITHOUT_JUMP", f"The loop {line.number} has no JMP back.", line.line, fix)
    if _repeated(listing, index, below):
        fix = "Remove the lines after it."
        yield _finding("REPEATED_BODY", f"The body of {line.number} is repeated after it.", line.line, fix)


def _comes_back(listing: Listing, index: int) -> bool:
    """Whether the last line of a loop's body, at any depth, jumps back to the loop or returns."""
    last = index
    while listing.children.get(last):
        last = listing.children[last][-1]
    line = listing.lines[last]
    return line.code == "RET" or (line.code == "JMP" and jump_of(line) == listing.lines[index].number)


def _repeated(listing: Listing, index: int, below: list[int]) -> bool:
    def said(one: int) -> tuple[str, str]:
        return listing.lines[one].code, " ".join(listing.lines[one].text.split())

    body = [said(one) for one in below if listing.lines[one].code != "JMP"]
    start = listing.place[index] + 1
    behind = listing.children[listing.parent[index]][start : start + len(body)]
    least = 1 if listing.kinds[index] == "loop" else 2
    return len(body) >= least and [said(one) for one in behind] == body


def _flow(listing: Listing) -> Iterator[Finding]:
    reachable = listing.reachable()
    for index, line in enumerate(listing.lines):
        if index not in reachable:
            fix = "Add a jump to it, or remove it."
            yield _finding("UNREACHABLE_LINE", f"{line.number} cannot be reached.", line.line, fix)
    # After a YLD there is nothing left to do, so no RET is missing there.
    out = [index for index in sorted(reachable - {END}) if END in listing.next[index]]
    for index in out[-1:]:
        last = listing.lines[index]
        if last.code not in ("YLD", "JMP"):
            yield _finding(
                "MISSING_RETURN", f"The listing ends after {last.number} without RET.", last.line, "End it with RET."
            )
