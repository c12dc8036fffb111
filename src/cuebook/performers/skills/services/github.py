"""GitHub, through its REST API."""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import (
    Afterwards,
    Answer,
    Auth,
    Filled,
    Given,
    HttpTool,
    Instead,
    Request,
    Skill,
    Words,
)
from cuebook.performers.skills.schemas import count, number, parameters, text, texts, usual
from cuebook.performers.skills.settings import SETTINGS

_BASE = "GITHUB_API_URL"
_AUTH = (Auth("Authorization", "GITHUB_TOKEN", "Bearer {}"),)
_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
_JSON = {"Accept": "application/vnd.github+json", **_VERSION}
_RAW = {"Accept": "application/vnd.github.raw+json", **_VERSION}

_NAME = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"
_REPO = {"type": "string", "pattern": _NAME, "description": "The repository, as owner/name."}
_SAYS_KIND = r"(?<![\w-])(?:is|type):(?:issue|pr|pull-request)\b"
_ISSUE = ("number", "title", "state", "html_url", "body", "user.login", "labels.name", "created_at", "updated_at")
_PULL = (
    "number",
    "title",
    "state",
    "draft",
    "html_url",
    "head.ref",
    "head.sha",
    "base.ref",
    "user.login",
    "created_at",
)


def _get(path: str, query: dict[str, Any], *keep: str, at: str = "") -> Request:
    return Request("GET", _BASE, path, query, _JSON, _AUTH, answer=Answer(at=at, keep=keep))


def _post(path: str, body: dict[str, Any], *keep: str, wants: tuple[str, ...] = ()) -> Request:
    return Request("POST", _BASE, path, {}, _JSON, _AUTH, body, wants, Answer(keep=keep))


READING = (
    HttpTool(
        "github_search_code",
        "Searches the code of a GitHub repository.",
        parameters(("query", "repo"), query=text("What to look for, in GitHub's syntax.", least=1), repo=_REPO),
        (
            _get(
                "/search/code",
                {"q": Words(("{query}", "repo:{repo}")), "per_page": 20},
                *("total_count", "items.path", "items.html_url", "items.repository.full_name"),
            ),
        ),
        reads_only=True,
    ),
    HttpTool(
        "github_search_issues",
        "Searches issues or pull requests on GitHub, both open and closed.",
        parameters(
            ("query",),
            query=text("What to look for, in GitHub's syntax, as in `timeout is:open`.", least=1),
            repo={**_REPO, "description": "Only in this repository, as owner/name."},
            kind={
                "type": "string",
                "enum": ["issue", "pull-request"],
                "default": "issue",
                "description": "What to look for.",
            },
        ),
        (
            _get(
                "/search/issues",
                # GitHub refuses a query without a kind for fine-grained tokens.
                {"q": Words(("{query}", "repo:{repo}", "is:{kind}"), unless=("query", _SAYS_KIND)), "per_page": 20},
                *("total_count", *(f"items.{field}" for field in _ISSUE), "items.pull_request.html_url"),
            ),
        ),
        reads_only=True,
    ),
    HttpTool(
        "github_get_issue",
        "Reads a GitHub issue or pull request with its full text.",
        parameters(("repo", "number"), repo=_REPO, number=number("Its number.")),
        (_get("/repos/{repo:path}/issues/{number}", {}, *_ISSUE, "comments", "closed_at", "pull_request.html_url"),),
        reads_only=True,
    ),
    HttpTool(
        "github_list_comments",
        "Reads the comments on a GitHub issue or pull request.",
        parameters(("repo", "number"), repo=_REPO, number=number("The number of the issue.")),
        (
            _get(
                "/repos/{repo:path}/issues/{number}/comments",
                {"per_page": 50},
                *("html_url", "user.login", "created_at", "body"),
            ),
        ),
        reads_only=True,
    ),
    HttpTool(
        "github_list_recent_commits",
        "Lists the newest commits of a branch.",
        parameters(
            ("repo",),
            repo=_REPO,
            branch=text("The branch; if omitted, the default branch.", least=1),
            per_page=count(10, 100),
        ),
        (
            _get(
                "/repos/{repo:path}/commits",
                {"sha": Given("branch"), "per_page": Given("per_page")},
                *("sha", "html_url", "commit.message", "commit.author.name", "commit.author.date"),
            ),
        ),
        reads_only=True,
    ),
    HttpTool(
        "github_get_file",
        "Reads a file from a GitHub repository.",
        parameters(
            ("repo", "path"),
            repo=_REPO,
            path=text("Its path in the repository.", least=1),
            ref=text("A branch, tag or commit; if omitted, the default branch.", least=1),
        ),
        (
            Request(
                "GET",
                _BASE,
                "/repos/{repo:path}/contents/{path:path}",
                {"ref": Given("ref")},
                _RAW,
                _AUTH,
                answer=Answer("text"),
            ),
        ),
        reads_only=True,
    ),
)

WRITING = (
    HttpTool(
        "github_create_issue",
        "Opens an issue on GitHub.",
        parameters(
            ("repo", "title"),
            repo=_REPO,
            title=text("Its title.", least=1),
            body=text("Its text, in Markdown."),
            labels=texts("Names of labels."),
        ),
        (
            _post(
                "/repos/{repo:path}/issues",
                {"title": Given("title"), "body": Given("body"), "labels": Given("labels")},
                *("number", "title", "state", "html_url", "labels.name"),
            ),
        ),
    ),
    HttpTool(
        "github_add_comment",
        "Adds a comment to a GitHub issue or pull request.",
        parameters(
            ("repo", "issue_number", "body"),
            repo=_REPO,
            issue_number=number("The number of the issue or pull request."),
            body=text("The comment, in Markdown.", least=1),
        ),
        (
            _post(
                "/repos/{repo:path}/issues/{issue_number}/comments",
                {"body": Given("body")},
                *("id", "html_url", "body"),
            ),
        ),
    ),
    HttpTool(
        "github_create_pr",
        "Opens a pull request on GitHub. If the branch already has an open one, returns that one, with `reused` true.",
        parameters(
            ("repo", "title", "head"),
            repo=_REPO,
            title=text("Its title.", least=1),
            body=text("Its text, in Markdown."),
            head=text("The branch with the changes.", least=1),
            base=usual(text("The branch to merge into.", least=1), "main"),
            labels=texts("Names of labels."),
        ),
        (
            _post(
                "/repos/{repo:path}/pulls",
                {"title": Given("title"), "body": Given("body"), "head": Given("head"), "base": Given("base")},
                *_PULL,
            ),
        ),
        instead=Instead(
            422,
            "pull request already exists",
            _get(
                "/repos/{repo:path}/pulls",
                {"head": Filled("{repo:owner}:{head}"), "state": "open", "per_page": 1},
                *_PULL,
                at="0",
            ),
        ),
        afterwards=Afterwards(
            _post("/repos/{repo:path}/issues/{number}/labels", {"labels": Given("labels")}, wants=("labels",)),
            "setting its labels",
        ),
    ),
)

GITHUB = Skill(
    "github",
    "GitHub",
    "Searches code and issues on GitHub, reads files and commits, opens issues and pull requests.",
    "git",
    settings=SETTINGS["github"],
    needs=(("GITHUB_TOKEN",),),
    tools=(*READING, *WRITING),
)
