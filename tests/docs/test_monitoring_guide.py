"""The guide to monitoring: its commands start, and its settings are ones."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cuebook.config import load
from tests.service.insight.test_meters import Watched
from tests.support.command_line import CommandLine, finished
from tests.support.documentation import DOCS, blocks
from tests.support.otlp_receiver import otlp_receiver
from tests.support.postgres import free_port

_NAME = re.compile(r"\bcuebook_\w+")
GUIDE = blocks(DOCS / "guides" / "monitoring.md")
COMMANDS = [shlex.split(command)[1:] for block in GUIDE for command in block.commands]


@pytest.mark.parametrize("words", [one for one in COMMANDS if one[0] in ("serve", "worker")], ids=" ".join)
def test_every_server_starts_as_it_is_printed(cli: CommandLine, words: list[str]) -> None:
    words = [f"127.0.0.1:{free_port()}" if word.startswith("127.0.0.1:") else word for word in words]
    process = cli.begin(*words, *(["--port", "0"] if words[0] == "serve" else []))
    stream = process.stdout if words[0] == "serve" else process.stderr
    assert stream is not None
    if "warning" not in words:  # a worker that only warns says nothing
        assert stream.readline()
    process.terminate()
    ran = finished(process)
    assert "Traceback" not in ran.err
    if "json" in words:
        assert all(json.loads(line) for line in ran.err.splitlines())


def test_the_settings_are_ones(tmp_path: Path) -> None:
    (tmp_path / "cuebook").mkdir()
    text = "\n".join(block.text for block in GUIDE if block.language == "toml")
    (tmp_path / "cuebook" / "cuebook.toml").write_text(text)
    config = load(environ={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}, folder=tmp_path)
    for table, settings in tomllib.loads(text).items():
        for name, value in settings.items():
            assert config.get(f"{table}.{name}") == value


def test_a_run_is_sent_to_a_collector_as_it_is_printed(cli: CommandLine) -> None:
    (line,) = [line for block in GUIDE for line in block.text.splitlines() if line.startswith("CUEBOOK_OTEL_ENDPOINT=")]
    variable, _, *words = shlex.split(line)
    cli.tea.unlink()  # the guide makes its own
    assert cli.call(*next(words for words in COMMANDS if words[0] == "new")).code == 0
    with otlp_receiver() as receiver:
        name, _, url = variable.partition("=")
        assert url == "http://127.0.0.1:4318"
        cli.environ[name] = receiver.url
        assert cli.call(*words).code == 0
        names = {span.name for span in receiver.spans}
        known = {key for span in receiver.spans for key in span.attributes}
    assert {"run tea.md", "step 1", "chat echo-1"} <= names
    text = (DOCS / "guides" / "monitoring.md").read_text()
    told = set(re.findall(r"`((?:gen_ai|cuebook)\.[\w.]+\*?)`", text))
    untold = {one for one in known - told if not one.startswith("gen_ai.usage.")}
    assert untold <= {"cuebook.dialect", "cuebook.effect", "cuebook.cost.origin"}


async def test_the_table_and_the_alerts_name_the_metrics_that_there_are() -> None:
    watched = Watched()
    text = (await watched.metrics.text()).decode()
    ours = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if name.startswith("cuebook_")}
    text = (DOCS / "guides" / "monitoring.md").read_text()
    table = {name for line in text.splitlines() if line.startswith("| `cuebook_") for name in _NAME.findall(line)}
    assert table == ours
    (alerts,) = [block.text for block in GUIDE if block.language == "yaml" and "alert:" in block.text]
    rules = YAML(typ="safe").load(alerts)["groups"][0]["rules"]
    used = {name.removesuffix("_bucket") for rule in rules for name in _NAME.findall(rule["expr"])}
    assert len(rules) == 10
    assert used <= ours
