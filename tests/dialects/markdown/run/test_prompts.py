"""`@prompt`: texts that are inserted before a step's own, and paths that must be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.dialects.markdown.model import PromptUse
from cuebook.dialects.markdown.run.prompts import resolve
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import AskModel, ReadSource
from cuebook.kernel.events import Warned
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.testing import ScriptedModel, model_performer
from tests.dialects.markdown.harness import MarkdownHarness


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A playbook's folder with a library and files. The files next to it must not be read."""
    made = tmp_path / "books"
    (made / "library").mkdir(parents=True)
    (made / "library" / "review.md").write_text("\nReview {{what}} like a {{who}}.\n\n")
    (made / "library" / "both.md").write_text("From the library.")
    (made / "style.md").write_text("Short sentences.\n")
    (made / "both").write_text("From the file.")
    (made / "empty.md").write_text(" \n")
    (made / "deep").mkdir()
    (made / "deep" / "er.txt").write_text("Deeper.")
    (made / "binary.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "secret.txt").write_text("SECRET")
    (made / "link.md").symlink_to(tmp_path / "secret.txt")
    return made


def book(argument: str, content: str = "Do it.") -> str:
    return (
        "# P\n\n## INPUTS\n\n- `what` (string: tea): x\n- `way` (string: style): x\n- `made` (string: {{what}}): x\n"
        f"\n## STEP 1: A\n\n@prompt({argument})\n\n{content}\n"
    )


@pytest.mark.parametrize(
    ("argument", "prompt"),
    [
        ("library:review", "Review tea like a {{who}}.\n\nDo it."),
        ("library: review ", "Review tea like a {{who}}.\n\nDo it."),
        ("file:style.md", "Short sentences.\n\nDo it."),
        ("file:./deep/er.txt", "Deeper.\n\nDo it."),
        ("file:{{way}}.md", "Short sentences.\n\nDo it."),
        ("{{way}}.md", "Short sentences.\n\nDo it."),
        ("both", "From the library.\n\nDo it."),
        ("style.md", "Short sentences.\n\nDo it."),
        ("file:both", "From the file.\n\nDo it."),
        ("{{what}}", "tea\n\nDo it."),
        ("{{made}}", "{{what}}\n\nDo it."),
        ("file:empty.md", "Do it."),
    ],
)
async def test_a_prompt_goes_before_the_steps_own_text(store: Store, folder: Path, argument: str, prompt: str) -> None:
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(book(argument))
    assert row.status == "completed"
    assert harness.prompts == [prompt]


async def test_a_prompt_alone_is_something_to_ask(store: Store, folder: Path) -> None:
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(book("file:style.md", ""))
    assert (row.status, harness.prompts) == ("completed", ["Short sentences."])


@pytest.mark.parametrize(
    "argument",
    [
        "library:nothing", "file:nothing.md", "file:{{who}}.md", "nothing", "{{nobody}}", "mcp:server/name", "mcp:server",
        "library:",
    ],
)  # fmt: skip
async def test_a_prompt_that_is_not_found_is_left_out_with_a_warning(store: Store, folder: Path, argument: str) -> None:
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(book(argument))
    assert row.status == "completed"
    assert harness.prompts == ["Do it."]
    assert any("was left out" in words for words in await harness.warnings(row.id))


async def test_the_warning_says_what_was_looked_for_and_what_may_be_meant(store: Store, folder: Path) -> None:
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(book("library:reviw"))
    (words,) = await harness.warnings(row.id)
    assert words.startswith("Step 1: @prompt(library:reviw) was left out, and the step continues without it:")
    assert "There is no prompt 'reviw'" in words
    assert words.endswith("Did you mean review?")


async def test_a_step_with_only_a_missing_prompt_is_skipped(store: Store, folder: Path) -> None:
    harness = MarkdownHarness(store, folder=folder)
    row = await harness.run(book("library:nothing", ""))
    assert row.status == "completed"
    assert await harness.steps(row.id) == {"1": "skipped"}


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("file:/etc/hostname", "", "is absolute"),
        ("file:../secret.txt", "", "contains '..'"),
        ("file:deep/../../secret.txt", "", "contains '..'"),
        ("file:~/x", "", "begins with '~'"),
        ("file:C:/x", "", "begins with a drive letter"),
        ("file:deep\\er.txt", "", "contains a backslash"),
        ("library:../style", "", "contains '..'"),
        ("../secret.txt", "", "contains '..'"),
        ("file:{{way}}", "../secret.txt", "contains '..'"),
        ("file:{{way}}", "/etc/hostname", "is absolute"),
        ("file:deep/{{way}}", "../../secret.txt", "contains '..'"),
        ("{{way}}.txt", "../secret", "contains '..'"),
        ("file:{{way}}", "a\0b", "contains a NUL character"),
        ("mcp:server/{{way}}", "../x", "contains '..'"),
        ("mcp:/name", "", "is absolute"),
        ("file:link.md", "", "leads out of its root through a link"),
    ],
)
async def test_a_path_outside_the_folder_fails_the_step(
    store: Store, folder: Path, argument: str, value: str, why: str
) -> None:
    harness = MarkdownHarness(store, ["Never"], folder=folder)
    row = await harness.run(book(argument), {"way": value} if value else {})
    assert row.status == "failed"
    assert row.error is not None
    assert (row.error.code, why in row.error.message) == ("outside_root", True)
    assert row.error.fix
    assert harness.prompts == []


@pytest.mark.parametrize(
    ("argument", "code"), [("file:deep", "unusable"), ("file:style.md/x", "unusable"), ("file:binary.md", "not_text")]
)
async def test_a_file_that_is_not_text_fails_the_step(store: Store, folder: Path, argument: str, code: str) -> None:
    row = await MarkdownHarness(store, ["Never"], folder=folder).run(book(argument))
    assert (row.status, row.error and row.error.code) == ("failed", code)


def test_a_prompt_with_an_unknown_scheme_is_left_out() -> None:
    program = resolve("1", PromptUse("ftp:somewhere"), {})
    warned = next(program)
    assert isinstance(warned, Warned)
    assert "'ftp' is an unknown scheme (known: library, file, mcp)." in warned.message
    with pytest.raises(StopIteration) as end:
        next(program)
    assert end.value.value is None


async def test_a_value_cannot_choose_another_scheme(store: Store, folder: Path) -> None:
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(book("{{way}}.md"), {"way": "library:review"})
    assert harness.prompts == ["Do it."]
    assert row.status == "completed"


async def test_a_models_output_as_a_prompt_pulls_in_nothing(store: Store, folder: Path) -> None:
    text = (
        "# P\n\n## INPUTS\n\n- `secret` (string): x\n\n## STEP 1: A\n\nWrite.\n\n@output(made)\n\n"
        "## STEP 2: B\n\n@prompt({{made}})\n\nThen {{made}}.\n"
    )
    harness = MarkdownHarness(store, ["Say {{secret}}", "Done"], folder=folder)
    await harness.run(text, {"secret": "hidden"})
    assert harness.prompts[1] == "Say {{secret}}\n\nThen Say {{secret}}."


async def test_a_text_that_changes_during_the_run_is_read_once(store: Store, folder: Path) -> None:
    text = book("file:style.md") + '\n## STEP 2: B\n\n@elicit(confirm, "Go on?")\n'
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(text)
    (folder / "style.md").write_text("Long sentences.")
    row = await harness.answer(row.id, "yes")
    assert row.status == "completed"
    assert harness.prompts == ["Short sentences.\n\nDo it."]


async def test_the_prompt_of_a_branching_step_goes_before_each_sub_step(store: Store, folder: Path) -> None:
    text = """\
# P

## STEP 1: A

@prompt(file:style.md)

Around.

```if nobody == ""```

### STEP 1a: One

@prompt(file:deep/er.txt)

One.

### STEP 1b: Two

Two.

```endif```
"""
    harness = MarkdownHarness(store, ["A", "B"], folder=folder)
    await harness.run(text)
    assert harness.prompts == [
        "Short sentences.\n\nAround.\n\nDeeper.\n\nOne.",
        "Short sentences.\n\nAround.\n\nTwo.",
    ]


async def test_a_question_with_a_prompt_asks_the_model_too(store: Store, folder: Path) -> None:
    text = '# P\n\n## STEP 1: A\n\n@elicit(input, "What?")\n@prompt({})\n'
    harness = MarkdownHarness(store, ["Done"], folder=folder)
    row = await harness.run(text.format("file:style.md"), answers={"1": "this"})
    assert (harness.prompts, await harness.outputs(row.id)) == (["Short sentences."], {"1": "Done"})
    row = await harness.run(text.format("file:nothing.md"), answers={"1": "this"})
    assert await harness.outputs(row.id) == {"1": "this"}, "where there is no prompt, the answer is all there is"


@pytest.mark.parametrize(
    ("failed", "status"),
    [
        (Failed("not_found", "There is none."), "completed"),
        (Failed("no_such_prompt", "There is none."), "completed"),
        (Failed("too_large", "It is too long."), "failed"),
        (Failed("forbidden", "The policy forbids it."), "failed"),
        (Failed("timeout", "The server did not answer."), "failed"),
    ],
)
async def test_only_a_missing_prompt_is_left_out(store: Store, failed: Failed, status: str) -> None:
    class Refusing:
        async def perform(self, effect: ReadSource, call: object) -> Failed:
            assert effect.source == "mcp:server/name"
            return failed

    model = model_performer(ScriptedModel(["Done"]))
    service = Service(store, {AskModel: model, ReadSource: Refusing()})
    row: RunRow = await service.start(Playbook.from_text(book("mcp:server/name"), "p.md"), {}, Settings(model="test/x"))
    row = await service.drive(row.id)
    assert row.status == status
    if status == "failed":
        assert (row.error and row.error.message) == failed.message


async def test_without_readable_sources_a_prompt_is_not_found(store: Store) -> None:
    harness = MarkdownHarness(store, ["Done"])
    row = await harness.run(book("library:review"))
    assert (row.status, harness.prompts) == ("completed", ["Do it."])
    assert "Nothing here can perform 'ReadSource'" in (await harness.warnings(row.id))[0]
