"""The tables of notifications: what they must say, and who may write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.config import load
from cuebook.config.notifications import USUAL_EVENTS, Notifications
from cuebook.kernel.errors import BadInput

HOOK = '[notifications.channels.hook]\nkind = "webhook"\nurl = "https://ops.example.com/x"\nsecret = "env:KEY"\n'


def notifications(folder: Path, text: str) -> Notifications:
    (folder / "cuebook").mkdir(exist_ok=True)
    (folder / "cuebook" / "cuebook.toml").write_text(text)
    found = load(environ={"XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}, folder=folder).notifications
    assert found is not None
    return found


def test_what_is_not_set_is_usual(tmp_path: Path) -> None:
    found = notifications(tmp_path, HOOK)
    rules = found.rules("tea.md")
    assert (rules.events, rules.send_to, rules.quiet_hours, rules.remind_after) == (USUAL_EVENTS, ("hook",), "", None)
    assert found.channels["hook"].url == "https://ops.example.com/x"


def test_rules_of_a_playbook_replace_the_general_ones_one_by_one(tmp_path: Path) -> None:
    own = '[notifications.playbooks."deploy*"]\nremind_after = "15m"\nquiet_hours = "none"\n'
    found = notifications(tmp_path, f'[notifications]\nquiet_hours = "22:00-7:00"\nreminders = 5\n{own}{HOOK}')
    rules, others = found.rules("deploy-eu.md"), found.rules("tea.md")
    assert (rules.remind_after, rules.quiet_hours, rules.reminders) == (900.0, "", 5)
    assert (others.remind_after, others.quiet_hours, others.reminders) == (None, "22:00-07:00", 5)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (HOOK.replace('"env:KEY"', '"the-key-itself"'), "must say where the secret is stored"),
        (HOOK.replace('secret = "env:KEY"\n', ""), "needs the key that signs"),
        (HOOK.replace("https://", "https://user:pw@"), "URL without a password"),
        (HOOK.replace('"webhook"', '"pigeon"'), "kind must be one of webhook, slack, email, command"),
        (f'[notifications]\nsend_to = ["team"]\n{HOOK}', "there is no channel 'team'"),
        (f'[notifications]\nevents = ["wating"]\n{HOOK}', "there is no event 'wating'"),
        (f'[notifications]\nquiet_hours = "25:00-07:00"\n{HOOK}', "must be hours such as"),
        (f'[notifications]\ntime_zone = "Mars"\n{HOOK}', "must be the name of a time zone"),
        (f'[notifications]\nremind = "1h"\n{HOOK}', "there is no setting 'notifications.remind'"),
        ('[notifications.channels.m]\nkind = "email"\nhost = "h.example.com"\nsender = "nobody"\n', "must be an e-mail address"),
        (
            '[notifications.channels.m]\nkind = "email"\nhost = "h.example.com"\nsender = "a@example.com"\nsecurity = "none"\n',
            "would send mail unencrypted",
        ),
        ('[notifications.channels.s]\nkind = "slack"\n', "needs an incoming webhook, or the token of an app"),
        ('[notifications.channels.c]\nkind = "command"\ncommand = "rm -rf x"\n', "must be a list of strings"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong) as refused:
        notifications(tmp_path, text)
    assert "cuebook.toml:" in str(refused.value)


def test_a_project_may_not_say_where_messages_or_their_links_go(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "own"), "HOME": str(tmp_path)}
    for text in (HOOK, '[serve]\npublic_url = "https://evil.example.com"\n'):
        (tmp_path / "cuebook.toml").write_text(text)
        with pytest.raises(BadInput, match="project file may not"):
            load(environ=environ, folder=tmp_path)
