"""Guarantees that are not ours or not there: asked for by name, marked in every output."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, OptionError, ReleaseError
from dpeffects.estimators import get, proved, registry
from dpeffects.guarantee import KINDS, Guarantee
from dpeffects.report.comparison import compare
from dpeffects.services.gate.policy import Policy
from tests.releases import BOUNDS, frame

WORDS = {
    "asymptotic": "asymptotic claim",
    "library": "library's guarantee",
    "none": "no differential privacy",
}
CALL = {"epsilon": 2.0, "bounds": BOUNDS}


@pytest.fixture(params=WORDS)
def kind(request, monkeypatch):
    """A registered method of that kind."""
    level = ("none",) if request.param == "none" else ("sample",)
    spec = replace(get("diff_in_means"), name="other", guarantee=request.param, levels=level)
    monkeypatch.setitem(registry(), "other", spec)
    return request.param


def run(kind, **more):
    return dpe.dp_ate("y ~ t", frame(), "other", **{KINDS[kind].accept: True}, **CALL, **more)


@pytest.mark.parametrize("answer", [{}, False, 1, "yes", None])
def test_only_a_true_accepts(kind, answer):
    accept = KINDS[kind].accept
    given = {} if answer == {} else {accept: answer}
    with pytest.raises(OptionError, match=f"{KINDS[kind].words}. .*write {accept}=True"):
        dpe.dp_ate("y ~ t", frame(), "other", **CALL, **given)


def test_another_kind_does_not_accept(kind):
    for other in set(WORDS) - {kind}:
        with pytest.raises(OptionError, match=KINDS[kind].accept):
            dpe.dp_ate("y ~ t", frame(), "other", **CALL, **{KINDS[other].accept: True})


@pytest.mark.parametrize("accept", [k.accept for k in KINDS.values() if k.accept])
def test_an_exact_method_has_nothing_to_accept(accept):
    with pytest.raises(OptionError, match=accept):
        dpe.dp_ate("y ~ t", frame(), "diff_in_means", **CALL, **{accept: True})


def test_every_output_says_it(kind):
    fit = run(kind)
    assert (fit.guarantee.status, fit.guarantee.holds) == (kind, False)
    assert WORDS[kind] in fit.guarantee.sentence()
    text = " ".join(str(fit.summary()).split())
    assert f"*** {KINDS[kind].words.upper()} ***" in text
    assert WORDS[kind] in text
    assert fit.tidy()["guarantee"].tolist() == fit.glance()["guarantee"].tolist() == [kind]
    saved = json.loads(fit.to_json())["guarantee"]
    assert (saved["kind"], saved["status"]) == (kind, kind)
    assert WORDS[kind] in saved["sentence"]
    assert kind in str(compare(fit, dpe.dp_ate("y ~ t", frame(), "diff_in_means", **CALL)))


def test_no_privacy_has_no_price():
    found = Guarantee(float("inf"), kind="none")
    assert found.to_dict()["epsilon"] is None
    assert "neighbours" not in found.sentence()


def test_no_ledger_pays_for_no_privacy(kind):
    ledger = dpe.Ledger(2.0)
    if kind == "none":
        with pytest.raises(OptionError, match="ledger"):
            run(kind, ledger=ledger)
        assert not ledger.charges
    else:
        assert run(kind, ledger=ledger).charges == ledger.charges


def test_it_is_listed_and_described_but_never_picked(kind):
    listed = dpe.methods().set_index("method")["guarantee"]
    assert listed["other"] == kind
    assert f"{KINDS[kind].accept}=True" in dpe.methods("other")
    assert "other" not in proved()
    planned = dpe.plan("y ~ t", n=200, epsilon=1, bounds={"y": (0, 1)}, repeats=1)
    assert "other" not in set(planned.tidy()["method"])
    if kind == "library":
        with pytest.raises(OptionError, match="cannot leave it out"):
            dpe.reference("y ~ t", frame(), "other")
    else:
        assert dpe.reference("y ~ t", frame(), "other").method == "other"


def test_sites_do_not_send_it(kind, tmp_path):
    accept = {KINDS[kind].accept: True}
    if kind == "asymptotic":
        sent = dpe.site_release("y ~ t", frame(), site="A", method="other", **CALL, **accept)
        assert dpe.combine([sent]).status == kind
    else:
        with pytest.raises(ReleaseError, match=KINDS[kind].words):
            dpe.site_release("y ~ t", frame(), site="A", method="other", **CALL, **accept)
        with pytest.raises(ReleaseError, match=KINDS[kind].words):
            dpe.SiteRelease.from_result(run(kind), "A")
    with pytest.raises(DPEffectsError, match="methods"):
        Policy(
            site="A",
            data=tmp_path / "data.csv",
            ledger=tmp_path / "ledger.db",
            columns={"outcome": ("y",), "treatment": ("t",), "covariates": ()},
            max_epsilon=1.0,
            total_epsilon=1.0,
            methods=("other",),
        )
