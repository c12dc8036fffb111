"""The documented requests of the GitHub and Linear tools, and the answers of the services."""

from __future__ import annotations

from typing import Any

from tests.performers.skills.services import Case

# --- GitHub -------------------------------------------------------------------------------------------

_USER = {"login": "octocat", "id": 1, "avatar_url": "https://github.com/images/octocat.gif"}
_ISSUE = {
    "url": "https://api.github.com/repos/acme/shop/issues/7",
    "node_id": "MDU6SXNzdWUx",
    "number": 7,
    "title": "Checkout times out",
    "state": "open",
    "html_url": "https://github.com/acme/shop/issues/7",
    "body": "It takes 30 s.",
    "user": _USER,
    "labels": [{"id": 208045946, "name": "bug", "color": "f29513"}],
    "comments": 2,
    "created_at": "2026-01-02T03:04:05Z",
    "updated_at": "2026-01-03T03:04:05Z",
    "closed_at": None,
}
_ISSUE_KEPT = {
    "number": 7,
    "title": "Checkout times out",
    "state": "open",
    "html_url": "https://github.com/acme/shop/issues/7",
    "body": "It takes 30 s.",
    "user": {"login": "octocat"},
    "labels": [{"name": "bug"}],
    "created_at": "2026-01-02T03:04:05Z",
    "updated_at": "2026-01-03T03:04:05Z",
}
PULL = {
    "id": 1,
    "number": 12,
    "title": "Fix it",
    "state": "open",
    "draft": False,
    "html_url": "https://github.com/acme/shop/pull/12",
    "head": {"ref": "fix/a b", "sha": "6dcb09b", "repo": {"id": 3}},
    "base": {"ref": "main", "sha": "aa218f5"},
    "user": _USER,
    "created_at": "2026-01-02T03:04:05Z",
}
PULL_KEPT = {
    "number": 12,
    "title": "Fix it",
    "state": "open",
    "draft": False,
    "html_url": "https://github.com/acme/shop/pull/12",
    "head": {"ref": "fix/a b", "sha": "6dcb09b"},
    "base": {"ref": "main"},
    "user": {"login": "octocat"},
    "created_at": "2026-01-02T03:04:05Z",
}

GITHUB = [
    Case(
        "github_search_code",
        {"query": "retry language:python", "repo": "acme/shop"},
        "GET",
        "/api/v3/search/code?q=retry%20language%3Apython%20repo%3Aacme%2Fshop&per_page=20",
        answer={
            "total_count": 1,
            "incomplete_results": False,
            "items": [
                {
                    "name": "http.py",
                    "path": "src/http.py",
                    "sha": "d7212f9",
                    "html_url": "https://github.com/acme/shop/blob/x/src/http.py",
                    "repository": {"id": 1, "full_name": "acme/shop", "owner": _USER},
                }
            ],
        },
        value={
            "total_count": 1,
            "items": [
                {
                    "path": "src/http.py",
                    "html_url": "https://github.com/acme/shop/blob/x/src/http.py",
                    "repository": {"full_name": "acme/shop"},
                }
            ],
        },
    ),
    Case(
        "github_search_issues",
        {"query": "checkout & cart? is:open"},
        "GET",
        "/api/v3/search/issues?q=checkout%20%26%20cart%3F%20is%3Aopen%20is%3Aissue&per_page=20",
        answer={"total_count": 1, "incomplete_results": False, "items": [_ISSUE]},
        value={"total_count": 1, "items": [_ISSUE_KEPT]},
    ),
    Case(
        "github_get_issue",
        {"repo": "acme/shop", "number": 7.0},
        "GET",
        "/api/v3/repos/acme/shop/issues/7",
        answer=_ISSUE,
        value={**_ISSUE_KEPT, "comments": 2, "closed_at": None},
    ),
    Case(
        "github_list_comments",
        {"repo": "acme/shop", "number": 7},
        "GET",
        "/api/v3/repos/acme/shop/issues/7/comments?per_page=50",
        answer=[{"id": 1, "node_id": "x", "html_url": "h", "user": _USER, "created_at": "t", "body": "Me too"}],
        value=[{"html_url": "h", "user": {"login": "octocat"}, "created_at": "t", "body": "Me too"}],
    ),
    Case(
        "github_list_recent_commits",
        {"repo": "acme/shop", "branch": "feature/a&b"},
        "GET",
        "/api/v3/repos/acme/shop/commits?sha=feature%2Fa%26b&per_page=10",
        answer=[
            {
                "sha": "6dcb09b",
                "node_id": "x",
                "html_url": "h",
                "commit": {"message": "Fix", "author": {"name": "Mona", "date": "d", "email": "m@x"}, "tree": {}},
            }
        ],
        value=[
            {
                "sha": "6dcb09b",
                "html_url": "h",
                "commit": {"message": "Fix", "author": {"name": "Mona", "date": "d"}},
            }
        ],
    ),
    Case(
        "github_get_file",
        {"repo": "acme/shop", "path": "docs/a file?.md", "ref": "v1.0"},
        "GET",
        "/api/v3/repos/acme/shop/contents/docs/a%20file%3F.md?ref=v1.0",
        answer="# Shop\n",
        value="# Shop\n",
        headers={"accept": "application/vnd.github.raw+json"},
    ),
    Case(
        "github_create_issue",
        {"repo": "acme/shop", "title": "Checkout times out", "body": "It takes 30 s.", "labels": ["bug"]},
        "POST",
        "/api/v3/repos/acme/shop/issues",
        {"title": "Checkout times out", "body": "It takes 30 s.", "labels": ["bug"]},
        _ISSUE,
        {
            "number": 7,
            "title": "Checkout times out",
            "state": "open",
            "html_url": "https://github.com/acme/shop/issues/7",
            "labels": [{"name": "bug"}],
        },
        status=201,
    ),
    Case(
        "github_add_comment",
        {"repo": "acme/shop", "issue_number": 7, "body": "+1"},
        "POST",
        "/api/v3/repos/acme/shop/issues/7/comments",
        {"body": "+1"},
        {"id": 9, "node_id": "x", "html_url": "h", "body": "+1", "user": _USER},
        {"id": 9, "html_url": "h", "body": "+1"},
        status=201,
    ),
    Case(
        "github_create_pr",
        {"repo": "acme/shop", "title": "Fix it", "head": "fix/a b"},
        "POST",
        "/api/v3/repos/acme/shop/pulls",
        {"title": "Fix it", "head": "fix/a b", "base": "main"},
        PULL,
        PULL_KEPT,
        status=201,
    ),
]

# --- Linear -------------------------------------------------------------------------------------------

_LINEAR_ISSUE = {
    "id": "9f1c",
    "identifier": "OFF-12",
    "title": "Checkout",
    "url": "https://linear.app/acme/issue/OFF-12",
    "priority": 2,
    "state": {"id": "s1", "name": "Todo", "type": "unstarted"},
    "team": {"id": "t1", "key": "OFF"},
}
_FIELDS = "id identifier title url priority state { id name type } team { id key }"


def _linear(
    tool: str, arguments: dict[str, Any], document: str, variables: dict[str, Any], data: Any, value: Any
) -> Case:
    body = {"query": document, "variables": variables}
    return Case(tool, arguments, "POST", "/graphql", body, {"data": data}, value)


LINEAR = [
    _linear(
        "linear_search_issues",
        {"query": 'cart "empty"'},
        f"query($term: String!, $first: Int) {{ searchIssues(term: $term, first: $first) {{ nodes {{ {_FIELDS} }} }} }}",
        {"term": 'cart "empty"', "first": 10},
        {"searchIssues": {"nodes": [_LINEAR_ISSUE]}},
        [_LINEAR_ISSUE],
    ),
    _linear(
        "linear_get_issue",
        {"id": "OFF-12"},
        f"query($id: String!) {{ issue(id: $id) {{ {_FIELDS} description priorityLabel createdAt updatedAt"
        " assignee { name email } labels { nodes { id name } }"
        " comments(first: 50) { nodes { body createdAt user { name } } } } }",
        {"id": "OFF-12"},
        {"issue": {**_LINEAR_ISSUE, "description": "Long"}},
        {**_LINEAR_ISSUE, "description": "Long"},
    ),
    _linear(
        "linear_list_teams",
        {},
        "query { teams { nodes { id key name description } } }",
        {},
        {"teams": {"nodes": [{"id": "t1", "key": "OFF"}]}},
        [{"id": "t1", "key": "OFF"}],
    ),
    _linear(
        "linear_list_labels",
        {},
        "query { issueLabels(first: 250) { nodes { id name team { id key } } } }",
        {},
        {"issueLabels": {"nodes": [{"id": "l1", "name": "triage", "team": None}]}},
        [{"id": "l1", "name": "triage", "team": None}],
    ),
    _linear(
        "linear_list_states",
        {},
        "query { workflowStates(first: 250) { nodes { id name type team { id key } } } }",
        {},
        {"workflowStates": {"nodes": [{"id": "s1", "name": "Done"}]}},
        [{"id": "s1", "name": "Done"}],
    ),
    _linear(
        "linear_create_issue",
        {"teamId": "t1", "title": "Checkout", "priority": 2, "labelIds": ["l1"]},
        f"mutation($input: IssueCreateInput!) {{ issueCreate(input: $input) {{ success issue {{ {_FIELDS} }} }} }}",
        {"input": {"teamId": "t1", "title": "Checkout", "priority": 2, "labelIds": ["l1"]}},
        {"issueCreate": {"success": True, "issue": _LINEAR_ISSUE}},
        _LINEAR_ISSUE,
    ),
    _linear(
        "linear_update_issue",
        {"issueId": "9f1c", "stateId": "s2"},
        "mutation($id: String!, $input: IssueUpdateInput!)"
        f" {{ issueUpdate(id: $id, input: $input) {{ success issue {{ {_FIELDS} }} }} }}",
        {"id": "9f1c", "input": {"stateId": "s2"}},
        {"issueUpdate": {"success": True, "issue": _LINEAR_ISSUE}},
        _LINEAR_ISSUE,
    ),
    _linear(
        "linear_add_comment",
        {"issueId": "9f1c", "body": "+1"},
        "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id url body } } }",
        {"input": {"issueId": "9f1c", "body": "+1"}},
        {"commentCreate": {"success": True, "comment": {"id": "c1", "url": "u", "body": "+1"}}},
        {"id": "c1", "url": "u", "body": "+1"},
    ),
]
