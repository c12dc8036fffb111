"""The grammar of commands, and `with`: both notations produce the same action."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.pipeline.model import Action, ArgRef, Cli, Http, Mcp, Secret, StepRef, Words
from cuebook.dialects.pipeline.run.action import Given, acting
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.kernel.effects import SendHttp
from tests.dialects.pipeline.samples import pipeline, problem, problems, step, warned, with_step

ARGS = "args: {name: x, token: {secret: true}}\n"


def command(text: str, *more: str) -> Action:
    """A command in a block, where YAML changes nothing about it. Its line is 8."""
    return step("command: >-", f"  {text}", *more, args=ARGS).action


def argv(text: str, *more: str) -> list[Any]:
    action = command(text, *more)
    assert isinstance(action, Cli)
    return [one.parts[0] if len(one.parts) == 1 else one.parts for one in action.argv]


def wrong(*lines: str) -> str:
    found = problem(with_step(*lines, args=ARGS))
    assert found.code == "BAD_COMMAND", found
    assert found.line is not None
    assert found.line >= 7
    return found.message


# --- namespaces ---


@pytest.mark.parametrize(
    "text", ["echo hi", "nope do-thing", "sh -c 'cli x'", "clix echo", "'cli' echo", "$first.stdout"]
)
def test_a_command_never_falls_back_to_a_shell(text: str) -> None:
    found = problem(with_step("command: >-", f"  {text}"))
    assert (found.code, found.line) == ("UNKNOWN_NAMESPACE", 6)
    assert "one of cli, http, web, mcp, node, llm" in found.fix


def test_a_misspelt_namespace_gets_a_suggestion() -> None:
    found = problem(with_step("command: clii ls"))
    assert found.fix.startswith("Did you mean 'cli'? ")


@pytest.mark.parametrize("text", ["CLI echo a", "Cli  echo a", "cli\techo a", "cli echo  a "])
def test_a_namespace_ends_at_a_space_whatever_its_letters(text: str) -> None:
    assert step(f'command: "{text}"'.replace("\t", "\\t")).action == step("command: cli echo a").action


# --- cli ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('cli echo "hello world"', ["echo", "hello world"]),
        ('cli git commit --message="a b"', ["git", "commit", "--message=a b"]),
        ("cli echo 'single $$quotes' \\\"x\\\" a\\ b", ["echo", "single $quotes", '"x"', "a b"]),
        ("cli echo '' \"\"", ["echo", (), ()]),
        ("cli echo # no comment", ["echo", "#", "no", "comment"]),
        ("cli echo *.py ~ $HOME", ["echo", "*.py", "~", "$HOME"]),
        ("cli awk '{print $1}' x", ["awk", "{print $1}", "x"]),
        ("cli echo $$$$ $${name} a$", ["echo", "$$", "${name}", "a$"]),
        ("cli echo ${name}", ["echo", ArgRef("name")]),
        ('cli echo "hi ${name} and ${first.stdout}"', ["echo", ("hi ", ArgRef("name"), " and ", StepRef("first", ("stdout",)))]),
        ("cli echo $first.stdout", ["echo", StepRef("first", ("stdout",))]),
        ("cli ${name} x", [ArgRef("name"), "x"]),
    ],
)  # fmt: skip
def test_words_are_split_as_in_a_posix_shell(text: str, words: list[Any]) -> None:
    assert argv(text) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cli echo 'never ends", "a quote is not closed"),
        ('cli echo "never ends', "a quote is not closed"),
        ("cli echo \\", "it ends in a backslash"),
        ("cli", "has no program"),
        ("cli ''", "has no program"),
    ],
)
def test_a_command_that_cannot_be_parsed_is_an_error_with_its_line(text: str, said: str) -> None:
    assert said in wrong("command: |-", f"  {text}")


@pytest.mark.parametrize(
    "lines", [['command: "cli echo a\\0b"'], ["command: cli echo", 'with: {args: ["a\\0b"]}']], ids=["words", "list"]
)
def test_a_word_that_no_program_can_receive_is_refused_at_load(lines: list[str]) -> None:
    assert "contains a NUL character" in wrong(*lines)


def test_words_and_a_list_produce_the_same_action() -> None:
    written = argv('cli git tag "v ${name}" -n 5')
    assert argv("cli", 'with: {argv: [git, tag, "v ${name}", -n, 5]}') == written
    assert argv("cli git tag", 'with: {args: ["v ${name}", "-n", 5]}') == written


def test_a_word_stays_one_word_whatever_its_value() -> None:
    assert argv("cli rm -- ${name}") == ["rm", "--", ArgRef("name")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("with: {argv: [x]}", "with.argv must be the whole command"),
        ("with: {args: [x], argv: [x]}", "with.argv must be the whole command"),
    ],
)
def test_a_command_is_written_once(more: str, said: str) -> None:
    assert said in wrong("command: cli git", more)


@pytest.mark.parametrize(
    "more", ["with: {args: x}", "with: {args: [[x]]}", "with: {args: [null]}", "with: {argz: []}", "with: [x]"]
)
def test_with_is_validated_as_well(more: str) -> None:
    assert problem(with_step("command: cli git", more)).code == "SCHEMA"


@pytest.mark.parametrize("sign", ["|", ">", "&&", ";", "2>&1"])
def test_shell_syntax_is_reported_as_a_warning(sign: str) -> None:
    (found,) = warned(with_step("command: >-", f"  cli echo a {sign} b"))
    assert (found.code, found.line) == ("NO_SHELL", 6)
    assert not warned(with_step("command: >-", f"  cli sh -c 'echo a {sign} b'"))


# --- http ---


def request(text: str, *more: str) -> Http:
    action = command(text, *more)
    assert isinstance(action, Http)
    return action


def words(*parts: Any, line: int = 7) -> Words:
    return Words(parts, line)


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("http https://x.y/z", "GET"),
        ("http GET https://x.y/z", "GET"),
        ("http post https://x.y/z", "POST"),
        ("HTTP DELETE 'https://x.y/z'", "DELETE"),
        ("http OPTIONS https://x.y/z", "OPTIONS"),
    ],
)
def test_a_request_is_a_method_and_a_url(text: str, method: str) -> None:
    assert request(text) == Http(method, words("https://x.y/z"))


def test_a_url_may_refer_to_something() -> None:
    assert request("http https://x.y/${name}").url == words("https://x.y/", ArgRef("name"))
    assert request("http ${name}/z").url == words(ArgRef("name"), "/z")
    assert request("http http://${name}").url == words("http://", ArgRef("name"))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["command: http"], "has no URL"),
        (["command: http GET"], "has no URL"),
        (["command: http GET x.y"], "'x.y' is not a URL"),
        (["command: http ftp://x.y"], "'ftp://x.y' is not a URL"),
        (["command: http https:///x"], "is not a URL"),
        (["command: http FETCH https://x.y"], "there is no method 'FETCH'"),
        (["command: http GET https://x.y and more"], "unexpected 'and' after the URL"),
        (["command: http https://x.y", "with: {body: x}"], "has a body but no method"),
        (
            ["command: http GET https://x.y", "with: {body: x}"],
            "with.body is a request body, but GET requests have none",
        ),
        (["command: http HEAD https://x.y", "with: {json: 1}"], "with.json is a request body, but HEAD requests have"),
        (["command: http HEAD https://x.y", "stdin: x"], "stdin is a request body, but HEAD requests have none"),
        (["command: http POST https://x.y", "with: {body: x, json: 1}"], "two bodies"),
        (["command: http POST https://x.y", "with: {method: PUT}"], "the method is given twice"),
        (["command: http POST https://x.y", "with: {url: 'https://a.b'}"], "the URL is given twice"),
        (["command: http", "with: {method: FETCH, url: 'https://a.b'}"], "there is no method 'FETCH'"),
        (["command: http https://x.y", "with: {headers: {a b: c}}"], "is not a valid header name"),
        (["command: http https://x.y", "with: {headers: {A: c, a: d}}"], "the header 'a' is given twice"),
    ],
)
def test_an_incomplete_or_contradictory_request_is_refused(lines: list[str], said: str) -> None:
    assert said in wrong(*lines)


def test_a_request_written_in_with() -> None:
    made = request(
        "http",
        "with:",
        "  method: post",
        "  url: https://x.y/z",
        "  query: {q: 'a ${name}', n: 1, on: true}",
        "  headers: {Authorization: 'Bearer ${token}', X-Key: 'secret:env:KEY', X-Kind: plain}",
        "  json: {a: ['${name}', '$first.json.items.0'], b: null, c: plain}",
    )
    assert made == Http(
        "POST",
        words("https://x.y/z", line=11),
        {"q": words("a ", ArgRef("name"), line=12), "n": words("1", line=12), "on": words("true", line=12)},
        {
            "Authorization": Secret("", "token", "Bearer {}", 13),
            "X-Key": Secret("env:KEY", "", "{}", 13),
            "X-Kind": words("plain", line=13),
        },
        None,
        {
            "a": [words(ArgRef("name"), line=14), words(StepRef("first", ("json", "items", 0)), line=14)],
            "b": None,
            "c": "plain",
        },
        True,
    )
    assert request("http POST https://x.y/z").method == made.method


def test_query_values_are_escaped() -> None:
    lines = ["command: http https://x.y/z?a=1#end", "with: {query: {q: 'a&b ${name}', n: 2}}"]
    made = pipeline(with_step(*lines, args=ARGS))
    effect = acting(made.steps[1], Scope(made, {"name": "c=d/é"}), Given(), {}, "")
    assert isinstance(effect, SendHttp)
    assert effect.url == "https://x.y/z?a=1&q=a%26b+c%3Dd%2F%C3%A9&n=2#end"


def test_a_body_may_contain_a_secret_but_json_may_not() -> None:
    body = request("http POST https://x.y", """with: {body: '{"token": "${token}"}'}""").body
    assert body == Secret("", "token", '{"token": "{}"}', 9)
    found = problem(with_step("command: http POST https://x.y", "with: {json: {token: '${token}'}}", args=ARGS))
    assert found.code == "SECRET_MISPLACED"
    assert "as the whole body" in found.fix


def test_null_is_a_body() -> None:
    made = request("http POST https://x.y", "with: {json: null}")
    assert (made.json, made.has_json) == (None, True)


# --- mcp ---


def call(text: str, *more: str) -> Mcp:
    action = command(text, *more)
    assert isinstance(action, Mcp)
    return action


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("mcp chat.say", Mcp("chat.say")),
        ("mcp mcp.chat.say", Mcp("chat.say")),
        ("mcp mcp.say", Mcp("mcp.say")),
        ("mcp a.b.c.d", Mcp("a.b.c.d")),
        ("mcp chat.say text=hi to='a b' empty=", Mcp("chat.say", {"text": "hi", "to": "a b", "empty": ""})),
        ("mcp chat.say n:=3 ok:=true no:=null", Mcp("chat.say", {"n": 3, "ok": True, "no": None})),
        ("mcp chat.say n=3 q=a=b=c", Mcp("chat.say", {"n": "3", "q": "a=b=c"})),
        ("""mcp chat.say 'x:={"a": [1, {"b": "c d"}]}'""", Mcp("chat.say", {"x": {"a": [1, {"b": "c d"}]}})),
        ("""mcp chat.say x:='{"a": "${name}!"}'""", Mcp("chat.say", {"x": {"a": words(ArgRef("name"), "!")}})),
        ("mcp chat.say x=${name}", Mcp("chat.say", {"x": words(ArgRef("name"))})),
        ("mcp chat.say x:=${name}", Mcp("chat.say", {"x": words(ArgRef("name"))})),
        ("mcp chat.say x:=$first.json.a", Mcp("chat.say", {"x": words(StepRef("first", ("json", "a")))})),
        ("mcp chat.say key=secret:chat", Mcp("chat.say", {"key": Secret("chat", "", "{}", 7)})),
        ("mcp chat.say key='Bearer ${token}'", Mcp("chat.say", {"key": Secret("", "token", "Bearer {}", 7)})),
    ],
)
def test_a_tool_and_its_arguments(text: str, made: Mcp) -> None:
    assert call(text) == made


def test_arguments_in_with_are_the_same() -> None:
    written = call("""mcp chat.say text=hi n:=3 x:='{"a": [1, null]}'""")
    assert call("mcp chat.say", "with: {arguments: {text: hi, n: 3, x: {a: [1, null]}}}") == written
    assert call("mcp", "with: {tool: mcp.chat.say, arguments: {text: hi, n: 3, x: {a: [1, null]}}}") == written
    assert call("mcp chat.say text=hi", "with: {arguments: {n: 3, x: {a: [1, null]}}}") == written


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["command: mcp"], "has no tool"),
        (["command: mcp say"], "has no tool"),
        (["command: mcp .say"], "has no tool"),
        (["command: mcp chat."], "has no tool"),
        (["command: mcp a=b"], "has no tool"),
        (["command: mcp chat.say hello"], "'hello' is not an argument"),
        (["command: mcp chat.say =x"], "'=x' is not an argument"),
        (["command: mcp chat.say a=1 a=2"], "'a' is given twice"),
        (["command: mcp chat.say a=1", "with: {arguments: {a: 2}}"], "'a' is given twice"),
        (["command: mcp chat.say", "with: {tool: a.b}"], "the tool is given twice"),
        (["command: mcp chat.say x:=nope"], "is not valid JSON"),
        (["command: >-", '  mcp chat.say x:={"a": 1}'], "is not an argument"),
    ],
)
def test_a_call_that_cannot_be_parsed_is_refused(lines: list[str], said: str) -> None:
    found = problems(with_step(*lines))
    assert {one.code for one in found} == {"BAD_COMMAND"}
    assert any(said in one.message for one in found), found


@pytest.mark.parametrize(
    "sign",
    [
        "|",
        "&&",
        "2>&1",
        "*.txt",
        "a?.txt",
        "src/**",
        "~/notes",
        "~",
        "$HOME",
        "a/$USER/b",
        "`date`",
        "$(date)",
        "a;b",
        "x>out.txt",
        "a|b",
    ],
)
def test_unquoted_shell_syntax_is_warned_about(sign: str) -> None:
    (odd,) = warned(with_step(f"command: cli ls {sign}"))
    assert (odd.code, odd.line) == ("NO_SHELL", 6)
    assert f"'{sign}' is passed to the program unchanged: there is no shell." in odd.message
    assert "cli sh -c '...'" in odd.fix


@pytest.mark.parametrize(
    "words",
    [
        "find . -name '*.txt'",
        'grep "a.*b" notes',
        "find . -exec rm {} \\;",
        "echo \\* '|' '~/x'",
        "sh -c 'ls *.txt | wc; echo $HOME'",
        'sh -c "for f in a; do echo $f; done"',
        "curl https://example.com/?a=1",
        "echo ${first.stdout} $first.json $$HOME a~b $1 5$",
    ],
)
def test_quoted_or_harmless_text_is_not_warned_about(words: str) -> None:
    assert warned(with_step(f"command: >-\n      cli {words}")) == ()


def test_a_name_that_may_be_a_reference_is_reported_as_one() -> None:
    (odd,) = warned(with_step("command: cli echo a$first"))
    assert odd.code == "NOT_REPLACED"


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("shell ls | wc", "`cli sh -c 'ls | wc'`"),
        ("ls *.txt", "`cli sh -c 'ls *.txt'`"),
        ("shell ls -l", "`cli ls -l`"),
        ("bash build.sh", "`cli bash build.sh`"),
        ("echo hi", "`cli echo hi`"),
    ],
)
def test_a_command_without_a_namespace_is_suggested_in_a_form_that_runs(command: str, meant: str) -> None:
    found = problem(with_step(f"command: {command}"))
    assert found.code == "UNKNOWN_NAMESPACE"
    assert f"as in {meant}" in found.fix


@pytest.mark.parametrize("word", ["what?", "a=b", "https://example.com/?a=1&b=2", "v1..v2", "a@b", "--format=%s"])
def test_text_without_meaning_to_a_shell_is_not_reported(word: str) -> None:
    assert not warned(with_step(f"command: cli echo {word}"))
