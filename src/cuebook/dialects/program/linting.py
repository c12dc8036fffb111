"""Finds what is wrong or odd in a compiled listing. It never refuses one: whatever a compiler made, it has findings."""

from __future__ import annotations

from collections.abc import Iterator

from cuebook.dialects.findings import Codes, Finding
from cuebook.dialects.program.listing import END, Listing, jump_of, known_code

CODES: Codes = {
    "DUPLICATE_LINE": ("error", "Two lines have one number."),
    "DANGLING_JUMP": ("error", "A JMP names no line of the listing."),
    "UNKNOWN_CODE": ("error", "A line has a code that does not exist."),
    "ORPHAN_LINE": ("error", "A line stands below one that is not there."),
    "UNREACHABLE_LINE": ("warning", "No way leads from the first line to this one."),
    "LOOP_WITHOUT_JUMP": ("warning", "A loop has no JMP back as its last line."),
    "MISSING_RETURN": ("warning", "The listing ends without RET, YLD or JMP."),
    "REPEATED_BODY": ("warning", "What stands below a condition is there again behind it."),
    "OTHERWISE_ALONE": ("warning", "An Otherwise has no If before it."),
    "EMPTY_CONDITION": ("note", "A condition has nothing below it."),
    "NO_LINES": ("warning", "The listing has no lines."),
}


def lint(listing: Listing) -> list[Finding]:
    """All findings, in the order of the lines."""
    if not listing.lines:
        return [_finding("NO_LINES", f"The listing of '{listing.name}' has no lines.", None, "Compile it again.")]
    findings = [*_numbers(listing), *_lines(listing), *_flow(listing)]
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.code))


def _finding(code: str, message: str, line: int | None, fix: str) -> Finding:
    return Finding(code, CODES[code][0], message, line or None, fix=fix)


def _numbers(listing: Listing) -> Iterator[Finding]:
    for number, indexes in listing.by_number.items():
        for index in indexes[1:]:
            message = f"The number {number} is there {len(indexes)} times."
            yield _finding("DUPLICATE_LINE", message, listing.lines[index].line, "Number the lines anew.")


def _lines(listing: Listing) -> Iterator[Finding]:
    for index, line in enumerate(listing.lines):
        above = line.number.rpartition(".")[0]
        if above and above not in listing.by_number:
            yield _finding(
                "ORPHAN_LINE", f"{line.number} stands below {above}, which is not there.", line.line, "Add it."
            )
        if not known_code(line.code):
            fix = "There are EXE, TNK, QUE, CND, CHK, RET, JMP and YLD."
            yield _finding("UNKNOWN_CODE", f"{line.number} has the code {line.code}.", line.line, fix)
        if line.code == "JMP" and jump_of(line) not in listing.by_number:
            target = f"{jump_of(line)}, which is not there" if jump_of(line) else "no line"
            yield _finding(
                "DANGLING_JUMP", f"{line.number} jumps to {target}.", line.line, "Name a line of the listing."
            )
        if line.code == "CND":
            yield from _condition(listing, index)


def _condition(listing: Listing, index: int) -> Iterator[Finding]:
    line, below = listing.lines[index], listing.children.get(index, [])
    if not below:
        yield _finding("EMPTY_CONDITION", f"Nothing stands below {line.number}.", line.line, "Write what it decides.")
        return
    if listing.kinds[index] in ("else", "elif") and not listing.in_chain(index):
        fix = "Put it directly behind the If it belongs to."
        yield _finding("OTHERWISE_ALONE", f"{line.number} has no If before it.", line.line, fix)
    if listing.kinds[index] == "loop" and not _comes_back(listing, index):
        fix = f"End its body with JMP {line.number}."
        yield _finding("LOOP_WITHOUT_JUMP", f"The loop {line.number} has no JMP back.", line.line, fix)
    if _repeated(listing, index, below):
        fix = "Take out the lines behind it."
        yield _finding("REPEATED_BODY", f"What stands below {line.number} is there again behind it.", line.line, fix)


def _comes_back(listing: Listing, index: int) -> bool:
    """Whether the last line of a loop's body, at whatever depth, jumps back to it or out of the listing."""
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
            fix = "Jump to it, or take it out."
            yield _finding("UNREACHABLE_LINE", f"No way leads to {line.number}.", line.line, fix)
    # Behind a YLD nothing is left to do, so that going out there is a return that nobody forgot.
    out = [index for index in sorted(reachable - {END}) if END in listing.next[index]]
    for index in out[-1:]:
        last = listing.lines[index]
        if last.code not in ("YLD", "JMP"):
            yield _finding("MISSING_RETURN", f"The listing ends behind {last.number}.", last.line, "End it with RET.")
