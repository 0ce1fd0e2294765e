"""Results side by side."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.summary import Table
from tests.cases import each
from tests.reading import from_markdown, self_contained, shown, squeezed, tables
from tests.releases import NAMES, everything, frame, half_unit, release
from tests.test_results import NO_VARIANCE, make

TIDY = ["term", "estimate", "std_error", "statistic", "p_value", "outcome", "estimand"]
TIDY += ["method", "guarantee"]
GLANCE = ["n", "method", "level", "epsilon", "delta", "guarantee", "warnings", "unit"]


def cells(comparison):
    """Rows of the table by label and line."""
    (table,) = [b for b in comparison.summary().blocks if isinstance(b, Table)]
    found, label = {}, ""
    for head, *row in table.rows:
        line = 0 if head else 1
        label = head or label
        found[label, line] = row
    return found


def test_estimates_stand_above_their_standard_errors():
    found = cells(dpe.compare(make(), make(NO_VARIANCE)))
    fit = make()
    off = half_unit(fit.std_error)
    assert float(found["treat", 0][0]) == pytest.approx(fit.estimate, abs=off)
    assert found["treat", 1][0].startswith("(")
    assert float(found["treat", 1][0].strip("()")) == pytest.approx(fit.std_error, abs=off)
    assert found["treat", 1][1] == "(n/a)"
    assert found["n", 0] == ["1000", "1000"]
    assert found["epsilon", 0] == ["1", "1"]
    assert found["noise share", 0][0] == f"{100 * fit.noise_share:.1f} %"
    assert found["noise share", 0][1] == "n/a"


def test_intervals_instead():
    found = cells(dpe.compare(make(), stat="conf_int", conf_level=0.9))
    low, high = (float(x) for x in found["treat", 1][0].strip("[]").split(", "))
    off = half_unit(make().std_error)
    assert (low, high) == pytest.approx(tuple(make().conf_int(0.9)), abs=off)


def test_different_outcomes_estimands_and_treatments_are_shown():
    other = make(outcome="re75", estimand="ATT", treatment="offer")
    found = cells(dpe.compare(make(), other, names=["a", "b"]))
    assert found["outcome", 0] == ["re78", "re75"]
    assert found["estimand", 0] == ["ATE", "ATT"]
    assert found["treat", 0][1] == found["offer", 0][0] == ""


def test_conditional_effects_have_a_row_each():
    groups, points = release("groups"), release("points")
    found = cells(dpe.compare(groups, points))
    for row in groups.tidy().to_dict("records"):
        shown = found[row["term"], 0][0]
        assert (shown == "suppressed") == (row["noise_ratio"] > 1.0)
        if shown != "suppressed":
            off = half_unit(row["std_error"])
            assert float(shown) == pytest.approx(row["estimate"], abs=off)
        assert found[row["term"], 0][1] == ""
    assert "without sampling error: (2)" in " ".join(str(dpe.compare(groups, points)).split())


def test_points_with_one_name_keep_their_rows():
    call = {"epsilon": 2, "delta": 1e-5, "bounds": {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1)}}
    at = {"x1": [0.2, 0.2], "x2": [0.1, 0.1]}
    fit = dpe.dp_cate("y ~ t | x1 + x2", frame(), release="points", at=at, **call)
    assert {label for label, _ in cells(dpe.compare(fit)) if "0.2" in label} == {
        "x1 0.2, x2 0.1",
        "x1 0.2, x2 0.1 (2)",
    }


@pytest.mark.long
def test_everything_side_by_side_in_all_formats():
    fits = everything()
    made = dpe.compare(*fits.values(), names=list(fits))
    lines = made.as_text().splitlines()
    assert all(len(line) <= 80 for line in lines)
    heads = " ".join(lines)
    assert all(name.split("-")[0].split()[0] in heads for name in fits)
    assert self_contained(made._repr_html_()) is not None
    (html,) = tables(self_contained(made.as_html()))
    (markdown,) = tables(from_markdown(made.as_markdown()))
    assert html == markdown
    assert html[0][1:] == list(fits)
    for seen in (squeezed(shown(self_contained(made.as_html()))), squeezed(made.as_text())):
        assert "seeded:NOTPRIVATE:aseedwasset" in seen
        assert "claimed:ASYMPTOTICCLAIM" in seen
    assert made.as_latex().count(r"\begin{tabular}") > 3  # panels
    assert r"\fbox" in made.as_latex()


def test_names_in_tables_are_escaped():
    made = dpe.compare(make(), make(), names=["<b>|", "a_$%" * 30])
    (html,) = tables(self_contained(made.as_html()))
    (markdown,) = tables(from_markdown(made.as_markdown()))
    assert html[0] == markdown[0] == ["", "<b>|", "a_$%" * 30]
    assert all(len(line) <= 80 for line in made.as_text().splitlines())


@each("name", NAMES)
def test_frames_of_all_kinds_bind_by_rows(name):
    tidy, glance = release(name).tidy(), release(name).glance()
    assert list(tidy)[: len(TIDY)] == TIDY
    assert list(glance)[: len(GLANCE)] == GLANCE
    assert len(glance) == 1
    kinds = tidy.dtypes[["estimate", "std_error", "p_value", "conf_low", "conf_high"]]
    assert kinds.eq("float64").all()


@pytest.mark.parametrize("name", NAMES)
def test_what_pandas_cuts_out_is_neither_estimate_nor_interval(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pd.option_context("display.max_columns", 0, "display.width", 80):
        header = repr(release(name).tidy()).splitlines()[0].split()
    assert header[:2] == ["term", "estimate"]
    assert header[-2:] == ["conf_low", "conf_high"]


def test_bound_frames_have_the_names_of_the_fits():
    fits = everything()
    made = dpe.compare(*fits.values(), names=list(fits))
    tidy, glance = made.tidy(), made.glance()
    assert tidy.columns[0] == glance.columns[0] == "fit"
    assert glance["fit"].tolist() == list(fits)
    want = pd.concat([fit.tidy() for fit in fits.values()], ignore_index=True)
    pd.testing.assert_frame_equal(tidy[TIDY], want[TIDY])
    assert set(tidy.loc[tidy["fit"] == "points", "covers"]) == {"noise"}
    assert set(tidy.loc[tidy["fit"] == "seeded", "covers"]) == {"effect"}
    assert "fit" not in fits["seeded"].tidy()  # a fit's own frame is not touched


def test_a_combination_of_sites_shares_its_columns():
    fit = release("sites")
    row = fit.glance().iloc[0]
    assert row["epsilon"] == 2.0  # the largest of the sites
    noise = sum(
        w**2 * r.released.noise_variance for w, r in zip(fit.weights, fit.releases, strict=True)
    )
    assert row["noise_variance"] == pytest.approx(noise)
    assert row["noise_variance"] + row["sampling_variance"] == pytest.approx(fit.std_error**2)
    assert math.isnan(release("blind site").glance().iloc[0]["noise_share"])


def test_units_that_do_not_compare_are_said():
    fits = [release(f"private_psm-{level}-ATE") for level in ("label", "sample")]
    text = str(dpe.compare(*fits))
    assert "epsilons are not comparable" in " ".join(text.split())


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((), {}, "at least one"),
        (([1],), {}, r"compare\(\*fits\)"),
        (("fit",), {}, "not str"),
        ((make(),), {"stat": "t"}, "std_error"),
        ((make(),), {"names": ["a", "b"]}, "1 different names"),
        ((make(), make()), {"names": ["a", "a"]}, "different"),
        ((make(),), {"names": "a"}, "list of texts"),
        ((make(),), {"names": [1]}, "list of texts"),
        ((make(),), {"conf_level": 95}, "conf_level"),
    ],
)
def test_bad_arguments(args, options, words):
    with pytest.raises(OptionError, match=words):
        dpe.compare(*args, **options)


def test_what_is_no_effect_is_refused():
    with pytest.raises(OptionError, match="Balance has none"):
        dpe.compare(release("balance"))


def test_an_estimate_that_is_too_imprecise_is_not_shown_beside_others(tmp_path):
    docx = pytest.importorskip("docx")
    fit = make()
    noisy = replace(fit, released=replace(fit.released, laplace=(1e6,), possible=(-1.0, 1.0)))
    assert "suppressed" in str(noisy.summary("short"))
    both = dpe.compare(fit, noisy, names=["known", "noisy"])
    assert cells(both)["treat", 0][1] == "suppressed"
    (lines,) = [b for b in both.table().blocks if isinstance(b, Table)]
    assert [row[1] == "suppressed" for row in lines.rows] == [False, True]
    document = docx.Document(both.as_docx(tmp_path / "both.docx"))
    found = [[cell.text for cell in row.cells] for row in document.tables[0].rows]
    assert ["treat", cells(both)["treat", 0][0], "suppressed"] in found
