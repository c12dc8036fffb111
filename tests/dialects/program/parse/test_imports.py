"""Imports of a program: text inserted in place, indentation, limits, and problems that name their file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects import registry
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.program.check.program import check, whole
from cuebook.dialects.program.parse.imports import DEEPEST, LARGEST, MOST_FILES, resolved
from cuebook.performers.files.neighbours import reader
from tests.dialects.program.samples import files

MAIN = "# A\n!import ./shared/about.md  # who it is\n## P\n### Steps\n- 01:CND While $x\n  !import steps/more.md\n- 02:RET\n"


def refused(text: str, texts: dict[str, str]) -> list[str]:
    with pytest.raises(InvalidPlaybook) as caught:
        resolved(text, "main.pbasm", files(texts))
    assert all(problem.code == "IMPORT" and problem.fix for problem in caught.value.problems)
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


def test_an_import_is_the_text_of_the_file_with_its_indentation() -> None:
    texts = {"shared/about.md": "Sells seeds.\n", "steps/more.md": "- 01.01:EXE $x = 1\n\n- 01.02:JMP 01\n"}
    found = resolved(MAIN, "main.pbasm", files(texts))
    assert found.text == (
        "# A\nSells seeds.\n## P\n### Steps\n- 01:CND While $x\n  - 01.01:EXE $x = 1\n\n  - 01.02:JMP 01\n- 02:RET\n"
    )
    assert [found.place(line) for line in (1, 2, 8, 9)] == [
        (1, ""),
        (2, "shared/about.md:1: "),
        (6, "steps/more.md:3: "),
        (7, ""),
    ]


def test_a_file_may_import_from_its_own_folder() -> None:
    texts = {"a/b.md": "one\n  !import ./c.md\n!import ../d.md", "a/c.md": "two\nthree", "d.md": "four"}
    assert resolved("# A\n  !import a/b.md", "main.pb", files(texts)).text == "# A\n  one\n    two\n    three\n  four"


def test_a_text_without_imports_stays_as_it_is() -> None:
    assert resolved("# A\r\ntext", "a.pb", files({})).text == "# A\r\ntext"
    commented = "<!--\n!import no.md\n-->\n# A"
    assert resolved(commented, "a.pb", files({})).text == commented


def test_every_file_that_is_missing_is_named() -> None:
    said = refused(MAIN, {"shared/about.md": "!import ../gone.md"})
    assert said == [
        "2: The file 'gone.md' cannot be imported (imported by shared/about.md:1): There is no gone.md.",
        "6: The file 'steps/more.md' cannot be imported: There is no steps/more.md.",
    ]


def test_a_circular_import_is_refused_but_a_repeated_file_is_not() -> None:
    texts = {"a.md": "!import b.md", "b.md": "!import a.md", "c.md": "x"}
    assert refused("!import a.md", texts) == ["1: 'a.md' imports itself: a.md -> b.md -> a.md."]
    assert resolved("!import c.md\n!import c.md", "m.pb", files(texts)).text == "x\nx"


def test_imports_go_ten_files_deep_and_no_deeper() -> None:
    texts = {f"{number}.md": f"!import {number + 1}.md" for number in range(1, DEEPEST + 1)}
    last = {f"{DEEPEST}.md": "the end"}
    assert resolved("!import 1.md", "m.pb", files(texts | last)).text == "the end"
    said = refused("!import 1.md", texts | {f"{DEEPEST + 1}.md": "too deep"})
    assert said == ["1: '11.md' is nested more than 10 imports deep (imported by 10.md:1)."]


def test_imports_are_limited_in_size() -> None:
    assert refused("!import a.md", {"a.md": "x" * (LARGEST + 1)}) == ["1: 'a.md' has more than 1,048,576 bytes."]
    texts = {"0.md": "x" * LARGEST} | {f"{n}.md": f"!import {n - 1}.md\n" * 9 for n in range(1, 9)}
    with pytest.raises(InvalidPlaybook, match=r"more than 4,000,000 characters.*\[TOO_LARGE\]"):
        resolved("!import 8.md", "m.pb", files(texts))


@pytest.mark.parametrize("path", ["https://a.test/x.md", "/etc/hostname", "file:///etc/hostname"])
def test_only_files_next_to_the_program_are_imported(path: str) -> None:
    assert refused(f"!import {path}", {}) == [f"1: '{path}' cannot be imported: only files next to the program can be."]
    assert refused("!import # nothing", {}) == ["1: An import has no path."]


def test_files_that_import_others_over_and_over_are_refused_soon() -> None:
    texts = {f"f{one}": f"!import f{one + 1}\n" * 10 for one in range(1, 10)} | {"f10": ""}
    reads = []

    def read(path: str) -> str:
        reads.append(path)
        return texts[path]

    with pytest.raises(InvalidPlaybook) as caught:
        resolved("# A\n!import f1\n", "main.pbasm", read)
    assert [problem.code for problem in caught.value.problems] == ["TOO_LARGE"]
    assert len(reads) <= MOST_FILES


def test_a_problem_in_an_imported_file_names_that_file() -> None:
    texts = {"more.md": "\n## Q(*)\n### Steps\n- 01:JMP 09\n"}
    with pytest.raises(InvalidPlaybook, match=r"main\.pbasm:2: more\.md:2: The parameters of 'Q"):
        whole("# A\n!import more.md\n", "main.pbasm", files(texts))
    texts["more.md"] = texts["more.md"].replace("(*)", "()")
    found = check("# A\n!import more.md\n", "main.pbasm", read=files(texts))
    assert (found[1].line, found[1].message) == (2, "more.md:4: Q: 01 jumps to 09, which does not exist.")
    with pytest.raises(InvalidPlaybook, match=r"main\.pbasm:2: more\.md:4: Q: 01 jumps to 09"):
        whole("# A\n!import more.md\n", "main.pbasm", files(texts))
    texts["more.md"] = texts["more.md"].replace("JMP 09", "RET")
    assert whole("# A\n!import more.md\n", "main.pbasm", files(texts)) == f"# A\n{texts['more.md']}"


def test_files_are_read_below_the_workspace_only(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    work = tmp_path / "work"
    (work / "programs").mkdir(parents=True)
    (work / "shared.md").write_text("Sells seeds.")
    (work / "programs/link.md").symlink_to(tmp_path / "secret.md")
    (work / "programs/bytes.md").write_bytes(b"\xff")
    main = work / "programs/main.pb"

    def load(path: str, workspace: Path | None = None) -> str:
        return registry.whole(f"# A\n!import {path}\n", str(main), reader(main, workspace or work))

    assert load("../shared.md") == "# A\nSells seeds.\n"
    for path, words in (
        ("../../secret.md", r"contains '\.\.'"),
        ("link.md", "leads out of its root through a link"),
        ("bytes.md", "not UTF-8 text"),
        ("gone.md", "There is no"),
    ):
        with pytest.raises(InvalidPlaybook, match=words):
            load(path)
    with pytest.raises(InvalidPlaybook, match=r"contains '\.\.'"):
        load("../shared.md", tmp_path / "elsewhere")


@given(st.lists(st.sampled_from(["!import a", " !import b", "!import", "x", "<!--", "-->", "\r", "!import ../a"])))
def test_any_text_is_resolved_or_refused(lines: list[str]) -> None:
    texts = {"a": "\n".join(lines[:3]), "b": "y"}
    try:
        found = resolved("\n".join(lines), "m.pb", files(texts))
    except InvalidPlaybook:
        return
    assert not found.origins or len(found.origins) == found.text.count("\n") + 1
