"""The format's published gallery, if it is next to the project: each playbook runs to its end.

The runs are unattended, with the embedded model and the tool of a real server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import cuebook
from cuebook.performers.models.weights import find_weights
from tests.dialects.markdown.parse.test_vectors import DATA, GALLERY, beside, name_of
from tests.support.command_line import CommandLine
from tests.support.sampling import some

SERVER = Path(__file__).with_name("analytics_server.py")
WEIGHTS = find_weights()
BROKEN = DATA / "gallery/non-technical/blog-to-newsletter.md"

CODE = 'def login(name):\n    return db.run("select * from users where name = \'" + name + "\'")'
GIVEN: dict[str, dict[str, Any]] = {
    "branching/adaptive-review": {"code": CODE, "language": "Python", "mode": "performance"},
    "branching/issue-triage": {"issue": "Saving a file twice loses its end.", "project": "Inkwell"},
    "branching/tone-adapter": {"content": "We move to a new database in May.", "target": "general-public"},
    "human-in-the-loop/decision-matrix": {
        "technology": "SQLite", "criteria": "speed, cost", "constraints": "one machine", "depth": "quick",
    },
    "human-in-the-loop/iterative-draft": {"brief": "Why we drink tea.", "format": "blog post"},
    "linear/api-schema": {"service_name": "Teas", "endpoints": "List teas; add a tea.", "style": "GraphQL"},
    "linear/content-pipeline": {"topic": "tea", "audience": "general"},
    "linear/security-review": {"code": CODE, "language": "Python", "scope": "data-flow"},
    "non-technical/blog-to-newsletter": {"blog_post": "Tea is good. Drink it.", "newsletter_style": "tips"},
    "non-technical/client-onboarding": {"client_name": "Ada", "service": "Gardening", "timeline": "2 weeks"},
    "non-technical/meeting-prep": {
        "meeting_type": "board meeting", "attendees": "Ada, chair", "agenda_items": "The budget", "duration": 20,
    },
    "non-technical/product-launch-checklist": {
        "product_name": "Kettle", "launch_date": "1 May", "target_market": "tea drinkers", "budget_level": "moderate",
    },
    "non-technical/social-media-campaign": {
        "product": "Kettle", "audience": "tea drinkers", "platforms": "LinkedIn", "tone": "casual",
    },
    "routines/weekly-docs-drift": {"severity_threshold": "high"},
    "tool-integration/data-analysis": {"metric": "latency", "timeframe": "7d"},
}  # fmt: skip

BRANCHES = {
    "branching/adaptive-review": "1b",
    "branching/tone-adapter": "2c",
    "human-in-the-loop/decision-matrix": "2b",
    "linear/api-schema": "2b",
    "non-technical/product-launch-checklist": "2b",
    "routines/weekly-docs-drift": "3a",
}
"""The sub-step that the inputs lead to, if they decide it."""

ANSWERS = {
    "human-in-the-loop/decision-matrix": {"__elicit_step_3": "yes", "chosen_focus": "Cost"},
    "human-in-the-loop/iterative-draft": {"feedback": ""},
}
"""The answers in an unattended run."""

WARNED = {
    "linear/security-review": ["Step 1: @prompt(library:owasp-review-criteria) was left out"],
    "non-technical/blog-to-newsletter": [
        "Line 90: '```if include_cta```' is not a valid branch marker: it is sent to the model"
    ],
}

MOST = 6
"""The maximum number of tokens in a reply. The words do not matter here."""

ASK_FOR_THE_SERVER = '# Once\n\n## STEP 1: Call\n\n@tool(analytics, get_metrics, {"metric": "m", "period": "p"})\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home with one tool server, and a policy that allows its tool; the working folder is empty."""
    home, work = tmp_path / "home", tmp_path / "work"
    own = home / "config" / "cuebook"
    own.mkdir(parents=True)
    work.mkdir()
    command = f"[{str(sys.executable)!r}, {str(SERVER)!r}]"
    (own / "cuebook.toml").write_text(f"[mcp.analytics]\ncommand = {command}\n")
    (own / "policy.toml").write_text('version = 1\n\n[tools]\nallow = ["analytics.get_metrics"]\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("CUEBOOK_LOCAL_WEIGHTS", str(WEIGHTS))
    monkeypatch.setenv("CUEBOOK_SYNCHRONOUS", "NORMAL")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(work)


@pytest.mark.embedded
@pytest.mark.skipif(WEIGHTS is None, reason="the weights of the embedded model are not installed")
@pytest.mark.parametrize("path", some(GALLERY, 5), ids=name_of)
@pytest.mark.usefixtures("home")
def test_a_playbook_of_the_gallery_runs_to_its_end(path: Path) -> None:
    name = name_of(path)
    if name == "tool-integration/data-analysis":
        start_the_server_once()
    ran = cuebook.run(path, GIVEN[name], model="local", unattended=True, max_tokens=MOST)
    assert (ran.status, ran.error) == ("completed", None)
    assert ran.artifact is not None
    assert ran.artifact.content.strip()
    planned = [step.label for step in cuebook.load(path).steps]
    assert [step.label for step in ran.steps if step.label in planned and step.status == "completed"] == planned
    inside = [step.label for step in ran.steps if step.label not in planned]
    assert inside == [BRANCHES[name]] if name in BRANCHES else len(inside) <= 1
    assert ANSWERS.get(name, {}).items() <= ran.values.items()
    # A small model may return invalid or truncated JSON.
    ours = [
        words for words in ran.warnings if not any(said in words for said in (f"was cut at {MOST} tokens", "@output("))
    ]
    assert [words.partition(",")[0] for words in ours] == WARNED.get(name, [])
    if name == "tool-integration/data-analysis":
        assert ran.values["raw_data"] == "latency over 7d: 120, 118, 131, 245, 122"


def start_the_server_once() -> None:
    """A person approves the server's command, as for every new server. After that, no one is asked."""
    waiting = cuebook.run(ASK_FOR_THE_SERVER, model="local", unattended=True)
    assert (waiting.status, waiting.waits[0].prompt) == ("awaiting_approval", "Start the tool server 'analytics'?")
    assert waiting.decide("approve").status == "completed"


@beside
def test_every_playbook_of_the_gallery_has_its_inputs() -> None:
    assert [name_of(path) for path in GALLERY] == sorted(GIVEN)


@beside
def test_the_defect_of_one_of_them_is_reported_with_line_and_fix(tmp_path: Path) -> None:
    ran = CommandLine(tmp_path).call("validate", BROKEN)
    assert ran.code == 2
    assert ran.out.startswith(
        f"{BROKEN}:90:1: error: '```if include_cta```' is not a valid branch marker: it is sent to the model"
    )
    assert 'Write ```if include_cta == "true"```.' in ran.out


@beside
def test_the_whole_gallery_has_that_one_defect(tmp_path: Path) -> None:
    ran = CommandLine(tmp_path).call("validate", DATA / "gallery", "--json")
    assert ran.code == 2
    assert [Path(file["file"]) for file in ran.object["files"]] == GALLERY
    assert (ran.object["errors"], ran.object["warnings"]) == (1, 0)
    assert [Path(file["file"]) for file in ran.object["files"] if not file["valid"]] == [BROKEN]
