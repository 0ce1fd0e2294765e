"""Results: what they hold, how they print, what they export."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpeffects.errors import DataError, OptionError
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.inference.intervals import p_value
from dpeffects.privacy.charges import Charge
from dpeffects.report.blocks import formula_text
from dpeffects.results import Result
from dpeffects.results.number_format import number, numbers
from dpeffects.summary import Pairs, Summary, Table
from tests.cases import each
from tests.kinds_of_summaries import made
from tests.releases import half_unit

ESTIMATE = Estimate(
    1794.3123,
    SamplingVariance(374911.29, 0.0, 1e9),
    laplace=(240.0, 210.0),
    notes=("Outcomes are clipped.",),
    details={"match limit": 5},
)
SPENDS = (
    Charge(
        "propensity score", "propensity", 0.4, 0.0, "objective perturbation", (0.02,), (0.04,), 3
    ),
    Charge(
        "matched outcomes", "effect", 0.5, 0.0, "discrete Laplace", (1.2, 3.4), (240.0, 210.0), 5
    ),
    Charge("arm sizes", "arms", 0.1, 0.0, "randomised response", (), (), 6),
)


def make(estimate=ESTIMATE, **changes):
    fields = {
        "estimand": "ATE",
        "method": "private_psm",
        "method_title": "propensity-score matching",
        "formula": "re78 ~ treat | age + re74",
        "outcome": "re78",
        "treatment": "treat",
        "n": 1000,
        "guarantee": Guarantee(1.0),
        "charges": SPENDS,
        "epsilon_requested": 1.0,
        "bounds": (
            ("re78", "[0, 40000]", "declared"),
            ("age", "[16, 55]", "declared"),
            ("re74", "[0, 35040]", "private"),
        ),
        "noise_source": "OpenDP discrete Laplace, system entropy",
        "citation": "A. Author (2024).",
        "options": {"caliper": 0.05},
    }
    return Result.from_estimate(estimate, **(fields | changes))


NO_VARIANCE = Estimate(2.0, Unavailable("no variance share"), laplace=(1.0,))
UNDEFINED = Estimate(math.nan, SamplingVariance(math.inf, 1.0, math.inf), laplace=(1.0,))


def flat(text):
    """The text with its line breaks and indents removed."""
    text = text.summary() if isinstance(text, Result) else text
    return " ".join(str(text).split())


# --- values --------------------------------------------------------------------------------------


def test_numbers_follow_from_the_released_values():
    fit = make()
    noise = 2 * 240.0**2 + 2 * 210.0**2
    assert fit.estimate == 1794.3123
    assert fit.noise_variance == pytest.approx(noise)
    assert fit.std_error == pytest.approx(math.sqrt(374911.29 + noise))
    assert fit.noise_share == pytest.approx(noise / (374911.29 + noise))
    low, high = fit.conf_int(0.9)
    assert (low + high) / 2 == pytest.approx(1794.3123)
    assert p_value(fit.released, null=high) == pytest.approx(0.1, abs=1e-8)


def test_notes_and_details_are_added_to_those_of_the_method():
    fit = make(notes=("One more.",), details={"pairs": 7})
    assert fit.notes == ("Outcomes are clipped.", "One more.")
    assert fit.details == {"match limit": 5, "pairs": 7}


def test_result_is_frozen_and_pickles():
    fit = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        fit.n = 3
    assert pickle.loads(pickle.dumps(fit)) == fit


def test_unknown_field_is_refused():
    with pytest.raises(TypeError, match="colour"):
        make(colour="red")


# --- printing ------------------------------------------------------------------------------------

LONG = "income_" * 20
NASTY = {
    "plain": make(),
    "no variance": make(NO_VARIANCE),
    "undefined": make(UNDEFINED),
    "negative variance": make(Estimate(1e-9, SamplingVariance(-1.0, 1e-3, 9.0), (1e-12,))),
    "huge": make(Estimate(-1.23456789e300, SamplingVariance(1e301, 1e300, 1e302), (1e150,))),
    "no noise": make(Estimate(0.0, SamplingVariance(0.0, 0.0, 0.0))),
    "long formula": make(formula="y ~ t | " + " + ".join(f"covariate_{i}" for i in range(80))),
    "formula without spaces": make(formula="y~t|" + "+".join(f"x{i}" for i in range(200))),
    "long names": make(outcome=LONG, treatment=LONG, method=LONG, method_title=LONG),
    "many bounds": make(
        bounds=tuple((f"x{i}", f"[{-(10.0**i)}, {10.0**i}]", "private") for i in range(40))
        + tuple((f"z{i}", "N, S, E, W, " * 12, "data") for i in range(40))
    ),
    "long spends": make(
        guarantee=Guarantee(1.0, 1e-6, public=("n", "X", "T"), void=("seeded", "n" * 90)),
        charges=tuple(
            Charge(LONG[: 5 * i], "s", 0.1 / 3, 1e-7, LONG, (1e-300,) * i, (1 / 3e7,) * i, 100)
            for i in range(1, 12)
        ),
    ),
    "long notes": make(
        notes=("word " * 200, "x" * 300, ""),
        details={LONG: 1.0, "list": np.arange(60.0), "map": {"a": 1, "b": True}, "none": None},
        citation="cite " * 60,
    ),
    "no spends": make(charges=(), bounds=(), citation="", noise_source="", options={}),
}


@each("name", NASTY)
@each("width", [80, 100])
def test_every_line_fits_and_says_what_it_must(name, width):
    fit = NASTY[name]
    lines = fit.summary().as_text(width).splitlines()
    assert max(map(len, lines)) == width
    assert all(line == line.rstrip() for line in lines)
    text = flat("\n".join(lines))
    squeezed = text.replace(" ", "")
    assert fit.guarantee.sentence().replace(" ", "") in squeezed
    assert formula_text(fit.formula).replace(" ", "") in squeezed
    assert f"Records {fit.n:,} " in text


def test_every_spend_stands_in_the_summary():
    fit = make()
    text = str(fit.summary())
    for charge in fit.charges:
        assert charge.label.split()[0] in text
        assert f"{charge.epsilon:g}" in text
    assert "1.2, 3.4" in text
    assert "240, 210" in text
    total = [line for line in text.splitlines() if line.startswith("total")][-1]
    assert total.split() == ["total", "of", "1", "requested", "1.0"]
    assert "delta" not in text


@given(
    labels=st.lists(st.text(st.characters(codec="ascii"), max_size=60), min_size=1, max_size=5),
    value=st.floats(allow_nan=True, allow_infinity=True),
    formula=st.text(st.characters(codec="ascii"), max_size=300),
)
@settings(max_examples=40, deadline=None)
@example(labels=["@\x1b[", "000000000"], value=0.0, formula="")
def test_no_input_breaks_a_line(labels, value, formula):
    charges = tuple(
        Charge(s, s[::-1], 0.1, value, s * 2, (value,) * 3, (value,), 1) for s in labels
    )
    fit = make(Estimate(value, SamplingVariance(value, 1.0, 9.0)), charges=charges, formula=formula)
    assert max(map(len, str(fit.summary()).splitlines())) == 80
    json.loads(fit.to_json())


def test_effect_row_holds_the_numbers():
    fit = make()
    table = next(b for b in fit.summary(conf_level=0.9).blocks if isinstance(b, Table))
    assert table.columns[3:5] == ("5 %", "95 %")
    cells = [float(cell) for cell in table.rows[0][1:]]
    want = [fit.estimate, fit.std_error, *fit.conf_int(0.9)]
    assert cells[:4] == pytest.approx(want, abs=half_unit(fit.std_error))
    assert cells[4] == pytest.approx(fit.p_value, abs=5e-5)
    assert len({len(cell.partition(".")[2]) for cell in table.rows[0][1:5]}) == 1


def test_error_parts_add_up():
    table = [b for b in make().summary().blocks if isinstance(b, Table)][1]
    sds = [float(row[1]) for row in table.rows]
    off = 4.0 * half_unit(sds[2])
    assert math.hypot(sds[0], sds[1]) == pytest.approx(sds[2], abs=off)
    shares = [float(row[2].removesuffix(" %")) for row in table.rows]
    assert shares[0] + shares[1] == pytest.approx(100.0)
    assert shares[1] == pytest.approx(100 * make().noise_share, abs=0.05)


@pytest.mark.parametrize(
    ("guarantee", "starred_warnings"),
    [
        (Guarantee(1.0), None),
        (Guarantee(1.0, void=("seeded",)), "*** NOT PRIVATE: a seed was set ***"),
        (
            Guarantee(1.0, kind="asymptotic"),
            "*** ASYMPTOTIC CLAIM, NOT A PROVEN GUARANTEE AT THIS N ***",
        ),
    ],
)
def test_a_guarantee_that_does_not_hold_is_loud(guarantee, starred_warnings):
    fit = make(guarantee=guarantee)
    lines = str(fit.summary()).splitlines()
    assert lines[1] == "=" * 80
    assert (lines[2] == starred_warnings) if starred_warnings else "***" not in str(fit.summary())
    assert ("NOT PRIVATE" in repr(fit)) == bool(guarantee.void)
    assert guarantee.status in repr(fit)
    assert "\n" not in repr(fit)


def test_bounds_are_counted_and_found_ones_named():
    bounds = (
        ("re78", "[0, 1]", "declared"),
        ("a", "[0, 1]", "declared"),
        ("b", "[0, 2]", "declared"),
        ("c", "[0, 3.5]", "private"),
        ("d", "N, S", "data"),
    )
    text = flat(make(bounds=bounds))
    assert "outcome [0, 1] declared; 2 covariates declared;" in text
    assert "1 covariate found privately: c [0, 3.5]" in text
    assert "1 covariate READ FROM THE DATA (not private): d N, S" in text


def test_a_range_is_not_split_over_two_lines():
    bounds = tuple((f"x{i}", "[0, 100]", "private") for i in range(40))
    lines = str(make(bounds=bounds).summary()).splitlines()
    assert sum(line.count("[0, 100]") for line in lines) == 40


def test_delta_has_a_column_only_when_spent():
    charges = (dataclasses.replace(SPENDS[0], delta=1e-6), SPENDS[1])
    assert "delta" in str(make(charges=charges).summary())


def test_missing_and_negative_variance_are_explained():
    assert "not available: no variance share" in flat(make(NO_VARIANCE))
    assert "Without privacy noise" in flat(make(NO_VARIANCE))
    negative = make(Estimate(1.0, SamplingVariance(-0.25, 1.0, 9.0), (0.1,)))
    assert "mostly privacy noise: -0.25, with noise of scale 1" in flat(negative)
    assert negative.std_error > 0.1 * 2**0.5
    assert "not a finite number" in flat(make(UNDEFINED))


def test_summary_is_plain_data():
    summary = make().summary()
    assert isinstance(summary, Summary)
    assert summary == pickle.loads(pickle.dumps(summary))
    assert isinstance(summary.blocks[0], Pairs)
    assert str(make().summary()) == str(summary) == summary.as_text()
    assert str(make()) == str(make().summary("short"))


@pytest.mark.parametrize("width", [79, 0, "80", None, True])
def test_too_narrow(width):
    with pytest.raises(OptionError, match="width"):
        make().summary().as_text(width)


def test_bad_level():
    with pytest.raises(OptionError, match="level"):
        make().summary(conf_level=95)


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1000.0, "1000"),
        (123456.789, "123457"),
        (1234567.0, "1234567"),
        (9999999.6, "10000000"),
        (0.999999999, "1"),
        (0.00012345678, "0.000123457"),
        (1.5e-7, "1.5e-07"),
        (-2.0e15, "-2e+15"),
        (np.int64(12), "12"),
        (np.float32(0.5), "0.5"),
        (10**30, "1e+30"),
        (False, "no"),
        ("text", "text"),
        (math.inf, "inf"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_keeps_six_digits(value):
    assert float(number(value)) == pytest.approx(value, rel=1e-5, abs=0)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6))
def test_numbers_keep_three_digits(values):
    for text, value in zip(numbers(values), values, strict=True):
        assert float(text) == pytest.approx(value, rel=1e-3, abs=0)


# --- export --------------------------------------------------------------------------------------


def test_tidy_binds_by_rows():
    both = pd.concat([make().tidy(), make(NO_VARIANCE, method="other").tidy()], ignore_index=True)
    assert both.columns.tolist() == [
        "term",
        "estimate",
        "std_error",
        "statistic",
        "p_value",
        "outcome",
        "estimand",
        "method",
        "guarantee",
        "conf_low",
        "conf_high",
    ]
    assert both["method"].tolist() == ["private_psm", "other"]
    assert both.dtypes[["estimate", "std_error", "conf_low", "p_value"]].eq("float64").all()
    assert both.loc[0, "statistic"] == pytest.approx(make().estimate / make().std_error)
    assert both.loc[1, ["std_error", "conf_low", "conf_high", "p_value"]].isna().all()


def test_tidy_uses_the_level():
    frame = make().tidy(conf_level=0.5)
    assert tuple(frame.loc[0, ["conf_low", "conf_high"]]) == pytest.approx(
        tuple(make().conf_int(0.5))
    )


def test_glance():
    row = make(guarantee=Guarantee(0.5, 1e-6, "outcome", void=("seeded",))).glance()
    assert row.shape[0] == 1
    assert row.loc[0, ["n", "epsilon", "delta"]].tolist() == [1000, 0.5, 1e-6]
    assert row.loc[0, "guarantee"] == "void: seeded"
    assert row.loc[0, "unit"] == "outcome"
    assert row.loc[0, "noise_share"] == pytest.approx(make().noise_share)
    assert math.isnan(make(NO_VARIANCE).glance().loc[0, "noise_share"])


def test_spends_frame():
    frame = make().charges_frame()
    assert frame["label"].tolist() == [charge.label for charge in SPENDS]
    assert frame["epsilon"].sum() == pytest.approx(1.0)
    assert make(charges=()).charges_frame().columns.tolist() == frame.columns.tolist()


def refuse(token):
    raise AssertionError(f"{token} is not JSON")


@pytest.mark.parametrize("name", NASTY)
def test_json_is_strict_and_round_trips(name):
    fit = NASTY[name]
    read = json.loads(fit.to_json(), parse_constant=refuse)
    assert read == json.loads(json.dumps(fit.to_dict(), allow_nan=False))
    assert read["guarantee"]["status"] == fit.guarantee.status
    assert read["guarantee"]["sentence"] == fit.guarantee.sentence()
    assert [charge["label"] for charge in read["charges"]] == [s.label for s in fit.charges]
    assert {f.name for f in dataclasses.fields(fit)} <= set(read)


@pytest.mark.parametrize("name", NASTY)
def test_results_are_read_from_their_json(name):
    fit = NASTY[name]
    again = Result.from_json(fit.to_json())
    assert json.loads(again.to_json()) == json.loads(fit.to_json())
    assert str(again.summary()) == str(fit.summary())
    assert str(again.report()) == str(fit.report())


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"estimate": 1}', '{"released": 3}'])
def test_what_is_no_json_of_a_result(text):
    with pytest.raises(DataError):
        Result.from_json(text)


def test_json_values():
    read = json.loads(make(options={"k": np.int64(3), "grid": np.array([1.0, math.inf])}).to_json())
    low, high = make().conf_int()
    assert read["conf_int"] == {"lower": low, "upper": high, "conf_level": 0.95}
    assert read["estimate"] == 1794.3123
    assert read["released"]["laplace"] == [240.0, 210.0]
    assert read["options"]["k"] == 3
    assert read["options"]["grid"][1]["value"] is None
    assert "inf" in read["options"]["grid"][1]["unavailable"]
    assert read["bounds"][0] == {"name": "re78", "range": "[0, 40000]", "source": "declared"}


def test_json_says_what_is_unavailable():
    read = json.loads(make(NO_VARIANCE).to_json())
    for name in ("std_error", "conf_int", "p_value", "sampling_variance"):
        assert read[name] == {"unavailable": "no variance share"}


def test_unavailable_interval_is_an_object_with_its_reason():
    missing = make(NO_VARIANCE).conf_int()
    assert isinstance(missing, Unavailable)
    assert str(missing) == "not available: no variance share"
    assert repr(make(NO_VARIANCE)) == (
        "<dpeffects ATE 2 (se not available), private_psm, epsilon=1, exact>"
    )


SINGLED_OUT = {
    "study": lambda fit: fit.effect_on(fit.labels[0]),
    "subsets": lambda fit: fit.subset(fit.labels[0]),
    "arms": lambda fit: fit.contrast(fit.labels[0]),
    "event study": lambda fit: fit.period(fit.labels[-1]),
}


@pytest.mark.parametrize("kind", SINGLED_OUT)
def test_one_of_several_effects_says_that_it_is_not_adjusted_for_multiplicity(kind):
    several = made(kind)
    one, count = SINGLED_OUT[kind](several), len(several.labels)
    expected = f"not adjusted for (one of {count} effects)"
    for form in ("short", "full"):
        assert f"Multiplicity {expected}" in " ".join(str(one.summary(form)).split())
    assert f"multiplicity {expected}" in " ".join(str(one.table()).split())
    assert f"Multiplicity is {expected}." in " ".join(str(one.explain()).split())
    assert "Multiplicity" not in str(several.summary())
    if kind == "event study":  # the mean over all periods is one effect
        assert "Multiplicity" not in str(several.period())
