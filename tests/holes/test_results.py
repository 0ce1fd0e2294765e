"""Results say what is true: the noise in them, the kind of their guarantee, every release."""

from __future__ import annotations

import html
import json
from dataclasses import replace

import pytest

import dpeffects as dpe
from dpeffects.estimators import proved
from dpeffects.estimators.weighting import propensity
from dpeffects.guarantee import KINDS, Guarantee
from tests.once import once
from tests.releases import BOUNDS, EFFECTS, frame, release

DATA = frame(400)
CALLS = {
    f"{name}-{level}-delta{delta:g}": (name, level, delta)
    for name, spec in proved().items()
    for level in spec.levels
    for delta in (0.0, 1e-5)
    if delta or not spec.needs_delta
}
GAUSSIAN = {"noise": "gaussian", "propensity": "output"}
OPTIONS = {
    "gaussian weights": ("private_ipw", "sample", 1e-5, GAUSSIAN),
    "two halves": ("private_ipw", "sample", 1e-5, {"split": True, "noise": "gaussian"}),
    "moments": ("one_step", "sample", 1e-5, {"pool": "models"}),
    "all Gaussian": ("one_step", "sample", 1e-5, {"pool": "all"}),
}


@once
def fitted(name, level, delta, estimand="ATE", **options):
    formula = "y ~ t | g" if proved()[name].needs_strata else "y ~ t | x1 + x2"
    call = {"epsilon": 4.0, "delta": delta, "bounds": BOUNDS, "level": level}
    return EFFECTS[estimand](formula, DATA, name, **call, **options)


def rebuilt(noise):
    """Variance of noise from the scales and parts that an export has."""
    own = sum(2.0 * scale**2 for scale in noise["laplace"]) + noise["gaussian"]
    return own + sum(part["variance"] for part in noise["parts"] if part["noise"])


# --- the noise --------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("call", [*CALLS, *OPTIONS])
def test_an_export_has_all_of_the_noise(call, tmp_path):
    """to_dict()["released"] left the Gaussian part of the noise out."""
    name, level, delta, options = OPTIONS.get(call) or (*CALLS[call], {})
    fit = fitted(name, level, delta, **options)
    for found in (fit.to_dict(), json.loads(fit.to_json())):
        assert rebuilt(found["released"]) == pytest.approx(fit.noise_variance, rel=1e-12)
        assert found["noise_variance"] == fit.noise_variance
    fit.report(tmp_path / "record.html")
    twin = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["result"]
    assert rebuilt(twin["released"]) == pytest.approx(fit.noise_variance, rel=1e-12)
    sent = dpe.SiteRelease.from_result(fit, "North").to_dict()["released"]
    assert rebuilt(sent) == pytest.approx(fit.noise_variance, rel=1e-12)


def test_some_of_these_calls_draw_gaussian_noise():
    """Without it the tests above would show nothing."""
    assert fitted("private_ipw", "sample", 1e-5, **GAUSSIAN).released.gaussian


@pytest.mark.parametrize("name", ["points", "groups"])
def test_conditional_effects_say_which_noise_is_in_them(name):
    """Effects at points and by group had the size of their noise in an export only."""
    fit = release(name)
    for found, effect in zip(fit.to_dict()["effects"], fit.effects, strict=True):
        assert rebuilt(found) == pytest.approx(effect.noise_variance, rel=1e-12)


def test_combinations_and_balances_export_their_noise_and_cautions():
    """These were warnings on the screen and no word in the JSON."""
    fit, noisy = release("sites"), replace(release("balance"), model_noise=0.9)
    assert fit.to_dict()["noise_variance"] == pytest.approx(fit.glance()["noise_variance"][0])
    assert fit.to_dict()["warnings"] == fit.warnings
    assert noisy.to_dict()["warnings"] == noisy.warnings != ""


# --- the kind of the guarantee ----------------------------------------------------------------


def of_kind(kind, **more):
    fit = fitted("diff_in_means", "sample", 0.0)
    fit = replace(fit, released=replace(fit.released, identification="randomised", warnings=""))
    promise = Guarantee(float("inf") if kind == "none" else 1.0, kind=kind, **more)
    return replace(fit, guarantee=promise, level="none" if kind == "none" else fit.level)


def plain(text):
    """What a reader sees, whatever the line breaks and marks of a format."""
    return " ".join(html.unescape(text).replace("{-}", "-").replace("\\", "").split())


FORMATS = ("as_text", "as_html", "as_markdown", "as_latex")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_table_has_the_words_of_the_kind(kind, form):
    """compare() called a method without any privacy an unproven claim about this n."""
    fit, exact = of_kind(kind), of_kind("exact")
    words = KINDS[kind].words.upper().replace("'", "")
    table = dpe.compare(exact, fit, names=["first", "second"])
    for shown in (getattr(table, form)(), getattr(fit.summary(), form)()):
        text = plain(shown).replace("'", "")
        if words:
            assert words in text
        for other in set(KINDS) - {kind, "exact"}:
            assert KINDS[other].words.upper().replace("'", "") not in text
    if words:
        assert f"second: {words}" in plain(getattr(table, form)()).replace("'", "")
    assert "first: " not in plain(getattr(table, form)())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "exact"])
def test_pictures_paragraphs_and_records_have_the_words_of_the_kind(kind, tmp_path):
    """Pictures had a list of words of their own."""
    pytest.importorskip("matplotlib")
    fit = of_kind(kind)
    for axes in (fit.plot(), dpe.plots.budget(fit), dpe.plots.estimate(fit, of_kind("exact"))):
        assert KINDS[kind].words.upper() in plain(" ".join(t.get_text() for t in axes.texts))
    assert fit.report().text.startswith(KINDS[kind].warning())
    fit.report(tmp_path / "record.html")
    assert KINDS[kind].words.upper() in plain((tmp_path / "record.html").read_text("utf-8"))


def test_comparisons_and_lines_say_what_is_void_unproved_or_not_private():
    """A table of a seeded method without privacy said "NOT PRIVATE, seeded, none", the title of
    every comparison was "private effects side by side", and a line ended in "none"."""
    table = str(dpe.compare(of_kind("library", void=("seeded",))))
    for words in ("NOT PRIVATE: a seed was set", KINDS["library"].words.upper()):
        assert f"*** (1): {words} ***" in plain(table)
    assert "private" not in str(dpe.compare(of_kind("none"))).splitlines()[0].lower()
    assert "NOT PRIVATE" in repr(of_kind("none"))


# --- every release ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"noise": "gaussian", "propensity": "output"}])
def test_the_budget_names_the_releases_of_both_halves(options, tmp_path):
    """With split=True the table had no line for the released estimate."""
    ledger = dpe.Ledger(4.0, 1e-5)
    call = {"epsilon": 4.0, "delta": 1e-5, "bounds": BOUNDS, "ledger": ledger}
    fit = dpe.dp_ate("y ~ t | x1 + x2", DATA, "private_ipw", split=True, **call, **options)
    covered = [charge for charge in fit.charges if charge.covered]
    assert {"counts", "centre", "overlap", "estimate", "variance"} == {s.share for s in covered}
    assert sum(s.epsilon for s in fit.charges) == pytest.approx(4.0)
    assert not any(charge.covered for charge in ledger.charges)
    (estimate,) = (charge for charge in covered if charge.share == "estimate")
    assert estimate.mechanism in ("discrete Laplace", "discrete Gaussian")
    fit.report(tmp_path / "record.html")
    record = (tmp_path / "record.html").read_text("utf-8")
    summary = fit.summary()
    shown = [summary.as_html(), summary.as_latex(), summary.as_markdown(), summary.as_text(300)]
    for text in map(plain, [*shown, record]):
        assert "weighted sum and squares, other half" in text
        assert "covered by claim 11" in text
    sent = dpe.SiteRelease.from_result(fit, "North")
    assert dpe.SiteRelease.from_json(sent.to_json()).charges == fit.charges


# --- one place for each split of the budget ---------------------------------------------------

SETS = {
    **{f"{name} {level}": (name, {"level": level}) for name, level, _ in CALLS.values()},
    "one-step, trial": ("one_step", {"design": "randomised"}),
    "one-step, pure": ("one_step", {"pool": "none"}),
    "one-step, all Gaussian": ("one_step", {"pool": "all"}),
    "ipw, split": ("private_ipw", {"split": True}),
    "ipw, middle": ("private_ipw", {"centre": "middle"}),
    "ipw, output": ("private_ipw", {"propensity": "output"}),
    "psm, biased": ("private_psm", {"as_printed": True, "debias": False}),
    "smooth variance": ("smooth_matching", {"variance_noise": "smooth"}),
    "no variance": ("private_ipw", {"variance": False}),
}


def by_share(fit):
    found = {}
    for charge in fit.charges:
        if not charge.covered:
            found[charge.share] = found.get(charge.share, 0.0) + charge.epsilon
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", SETS)
def test_a_plan_shows_the_split_of_a_real_call(name):
    """A plan's lines of the budget are the charges of a call on data, for every set of options."""
    method, options = SETS[name]
    strata = proved()[method].needs_strata
    formula, call = ("y ~ t | g" if strata else "y ~ t | x1 + x2"), {"epsilon": 4.0, "delta": 1e-5}
    used = {column: BOUNDS[column] for column in ("y", *(("g",) if strata else ("x1", "x2")))}
    fit = dpe.dp_ate(formula, DATA, method, bounds=used, **call, **options)
    told = {"outcome_sd": 0.2, "covariate_sd": {x: 0.2 for x in used if x.startswith("x")}}
    call |= {"n": len(DATA), "method": method, "bounds": used, "repeats": 1}
    (row,) = dpe.plan(formula, **call, **told, **options).rows
    assert dict(row.budget_split) == pytest.approx(by_share(fit))


@pytest.mark.parametrize("centre", ["arms", "middle", "none"])
def test_weights_are_planned_with_the_prices_that_are_paid(monkeypatch, centre):
    """private_ipw planned its estimate without the share that centres leave to the others."""
    planned = []

    def spy(setting, prices, own=propensity.plan):
        planned.append(prices)
        return own(setting, prices)

    monkeypatch.setattr(propensity, "plan", spy)
    call = {"epsilon": 4.0, "bounds": BOUNDS, "centre": centre}
    paid = by_share(dpe.dp_ate("y ~ t | x1 + x2", DATA, "private_ipw", **call))
    prices = dict(planned[0].values())
    nearest = min(prices, key=lambda model: abs(model - paid["model"]))
    assert nearest == pytest.approx(paid["model"])
    assert prices[nearest] == pytest.approx(paid["estimate"])
