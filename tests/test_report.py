"""Paragraphs and release records say what the numbers say, and no more."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate, SamplingVariance
from dpeffects.report.review_record import titles
from tests.cases import each
from tests.kinds_of_summaries import TRIAL, people
from tests.reading import HOSTILE, from_markdown, self_contained, shown, spaced, tables
from tests.releases import AVERAGES, CATE, NAMES, SITES, half_unit, release
from tests.test_proofs import CLAIMS
from tests.test_results import NO_VARIANCE, UNDEFINED, make

ROOT = Path(dpe.__file__).parents[1]
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)"


def text_of(fit, **options):
    return fit.report(**options).text


def first(text):
    """The first sentence: up to a full stop before a capital."""
    return re.match(r".*?\.(?= [A-Z])", text)[0]


def close(shown_text, value):
    digits = len(shown_text.partition(".")[2].partition("e")[0])
    if "e" in shown_text:
        return float(shown_text) == pytest.approx(value, rel=1e-4)
    return abs(float(shown_text) - value) <= 0.51 * 10.0**-digits + 1e-12


# --- the paragraph --------------------------------------------------------------------------------


@each("name", NAMES)
def test_the_paragraph_is_complete(name):
    fit = release(name)
    text = text_of(fit)
    assert "\n" not in text
    assert "no effect" not in text
    assert "significant" not in text
    assert f"dpeffects {metadata.version('dpeffects')}" in text
    assert fit.formula in text
    guarantees = [r.guarantee for r in getattr(fit, "releases", (fit,))]
    for guarantee in guarantees:
        assert f"{guarantee.epsilon:g}" in text
        assert "-differential privacy" in text
    citation = getattr(fit, "citation", "Koga")
    assert citation.rstrip(".") in text
    assert all(len(line) <= 80 for line in str(fit.report()).splitlines())
    assert " ".join(str(fit.report()).split()) == text
    if fit.warnings:
        assert fit.warnings in text


@each("name", [*AVERAGES, *SITES])
def test_numbers_are_those_of_tidy(name):
    fit = release(name)
    text, row, glance = text_of(fit), fit.tidy().iloc[0], fit.glance().iloc[0]
    if math.isnan(row["std_error"]):
        assert "not available" in first(text)
        assert "supports no statement" in text
        return
    found = re.search(
        rf"The estimate was {NUMBER} \(standard error {NUMBER}; 95 % confidence interval from "
        rf"{NUMBER} to {NUMBER}(?:; p ([=<]) {NUMBER})?\)",
        text,
    )
    columns = ("estimate", "std_error", "conf_low", "conf_high")
    for piece, column in zip(found.groups(), columns, strict=False):
        assert close(piece, row[column])
    assert (found[5] is None) == fit.associated
    if fit.associated:
        assert math.isnan(row["p_value"])
    elif found[5] == "=":
        assert close(found[6], row["p_value"])
    else:
        assert row["p_value"] < 1e-4
    parts = re.search(
        rf"standard deviation of {NUMBER} and privacy noise one of {NUMBER}, which is ([\d.]+) %",
        text,
    )
    assert close(parts[1], math.sqrt(glance["sampling_variance"]))
    assert close(parts[2], math.sqrt(glance["noise_variance"]))
    assert close(parts[3], 100 * glance["noise_share"])
    includes = row["conf_low"] <= 0.0 <= row["conf_high"]
    assert ("includes zero" in text) == includes
    what = "association" if fit.associated else "effect"
    assert (f"no evidence of an {what}" in text) == includes


@pytest.mark.parametrize("name", CATE)
def test_effects_are_those_of_tidy(name):
    fit = release(name)
    text = text_of(fit)
    for row in fit.tidy().to_dict("records")[:6]:
        if math.isnan(row["conf_low"]):  # the noise left nothing to divide by
            assert f"(no interval) for {row['term']}" in text
            assert "an interval for" in first(text)
            continue
        found = re.search(
            rf"(suppressed|{NUMBER[1:-1]}) \(from {NUMBER} to {NUMBER}\) "
            rf"for {re.escape(row['term'])}(?=[;.])",
            text,
        )
        columns = ("estimate", "conf_low", "conf_high")
        assert (found[1] == "suppressed") == (row.get("noise_ratio", 0.0) > 1.0)
        for piece, column in zip(found.groups(), columns, strict=True):
            assert piece == "suppressed" or close(piece, row[column])
    noise_only = set(fit.tidy()["covers"]) == {"noise"}
    assert ("privacy noise only" in first(text)) == noise_only


def test_risks_are_said_with_their_difference_and_their_ratio():
    data = people().assign(y=lambda x: (x["y"] > 0.5).astype(int))
    fit = dpe.dp_ate("y ~ t", data, **TRIAL | {"bounds": {"y": [0, 1]}})
    said = rf"{NUMBER} \({NUMBER} to {NUMBER}\)"
    found = re.search(
        rf"Risks of y = 1, in per cent, were {said} with treatment and {said} without: a risk "
        rf"difference of {said} percentage points and a risk ratio of {said}\.",
        text_of(fit),
    )
    rows = [*fit.means.rename(columns={"mean": "estimate"}).to_dict("records")]
    rows += [fit.tidy(scale=x).to_dict("records")[0] for x in ("difference", "ratio")]
    values = [100.0 * row[x] for row in rows[:3] for x in ("estimate", "conf_low", "conf_high")]
    values += [rows[3][x] for x in ("estimate", "conf_low", "conf_high")]
    for shown_text, value in zip(found.groups(), values, strict=True):
        assert close(shown_text, value)


def test_differential_privacy_is_defined_and_adjustment_named():
    assert "at most exp(epsilon)." in text_of(make())
    delta = text_of(make(guarantee=Guarantee(1.0, 1e-6)))
    assert "exp(epsilon), apart from a probability of at most delta." in delta
    assert "Estimates were adjusted for " in text_of(release("one_step-sample-ATE"))
    assert "were adjusted" not in text_of(release("randomised"))


def test_balance_says_its_largest_difference():
    fit = release("balance")
    text, known = text_of(fit), fit.tidy().dropna(subset=["smd"])
    rows = known[known["noise_ratio"] <= 1.0]
    assert "balance of covariates between the arms of t was estimated under 2-" in first(text)
    if len(rows):
        largest = rows.loc[rows["smd"].abs().idxmax()]
        found = re.search(rf"difference is {NUMBER} \((\S+);", text)
        off = half_unit(largest["noise_sd"])
        assert float(found[1]) == pytest.approx(largest["smd"], abs=off)
        assert found[2] == largest["term"]
    elif len(known):
        assert "No difference can be told: all are mostly noise." in text


def test_bounds_and_shares_are_said():
    text = text_of(make())
    assert "outcome [0, 40000] declared" in text
    assert "1 covariate found privately: re74 [0, 35040]" in text
    assert "was spent on 3 releases (mechanism: " in text
    assert "READ FROM THE DATA" in text_of(release("bounds of the data"))


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [
        (Guarantee(1.0, void=("seeded",)), "NOT PRIVATE (seeded)"),
        (Guarantee(1.0, kind="asymptotic"), "ASYMPTOTIC CLAIM"),
        (Guarantee(1.0, 1e-6), "(1, 1e-06)-differential privacy"),
        (Guarantee(0.5, unit="outcome"), "the outcome of one record"),
        (Guarantee(1.0, public=("n", "treatment")), "but its treatment"),
    ],
)
def test_the_first_sentence_says_what_the_guarantee_is_worth(guarantee, words):
    text = text_of(make(guarantee=guarantee))
    assert words in first(text)
    assert text.startswith(words) == (not guarantee.holds)
    void = text_of(make(guarantee=Guarantee(1.0, kind="asymptotic", void=("seeded",))))
    assert void.startswith("NOT PRIVATE (seeded)")
    assert "only claimed" in first(void)


@pytest.mark.parametrize("estimate", [NO_VARIANCE, UNDEFINED])
def test_what_is_missing_stands_in_the_first_sentence(estimate):
    text = text_of(make(estimate))
    assert "without standard error, interval and p-value (not available" in first(text)
    assert "evidence" not in text


def test_sites_that_void_the_guarantee_come_first():
    assert text_of(release("seeded site")).startswith("NOT PRIVATE (seeded)")
    assert "not available" in first(text_of(release("blind site")))
    assert first(text_of(release("claimed"))).startswith("ASYMPTOTIC CLAIM")


def test_randomisation_is_assumed_where_nothing_is_adjusted_for():
    sure = Estimate(5.0, SamplingVariance(1.0, 0.0, 9.0))
    assert "random given the covariates" in text_of(make(sure))
    assert "randomised" in text_of(make(sure, formula="re78 ~ treat"))
    assert "randomised" in text_of(make(sure, method="diff_in_means"))


def test_the_level_is_that_asked_for():
    assert "90 % confidence interval" in text_of(make(), conf_level=0.9)
    wide = dpe.combine(release("sites").releases, "all", conf_level=0.8)
    assert "80 % confidence interval" in text_of(wide)
    with pytest.raises(OptionError, match="level"):
        make().report(conf_level=95)


def test_paragraphs_are_escaped():
    report = make(formula=" ".join(HOSTILE)).report()
    self_contained(report._repr_html_())
    assert spaced(HOSTILE[0]) in shown(self_contained(report.as_html()))
    assert spaced(" ".join(HOSTILE)) in shown(from_markdown(report.as_markdown()))
    assert r"100\%\_done" in report.as_latex()


# --- the record -----------------------------------------------------------------------------------


def written(fit, tmp_path, **options):
    path = fit.report(tmp_path / "record.html", **options)
    assert path == tmp_path / "record.html"
    html = path.read_text("utf-8")
    return html, json.loads((tmp_path / "record.json").read_bytes(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "name", ["seeded", "bounds found", "balance", "randomisation test", *CATE, *SITES]
)
def test_the_record_holds_everything_public(name, tmp_path):
    fit = release(name)
    html, twin = written(fit, tmp_path)
    tree = self_contained(html)
    text = shown(tree)
    assert hashlib.sha256((tmp_path / "record.json").read_bytes()).hexdigest() in text
    assert text_of(fit) in text
    for part in ("dpeffects", "opendp"):
        assert metadata.version(part) in text
    assert ".".join(map(str, sys.version_info[:3])) in text
    sources = getattr(fit, "releases", (fit,))
    printed = next(
        t for t in tables(tree) if "claim" in t[0] and "delta" in t[0] and "share" in t[0]
    )
    charges = [charge for source in sources for charge in source.charges]
    assert len(printed) == 1 + len(charges)
    for charge, row in zip(charges, printed[1:], strict=True):
        assert charge.label in row
        assert charge.mechanism in row
        title = CLAIMS[charge.claim][0] if charge.claim else "no proof here"
        assert row[-1] == f"{charge.claim}. {title}"
    bounds = next(t for t in tables(tree) if t[0][-2:] == ["bounds", "source"])
    assert len(bounds) == 1 + sum(len(source.bounds) for source in sources)
    assert twin["report"] == text_of(fit)
    assert twin["format"] == "dpeffects release record"
    assert twin["result"]["formula"] == fit.formula
    claims = {str(s.claim): CLAIMS[s.claim][0] if s.claim else "no proof here" for s in charges}
    assert twin["claims"] == claims
    assert [row["check"] for row in twin["checklist"]] == checks()


def checks():
    text = (ROOT / "docs" / "review_board.md").read_text()
    return [title.strip(".") for title in re.findall(r"^\d+\. \*\*(.+?)\*\*", text, re.M)]


def verdicts(fit, tmp_path):
    _, twin = written(fit, tmp_path, overwrite=True)
    return {row["check"]: (row["answer"], row["verdict"]) for row in twin["checklist"]}


def test_the_checklist_is_answered_for_this_release(tmp_path):
    good = verdicts(release("diff_in_means-sample-ATE"), tmp_path)
    assert list(good) == checks()
    assert good["Status"] == ("exact", "met")
    assert good["Noise"][1] == "met"
    assert good["Epsilon and delta"][0].startswith("epsilon = 2, delta = 0; 3 charges")
    assert good["Warnings"][0].startswith("ASSOCIATION, NOT AN EFFECT")  # covariates, not read
    assert verdicts(release("randomised"), tmp_path)["Warnings"][0] == "none"
    assert good["The ledger"][1] == "for the board"
    seeded = verdicts(release("seeded"), tmp_path)
    assert seeded["Status"] == ("void: seeded", "NOT MET")
    assert seeded["Noise"][1] == "NOT MET"
    assert verdicts(release("bounds of the data"), tmp_path)["Bounds"][1] == "NOT MET"
    assert verdicts(release("claimed"), tmp_path)["Status"] == ("asymptotic", "NOT MET")
    sites = verdicts(release("seeded site"), tmp_path)
    assert sites["Status"] == ("North, South: exact; West: void: seeded", "NOT MET")
    label = verdicts(release("private_psm-label-ATE"), tmp_path)
    assert label["Unit"][0].startswith("outcome")
    assert "treatment" in label["Public"][0]


def test_charges_above_the_promise_are_noticed(tmp_path):
    assert verdicts(make(guarantee=Guarantee(0.5)), tmp_path)["Epsilon and delta"][1] == "NOT MET"


def test_titles_of_claims_are_those_of_the_proofs():
    proved = {number: title for number, (title, _) in CLAIMS.items()}
    assert titles() == {0: "no proof here", **proved}


def test_a_record_is_not_overwritten_by_accident(tmp_path):
    written(make(), tmp_path)
    before = (tmp_path / "record.html").read_bytes()
    with pytest.raises(OptionError, match="overwrite=True"):
        make(n=7).report(tmp_path / "record.html")
    (tmp_path / "record.html").unlink()
    with pytest.raises(OptionError, match=r"record\.json.*overwrite=True"):
        make(n=7).report(tmp_path / "record.html")
    assert not (tmp_path / "record.html").exists()
    html, _ = written(make(n=7), tmp_path, overwrite=True)
    assert "n = 7" in html
    assert html.encode() != before


@pytest.mark.parametrize("path", ["record.pdf", "record", "record.json", "record.htm"])
def test_other_suffixes_are_refused(path, tmp_path):
    with pytest.raises(OptionError, match=r'write "record\.html"'):
        make().report(tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_other_paths_are_refused(tmp_path):
    with pytest.raises(OptionError, match="cannot be written"):
        make().report(tmp_path / "no" / "record.html")
    with pytest.raises(OptionError, match="path"):
        make().report(3)


def test_hostile_names_in_a_record(tmp_path):
    nasty = " ".join(HOSTILE)
    fit = make(formula=nasty, outcome=HOSTILE[0], options={HOSTILE[0]: HOSTILE[1]})
    html, twin = written(fit, tmp_path)
    assert spaced(nasty) in shown(self_contained(html))
    assert twin["result"]["formula"] == nasty
