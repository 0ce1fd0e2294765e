"""The centre ends every round with a table, whatever the sites send."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpeffects.errors import ReleaseError
from dpeffects.guarantee import Guarantee
from dpeffects.services.federation import collect
from dpeffects.services.federation.centre import NoReply
from dpeffects.services.gate import answer
from dpeffects.services.sites import SiteRelease
from tests.federation.sites import frame, policy, question

ASKED = question()
SITES = ("north", "south", "west")


@pytest.fixture(scope="module")
def replies(tmp_path_factory):
    made = {}
    for i, site in enumerate(SITES):
        made[site] = answer(ASKED, policy(tmp_path_factory.mktemp(site), frame(i), site=site))
    return made


def test_all_answer(replies):
    collected = collect(replies.items(), SITES, ASKED)
    assert list(collected.releases) == list(SITES)
    assert collected.left_out == {}
    assert "west   answered" in collected.report()
    assert collected.combine().n > 0
    text = [(site, json.dumps(reply)) for site, reply in replies.items()]
    assert collect(text, SITES, ASKED) == collected
    assert json.loads(json.dumps(collected.to_dict()))["question"]["request"] == "q1"


def changed(reply, **changes):
    """The reply with a release that says something else, and says it properly."""
    release = replace(SiteRelease.from_dict(reply["release"]), **changes)
    return {**reply, "release": release.to_dict()}


def cases(reply):
    """What a site may send instead of a good reply, and a word of the reason."""
    return {
        "refused": ({"status": "refused", "reason": "no budget"}, "refused: no budget"),
        "refused without reason": ({"status": "refused"}, "refused: no reason given"),
        "refused with escapes": ({"status": "refused", "reason": "a\x1b[2Jb\nc"}, "a [2Jb c"),
        "no delivery": (NoReply("down: gone"), "down: gone"),
        "nothing": (None, "malformed"),
        "no JSON": ("{", "malformed: this is not valid JSON"),
        "NaN": ('{"status": NaN}', "malformed"),
        "a list": ("[]", "malformed"),
        "a long text": ("x" * 6_000_000, "too long"),
        "no status": ({}, "neither an answer nor a refusal"),
        "no release": ({**reply, "release": None}, "malformed"),
        "empty release": ({**reply, "release": {}}, "malformed"),
        "release that was altered": (
            {**reply, "release": {**reply["release"], "estimate": 9.0}},
            "malformed",
        ),
        "other request": ({**reply, "request": "q0"}, "another request"),
        "release of another request": (changed(reply, request="q0"), "another request"),
        "other site": (changed(reply, site="north"), "wrong site name"),
        "other formula": (changed(reply, formula="y ~ t | x"), "another formula"),
        "no formula": (changed(reply, formula="import os"), "another formula"),
        "other estimand": (changed(reply, estimand="ATT"), "another estimand"),
        "other method": (changed(reply, method="private_psm"), "another method"),
        "larger epsilon": (changed(reply, guarantee=Guarantee(0.6)), "spent more"),
        "a delta": (changed(reply, guarantee=Guarantee(0.5, 1e-6)), "spent more"),
        "void": (changed(reply, guarantee=Guarantee(0.5, void=("seeded",))), "not private"),
    }


def test_a_bad_reply_leaves_the_others(replies):
    for bad, words in cases(replies["west"]).values():
        collected = collect({**replies, "west": bad}.items(), SITES, ASKED)
        assert list(collected.releases) == ["north", "south"]
        assert words in collected.left_out["west"]
        assert collected.combine().left_out["west"] == collected.left_out["west"]
        assert collected.left_out["west"] in " ".join(collected.report().split())


def test_no_reply_is_late_or_down(replies):
    here = [("north", replies["north"])]
    collected = collect(here, SITES, ASKED, {"south": "down: not connected"})
    assert collected.left_out == {
        "south": "down: not connected",
        "west": "late: no answer within 60 s",
    }


def test_nobody_answers():
    collected = collect([], SITES, ASKED)
    assert "nothing to combine" in collected.report()
    with pytest.raises(ReleaseError, match="no site gave a release"):
        collected.combine()


def test_answering_twice(replies, tmp_path):
    twice = [*replies.items(), ("west", copy.deepcopy(replies["west"]))]
    assert len(collect(twice, SITES, ASKED).releases) == 3  # the same answer, sent again
    other = answer(ASKED, policy(tmp_path, frame(2), site="west"))
    collected = collect([*replies.items(), ("west", other)], SITES, ASKED)
    assert collected.left_out == {"west": "answered twice, with different releases"}
    assert len(collected.releases) == 2


def test_a_stranger_is_not_counted(replies):
    collected = collect([*replies.items(), ("e\x1bast", replies["west"])], SITES, ASKED)
    assert len(collected.releases) == 3
    assert collected.left_out == {"e ast": "was not asked"}


def test_a_site_may_spend_less(replies):
    sent = SiteRelease.from_dict(replies["west"]["release"])
    charges = tuple(replace(charge, epsilon=charge.epsilon / 2) for charge in sent.charges)
    less = changed(replies["west"], guarantee=Guarantee(0.25), charges=charges)
    assert len(collect({**replies, "west": less}.items(), SITES, ASKED).releases) == 3


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def sound(collected):
    """Every site is in one place, and the table can be printed."""
    answered = list(collected.releases)
    assert sorted([*answered, *collected.left_out]) == sorted(SITES)
    assert all(line.isprintable() for line in collected.table().splitlines())
    json.dumps(collected.to_dict(), allow_nan=False)


@given(values)
def test_nonsense(replies, value):
    for reply in (value, {"status": "refused", "reason": value}, {"status": value}):
        sound(collect({**replies, "west": reply}.items(), SITES, ASKED))


@given(st.data(), values)
def test_replies_with_one_value_replaced(replies, data, value):
    reply = copy.deepcopy(replies["west"])
    place = reply
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            place[key] = value
            break
        place = inner
    sound(collect({**replies, "west": reply}.items(), SITES, ASKED))


@given(st.text())
def test_text(replies, text):
    sound(collect({**replies, "west": text}.items(), SITES, ASKED))
