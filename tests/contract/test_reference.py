"""`reference` is the same estimate without noise: for every call, every method and every argument.

Two halves. The private call at the largest epsilon agrees with it, or both refuse with the same
words. And for plain estimators it is what statsmodels, pandas or a few lines by hand give on rows
that were clipped, weighted and chosen by hand, so that the first half is no tautology.
"""

from __future__ import annotations

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpeffects as dpe
from dpeffects.errors import DPEffectsError, OptionError
from dpeffects.estimators import conditional_methods, registry, table_methods
from dpeffects.guarantee import KINDS
from dpeffects.results.export import or_nan
from tests.plain import plain

N = 400
BOUNDS = {
    **{"y": (0, 1), "z": (0, 1), "x": (0, 1), "w": (0, 2), "g": ["a", "b", "c"]},
    **{"time": (0, 9), "grade": [1, 2, 3], "dose": ["no", "low", "high"], "events": (0, 4)},
}
NARROW = {**BOUNDS, "y": (0.3, 0.6), "x": (0.2, 0.8), "time": (0, 4), "events": (0, 2)}
"""Ranges that clip a good part of the values."""
LARGE = 1e9
NEAR = {"dp_qte": 0.3, "private_psm": 0.5, "regression": 0.2, "auto": 0.2, "dp_did": 0.3}
"""Parts of a standard error that are near, 0.1 for others: a record more or less moves a quantile
by a bin, the order of the records decides between neighbours at the same distance, and the first
stair of a ladder is a sixteenth of what a record could do, whatever epsilon is. Who has an
outcome is certain along a covariate here, so that weights are what a penalty makes of it."""


def frame(n=N, seed=2):
    rng = np.random.default_rng(seed)
    x, g = rng.random(n), rng.choice(list("abc"), n)
    t = (rng.random(n) < 1 / (1 + np.exp(1.2 - 2 * x - 0.4 * (g == "a")))).astype(int)
    y = np.clip(0.2 + 0.2 * t + 0.3 * x + 0.1 * (g == "b") + 0.15 * rng.normal(size=n), 0, 1)
    data = pd.DataFrame(
        {"x": x, "g": g, "t": t, "y": y, "z": np.clip(y - 0.1 * rng.random(n), 0, 1)}
    )
    data["d"] = np.where(rng.random(n) < 0.8, t, 1 - t)
    data["w"] = rng.uniform(0.1, 2, n)
    data["time"], data["died"] = rng.exponential(3, n) * (1 + t), rng.random(n) < 0.7
    data["events"] = rng.poisson(1 + t)
    data["grade"] = 1 + np.digitize(y, [0.4, 0.6])
    data["dose"] = np.array(["no", "low", "high"])[np.where(t == 0, 0, rng.integers(1, 3, n))]
    data["person"], data["village"] = np.arange(n) * 2 // 3, rng.integers(0, 40, n)
    return data


DATA = frame()
HOLES = DATA.assign(y=DATA["y"].mask(DATA["x"] < 0.1), z=DATA["z"].mask(DATA["x"] < 0.1)).astype(
    {"y": float}
)
ASKED = {  # formula and arguments of calls that are not those of averages
    "dp_balance": ("y ~ t | x + g", {}),
    "dp_cate": ("y ~ t | x + g", {"release": "groups", "by": "g"}),
    "dp_did": ("y ~ t | x", {"before": "z"}),
    "dp_late": ("y ~ d | x", {"instrument": "t"}),
    "dp_moments": ("y + z ~ t | x + g", {}),
    "dp_ordinal": ("grade ~ t | x", {}),
    "dp_qte": ("y ~ t | x", {"quantiles": (0.31, 0.52)}),
    "dp_randomisation_test": ("I(y > 0.5) ~ t", {"treated_share": 0.5}),
    "dp_rate": ("events ~ t | x", {"offset": "time"}),
    "dp_study": ("y + z ~ t | x", {"subgroups": "g"}),
    "dp_survival": ("Surv(time, died) ~ t | x", {"horizon": 8, "bins": 6}),
}
AVERAGES = ("dp_ate", "dp_att", "dp_atc")
CALLS = [
    name
    for name in dpe.__all__
    if name.startswith("dp_") and "data" in inspect.signature(getattr(dpe, name)).parameters
]
OPTIONS = {
    "plain": {},
    "bounds": {"bounds": NARROW},
    "complete": {"missing": "complete", "data": HOLES},
    "weight": {"missing": "weight", "data": HOLES},
    "weights": {"weights": "w"},
    "subset": {"subset": "x > 0.3 & g != 'c'"},
    "unit": {"unit": "person"},
    "cluster": {"cluster": "village"},
    "arms": {"treatment": "dose"},
    "ATT": {"estimand": "ATT"},
    "ATC": {"estimand": "ATC"},
    "design": {"design": "randomised"},
    "label": {"level": "label"},
}


def cases():
    kinds = [("dp_ate", registry()), ("dp_cate", conditional_methods())]
    for call, methods in kinds:
        for method in methods.values():
            if method.guarantee != "library":
                yield from ((call, method.name, option) for option in OPTIONS)
    for call in CALLS:
        if call not in (*AVERAGES, "dp_cate", "dp_multisite"):
            yield from ((call, None, option) for option in OPTIONS)


CASES = list(cases())


def asked(call, method, option):
    """Formula, data and arguments of a call."""
    formula, more = ASKED.get(call, ("y ~ t | x + g", {}))
    given = {"bounds": BOUNDS, **more, **OPTIONS[option]}
    if "treatment" in given:
        formula = formula.replace("~ t", f"~ {given.pop('treatment')}")
    spec = (conditional_methods() if call == "dp_cate" else registry()).get(method)
    if spec is not None:
        given["method"] = method
        if spec.needs_strata:
            formula = formula.replace("| x + g", "| g + cut(x, [0, 0.5, 1])")
        if call == "dp_cate" and method in ("sample_aggregate", "k_anonymous", "dp_ebm"):
            del given["by"]
            given |= {"release": "points", "at": {"x": [0.2, 0.7], "g": ["a", "b"]}}
    return formula, given.pop("data", DATA), given, spec


def private(call, formula, data, given, spec, seed=1):
    if spec is not None:
        given = dict(given)
        given |= {"delta": 1e-6} if spec.needs_delta else {}
        if accept := KINDS[spec.guarantee].accept:
            given[accept] = True
    if call == "dp_ate" and "estimand" in given:
        call = f"dp_{given['estimand'].lower()}"
        given = {k: x for k, x in given.items() if k != "estimand"}
    return getattr(dpe, call)(formula, data, epsilon=LARGE, seed=seed, **given)


def attempt(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(), ""
        except DPEffectsError as refusal:
            return None, str(refusal)


def numbers(fit):
    """Estimates and standard errors, by whatever names a result has them."""
    if callable(getattr(fit, "terms", None)):  # without their intervals, which take longer
        pairs = [(x.estimate, or_nan(x.std_error)) for x in fit.terms()]
        return np.array(pairs, float).T
    table = fit.tidy()
    name = next(x for x in ("estimate", "mean", "smd") if x in table)
    errors = table.get("std_error", pd.Series(np.full(len(table), np.nan)))
    return table[name].to_numpy(float), errors.to_numpy(float)


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("call", "method", "option"), CASES, ids=lambda x: x or "-")
def test_the_private_call_agrees_at_the_largest_epsilon(call, method, option):
    formula, data, given, spec = asked(call, method, option)
    fit, refused = attempt(lambda: private(call, formula, data, given, spec))
    found, why = attempt(lambda: dpe.reference(formula, data, call=call, seed=1, **given))
    assert why == refused
    if fit is None:
        return
    assert option != "plain" or str(found).startswith("*** NOT PRIVATE")
    assert "void" in found.fit.guarantee.status or found.fit.guarantee.kind == "none"
    (values, errors), (ours, own) = numbers(fit), numbers(found.fit)
    near = NEAR.get(method or call, 0.3 if option == "weight" else 0.1)
    if np.isfinite(errors).any():
        allowed, known = near * errors, np.isfinite(errors)
    else:
        allowed, known = np.full(len(values), 1e-4), np.isfinite(values)
    assert known.any()
    assert (np.abs(values - ours) <= allowed)[known].all()
    both = np.isfinite(errors) & np.isfinite(own)  # nobody of the third group is in the subset
    assert (own <= (1 + near) * errors + 1e-9)[both].all()  # these allow for more


def test_every_call_of_data_has_a_reference_and_libraries_are_refused():
    assert {*ASKED, *AVERAGES} == set(CALLS) - {"dp_multisite"}
    assert {spec.name for spec in table_methods().values()} <= {
        dpe.reference(
            *asked(call, None, "plain")[:2], call=call, **asked(call, None, "plain")[2]
        ).method
        for call in ASKED
        if call not in ("dp_cate", "dp_did", "dp_balance")
    }
    with pytest.raises(OptionError, match="call must be one of"):
        dpe.reference("y ~ t", DATA, call="dp_multisite")
    for call, methods in (("dp_ate", registry()), ("dp_cate", conditional_methods())):
        for spec in methods.values():
            if spec.guarantee == "library":
                with pytest.raises(OptionError, match="cannot leave it out"):
                    dpe.reference("y ~ t | x", DATA, spec.name, call=call, bounds=BOUNDS)
    with pytest.raises(OptionError, match="estimand must be one of"):
        dpe.reference("y ~ t", DATA, estimand="ATX", bounds=BOUNDS)
    with pytest.raises(OptionError, match="desing"):
        dpe.reference("y ~ t", DATA, bounds=BOUNDS, desing="randomised")
    with pytest.raises(DPEffectsError, match="several"):
        float(dpe.reference("y ~ t", DATA, call="dp_qte", bounds=BOUNDS).estimate)


def test_a_budget_and_a_ledger_are_not_touched():
    ledger = dpe.Ledger(1)
    given = {"bounds": BOUNDS, "epsilon": 0.1, "ledger": ledger, "budget_split": {"counts": 0.5}}
    one = dpe.reference("y ~ t", DATA, "diff_in_means", **given)
    assert ledger.charges == ()
    assert one == dpe.reference("y ~ t", DATA, "diff_in_means", bounds=BOUNDS)


# --- against others ------------------------------------------------------------------------------


def clipped(bounds=BOUNDS):
    return DATA.assign(y=DATA["y"].clip(*bounds["y"]), x=DATA["x"].clip(*bounds["x"]))


def difference(data, weights=None, groups=None):
    """A difference of weighted means, and its robust standard error."""
    weights = np.ones(len(data)) if weights is None else weights
    model = sm.WLS(data["y"], sm.add_constant(data["t"].astype(float)), weights=weights)
    how = {"cov_type": "HC0"}
    if groups is not None:
        how = {"cov_type": "cluster", "cov_kwds": {"groups": groups, "use_correction": False}}
    fit = model.fit(**how)
    return fit.params["t"], fit.bse["t"]


EACH = 1 / DATA.groupby("person")["y"].transform("size")
INSIDE = (DATA["x"] > 0.3) & (DATA["g"] != "c")
BY_HAND = {
    "plain": lambda: difference(DATA),
    "bounds": lambda: difference(clipped(NARROW)),
    "complete": lambda: difference(HOLES.dropna()),
    "weights": lambda: difference(DATA, DATA["w"]),
    "subset": lambda: difference(DATA[INSIDE]),
    "unit": lambda: difference(DATA, EACH, DATA["person"]),
    "cluster": lambda: difference(DATA, None, DATA["village"]),
}


@pytest.mark.parametrize("option", BY_HAND)
def test_a_difference_in_means_is_that_of_statsmodels(option):
    value, error = BY_HAND[option]()
    for call, method in (("dp_ate", "diff_in_means"), ("dp_ate", "clipped_contrast")):
        _, data, given, _ = asked(call, method, option)
        more = {"design": "randomised"} if method == "clipped_contrast" else {}
        found = dpe.reference("y ~ t", data, call=call, **given, **more)
        assert found.estimate == pytest.approx(value, abs=0.03 * error), method
        within = 0.1 if option == "cluster" else 0.03  # a correction for few clusters
        assert found.std_error == pytest.approx(error, rel=within), method
    if option == "cluster":
        return
    _, data, given, _ = asked("dp_study", None, option)
    study = dpe.reference("y ~ t", data, call="dp_study", design="randomised", **given)
    assert study.tidy()["estimate"][0] == pytest.approx(value, abs=0.03 * error)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("estimand", ["ATE", "ATT", "ATC"])
@pytest.mark.parametrize("option", ["plain", "bounds"])
@pytest.mark.parametrize("method", ["one_step", "private_ipw", "private_psm", "smooth_matching"])
def test_adjusted_estimates_are_those_of_statsmodels(method, option, estimand):
    spec = registry()[method]
    if estimand not in spec.estimands:
        with pytest.raises(OptionError, match=f"not {estimand}"):
            dpe.reference("y ~ t | x", DATA, method, estimand=estimand, bounds=BOUNDS)
        return
    formula, data, given, _ = asked("dp_ate", method, option)
    rows = clipped(given["bounds"])  # covariates too, which the classic ones do not clip
    target = plain(formula, rows, method, estimand=estimand, bounds=given["bounds"])
    more = {"level": "label"} if method == "private_psm" else {}
    found = dpe.reference(formula, data, estimand=estimand, **given, **more)
    near = {"one_step": 0.25, "private_psm": 0.2}.get(method, 0.02)
    assert found.estimate == pytest.approx(target.estimate, abs=near * target.std_error)
    # of records with the same score, which are pairs for the variance goes by their order
    wide = {"one_step": 0.25, "smooth_matching": 0.1, "private_psm": 0.12}.get(method, 0.05)
    assert found.std_error == pytest.approx(target.std_error, rel=wide)


def test_standard_errors_are_those_of_sampling_alone():
    """An association has no other; the interval of the effect allows for confounding too."""
    _, error = difference(DATA)
    found = dpe.reference("y ~ t | x", DATA, "clipped_contrast", bounds=BOUNDS)
    assert found.std_error == pytest.approx(error, rel=0.03)
    fit = dpe.dp_ate("y ~ t | x", DATA, "clipped_contrast", bounds=BOUNDS, epsilon=LARGE, seed=1)
    assert fit.std_error == pytest.approx(error, rel=0.03)
    low, high = fit.effect_conf_int()
    assert high - low > 4 * 1.96 * error


def test_more_than_two_arms():
    means = DATA.groupby("dose")["y"].mean()
    found = dpe.reference("y ~ dose", DATA, "diff_in_means", bounds=BOUNDS).tidy()
    expected = {f"{arm} - no": means[arm] - means["no"] for arm in ("low", "high")}
    for term, value in expected.items():
        row = found.set_index("term").loc[term]
        assert row["estimate"] == pytest.approx(value, abs=1e-6)


def test_tables_are_those_of_numpy_and_pandas():
    given = {"bounds": NARROW, "design": "randomised"}
    rows = clipped(NARROW)
    arm = dict(list(rows.groupby("t")))
    quantiles = dpe.reference("y ~ t", DATA, call="dp_qte", quantiles=0.5, **given).tidy()
    medians = arm[1]["y"].median() - arm[0]["y"].median()
    assert quantiles["estimate"][0] == pytest.approx(medians, abs=0.2 * quantiles["std_error"][0])

    levels = dpe.reference("grade ~ t", DATA, call="dp_ordinal", **given).fit
    share = pd.crosstab(DATA["t"], DATA["grade"], normalize="index")
    np.testing.assert_allclose(levels.arm_table.shares, share.loc[[1, 0]], atol=1e-6)

    sums = DATA.assign(events=DATA["events"].clip(0, 2), time=DATA["time"].clip(0, 4))
    sums = sums.groupby("t")[["events", "time"]].sum()
    rates = dpe.reference("events ~ t", DATA, call="dp_rate", offset="time", **given).tidy()
    expected = (sums["events"] / sums["time"])[[1, 0]]
    np.testing.assert_allclose(rates["estimate"][:2], expected, rtol=1e-5)

    wald = dpe.reference("y ~ d", DATA, call="dp_late", instrument="t", **given)
    first = arm[1]["d"].mean() - arm[0]["d"].mean()
    reduced = arm[1]["y"].mean() - arm[0]["y"].mean()
    assert wald.estimate == pytest.approx(reduced / first, rel=1e-4)

    change = (rows["y"] - rows["z"]).groupby(rows["t"]).mean()
    changes = dpe.reference("y ~ t", DATA, call="dp_did", before="z", bounds=NARROW)
    assert changes.estimate == pytest.approx(change[1] - change[0], abs=0.01 * changes.std_error)

    kept = dpe.reference("y ~ t | x", DATA, call="dp_moments", bounds=NARROW).fit
    squares = sm.OLS(rows["y"], sm.add_constant(rows[["t", "x"]])).fit()
    found = kept.regression("y ~ t + x").tidy().set_index("term")
    assert found.loc["t", "estimate"] == pytest.approx(squares.params["t"], rel=1e-4)
    assert found.loc["t", "std_error"] == pytest.approx(squares.bse["t"], rel=0.02)


def test_survival_is_that_of_a_life_table():
    given = {"bounds": BOUNDS, "design": "randomised", "horizon": 8, "bins": 40}
    found = dpe.reference("Surv(time, died) ~ t", DATA, call="dp_survival", **given).fit.terms()
    for arm, name in ((1, "risk_treated"), (0, "risk_control")):
        part = DATA[DATA["t"] == arm]
        usual = sm.SurvfuncRight(part["time"], part["died"])
        at = usual.surv_prob[usual.surv_times <= 8][-1]
        (term,) = (x for x in found if x.name == name)
        assert term.estimate == pytest.approx(1 - at, abs=0.2 * term.std_error)


def test_it_has_what_the_result_of_the_call_has():
    found = dpe.reference("y ~ t", DATA, "diff_in_means", bounds=BOUNDS)
    own = sm.OLS(DATA["y"].clip(0, 1), sm.add_constant(DATA["t"])).fit(cov_type="HC2")
    assert [*found.conf_int()] == pytest.approx([*own.conf_int().loc["t"]], rel=0.02)
    means = DATA["y"].clip(0, 1).groupby(DATA["t"]).mean()
    assert found.effect("ratio").estimate == pytest.approx(means[1] / means[0], rel=1e-3)
    assert "no noise was added" in str(found.summary())
    assert pickle.loads(pickle.dumps(found)).estimate == found.estimate
    with pytest.raises(AttributeError):
        found.nothing  # noqa: B018
