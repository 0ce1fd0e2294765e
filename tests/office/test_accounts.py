"""Passwords, roles, tokens that end, and names that are not given away."""

from datetime import timedelta

import pytest

from dpeffects.services.office import accounts as module
from dpeffects.services.office.accounts import DeskError
from tests.office.offices import PASSWORD


def test_a_token_lets_its_owner_in_for_its_project(running):
    text = running.accounts.token("test", "anna", "ageing")
    found = running.accounts.who(text, "token")
    assert (found.name, found.role, found.project) == ("anna", "researcher", "ageing")
    with pytest.raises(DeskError, match="not valid"):
        running.accounts.who(text, "session")
    with pytest.raises(DeskError, match="not valid"):
        running.accounts.who(f"{text}x", "token")


def test_a_token_ends(running, monkeypatch):
    text = running.accounts.token("test", "anna", "ageing", days=2)
    later = module.now
    monkeypatch.setattr(module, "now", lambda after=timedelta(): later(after + timedelta(days=1)))
    assert running.accounts.who(text, "token").name == "anna"
    monkeypatch.setattr(module, "now", lambda after=timedelta(): later(after + timedelta(days=3)))
    with pytest.raises(DeskError, match="has ended"):
        running.accounts.who(text, "token")


def test_a_token_can_be_revoked_by_its_owner_and_by_stewards_only(running):
    one, two = (running.accounts.token("test", "anna", "ageing") for _ in range(2))
    ids = [running.accounts.who(text, "token").token for text in (one, two)]
    with pytest.raises(DeskError, match="no such token"):
        running.accounts.revoke(running.person("bert"), ids[0])
    running.accounts.revoke(running.person("anna"), ids[0])
    running.accounts.revoke(running.person("sue"), ids[1])
    for text in (one, two):
        with pytest.raises(DeskError, match="revoked"):
            running.accounts.who(text, "token")


@pytest.mark.parametrize("how", ["ended", "role", "member"])
def test_tokens_end_with_what_they_stand_on(running, how):
    text = running.accounts.token("test", "anna", "ageing")
    if how == "member":
        running.accounts.set_member("test", "anna", "ageing", member=False)
    else:
        role = "steward" if how == "role" else "researcher"
        running.accounts.set_account("test", "anna", role, active=how == "role")
    with pytest.raises(DeskError, match="revoked"):
        running.accounts.who(text, "token")


def test_an_account_that_has_ended_signs_in_no_more(running):
    running.accounts.set_account("test", "anna", "researcher", active=False)
    with pytest.raises(DeskError, match="name or the password"):
        running.accounts.sign_in("anna", PASSWORD, 1.0)


def test_a_wrong_password_and_an_unknown_name_are_alike(running, monkeypatch):
    checked = []
    right = module._fits
    monkeypatch.setattr(module, "_fits", lambda *given: checked.append(given) or right(*given))
    said = set()
    for name, password in (("anna", "wrong"), ("nobody", PASSWORD), ("", "")):
        with pytest.raises(DeskError) as caught:
            running.accounts.sign_in(name, password, 1.0)
        said.add((str(caught.value), caught.value.status))
    assert said == {("the name or the password is wrong", 401)}
    assert len(checked) == 3  # each costs one hash
    assert {kept for kept, _ in checked[1:]} == {module._NOBODY}


def test_a_new_password_ends_sessions_and_serves_once(running):
    session = running.accounts.sign_in("anna", PASSWORD, 1.0)
    made = running.accounts.set_password("test", "anna")
    with pytest.raises(DeskError, match="revoked"):
        running.accounts.who(session, "session")
    assert running.accounts.who(
        running.accounts.sign_in("anna", made, 1.0), "session"
    ).changes_password


def test_nothing_in_the_database_lets_anybody_in(running):
    texts = [PASSWORD, running.accounts.token("test", "anna", "ageing")]
    texts += [
        running.accounts.sign_in("anna", PASSWORD, 1.0),
        running.accounts.add("test", "new", "steward"),
    ]
    running.database.close()
    files = b"".join(path.read_bytes() for path in running.folder.path.iterdir() if path.is_file())
    assert b"anna" in files
    assert not [text for text in texts if text.encode() in files]


def test_what_is_no_account_is_refused(running):
    for name, role, password, said in (
        ("Anna", "researcher", PASSWORD, "taken"),
        ("anna", "researcher", PASSWORD, "taken"),
        ("<b>", "researcher", PASSWORD, "letters"),
        ("carl", "king", PASSWORD, "role"),
        ("carl", "researcher", "short", "12"),
        ("carl", "researcher", "x" * 201, "200"),
    ):
        with pytest.raises(DeskError, match=said):
            running.accounts.add("test", name, role, password)


def test_a_label_is_no_formula_of_a_spreadsheet(running):
    for label in ("=1+1", " @SUM(1)", "+1", "-1", "\t=1"):
        running.accounts.token("anna", "anna", "ageing", label)
    assert not {"=", "@", "+", "-", "\t"} & {x["label"][0] for x in running.accounts.tokens()}


def test_a_token_is_for_a_project_of_its_owner(running):
    with pytest.raises(DeskError, match="no member"):
        running.accounts.token("test", "anna", "births")
    for days in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(DeskError, match="days"):
            running.accounts.token("test", "anna", "ageing", days=days)
