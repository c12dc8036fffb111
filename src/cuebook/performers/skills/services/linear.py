"""Linear, through its GraphQL API. Each tool is one document, so it can only do what is written here."""

from __future__ import annotations

from typing import Any

from cuebook.performers.skills.model import Answer, Auth, Given, HttpTool, Request, Rest, Skill
from cuebook.performers.skills.schemas import count, parameters, text, texts
from cuebook.performers.skills.settings import SETTINGS

_BASE = "LINEAR_API_URL"
_AUTH = (Auth("Authorization", "LINEAR_API_KEY"),)
_ERROR = "errors.0.message"

_PRIORITY = {
    "type": "integer",
    "minimum": 0,
    "maximum": 4,
    "description": "0 is none, 1 urgent, 2 high, 3 medium, 4 low.",
}
_ISSUE = "id identifier title url priority state { id name type } team { id key }"


def _ask(answer: Answer, document: str, **variables: Any) -> tuple[Request, ...]:
    return (Request("POST", _BASE, auth=_AUTH, body={"query": document, "variables": variables}, answer=answer),)


def _found(at: str) -> Answer:
    return Answer(at=f"data.{at}", error=_ERROR)


def _done(mutation: str, what: str) -> Answer:
    return Answer(at=f"data.{mutation}.{what}", error=_ERROR, ok=f"data.{mutation}.success")


LINEAR = Skill(
    "linear",
    "Linear",
    "Searches, reads, opens and changes issues in Linear.",
    "tasks",
    settings=SETTINGS["linear"],
    needs=(("LINEAR_API_KEY",),),
    tools=(
        HttpTool(
            "linear_search_issues",
            "Searches Linear issues by text, both open and closed.",
            parameters(("query",), query=text("What to look for.", least=1), limit=count(10, 50)),
            _ask(
                _found("searchIssues.nodes"),
                "query($term: String!, $first: Int)"
                f" {{ searchIssues(term: $term, first: $first) {{ nodes {{ {_ISSUE} }} }} }}",
                term=Given("query"),
                first=Given("limit"),
            ),
            reads_only=True,
        ),
        HttpTool(
            "linear_get_issue",
            "Reads a Linear issue with its full text and up to 50 of its comments.",
            parameters(("id",), id=text("Its id, or its identifier, as in ABC-123.", least=1)),
            _ask(
                _found("issue"),
                f"query($id: String!) {{ issue(id: $id) {{ {_ISSUE} description priorityLabel createdAt updatedAt"
                " assignee { name email } labels { nodes { id name } }"
                " comments(first: 50) { nodes { body createdAt user { name } } } } }",
                id=Given("id"),
            ),
            reads_only=True,
        ),
        HttpTool(
            "linear_list_teams",
            "Lists the teams in Linear, with the ids that new issues need.",
            parameters(),
            _ask(_found("teams.nodes"), "query { teams { nodes { id key name description } } }"),
            reads_only=True,
        ),
        HttpTool(
            "linear_list_labels",
            "Lists the labels in Linear, with their ids. A label without a team is available to all teams.",
            parameters(),
            _ask(
                _found("issueLabels.nodes"), "query { issueLabels(first: 250) { nodes { id name team { id key } } } }"
            ),
            reads_only=True,
        ),
        HttpTool(
            "linear_list_states",
            "Lists the states that Linear issues can be in, by team, with their ids.",
            parameters(),
            _ask(
                _found("workflowStates.nodes"),
                "query { workflowStates(first: 250) { nodes { id name type team { id key } } } }",
            ),
            reads_only=True,
        ),
        HttpTool(
            "linear_create_issue",
            "Opens an issue in Linear.",
            parameters(
                ("teamId", "title"),
                teamId=text("The id of the team.", least=1),
                title=text("Its title.", least=1),
                description=text("Its text, in Markdown."),
                priority=_PRIORITY,
                labelIds=texts("Ids of labels."),
            ),
            _ask(
                _done("issueCreate", "issue"),
                "mutation($input: IssueCreateInput!)"
                f" {{ issueCreate(input: $input) {{ success issue {{ {_ISSUE} }} }} }}",
                input=Rest(),
            ),
        ),
        HttpTool(
            "linear_update_issue",
            "Changes a Linear issue.",
            parameters(
                ("issueId",),
                issueId=text("Its id.", least=1),
                title=text("Its new title.", least=1),
                description=text("Its new text, in Markdown."),
                stateId=text("The id of its new state.", least=1),
                priority=_PRIORITY,
                labelIds=texts("Ids of all its new labels."),
            ),
            _ask(
                _done("issueUpdate", "issue"),
                "mutation($id: String!, $input: IssueUpdateInput!)"
                f" {{ issueUpdate(id: $id, input: $input) {{ success issue {{ {_ISSUE} }} }} }}",
                id=Given("issueId"),
                input=Rest(("issueId",)),
            ),
            idempotent=True,
        ),
        HttpTool(
            "linear_add_comment",
            "Adds a comment to a Linear issue.",
            parameters(
                ("issueId", "body"),
                issueId=text("The id of the issue.", least=1),
                body=text("The comment, in Markdown.", least=1),
            ),
            _ask(
                _done("commentCreate", "comment"),
                "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id url body } } }",
                input=Rest(),
            ),
        ),
    ),
)
