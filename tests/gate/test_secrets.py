"""Values are looked up at the last moment, added to the redactor first, and never part of a message."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.secrets import (
    SecretMissing,
    SecretProblem,
    SecretTooShort,
    SecretUnknown,
    SecretUnreadable,
    Vault,
    check_handle,
    check_name,
    is_direct,
)
from cuebook.kernel.effects import SecretUse
from cuebook.kernel.errors import BadInput

VALUE = "s3cr3t-value-0123"


def no_keyring(name: str) -> str | None:
    raise RuntimeError(f"locked, and {VALUE} is in it")


def vault(keyring: Callable[[str], str | None] = no_keyring, **parts: Any) -> Vault:
    return Vault(**{"environ": {"TOKEN": VALUE, "SHORT": "1234567", "EMPTY": ""}, "keyring": keyring, **parts})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    return path


# --- handles ------------------------------------------------------------------------------------------------


def test_a_value_is_found_by_each_kind_of_handle(file: Path) -> None:
    found = vault({"github": VALUE}.get)
    assert found.resolve("env:TOKEN") == VALUE
    assert found.resolve("keyring:github") == VALUE
    assert found.resolve(f"file:{file}") == VALUE


def test_a_path_may_begin_at_home(file: Path) -> None:
    found = vault(environ={"HOME": str(file.parent)})
    assert found.resolve("file:~/token") == VALUE
    assert found.canonical("file:~/token") == f"file:{file}"


def test_one_line_end_is_taken_off_a_file_and_a_variable(file: Path) -> None:
    for content, value in [
        (f"{VALUE}\n\n", f"{VALUE}\n"),
        (f"{VALUE}\r\n", VALUE),
        (f"one line {VALUE}\ntwo", f"one line {VALUE}\ntwo"),
    ]:
        file.write_bytes(content.encode())
        assert vault().resolve(f"file:{file}") == value
        assert vault(environ={"TOKEN": content}).resolve("env:TOKEN") == value


def test_a_name_refers_to_a_handle() -> None:
    found = vault(names=lambda: {"github": "env:TOKEN"})
    assert found.resolve("github") == VALUE
    assert found.canonical("github") == "env:TOKEN"


def test_the_same_place_has_one_canonical_handle(file: Path) -> None:
    found = vault()
    for path in (f"{file.parent}/./token", f"{file.parent}//x/../token", f"/{file}", f"//{file}"):
        assert found.canonical(f"file:{path}") == f"file:{file}"


def test_names_do_not_nest() -> None:
    found = vault(names=lambda: {"github": "other", "other": "env:TOKEN"})
    with pytest.raises(SecretProblem, match="refers to another name"):
        found.resolve("github")


def test_the_error_for_an_unknown_name_lists_similar_names() -> None:
    with pytest.raises(SecretUnknown, match=r"no secret 'gihub'\. Did you mean github\?") as raised:
        vault(names=lambda: {"github": "env:TOKEN"}).canonical("gihub")
    assert raised.value.code == "secret_unknown"


@pytest.mark.parametrize("handle", ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "hunter 2 and more", "x" * 40, "a:b@c"])
def test_a_value_in_the_place_of_a_handle_is_not_repeated(handle: str) -> None:
    with pytest.raises(SecretProblem) as raised:
        vault().resolve(handle)
    assert handle not in str(raised.value)
    with pytest.raises(SecretProblem) as raised:
        check_handle(handle)
    assert handle not in str(raised.value)


@pytest.mark.parametrize(
    "handle", ["env:", "env:1A", "env:A B", "keyring:", "keyring: ", "file:", "file:a/b", "file:~you/x"]
)
def test_a_handle_that_leads_nowhere_is_refused(handle: str) -> None:
    with pytest.raises(SecretProblem, match="Write it like"):
        vault().canonical(handle)


def test_a_name_must_not_look_like_a_handle() -> None:
    assert check_name("github.com-token_2") == "github.com-token_2"
    for name in ("env:TOKEN", "a:b", "", "two words", "-x", "x" * 65, "é"):
        with pytest.raises(SecretProblem) as raised:
            check_name(name)
        assert not name or name not in str(raised.value)
    assert is_direct("file:x")
    assert not is_direct("env")
    assert not is_direct("http://x")


# --- what can be wrong ----------------------------------------------------------------------------------------


def problem_of(found: Vault, handle: str) -> SecretProblem:
    with pytest.raises(SecretProblem) as raised:
        found.resolve(handle)
    problem = found.problem(handle)
    assert problem is not None
    assert str(problem) == str(raised.value)
    return raised.value


def test_the_error_for_a_missing_value_says_what_to_do(tmp_path: Path) -> None:
    for handle, words in [
        ("env:NOTHING", "Set NOTHING in the environment"),
        ("env:EMPTY", "Set EMPTY in the environment"),
        ("keyring:github", "`keyring set cuebook github`"),
        (f"file:{tmp_path}/nothing", "there is no such file"),
    ]:
        problem = problem_of(vault(lambda name: None), handle)
        assert isinstance(problem, SecretMissing)
        assert isinstance(problem, BadInput)
        assert (problem.code, handle in str(problem), words in str(problem)) == ("secret_missing", True, True)


def test_a_short_value_is_refused_and_not_shown(file: Path) -> None:
    file.write_text("1234567\n")
    for handle in ("env:SHORT", f"file:{file}", "keyring:short"):
        problem = problem_of(vault(lambda name: "1234567"), handle)
        assert isinstance(problem, SecretTooShort)
        assert (problem.code, "1234567" in str(problem)) == ("secret_too_short", False)


def test_a_value_that_cannot_be_read_is_an_error(file: Path) -> None:
    pipe, binary, large = (file.with_name(name) for name in ("pipe", "binary", "large"))
    os.mkfifo(pipe)
    binary.write_bytes(VALUE.encode() + b"\xff\xfe")
    large.write_text(VALUE * 10_000)
    loop = file.with_name("loop")
    loop.symlink_to(loop)
    for path, words in [
        (pipe, "not a file"),
        (file.parent, "not a file"),
        (binary, "UTF-8"),
        (large, "KiB"),
        (loop, "links"),
    ]:
        problem = problem_of(vault(), f"file:{path}")
        assert isinstance(problem, SecretUnreadable)
        assert (problem.code, words in str(problem), VALUE in str(problem)) == ("secret_unreadable", True, False)
    problem = problem_of(vault(), "keyring:github")
    assert isinstance(problem, SecretUnreadable)
    assert "the keyring denied access (RuntimeError)" in str(problem)


def holders(error: BaseException | None) -> list[str]:
    """Everything that an error holds on to, as text."""
    found: list[str] = []
    while error is not None:
        found += [repr(error), repr(error.__dict__)]
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.endswith("secrets.py") and "gate/secrets" in str(trace.tb_frame):
                found.append(repr(trace.tb_frame.f_locals))
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return found


def test_no_error_keeps_a_value(file: Path) -> None:
    file.write_bytes(VALUE.encode() + b"\xff")
    found = vault(names=lambda: {"bad": f"file:{file}"})
    uses = (SecretUse("env.A", "env:TOKEN"), SecretUse("env.B", "bad"))
    for attempt in (
        lambda: found.resolve("bad"),
        lambda: found.resolve("env:SHORT"),
        lambda: found.resolve("keyring:x"),
        lambda: found.resolve_uses(uses),
        lambda: found.resolve_uses((*uses[:1], SecretUse("env.B", "env:NOTHING"))),
    ):
        with pytest.raises(SecretProblem) as raised:
            attempt()
        assert not [text for text in holders(raised.value) if VALUE in text or "1234567" in text]
    assert VALUE not in repr(found)


def test_a_file_that_others_can_read_is_a_concern_and_no_reason_to_refuse(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = vault()
    found.resolve(f"file:{file}")
    assert (found.concern(f"file:{file}"), found.concern("env:TOKEN"), caplog.text) == ("", "", "")
    file.chmod(0o644)
    for _ in range(3):
        assert found.resolve(f"file:{file}") == VALUE
    assert f"`chmod 600 {file}`" in found.concern(f"file:{file}")
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "it is said once"


# --- uses ---------------------------------------------------------------------------------------------------


def test_values_come_by_their_place_within_their_form() -> None:
    redactor = SecretRedactor()
    found = vault(redactor=redactor)
    uses = (
        SecretUse("headers.Authorization", "env:TOKEN", "Bearer {}"),
        SecretUse("env.TOKEN", "env:TOKEN"),
        SecretUse("body", "env:TOKEN", '{"key": "{}", "x": {0}}'),
    )
    values = found.resolve_uses(uses)
    assert values == {
        "headers.Authorization": f"Bearer {VALUE}",
        "env.TOKEN": VALUE,
        "body": f'{{"key": "{VALUE}", "x": {{0}}}}',
    }
    assert redactor.value(values)["headers.Authorization"] == "Bearer [secret env:TOKEN]"
    assert found.resolve_uses(()) == {}


@pytest.mark.parametrize("form", ["", "Bearer", "{} {}", "{0}"])
def test_a_form_has_exactly_one_place_for_the_value(form: str) -> None:
    redactor = SecretRedactor()
    with pytest.raises(SecretProblem, match=r"headers\.A must contain exactly one"):
        vault(redactor=redactor).resolve_uses(
            (SecretUse("env.B", "env:TOKEN"), SecretUse("headers.A", "env:TOKEN", form))
        )
    assert not redactor.known, "nothing was read"


def test_one_place_takes_one_secret() -> None:
    with pytest.raises(SecretProblem, match=r"Two secrets are assigned to env\.A"):
        vault().resolve_uses((SecretUse("env.A", "env:TOKEN"), SecretUse("env.A", "env:OTHER")))


# --- what the redactor is told ------------------------------------------------------------------------------


def test_a_value_is_masked_by_its_direct_handle(file: Path) -> None:
    redactor = SecretRedactor()
    found = vault(names=lambda: {"github": f"file:{file}"}, redactor=redactor)
    found.resolve("github")
    assert redactor.text(f"a {VALUE}") == f"a [secret file:{file}]"


def test_declared_secrets_are_learned_before_anyone_uses_them(file: Path) -> None:
    file.write_text("from-the-file\n")
    names = {
        "a": "env:TOKEN",
        "b": f"file:{file}",
        "c": "keyring:c",
        "d": "env:NOTHING",
        "e": "keyring:locked",
        "f": "env:SHORT",
        "g": "another name",
        "h": "file:relative",
        "i": f"file:{file}.nothing",
    }
    redactor = SecretRedactor()

    def keyring(name: str) -> str | None:
        return "from-the-keyring" if name == "c" else no_keyring(name)

    vault(keyring, names=lambda: names, redactor=redactor).learn()
    assert redactor.text(f"{VALUE} from-the-file from-the-keyring 1234567") == (
        f"[secret env:TOKEN] [secret file:{file}] [secret keyring:c] 1234567"
    )


def test_handles_that_were_declared_elsewhere_are_learned_too() -> None:
    redactor = SecretRedactor()
    vault(redactor=redactor).learn(["env:TOKEN", "keyring:locked", "no handle"])
    assert redactor.text(VALUE) == "[secret env:TOKEN]"


def test_learning_again_reads_only_what_changed(file: Path) -> None:
    redactor = SecretRedactor()
    asked: list[str] = []
    names = {"a": f"file:{file}", "b": "keyring:one"}

    def keyring(name: str) -> str | None:
        asked.append(name)
        return f"in the keyring as {name}"

    found = vault(keyring, names=lambda: names, redactor=redactor)
    found.learn()
    finder = redactor.finder()
    found.learn()
    assert (asked, redactor.finder() is finder) == (["one"], True)
    names["c"] = "keyring:two"
    file.write_text("a newer value of it\n")
    found.learn()
    assert asked == ["one", "two"]
    masked = redactor.text(f"{VALUE}, a newer value of it, in the keyring as two")
    assert masked == f"[secret file:{file}], [secret file:{file}], [secret keyring:two]"


def test_a_file_is_not_opened_again_while_it_stays_the_same(file: Path) -> None:
    redactor = SecretRedactor()
    found = vault(names=lambda: {"a": f"file:{file}"}, redactor=redactor)
    found.learn()
    before = os.stat(file)
    file.write_text("another of this size"[: before.st_size])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    found.learn()
    assert redactor.text("another of this size"[: before.st_size]).startswith("another")
