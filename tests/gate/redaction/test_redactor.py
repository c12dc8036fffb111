"""No form of a secret gets past the redactor, however it is written or cut; everything else gets past unchanged."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.redaction.logs import RedactingFilter, guard_logs
from cuebook.gate.redaction.redactor import CUT
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import RunCommand, SecretUse, SendHttp
from cuebook.kernel.events import Performed, Performing, ValueSet
from cuebook.kernel.outcomes import CommandResult, Failed, HttpResponse, Reply
from cuebook.kernel.ports import Redactor
from tests.support.sampling import many

TOKEN = "ghp_s3cr3t/T0k3n+for=the&tests"
MASK = "[secret env:TOKEN]"
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *(base64.b64encode(bytes(range(line, line + 48))).decode() for line in range(0, 120, 30)),
        "-----END PRIVATE KEY-----",
    ]
)


def redactor_of(*values: str) -> SecretRedactor:
    redactor = SecretRedactor()
    for number, value in enumerate(values):
        redactor.add("env:TOKEN" if number == 0 else f"env:TOKEN_{number}", value)
    return redactor


# --- forms: how a text may be written, and how it may be read again -----------------------------------------


def lower_hex(text: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), text)


def upper_json(char: str) -> str:
    return re.sub(r"u(....)", lambda found: f"u{found[1].upper()}", json.dumps(char)[1:-1])


def entities(text: str, pattern: str) -> str:
    return "".join(char if char.isalnum() else pattern.format(ord(char)) for char in text)


def folded(text: str, width: int, end: str = "\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def dumped(text: str, line: Callable[[int, bytes], str], width: int = 16) -> str:
    """The output of a tool that shows this many bytes per line."""
    data = text.encode()
    return "\n".join(line(at, data[at : at + width]) for at in range(0, len(data), width))


def beside(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def in_words(data: bytes) -> str:
    """The output of `od -x`: words of two bytes, little-endian on most machines."""
    return " ".join(f"{int.from_bytes(data[at : at + 2], 'little'):04x}" for at in range(0, len(data), 2))


WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON in Unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON with escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "JSON in Unicode in JSON": lambda text: json.dumps(json.dumps(text, ensure_ascii=False), ensure_ascii=False),
    "JSON with escaped slashes in JSON": lambda text: json.dumps(json.dumps(text).replace("/", "\\/")),
    "JSON with upper-case escapes": lambda text: f'"{"".join(map(upper_json, text))}"',
    "JSON of msgspec": lambda text: msgspec.json.encode(text).decode(),
    "URL": lambda text: quote(text, safe=""),
    "URL with slashes": quote,
    "URL form": quote_plus,
    "URL in lower case": lambda text: lower_hex(quote(text, safe="")),
    "URL twice": lambda text: quote(quote(text, safe=""), safe=""),
    "URL in lower case twice": lambda text: lower_hex(quote(lower_hex(quote(text, safe="")), safe="")),
    "URL, every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "JSON in URL": lambda text: quote(json.dumps(text), safe=""),
    "base64": b64,
    "base64 without padding": lambda text: b64(text).rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in JSON": lambda text: json.dumps(b64(text)).replace("/", "\\/"),
    "base64 in URL": lambda text: quote(b64(text), safe=""),
    "base64 of JSON": lambda text: b64(json.dumps(text)),
    "base64 of JSON in Unicode": lambda text: b64(json.dumps(text, ensure_ascii=False)),
    "base64 folded at 64": lambda text: folded(b64(text), 64),
    "base64 of MIME": lambda text: base64.encodebytes(text.encode()).decode(),
    "base64 of MIME with CRLF": lambda text: folded(b64(text), 76, "\r\n"),
    "base64 of MIME in JSON": lambda text: json.dumps(base64.encodebytes(text.encode()).decode()),
    "base64, indented": lambda text: folded(b64(text), 60, "\n    "),
    "hex": lambda text: text.encode().hex(),
    "hex in upper case": lambda text: text.encode().hex().upper(),
    "hex with blanks": lambda text: text.encode().hex(" "),
    "hex with colons": lambda text: text.encode().hex(":").upper(),
    "hex with tabs": lambda text: text.encode().hex("\t"),
    "hex with tabs in JSON": lambda text: json.dumps(text.encode().hex("\t")),
    "hex with dots": lambda text: text.encode().hex("."),
    "hex with colons, folded": lambda text: folded(text.encode().hex(":"), 45, "\n    "),
    "hex of C": lambda text: dumped(text, lambda _, data: "  " + ", ".join(f"0x{one:02x}" for one in data) + ",", 12),
    "hex of xxd": lambda text: dumped(text, lambda at, data: f"{at:08x}: {data.hex(' ', -2):<39}  {beside(data)}"),
    "hex of xxd in JSON": lambda text: json.dumps(WRITTEN["hex of xxd"](text)),
    "hex of hexdump -C": lambda text: dumped(
        text, lambda at, data: f"{at:08x}  {data[:8].hex(' ') + '  ' + data[8:].hex(' '):<48}  |{beside(data)}|"
    ),
    "hex of od": lambda text: dumped(text, lambda at, data: f"{at:07o} {data.hex(' ')}"),
    "hex of od with characters": lambda text: dumped(
        text, lambda at, data: f"{at:07o} {data.hex(' '):<47}  >{beside(data)}<"
    ),
    "hex of od -An": lambda text: dumped(text, lambda _, data: f" {data.hex(' ')}"),
    "hex of od in words": lambda text: dumped(text, lambda at, data: f"{at:07o} {in_words(data)}"),
    "HTML": html.escape,
    "HTML without quotes": lambda text: html.escape(text, quote=False),
    "HTML, decimal": lambda text: entities(text, "&#{};"),
    "HTML, hexadecimal": lambda text: entities(text, "&#x{:X};"),
    "HTML twice": lambda text: html.escape(html.escape(text)),
    "HTML of JSON": lambda text: html.escape(json.dumps(text)),
}


def from_json(text: str) -> Iterator[str]:
    for _ in range(2):
        try:
            text = str(json.loads(text))
        except ValueError:
            return
        yield text


def from_base64(text: str) -> Iterator[str]:
    for joined in (text, re.sub(r"\\r|\\n|\s", "", text)):
        for run in re.findall(r"[A-Za-z0-9+/]+", re.sub(r"\\?/", "/", joined).replace("-", "+").replace("_", "/")):
            for start in range(4):
                digits = run[start:]
                digits = digits[: len(digits) - (len(digits) % 4 == 1)]
                yield base64.b64decode(digits + "=" * (-len(digits) % 4)).decode(errors="replace")


def from_hex(text: str) -> Iterator[str]:
    for run in re.findall(r"[0-9a-fA-F]+", text):
        for start in range(2):
            digits = run[start:]
            yield bytes.fromhex(digits[: len(digits) // 2 * 2]).decode(errors="replace")


def from_dump(text: str) -> Iterator[str]:
    """The bytes of a dump, in either order, and the characters beside them."""
    lines = [re.sub(r"^\s*[0-9a-fA-F]{6,8}:?(?= )", "", line) for line in text.replace("\\n", "\n").split("\n")]
    shown = [re.split(r" {2,}(?=\S+$| *[|>])", line) for line in lines]
    yield "".join(parts[-1].strip("|><") for parts in shown)
    for start in range(2):
        digits = re.sub(r"0x|[^0-9a-fA-F]", "", "".join(parts[0] for parts in shown))[start * 2 :]
        data = bytes.fromhex(digits[: len(digits) // 4 * 4])
        yield data.decode(errors="replace")
        yield bytes(data[at ^ 1] for at in range(len(data))).decode(errors="replace")


def readings(text: str, deeper: int = 1) -> Iterator[str]:
    """The text, and everything that it might be read as."""
    yield text
    once = [unquote(text), unquote_plus(text), html.unescape(text)]
    once += [*from_json(text), *from_base64(text), *from_hex(text), *from_dump(text)]
    for reading in once:
        if deeper:
            yield from readings(reading, deeper - 1)
        else:
            yield reading


SECRETS = st.text(
    st.sampled_from("abcdefghijkXYZ0123456789 \"'\\/%&<>+-_=.\n\té€ß😀~{}`$;#x"), min_size=8, max_size=60
).filter(lambda text: len(text.strip()) >= 8 and text == text.strip())
TEXTS = st.text(st.sampled_from('lmnopqr TUV456"\\/%&+-_=.\né😀:{[,'), max_size=12)


@pytest.mark.parametrize("written", WRITTEN)
@given(secret=SECRETS, before=TEXTS, after=TEXTS)
@settings(max_examples=many(12, 60), deadline=None)
def test_no_form_of_a_secret_can_be_read_back(written: str, secret: str, before: str, after: str) -> None:
    redactor = redactor_of(secret)
    plain = WRITTEN[written](before + secret + after)
    masked = redactor.text(plain)
    assert masked != plain
    assert all(secret not in reading for reading in readings(masked))


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
def test_the_mask_names_the_secret_in_every_alignment(written: str, before: str) -> None:
    masked = redactor_of(TOKEN).text(WRITTEN[written](before + TOKEN + " and more"))
    assert masked.count(MASK) == 1
    assert all(TOKEN not in reading for reading in readings(masked))


@pytest.mark.parametrize("written", WRITTEN)
def test_every_long_line_of_a_secret_is_masked_on_its_own(written: str) -> None:
    redactor = redactor_of(PEM)
    for line in PEM.splitlines()[1:-1]:
        masked = redactor.text(WRITTEN[written](f"a {line} b"))
        assert masked.count(MASK) == 1
    whole = redactor.text(WRITTEN[written](f"a {PEM} b"))
    assert whole.count(MASK) == 1, "the longest form counts"


def test_the_first_line_of_a_key_file_is_not_masked() -> None:
    text = "A key begins with -----BEGIN PRIVATE KEY-----."
    assert redactor_of(PEM).text(text) is text


def test_a_basic_header_is_masked() -> None:
    header = f"Authorization: Basic {b64(f'someone:{TOKEN}')}"
    assert redactor_of(TOKEN).text(header) == f"Authorization: Basic {b64('someone:')[:10]}p{MASK}M="


def test_what_programs_print_of_a_text_is_masked() -> None:
    secret = 'it\'s "quoted"\\\n\x1bé'
    redactor = redactor_of(secret)
    latin = base64.b64encode(secret.encode("latin-1")).decode()
    misread = secret.encode().decode("latin-1")
    for text in (repr(secret), repr(secret.encode()), ascii(secret), latin, misread, secret.replace("\n", "\r\n")):
        assert MASK in redactor.text(text)


@given(noise=st.text(max_size=200))
@settings(max_examples=many(50, 200), deadline=None)
def test_a_text_without_secrets_is_the_same_object(noise: str) -> None:
    redactor = redactor_of(TOKEN, PEM)
    assert redactor.text(noise) is noise
    value = {"a": [noise, {"b": Text(noise)}], noise: (1, None, 2.5)}
    assert redactor.value(value) is value


def test_parts_of_a_secret_are_not_masked() -> None:
    redactor = redactor_of(TOKEN)
    for text in (TOKEN[:-1], TOKEN[1:], b64(TOKEN)[:20], TOKEN.swapcase()):
        assert redactor.text(text) is text


def test_the_leftmost_longest_secret_counts() -> None:
    redactor = redactor_of("abcdefgh", "abcdefghijkl", "cdefghijklmnop")
    assert redactor.text("abcdefgh abcdefghijkl") == "[secret env:TOKEN] [secret env:TOKEN_1]"
    assert redactor.text("abcdefghijklmnop") == "[secret env:TOKEN_1]mnop"
    assert redactor.text("abcdefghijk") == "[secret env:TOKEN]ijk"


def test_the_first_name_of_a_value_is_its_name() -> None:
    redactor = redactor_of(TOKEN)
    redactor.add("env:OTHER", TOKEN)
    assert redactor.text(TOKEN) == MASK


@pytest.mark.parametrize("secret", ["env:TOKEN", "[secret env:TOKEN]", "[secret e", "ret env:TOK"])
def test_a_mask_never_holds_a_secret(secret: str) -> None:
    redactor = redactor_of(secret, "[secret]")
    masked = redactor.text(f"{secret} and [secret] and {secret}")
    assert secret not in masked
    assert "[secret]" not in masked
    assert redactor.text(masked) == masked


def test_short_and_blank_values_are_not_masked() -> None:
    redactor = redactor_of("seven77", " " * 20, "1234567 \n", "")
    assert not redactor.known
    text = f"seven77 {b64('seven77')} 1234567 {' ' * 30}"
    assert redactor.text(text) is text


@pytest.mark.parametrize("secret", ["\udce9" * 9, "\ud83d-half-of-a-pair", "nul\0nul\0nul", "\\" * 9, "%25%25%25%25"])
def test_odd_secrets_are_masked(secret: str) -> None:
    redactor = redactor_of(secret)
    assert redactor.text(f"a {secret} b") == f"a {MASK} b"
    assert MASK in redactor.text(json.dumps(secret))


# --- streams ------------------------------------------------------------------------------------------------


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Secrets, and a text full of them and of their beginnings, in pieces."""
    secrets = draw(st.lists(SECRETS, min_size=1, max_size=3))
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        written = WRITTEN[draw(st.sampled_from(sorted(WRITTEN)))](draw(TEXTS) + draw(st.sampled_from(secrets)))
        parts.append(written[: draw(st.integers(0, len(written)))] if draw(st.booleans()) else written)
    text = "".join(parts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return secrets, [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(cut_texts())
@example((["aaaaaaaab", "aaaaaaaaaac"], ["aaaaaaaaa", "aaaaaaaab", "aaaaaaaaaac"]))
@settings(max_examples=many(80, 400), deadline=None)
def test_a_stream_becomes_what_the_whole_text_would(given_: tuple[list[str], list[str]]) -> None:
    secrets, pieces = given_
    redactor = redactor_of(*secrets)
    whole = redactor.text("".join(pieces))
    stream = redactor.stream()
    assert "".join([*map(stream.feed, pieces), stream.finish()]) == whole
    stream = redactor.stream()
    assert "".join([*map(stream.feed, "".join(pieces)), stream.finish()]) == whole


@given(cut_texts())
@settings(max_examples=many(30, 100), deadline=None)
def test_a_stream_holds_back_nothing_that_cannot_begin_a_secret(given_: tuple[list[str], list[str]]) -> None:
    secrets, pieces = given_
    assume(not any("☃" in secret for secret in secrets))
    redactor = redactor_of(*secrets)
    stream = redactor.stream()
    for piece in pieces:
        shown = stream.feed(piece) + stream.feed("☃")
        assert shown.endswith("☃")
    assert stream.finish() == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the corr", "the "),
        ("the correct-horse", "the "),
        ("the correct-horses", "the [secret env:TOKEN]s"),
        ("the correct-horse-battery", "the [secret env:TOKEN_1]"),
        ("the correct path", "the correct path"),
        ("see %63%6F", "see "),
        ("see %63%20", "see %63%20"),
        ("a line\n", "a line\n"),
        (f"data: {b64('correct-horse')[:9]}", "data: "),
        (f"data: {b64('correct-horse')[:9]}\n", "data: "),
        (f"data: {b64('correct-horse')[:9]}\n\n", f"data: {b64('correct-horse')[:9]}\n\n"),
    ],
)
def test_a_stream_holds_back_a_tail_that_may_begin_a_secret(text: str, shown: str) -> None:
    stream = redactor_of("correct-horse", "correct-horse-battery").stream()
    assert stream.feed(text) == shown
    assert stream.finish() == redactor_of("correct-horse", "correct-horse-battery").text(text)[len(shown) :]


def test_a_secret_that_becomes_known_while_a_text_streams_is_masked_from_then_on() -> None:
    redactor = SecretRedactor()
    stream = redactor.stream()
    assert stream.feed("abc") == "abc"
    redactor.add("env:TOKEN", TOKEN)
    assert stream.feed(f" {TOKEN[:9]}") == " "
    redactor.add("env:OTHER", f"{TOKEN[:9]}-another")
    assert stream.feed("-another one") == "[secret env:OTHER] one"


# --- values -------------------------------------------------------------------------------------------------


class Word(str):
    pass


class Words(list[str]):
    pass


class Pair(NamedTuple):
    text: str
    number: int


def test_effects_outcomes_and_events_are_masked_wherever_a_text_is() -> None:
    redactor = redactor_of(TOKEN)
    command = RunCommand(("tool", TOKEN), env={TOKEN: f"a{TOKEN}"}, secrets=(SecretUse("env.A", "env:TOKEN"),))
    event = Performing(command, f"RunCommand {TOKEN}")
    masked = redactor.value(event)
    assert masked == Performing(
        RunCommand(("tool", MASK), env={MASK: f"a{MASK}"}, secrets=(SecretUse("env.A", "env:TOKEN"),)),
        f"RunCommand {MASK}",
    )
    assert isinstance(masked.effect, RunCommand)
    assert masked.effect.secrets is command.secrets, "what holds none is kept"
    outcome = CommandResult(0, stdout=Text(f"x{TOKEN}"), stderr=Text("fine"))
    assert redactor.value(Performed(outcome, "f")).outcome == CommandResult(0, Text(f"x{MASK}"), Text("fine"))
    reply = Reply(Text("fine"), calls=(ToolCall("1", "t", {"a": [1, {"b": TOKEN}]}),))
    assert redactor.value(reply).calls == (ToolCall("1", "t", {"a": [1, {"b": MASK}]}),)
    failed = Failed("code", f"no {TOKEN}", details={"why": {"deep": (TOKEN, 1)}})
    assert redactor.value(failed) == Failed("code", f"no {MASK}", details={"why": {"deep": (MASK, 1)}})
    assert redactor.value({TOKEN, "b"}) == {MASK, "b"}
    assert redactor.value(Pair(TOKEN, 1)) == Pair(MASK, 1)
    assert redactor.value(Words([Word(TOKEN), Word("b")])) == [MASK, "b"]


def test_the_beginning_of_a_secret_where_an_output_was_cut_off_is_masked() -> None:
    redactor = redactor_of(TOKEN)
    begun = f"x{TOKEN[:12]}"
    assert redactor.value(CommandResult(0, Text(begun))).stdout == Text(begun), "what was not cut is whole"
    cut = redactor.value(CommandResult(0, Text(begun), Text(begun), truncated=True))
    assert (cut.stdout, cut.stderr) == (Text(f"x{MASK}"), Text(begun))
    cut = redactor.value(CommandResult(0, Text(b64(TOKEN)), Text(f"x{b64(TOKEN)[:10]}"), stderr_truncated=True))
    assert (cut.stdout, cut.stderr) == (Text(MASK), Text(f"x{MASK}"))
    assert redactor.value(HttpResponse(200, body=Text(begun), truncated=True)).body == Text(f"x{MASK}")
    failed = Failed("timeout", "no", details={"stdout": begun, "truncated": True, "stderr": begun})
    assert redactor.value(failed).details == {"stdout": f"x{MASK}", "truncated": True, "stderr": begun}
    for end in ("", TOKEN[:3], "fine"):
        fine = CommandResult(0, Text(f"some text {end}"), truncated=True)
        assert redactor.value(fine) is fine
    assert redactor.value(CommandResult(0, Text(f"{TOKEN} x"), truncated=True)).stdout == Text(f"{MASK} x")


def test_what_holds_no_secret_is_the_same_object() -> None:
    redactor = redactor_of(TOKEN)
    for value in (
        SendHttp("GET", "https://example.org", headers={"a": "b"}),
        ValueSet("name", [{"a": (1, 2.5, None, True)}]),
        Text("fine"),
        b"bytes",
        frozenset({"a"}),
    ):
        assert redactor.value(value) is value


def test_a_text_that_is_not_loaded_stays_so() -> None:
    def load(digest: str) -> str:
        raise AssertionError("it was loaded")

    text = Text.stored("0" * 64, 100, load)
    assert redactor_of(TOKEN).value({"a": text})["a"] is text


def test_two_keys_that_are_masked_alike_stay_two() -> None:
    masked = redactor_of(TOKEN).value({TOKEN: 1, b64(TOKEN): 2, "c": 3})
    assert list(masked.values()) == [1, 2, 3]
    assert all(MASK in key or key == "c" for key in masked)


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("leave me alone")


def test_values_of_any_kind_pass() -> None:
    redactor = redactor_of(TOKEN)
    odd = Odd()
    for value in (odd, object, len, 1j, ..., msgspec.UNSET, range(3)):
        assert redactor.value([value])[0] is value
    assert redactor.value({1: odd, None: TOKEN, odd: 2}) == {1: odd, None: MASK, odd: 2}


def test_what_is_nested_without_end_is_cut_off() -> None:
    redactor = redactor_of(TOKEN)
    deep: Any = TOKEN
    for _ in range(900):
        deep = [deep]
    assert TOKEN not in str(redactor.value(deep))
    endless: list[Any] = []
    endless.append(endless)
    assert CUT in str(redactor.value(endless))


def test_without_secrets_nothing_is_looked_at() -> None:
    redactor = SecretRedactor()
    endless: list[Any] = []
    endless.append(endless)
    assert redactor.value(endless) is endless
    assert not redactor.known
    assert redactor.stream().feed("as it is") == "as it is"


def test_it_fits_the_port_and_shows_no_value() -> None:
    redactor = redactor_of(TOKEN)
    port: Redactor = redactor
    assert port.value(TOKEN) == MASK
    assert TOKEN not in repr(redactor) + repr(redactor.stream())


def test_secrets_may_be_added_while_others_are_masked() -> None:
    redactor = redactor_of(TOKEN)
    problems: list[BaseException] = []
    stop = threading.Event()

    def mask() -> None:
        try:
            while not stop.is_set():
                assert redactor.text(f"a {TOKEN} b") == f"a {MASK} b"
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=mask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(30):
        redactor.add(f"env:N{number}", f"another-secret-{number}")
        assert redactor.text(f"another-secret-{number}!") == f"[secret env:N{number}]!"
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []


# --- logs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[SecretRedactor]:
    redactor = redactor_of(TOKEN)
    end = guard_logs(redactor)
    yield redactor
    end()


@pytest.mark.parametrize("name", ["cuebook", "cuebook.below", "a.library"])
def test_log_records_are_masked(name: str, guarded: SecretRedactor, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(name)
    logger.warning("used %s for %d things", TOKEN, 3)
    try:
        raise ValueError(f"refused {TOKEN}") from KeyError(b64(TOKEN))
    except ValueError:
        logger.exception("failed", stack_info=True)
    logger.warning("a %s fine", "record")
    assert f"used {MASK} for 3 things" in caplog.text
    assert f"ValueError: refused {MASK}" in caplog.text
    assert TOKEN not in caplog.text
    assert b64(TOKEN) not in caplog.text
    assert caplog.records[-1].args == ("record",), "what holds no secret is left alone"


def test_a_record_whose_arguments_do_not_fit_is_masked() -> None:
    record = logging.LogRecord("cuebook", logging.INFO, "file", 1, f"%d {TOKEN}", (TOKEN,), None)
    assert RedactingFilter(redactor_of(TOKEN)).filter(record)
    assert (record.msg, record.args) == (f"%d {MASK}", (MASK,))


def test_logs_are_guarded_for_as_long_as_the_redactor_lives(caplog: pytest.LogCaptureFixture) -> None:
    redactors = [redactor_of(TOKEN), redactor_of("another-secret")]
    guards = [guard_logs(redactor) for redactor in redactors]
    factory = logging.getLogRecordFactory()
    guard_logs(redactors[0])
    assert logging.getLogRecordFactory() is factory, "one look at each record is enough"
    log = logging.getLogger("cuebook")
    log.warning("%s another-secret", TOKEN)
    guards[0]()
    log.warning("%s another-secret", TOKEN)
    guards.clear()
    redactors.clear()
    log.warning("%s another-secret", TOKEN)
    assert caplog.messages == [f"{MASK} {MASK}", f"{TOKEN} {MASK}", f"{TOKEN} another-secret"]


def test_in_any_case_a_long_value_has_few_forms_and_is_masked_whole() -> None:
    value = "\n".join(f"Line {number} of a long Medical history" for number in range(400))
    redactor = SecretRedactor("sensitive", any_case=True)
    redactor.add("note", value)
    for text in (value, value.upper(), value[::-1].lower(), value.splitlines()[7], b64(value)):
        assert "[sensitive note]" in redactor.text(f"x {text} y"), text[:20]
        assert "medical" not in redactor.text(f"x {text} y").lower()
    short = SecretRedactor("sensitive", any_case=True)
    short.add("note", value[:1000])
    assert short.text(value[:1000].splitlines()[7].upper()) == "[sensitive note]"
