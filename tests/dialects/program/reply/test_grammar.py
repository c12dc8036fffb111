"""The grammar of legal replies: what it leaves open, and that a real model constrained by it breaks no rule."""

from __future__ import annotations

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.machine.decide import needs_model
from cuebook.dialects.program.model import ListingLine, Param
from cuebook.dialects.program.reply.grammar import grammar_of
from cuebook.dialects.program.verify.verdicts import Signature
from cuebook.kernel.effects import AskModel
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer
from cuebook.performers.models.providers import DEFAULT, Providers
from cuebook.performers.models.weights import find_weights
from cuebook.testing import ScriptedModel
from cuebook.wiring.keys import Keys
from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program
from tests.support.sampling import THOROUGH

LISTING = Listing.of_rows(
    "Main",
    [
        ("01", "QUE", "Say(user, Ask for $n:int)"),
        ("02", "YLD", "for user"),
        ("03", "CND", "If it is large"),
        ("03.01", "QUE", "$x:float = Rate(n=$n)"),
        ("03.02", "QUE", "$y:str = Rate(the number that was meant)"),
        ("04", "EXE", "Judge $mood:str and $sure:bool"),
        ("05", "RET", "the mood"),
    ],
    returns="str",
)
SIGNATURES = {"Rate": Signature((Param("n", "int"),))}


def rules(position: Position | None, known: tuple[str, ...] = (), *, heard: bool = False) -> dict[str, str]:
    made = grammar_of(LISTING, position, known, SIGNATURES, heard=heard)
    assert made is not None
    return dict(line.split(" ::= ", 1) for line in made.strip().splitlines())


def test_it_begins_with_the_lines_that_may_come_next() -> None:
    assert rules(None)["root"].endswith("(line0)")
    assert rules(Position("02", "done"))["root"].endswith("(line3 | line5)")


def test_what_the_user_was_asked_for_is_set_first() -> None:
    root = rules(Position("02", "done"), heard=True)["root"]
    assert '"`Var[$n, " int "]`' in root
    assert "$n" not in rules(Position("02", "done"))["root"]


def test_nothing_is_set_again_after_a_failed_call() -> None:
    rows = [("01", "QUE", "$x:int = Rate(n=1)"), ("02", "YLD", "for call"), ("03", "RET", "$x")]
    made = grammar_of(Listing.of_rows("Main", rows), Position("02", "done"), ("x",), SIGNATURES, heard=True)
    assert made is not None
    assert "Var[$x" not in made


def test_a_line_leaves_open_only_what_a_model_has_to_write() -> None:
    found = rules(Position("02", "done"), ("n",))
    assert '"$x = Rate(n=$n)"' in found["line3"]
    assert '"$y = Rate(" "n=" int ")"' in found["line4"]
    assert '" `Var[$mood, " string "]`"  " `Var[$sure, " bool "]`"'.replace("  ", " ") in found["line5"].replace(
        "  ", " "
    )
    assert '"`Return[" (string) "]` `Var[$__, " string "]`' in found["line6"]


def test_where_no_model_is_needed_next_the_reply_ends() -> None:
    assert '"yld call"' in rules(None)["line0"]
    assert "line1" not in rules(None)


@pytest.mark.parametrize("lines", [["EXE"], ["CND", "EXE"]])
def test_a_long_listing_has_one_that_is_not_much_longer(lines: list[str]) -> None:
    rows = [(f"{n:04}{'.01' * at}", code, "If so") for n in range(1, 1001) for at, code in enumerate(lines)]
    made = grammar_of(Listing.of_rows("Main", rows), None, (), {})
    assert made is not None
    assert len(made) < 200 * len(rows)


@pytest.mark.parametrize("text", ["$x = 1{}x", "$x = 1; yld {}; x", "$x = 1; {}x", "$x{}:y", "$x = F(){}x"])
@pytest.mark.parametrize("code", ["EXE", "QUE", "CND", "RET"])
def test_a_long_line_is_processed_in_linear_time(text: str, code: str) -> None:
    """If the work were more than linear, this would not finish."""
    line = ListingLine("01", code, text.format(" " * 100_000))  # type: ignore[arg-type]
    needs_model(line)
    grammar_of(Listing("Main", (line,)), None, (), {})


def test_a_playbook_without_a_listing_has_none() -> None:
    assert grammar_of(Listing("Free", ()), None, (), {}) is None


@pytest.mark.parametrize(
    ("code", "text", "needed"),
    [
        ("EXE", "$x = $y + 1", False),
        ("EXE", "$x = the sum", True),
        ("QUE", "$x = Rate($y, n=3)", False),
        ("QUE", "Say(user, $x)", True),
        ("QUE", "Rate(whatever fits)", True),
        ("RET", "", False),
        ("RET", "half of it", True),
        ("YLD", "for user", False),
        ("YLD", "for meeting", True),
        ("JMP", "02", False),
        ("TNK", "Think", True),
    ],
)
def test_whether_a_line_needs_a_model(code: str, text: str, needed: bool) -> None:
    assert needs_model(ListingLine("01", code, text)) is needed  # type: ignore[arg-type]


if THOROUGH:  # it reads long prompts; examples/bill shows the same of a shorter program in the suite

    @pytest.mark.embedded
    @pytest.mark.skipif(find_weights() is None, reason="the weights of the embedded model are not installed")
    @pytest.mark.timeout(300)
    async def test_the_embedded_model_breaks_no_rule() -> None:
        more = "- 05:CND If the user sounds happy\n  - 05.01:EXE Write a $praise:str\n- 06:QUE Say(user, Tell $x)\n- 07:YLD for exit"
        text = program(
            "- 01:QUE Say(user, Ask for $n:int)\n- 02:YLD for user\n- 03:QUE $x:int = Twice(n=$n)\n- 04:YLD for call\n"
            + more,
            "## Twice($n:int) -> int\n### Steps\n- 01:RET $n * 2\n",
            returns="None",
        )
        harness, unasked = ProgramHarness(), ScriptedModel([])
        service = harness.service(unasked)
        service._engine.performers = {**service._engine.performers, AskModel: ModelPerformer(Providers(Keys()))}
        row = await service.start(Playbook.from_text(text, "p.pbasm"), {}, Settings(model=DEFAULT, max_tokens=400))
        assert (await service.drive(row.id)).status == "awaiting_input"
        [wait] = await harness.store.waits(run=row.id)
        await service.answer(wait.id, "7")
        assert (await service.drive(row.id)).status == "completed"
        played = Played(row, [entry async for entry in service.entries(row.id)], unasked)
        assert played.seen.verdicts == []
        assert played.variables()["x"] == 2 * played.variables()["n"]
        assert len(played.messages) == 2
