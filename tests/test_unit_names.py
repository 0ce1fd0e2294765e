"""Everything that says who is protected names the unit: summaries, records, sites, ledgers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import BudgetError, ReleaseError
from dpeffects.guarantee import Guarantee, column_of, rows_of
from dpeffects.services.sites.site_documents import SiteRelease
from tests.privacy.test_budget import NAMES

BOUNDS = {"y": (0, 1), "x": (0, 1)}


def rows(name="patient_id", seed=0, people=120):
    """About three rows for each of some people."""
    rng = np.random.default_rng(seed)
    n = 3 * people
    frame = pd.DataFrame({"y": rng.random(n), "t": rng.random(n) < 0.5, "x": rng.random(n)})
    return frame.assign(
        **{name: np.concatenate([np.arange(people), rng.integers(0, people, n - people)])}
    )


def fit(name="patient_id", call=dpe.dp_ate, **more):
    given = {"epsilon": 1.0, "bounds": BOUNDS, "seed": 1, "unit": name, **more}
    return call("y ~ t | x", rows(name), **given)


def flat(text):
    return " ".join(str(text).split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("call", [dpe.dp_ate, dpe.dp_att, dpe.dp_cate, dpe.dp_balance])
def test_results_name_the_unit(call, tmp_path):
    found = fit(call=call)
    assert found.n == 120
    assert found.guarantee.unit == "all rows of one patient_id"
    text = flat(found.summary())
    assert "120 values of patient_id, each with all of its rows" in text
    assert "for everything about one patient_id, in however many rows; neighbours" in text
    assert "differ in all rows of one patient_id" in text
    assert "whole record" not in text
    said = flat(found.report())
    assert "n = 120 values of patient_id" in said
    assert "neighbouring data sets replace all rows of one patient_id" in said
    assert "one record" not in said
    if call is not dpe.dp_balance:
        assert found.glance()["unit"].tolist() == ["all rows of one patient_id"]
    again = type(found).from_json(found.to_json())
    assert again.guarantee == found.guarantee
    assert str(again.summary()) == str(found.summary())
    page = found.report(tmp_path / "record.html")
    checks = {x["check"]: x for x in json.loads(page.with_suffix(".json").read_text())["checklist"]}
    assert "everything about one patient_id" in checks["Unit"]["answer"]
    assert "one value of patient_id" in checks["One person, one unit"]["answer"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES[3:])
def test_any_name_of_a_column_is_fit_to_print(name, tmp_path):
    try:
        rows(name)
    except UnicodeEncodeError:
        pytest.skip("pandas 3 has no such names of columns")
    found = fit(name)
    assert found.guarantee.unit == rows_of(name)
    summary = found.summary()
    pages = [
        str(summary),
        summary.as_html(standalone=True),
        summary.as_latex(),
        summary.as_markdown(),
    ]
    for page in (*pages, str(found.report())):
        assert "<b>" not in page or page is pages[0] or page == str(found.report())
        assert "\u202e" not in page
        page.encode()
    assert type(found).from_json(found.to_json()).guarantee == found.guarantee
    assert found.report(tmp_path / "record.html").exists()


def test_what_was_saved_before_loads_as_before():
    found = dpe.dp_ate("y ~ t", rows(), epsilon=1.0, bounds=BOUNDS, seed=1)
    assert found.guarantee.unit == "record"
    assert "n = 360 records" in flat(found.report())
    old = json.loads(found.to_json())
    assert old["guarantee"]["unit"] == "record"
    assert type(found).from_json(json.dumps(old)).guarantee == found.guarantee


def test_a_cluster_is_not_the_unit():
    found = fit("village", unit=None, cluster="village")
    assert found.guarantee.unit == "record"
    assert found.n == 360


def releases(units):
    """Releases of two sites, each with its own people."""
    found = []
    for k, unit in enumerate(units):
        given = {"epsilon": 1.0, "bounds": BOUNDS, "unit": unit, "site": f"site {k}"}
        data = rows(unit or "patient_id", seed=k)
        found.append(dpe.site_release("y ~ t", data, method="diff_in_means", **given))
    return found


def test_sites_name_the_unit(tmp_path):
    sent = releases(["patient_id", "patient_id"])
    for release in sent:
        path = tmp_path / f"{release.site}.json"
        release.save(path)
        assert SiteRelease.read(path) == release
    both = dpe.combine(sent)
    assert both.n == 240
    assert "all rows of one patient_id" in flat(both.summary())
    assert "240 values of patient_id" in flat(both.report())
    assert both.glance()["unit"].tolist() == ["all rows of one patient_id"]
    again = type(both).from_json(both.to_json())
    assert str(again.summary()) == str(both.summary())


def test_sites_that_protect_different_things_are_not_combined():
    with pytest.raises(
        ReleaseError, match=r"what they protect.*all rows of one patient_id.*record"
    ):
        dpe.combine(releases(["patient_id", None]))
    with pytest.raises(ReleaseError, match="what they protect"):
        dpe.combine(releases(["patient_id", "person"]))


@pytest.mark.parametrize(
    "unit", ["all rows of one ", "all rows of one a\nb", "rows", "x" * 99, 3, None]
)
def test_a_release_with_another_unit_is_refused(unit):
    document = json.loads(releases(["patient_id"])[0].to_json())
    document["guarantee"]["unit"] = unit
    with pytest.raises(ReleaseError, match="unit"):
        SiteRelease.read(document)


def test_comparisons_say_that_units_differ():
    both = dpe.compare(fit(), fit(unit=None))
    note = "everything about one patient_id, in however many rows; everything in one record"
    assert f"Units of protection differ ({note})" in flat(both.summary())


@pytest.mark.parametrize("durable", [False, True])
def test_calls_on_one_ledger_have_one_unit(durable, tmp_path):
    ledger = dpe.Ledger(3.0)
    if durable:
        ledger = dpe.create_ledger(tmp_path / "study.db", "people", epsilon=3.0)
    fit(ledger=ledger)
    for other in ({"unit": None}, {"unit": None, "level": "label", "method": "private_psm"}):
        with pytest.raises(BudgetError, match="promise for neither"):
            fit(ledger=ledger, **other)
    with pytest.raises(BudgetError, match="k rows at k times its epsilon"):
        dpe.dp_balance("y ~ t | x", rows(), epsilon=1.0, bounds=BOUNDS, seed=1, ledger=ledger)
    assert ledger.remaining == (2.0, 0.0)
    fit(ledger=ledger, call=dpe.dp_cate, max_rows=3)
    assert ledger.remaining == (1.0, 0.0)


def test_a_ledger_for_people(tmp_path):
    ledger = dpe.create_ledger(tmp_path / "study.db", "people", epsilon=3.0, unit="patient_id")
    with pytest.raises(BudgetError, match="k rows at k times its epsilon"):
        fit(unit=None, ledger=tmp_path / "study.db")
    fit(ledger=tmp_path / "study.db")
    assert ledger.remaining == (2.0, 0.0)


def test_words_of_a_guarantee():
    words = Guarantee(1.0, unit=rows_of("Patient no")).sentence()
    assert 'for everything about one "Patient no", in however many rows' in words
    assert column_of(rows_of("Patient no")) == '"Patient no"'
