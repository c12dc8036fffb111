"""Texts are loaded when they are needed; contexts share their beginnings and are identified by their content."""

from __future__ import annotations

from cuebook.kernel.context import EMPTY, Text, ToolCall, digest_of


def test_a_stored_text_is_loaded_on_first_use_and_once() -> None:
    asked: list[str] = []

    def load(digest: str) -> str:
        asked.append(digest)
        return "long ago"

    text = Text.stored(digest_of("long ago"), 8, load)
    assert (len(text), text.loaded, asked) == (8, False, [])
    assert text == Text("long ago"), "equality needs no loading"
    assert "8 characters" in repr(text)
    assert (str(text), str(text), text.loaded) == ("long ago", "long ago", True)
    assert asked == [digest_of("long ago")]


def test_texts_are_equal_by_content() -> None:
    assert Text("a") == Text("a")
    assert Text("a") != Text("b")
    assert len({Text("a"), Text("a"), Text("b")}) == 2


def test_adding_a_block_leaves_the_context_as_it_was() -> None:
    one = EMPTY.add("system", "Be brief.")
    two = one.add("user", "Hello")
    assert (len(EMPTY), len(one), len(two)) == (0, 1, 2)
    assert [(block.role, str(block.text)) for block in two] == [("system", "Be brief."), ("user", "Hello")]
    assert two.parent is one


def test_a_context_is_identified_by_its_blocks_and_their_order() -> None:
    a, b = EMPTY.add("user", "a"), EMPTY.add("user", "b")
    assert a == EMPTY.add("user", "a")
    assert a.add("user", "b") != b.add("user", "a")
    assert a != EMPTY.add("assistant", "a")
    assert a.add("tool", "x", call_id="1") != a.add("tool", "x", call_id="2")
    assert a.add("assistant", "x", calls=(ToolCall("1", "f"),)) != a.add("assistant", "x")


def test_a_long_context_is_walked_without_recursion() -> None:
    context = EMPTY
    for number in range(5000):
        context = context.add("user", str(number))
    assert [str(block.text) for block in context] == [str(number) for number in range(5000)]


def test_the_leading_system_blocks_are_separated_from_the_rest() -> None:
    assert EMPTY.lead is EMPTY
    system = EMPTY.add("system", "a").add("system", "b")
    assert system.lead is system
    assert system.add("user", "c").add("system", "d").lead is system
    assert EMPTY.add("user", "c").add("system", "d").lead is EMPTY


def test_the_texts_of_a_context_are_joined_regardless_of_its_length() -> None:
    contexts, texts = [EMPTY], []
    assert EMPTY.joined() == ""
    for number in range(300):
        texts.append(str(number) * (number % 3))
        contexts.append(contexts[-1].add("system" if number % 7 else "user", texts[-1]))
        assert contexts[-1].joined() == "\n\n".join(texts)
    assert contexts[256].add("system", "other").joined() == "\n\n".join([*texts[:256], "other"])
