"""Mistakes that people bring from elsewhere: each has one line that says what to do.

A mistake is a call and the words of its answer that matter. Nothing is charged for any of them, and
no answer holds a value of the data.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import shlex
from decimal import Decimal
from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import EstimationError, OptionError, closest
from dpeffects.inference.estimate import Unavailable
from dpeffects.inference.intervals import Interval
from tests.cases import each
from tests.commands import shell

N = 200
SECRET = 0.123456789
BOUNDS = {"y": (0, 1), "x": (0, 1)}
MOST = 420
"""Characters of an answer: the longest lists all methods."""


def frame(**columns):
    rng = np.random.default_rng(0)
    base = {
        "y": rng.random(N),
        "t": np.arange(N) % 2,
        "x": np.full(N, SECRET),
        "age": rng.integers(18, 90, N),
        "person": np.arange(N) // 2,
        "sex": ["f", "m"] * (N // 2),
    }
    return pd.DataFrame({**base, **columns})


def objects(*values):
    return pd.Series(list(values) * (N // len(values)), dtype=object)


def _fit(**given):
    call = {"method": "diff_in_means", "epsilon": 1, "bounds": BOUNDS, "seed": 1} | given
    return dpe.dp_ate("y ~ t", frame(), **call)


def released(site, epsilon=1, **given):
    """A release of a site."""
    call = {"method": "diff_in_means", "epsilon": epsilon, "bounds": BOUNDS} | given
    return dpe.site_release("y ~ t", frame(), site=site, **call)


fit = cache(_fit)
DAYS = pd.date_range("2020-01-01", periods=N)


def ate(formula="y ~ t | x", data=None, **given):
    """A call of dp_ate, to be made with a ledger that nothing may be charged to."""
    call = {"formula": formula, "data": frame() if data is None else data, "epsilon": 1}
    return dpe.dp_ate, call | {"bounds": BOUNDS} | given


def other(door, formula="y ~ t | x", **given):
    """The same for another public function."""
    call = {"formula": formula, "data": frame(), "epsilon": 1, "bounds": BOUNDS}
    return door, call | given


COLUMNS = {
    "a column of the formula": (ate("y ~ t | agee"), "did you mean 'age'?"),
    "capitals": (ate("Y ~ t | x"), "did you mean 'y'?"),
    "a treatment in capitals": (ate("y ~ T | x"), "did you mean 't'?"),
    "bounds": (ate(bounds={**BOUNDS, "agee": (18, 90)}), "did you mean 'age'?"),
    "by": (ate(by="sexx"), "did you mean 'sex'?"),
    "subsets": (ate(by={"young": "agee < 40", "old": "agee >= 40"}), "did you mean 'age'?"),
    "unit": (ate(unit="persn"), "did you mean 'person'?"),
    "cluster": (ate(cluster="persons"), "did you mean 'person'?"),
    "weights": (ate(weights="ag"), "did you mean 'age'?"),
    "subset": (ate(subset="agee > 40"), "did you mean 'age'?"),
    "missing": (ate(missing={"xx": "indicator"}), "Did you mean 'x'?"),
    "missing values of what is not in the formula": (
        ate(missing={"age": "complete"}),
        "records without it are left out by subset='~is_na(age)'",
    ),
    "one column without a name": (
        ate(data=pd.DataFrame(np.zeros((N, 1)))),
        "names a column 'y' that the data does not have",
    ),
    "an outcome in words": (ate("sex ~ t"), 'bounds={"sex": ["no", "yes"]}'),
    "an event in words": (
        other(dpe.dp_survival, 'Surv(age, sex == "m") ~ t', horizon=9),
        "compare with them in pandas, as data['died'] = data['status'] == 'dead'",
    ),
    "a treatment in words, with an instrument": (
        other(dpe.dp_late, "y ~ sex", instrument="t"),
        'write data["sex"] == "yes" for 0 and 1',
    ),
    "a treatment with levels, and an instrument": (
        other(dpe.dp_late, 'y ~ C(sex, levels=["f", "m"])', instrument="t"),
        "data['taken'] = data['drug'] == 'yes'",
    ),
    **{
        f"a time that can be {time}": (
            other(dpe.dp_survival, f"Surv({time}, y > 0.5) ~ t", horizon=9, bounds=dates),
            "a survival time is never negative",
        )
        for time, dates in {
            "age": {"age": (-1, 90)},
            "-age": {"age": (0, 90)},
            "age - person": {"age": (0, 90), "person": (0, 90)},
            "sqrt(age) - 1": {"age": (0, 90)},
        }.items()
    },
    "instrument": (other(dpe.dp_late, instrument="Sex"), "did you mean 'sex'?"),
    "before": (other(dpe.dp_did, before="yy"), "did you mean 'y'?"),
    "time": (other(dpe.dp_did, time="agee", unit="person", periods=[1, 2]), "did you mean 'age'?"),
    "offset": (other(dpe.dp_rate, offset="Age"), "did you mean 'age'?"),
    "subgroups": (other(dpe.dp_study, subgroups="sexx"), "did you mean 'sex'?"),
    "groups": (other(dpe.dp_cate, release="groups", by="sexx"), "did you mean 'sex'?"),
    "points": (
        other(dpe.dp_cate, release="points", at={"z": [0.5]}),
        "the points (at=) have no column 'x'",
    ),
    "a name with a space": (ate("y ~ t | my age"), "backticks"),
    "an outcome with a space": (ate("my y ~ t"), "a name with spaces stands in backticks, `my y`"),
    "a treatment with a space": (ate("y ~ my t | x"), "stands in backticks, `my t`"),
    "semicolons": (
        ate(data=pd.DataFrame({"y;t;x": ["1;0;1"] * N})),
        "pandas.read_csv(path, sep=';')",
    ),
    "two columns of one name": (
        ate(data=pd.concat([frame(), frame()[["x"]]], axis=1)),
        "rename or drop one",
    ),
    "names of several levels": (ate(data=pd.concat({"a": frame()}, axis=1)), 'map("_".join)'),
}
NAMES = {
    "strata": (ate("y ~ t | strata(sex)"), "write the column itself"),
    "restricted cubic splines": (ate("y ~ t | rcs(age, 3)"), "write bs(x, knots=[...]"),
    "a factor of R": (ate("y ~ t | as.factor(sex)"), "write C(x, levels=[...])"),
    "clusters in the formula": (ate("y ~ t | cluster(person)"), "cluster='village'"),
    "a delta beyond floats": (
        ate(method="dp_ebm", delta=1e-300, accept_library=True),
        "write a delta such as 1e-6",
    ),
    "method": (ate(method="one_stp"), "Did you mean 'one_step'?"),
    "a part of a method": (ate(method="psm"), 'write method="private_psm"'),
    "another package's method": (ate(method="dml"), "Leave method out for the default"),
    "AIPW": (ate(method="aipw"), '"auto": it adjusts by models'),
    "a learner for an average": (ate(method="r_learner"), "call dp_cate"),
    "causal forest": (other(dpe.dp_cate, method="causal_forest"), "Leave method out"),
    "option": (ate(desing="randomised"), "Did you mean 'design'?"),
    "an argument of the call": (ate(clustre="person"), "Did you mean 'cluster'?"),
    "weight": (ate(weight="age"), 'Write weights="w"'),
    "an option of another call": (ate(horizon=90), "It is for dp_survival."),
    "clusters of a learner": (other(dpe.dp_cate, cluster="person"), "unit=, which protects whole"),
    "clusters of matching": (
        ate(method="private_psm", as_printed=True, cluster="person"),
        "cluster cannot be used with private_psm",
    ),
    "an argument that a call lacks": (
        other(dpe.dp_balance, level="label"),
        "no argument 'level'. Leave it out.",
    ),
    "randomized": (ate(design="randomized"), "did you mean 'randomised'?"),
    "level": (ate(level="lable"), "did you mean 'label'?"),
    "contrasts": (ate(contrasts="pairs"), "did you mean 'pairwise'?"),
    "release": (other(dpe.dp_cate, release="group", by="sex"), "did you mean 'groups'?"),
    "share": (ate(budget_split={"estimat": 1}), "Did you mean 'estimate'?"),
    "estimand": (ate(estimand="ATT"), "call dp_att"),
    "estimand in small letters": (ate(estimand="att"), "call dp_att"),
    "estimand of a study": (other(dpe.dp_study, estimand="att"), "did you mean 'ATT'?"),
    "na.omit": (ate(missing="drop"), '"complete" leaves out records'),
    "column of by": (ate(by={"old": "agee > 60"}), "by names a column 'agee'"),
    "column of groups": (
        other(dpe.dp_cate, release="groups", by="sexx"),
        "by names a column 'sexx'",
    ),
    "column of subgroups": (other(dpe.dp_study, subgroups="sexx"), "subgroups names a column"),
    "column of an instrument": (other(dpe.dp_late, instrument="z"), "instrument names a column"),
    "column of an offset": (other(dpe.dp_rate, offset="years"), "offset names a column 'years'"),
    "groups of quantiles": (other(dpe.dp_qte, by="sex"), "It is for dp_ate"),
    "method of quantiles": (other(dpe.dp_qte, method="auto"), "method cannot be set here"),
}
HABITS = {
    "R and statsmodels: no bar": (ate("y ~ t + x"), "covariates come after a bar: ~ t | x"),
    "MatchIt: no outcome": (ate("t ~ x + sex"), "where others write treatment ~ covariates"),
    "patsy: an intercept": (ate("y ~ 1 + t"), "write t alone"),
    "no treatment": (ate("y ~ 1"), "outcome ~ treatment | covariates"),
    "no tilde": (ate("y, t, x"), "write outcome ~ treatment | covariates"),
    "patsy: Q": (ate("y ~ t | Q('x')"), "backticks"),
    "patsy: np.log": (ate("y ~ t | np.log(x)"), "write log(x)"),
    "R: factor": (ate("y ~ t | factor(sex)"), "C(x, levels=[...])"),
    "R: I(x^2)": (ate("y ~ t | I(x^2)"), "x ** 2"),
    "R: poly": (ate("y ~ t | poly(x, 2)"), "write x + I(x ** 2)"),
    "mgcv: s": (ate("y ~ t | s(x)"), "write bs(x, knots=[...]"),
    "lme4: random effects": (ate("y ~ t | x + (1|person)"), "cluster="),
    "fixest: fixed effects": (ate("y ~ t | x | person"), "cluster="),
    "R: cbind": (ate("cbind(y, x) ~ t"), "dp_study"),
    "a bracket": (ate("y ~ t | (x"), "a bracket is not closed"),
    "scikit-learn: scale": (ate("y ~ t | scale(x)"), "write the column itself"),
    "the treatment as covariate": (ate("y ~ t | t + x"), "remove it"),
    "MatchIt: distance": (ate(distance="glm"), "dpe.methods()"),
    "statsmodels: cov_type": (ate(cov_type="HC1"), "cluster="),
    "statsmodels: alpha": (ate(alpha=0.1), "fit.conf_int(0.9)"),
    "DoWhy: common_causes": (
        ate(common_causes=["x"]),
        '"outcome ~ treatment | covariates"',
    ),
    "EconML: X": (ate(X="x"), '"outcome ~ treatment | covariates"'),
    "scikit-learn: random_state": (ate(random_state=1), "seed="),
    "R: na.action": (ate(**{"na.action": "na.omit"}), "missing="),
    "EconML: a mask": (ate(subset=frame().age > 40), 'subset="age >= 18"'),
    "scikit-learn: sample weights": (
        ate(weights=np.ones(N)),
        "must be the name of a column, as weights=",
    ),
    "data first": (ate(frame(), "y ~ t"), "the first argument must be a formula as text"),
    "Stata: vce": (ate(vce="cluster person"), "cluster="),
    "Stata: se": (ate(se="robust"), "cluster="),
    "Stata: ##": (ate("y ~ t | c.x##c.x"), "write a * b for a##b"),
    "Stata: i.": (ate("y ~ t | i.sex"), "did you mean 'sex'?"),
    "Stata: pweight": (ate(pweight="age"), 'Write weights="w"'),
    "Stata: absorb": (ate(absorb="person"), "Fixed effects are factors among the covariates"),
    "linearmodels: effects": (ate(entity_effects=True), "Fixed effects are factors"),
    "linearmodels: clusters": (ate(clusters=frame().person), 'cluster="..."'),
    "linearmodels: a name": (ate(clusters="person"), "column that names them is cluster="),
    "linearmodels: instruments": (other(dpe.dp_ate, instruments="x"), "It is for dp_late"),
    "a square": (ate("y ~ t | x**2"), "write I(x ** 2)"),
    "randomised=True": (ate(randomised=True), 'Write design="randomised".'),
    "rct=True": (ate(rct=True), 'Write design="randomised".'),
    "columns as groups": (
        ate(by=["sex", "age"], bounds={**BOUNDS, "sex": ["f", "m"]}),
        "Write cut(age, [...])",
    ),
}
DATA = {
    "an array": (ate(data=frame()[["y", "t", "x"]].to_numpy()), "pandas.DataFrame(data, columns="),
    "a dict": (ate(data={"y": [1.0]}), "pandas.DataFrame(data)"),
    "rows": (ate(data=[{"y": 1.0}]), "pandas.DataFrame(data)"),
    "a column": (ate(data=frame().y), "pandas.DataFrame(data)"),
    "the name of a data set": (ate(data="lalonde"), "load_data(...)"),
    "a sheet": (ate(data="study.xlsx"), "pandas.read_excel"),
    "a file that is not there": (ate(data="nowhere.csv"), "there is no file"),
    "text numbers": (ate(data=frame(x=["12"] * N)), 'pandas.to_numeric(data["x"])'),
    "words for missing values": (ate(data=frame(x=["NA"] * N)), 'na_values=["NA", "."]'),
    "decimal commas": (ate(data=frame(x=["12,5"] * N)), '.str.replace(",", ".")'),
    "text without bounds": (
        ate(data=frame(x=["12"] * N), bounds={"y": (0, 1)}),
        'Add bounds={"x": ["LEVEL", "LEVEL"]}',
    ),
    "yes and no as outcome": (ate(data=frame(y=["yes", "no"] * (N // 2))), '== "yes"'),
    "yes and no as treatment": (
        ate(data=frame(t=["yes", "no"] * (N // 2))),
        "declare its levels, control first",
    ),
    "three levels of an outcome": (
        ate(data=frame(y=["yes", "no"] * (N // 2)), bounds={"y": ["no", "yes", "?"], "x": (0, 1)}),
        "use dp_ordinal",
    ),
    "levels of a treatment by an instrument": (
        other(dpe.dp_late, "y ~ sex", instrument="t", bounds={**BOUNDS, "sex": ["f", "m"]}),
        "write data['sex'] == 'm'",
    ),
    "one arm": (ate(data=frame(t=1)), "Check which level is which"),
    "two columns with gaps": (
        ate(data=frame(y=np.nan, x=np.nan)),
        'missing={"y": "complete", "x": "complete"}',
    ),
    "a category as treatment": (
        ate(data=frame(t=pd.Categorical(["a", "b"] * (N // 2)))),
        "declare its levels, control first",
    ),
    "1 and 2 as treatment": (ate(data=frame(t=[1, 2] * (N // 2))), "[CONTROL, TREATED]"),
    "a dose": (ate(data=frame(t=frame().y)), "I(t > 1)"),
    "mixed objects": (ate(data=frame(x=objects(True, "no"))), ".astype(bool)"),
    "mixed objects as treatment": (ate(data=frame(t=objects(True, "no"))), ".astype(bool)"),
    "boolean objects with gaps": (
        ate(data=frame(t=objects(True, False, None, True))),
        'missing={"t": "complete"}',
    ),
    "Decimal and words": (ate(data=frame(x=objects(Decimal("0.5"), "a"))), ".astype(float)"),
    "nullable numbers": (
        ate(data=frame(x=pd.Series([0, pd.NA] * (N // 2), dtype="Int64"))),
        'missing={"x": "complete"}',
    ),
    "complex numbers": (ate(data=frame(x=np.ones(N) * 1j)), ".astype(float)"),
    "dates": (ate("y ~ t | d", frame(d=DAYS)), 'bounds={"d": ("2020-01-01", "2021-12-31")}'),
    "a time zone": (
        ate(
            "y ~ t | d",
            frame(d=DAYS.tz_localize("UTC")),
            bounds={"y": (0, 1), "d": ("2020-01-01", "2021-01-01")},
        ),
        ".dt.tz_localize(None)",
    ),
    "a declared time zone": (
        ate(bounds={"y": (0, 1), "x": (pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2021"))}),
        "must have no time zone",
    ),
    "lengths of time": (
        ate("y ~ t | d", frame(d=DAYS - DAYS[0]), bounds={"y": (0, 1)}),
        ".dt.total_seconds()",
    ),
    "periods": (ate("y ~ t | d", frame(d=DAYS.to_period("D"))), ".dt.to_timestamp()"),
    "levels as a tuple": (ate("y ~ t | sex", bounds={**BOUNDS, "sex": ("f", "m")}), "as a list"),
    "levels as a set": (ate("y ~ t | sex", bounds={**BOUNDS, "sex": {"f", "m"}}), "as a list"),
    "one number for a range": (ate(bounds={"y": 1, "x": (0, 1)}), "(lower, upper)"),
}
BUDGETS = {
    "no epsilon": ((dpe.dp_ate, {"formula": "y ~ t", "data": frame()}), "write epsilon="),
    "eps": ((dpe.dp_ate, {"formula": "y ~ t", "data": frame(), "eps": 1}), "Write epsilon="),
    "no epsilon on the treated": (
        (dpe.dp_att, {"formula": "y ~ t", "data": frame()}),
        "such as epsilon=1",
    ),
    "epsilon as text": (ate(epsilon="1"), "such as epsilon=1"),
    "epsilon of nothing": (ate(epsilon=0), "must be positive"),
    "negative epsilon": (ate(epsilon=-1), "must be positive"),
    "infinite epsilon": (ate(epsilon=float("inf")), "at most 1e9"),
    "epsilon that is no number": (ate(epsilon=float("nan")), "such as epsilon=1"),
    "a list of epsilons": (ate(epsilon=np.array([0.5, 1.0])), "must be a number, got"),
    "delta of one": (ate(delta=1), "such as 1e-6"),
    "delta as text": (ate(delta="1e-6"), "such as delta=1e-6"),
    "too little to count records": (
        ate(epsilon=0.01, missing="complete"),
        "Nothing was charged; use a larger epsilon",
    ),
    "no instrument": (other(dpe.dp_late), "dp_late needs instrument"),
    "a float for a ledger": (ate(ledger=5.0), "a dpeffects.Ledger"),
}
SOME = [SECRET, SECRET]
VALUES = {
    "a column as bounds": (ate(bounds={"y": frame()["x"]}), "list of levels, got Series"),
    "values as bounds": (ate(bounds=SOME), "got list"),
    "values as variance": (ate(variance=SOME), "True or False, got list"),
    "values as method": (ate(method=SOME), 'method must be a name, such as "auto", got list'),
    "a table as shares": (ate(budget_split=frame()), "proportions, got DataFrame"),
    "a column as a share": (ate(budget_split={"count": frame()["x"]}), "number, got Series"),
    "a column as missing": (ate(missing={"y": frame()["x"]}), "got Series"),
    "values as seed": (ate(seed=SOME), "integer, got list"),
    "values as epsilon": (ate(epsilon=SOME), "such as epsilon=1, got list"),
    "a dict as clip": (ate(method="one_step", clip={"at": SECRET}), "0.45, got dict"),
    "values as release": (other(dpe.dp_cate, release=SOME), "groups, got list"),
}
"""Values of the data where none belong: answers say only what they are."""
MISTAKES = {**COLUMNS, **NAMES, **HABITS, **DATA, **BUDGETS, **VALUES}


def one_line(text):
    assert "\n" not in text
    assert len(text) <= MOST
    assert str(SECRET)[:6] not in text  # pandas shows fewer digits
    return text


def answered(call, given):
    """The line that answers a mistake; nothing is charged."""
    ledger = dpe.Ledger(100.0, 0.5)
    if "ledger" not in given:
        given = given | {"ledger": ledger}
    with pytest.raises(dpe.DPEffectsError) as caught:
        call(**given)
    assert ledger.charges == ()
    return one_line(str(caught.value))


@each(("mistake", "words"), MISTAKES.values())
def test_a_mistake_has_one_line_that_says_what_to_do(mistake, words):
    assert words in answered(*mistake)


def test_a_table_in_the_place_of_a_word_is_not_shown():
    for call in (fit().summary, fit().conf_int):
        with pytest.raises(dpe.DPEffectsError, match="got DataFrame") as caught:
            call(frame())
        one_line(str(caught.value))


def test_decimals_are_read_as_numbers():
    call = {"method": "private_psm", "epsilon": 1, "bounds": BOUNDS, "seed": 1}
    values = (objects(Decimal("0.5"), Decimal("0.25")), objects(0.5, 0.25).astype(float))
    one, other = (dpe.dp_ate("y ~ t | x", frame(x=x), **call) for x in values)
    assert one.estimate == other.estimate


def test_too_many_arguments():
    with pytest.raises(dpe.DPEffectsError, match="conf_int takes conf_level, and no more"):
        fit().conf_int(0.9, 0.8)
    with pytest.raises(dpe.DPEffectsError, match=r"and all others by name$"):
        dpe.dp_att("y ~ t", frame(), "auto", 1)
    with pytest.raises(dpe.DPEffectsError, match="all others by name, as epsilon="):
        dpe.dp_ate("y ~ t", frame(), "auto", 1)


def test_there_are_more_than_sixty():
    assert len(MISTAKES) > 60


PUBLIC = {
    "data set": (lambda: dpe.load_data("lalond"), "Did you mean 'lalonde'?"),
    "simulator": (lambda: dpe.simulate("confound"), "Did you mean 'confounded'?"),
    "an option of a simulator": (lambda: dpe.simulate("confounded", N=9), "Did you mean 'n'?"),
    "method": (lambda: dpe.methods("Private_PSM"), "Did you mean 'private_psm'?"),
    "declared column": (lambda: dpe.declare(frame(), agee=(18, 90)), "did you mean 'age'?"),
    "data for a plan": (lambda: dpe.plan("y ~ t", frame(), epsilon=1), "all others by name"),
    "no n for a plan": (lambda: dpe.plan("y ~ t", epsilon=1), "plan needs n"),
    "twice": (lambda: dpe.dp_ate("y ~ t", frame(), epsilon=1, formula="y ~ t"), "write it once"),
    "no result": (lambda: dpe.compare(), "compare(fit1, fit2)"),
    "results by name": (
        lambda: dpe.compare({"a": fit()}),
        "write compare(*fits.values(), names=list(fits))",
    ),
    "a format of a table": (lambda: fit().table("latex"), "Write table().as_latex()"),
    "per cent": (lambda: fit().conf_int(95), "between 0 and 1, such as 0.95"),
    "alpha by name": (lambda: fit().conf_int(alpha=0.05), "Write conf_level=0.95"),
    "alpha by position": (lambda: fit().conf_int(0.05), "write 0.95 for an alpha of 0.05"),
    "scale": (lambda: fit().effect("ratios"), "did you mean 'ratio'?"),
    "a file for a data set": (lambda: dpe.load_data("mine.csv"), "pandas.read_csv(...)"),
    "bounds by name": (lambda: dpe.declare(frame(), bounds=BOUNDS), "declare(data, {...})"),
    "an empty ledger": (lambda: dpe.Ledger(), "Ledger needs epsilon: write epsilon=..."),
    "short=True": (lambda: fit().summary(short=True), 'Write summary("short").'),
    "sites that were asked otherwise": (
        lambda: dpe.combine([released("a"), released("b", missing="complete")]),
        "every site has to make the same call",
    ),
    "one release": (lambda: dpe.combine(released("a")), "[north, south]"),
    "releases without brackets": (
        lambda: dpe.combine(released("a"), released("b")),
        "rule must be one of ivw, mvagg, all, largest, random, robust, got SiteRelease",
    ),
    "a rule": (lambda: dpe.combine([released("a")], rule="random effects"), "mean 'random'?"),
    "a table for a release": (lambda: dpe.combine([__file__]), "this is not valid JSON"),
    "alternative": (lambda: fit().test(alternative="grater"), "did you mean 'greater'?"),
}


@each(("call", "words"), PUBLIC.values())
def test_calls_that_cost_nothing(call, words):
    with pytest.raises(dpe.DPEffectsError) as caught:
        call()
    assert words in one_line(str(caught.value))


SHELL = {
    "command": ("atee", "Did you mean 'ate'?"),
    "flag": ("ate 'y ~ t' data.csv --epsilon 1 --unti sex", "Did you mean '--unit'?"),
    "an option as a flag": (
        "ate 'y ~ t' data.csv --epsilon 1 --desing randomised",
        "Did you mean '--option design=...'?",
    ),
    "option": (
        "ate 'y ~ t' data.csv --epsilon 1 --option desing=randomised",
        "Did you mean 'design'?",
    ),
    "estimand": ("ate 'y ~ t' data.csv --epsilon 1 --estimand ATT", "dp_ate, dp_att or dp_atc"),
    "level": ("ate 'y ~ t' data.csv --epsilon 1 --level lable", "Did you mean 'label'?"),
    "column": ("ate 'y ~ t | Age' data.csv --epsilon 1", "did you mean 'age'?"),
    "unit": ("ate 'y ~ t | age' data.csv --epsilon 1 --unit Sex", "did you mean 'sex'?"),
    "subset": ("ate 'y ~ t' data.csv --epsilon 1 --subset 'agee > 40'", "did you mean 'age'?"),
    "method": ("ate 'y ~ t' data.csv --epsilon 1 --method ipw", 'write method="private_ipw"'),
    "share": (
        "ate 'y ~ t' data.csv --epsilon 1 --budget-split estimat=1",
        "Did you mean 'estimate'?",
    ),
    "formula": ("ate 'y ~ t + age' data.csv --epsilon 1", "after a bar: ~ t | age"),
    "data first": ("ate data.csv 'y ~ t' --epsilon 1", "stands after the formula"),
    "no epsilon": ("ate 'y ~ t' data.csv", "required: --epsilon"),
    "alpha": ("ate 'y ~ t' data.csv --epsilon 1 --conf-level 0.05", "write 0.95"),
    "release": ("cate 'y ~ t | age' data.csv --epsilon 1 --release group", "'groups'?"),
    "bounds": ("ate 'y ~ t | age' data.csv --epsilon 1", "dpeffects bounds-template DATA"),
    "randomised": ("ate 'y ~ t' data.csv --epsilon 1 --randomised", "--option design=randomised."),
    "a design": (
        "ate 'y ~ t' data.csv --epsilon 1 --design randomised",
        "Write --option design=randomised.",
    ),
    "a design of groups": (
        "cate 'y ~ t' data.csv --epsilon 1 --design randomised",
        "Write --option design=randomised.",
    ),
    "a design of balance": ("balance 'y ~ t' data.csv --epsilon 1 --design x", "It is for auto"),
    "randomised quantiles": ("qte 'y ~ t' data.csv --epsilon 1 --rct", "--design randomised."),
    "a word that nothing is near": (
        "ate 'y ~ t' data.csv --epsilon 1 --qqq x.png",
        "unrecognized arguments: --qqq x.png. (see",
    ),
    "a picture for a text": ("ate 'y ~ t' data.csv --epsilon 1 --out x.pdf", "written by --plot"),
    "a sheet for a text": ("ate 'y ~ t' data.csv --epsilon 1 --out x.csv", "cannot be 'x.csv'"),
    "backticks in double quotes": (
        "ate ' ~ t' data.csv --epsilon 1",
        "in single quotes in a shell",
    ),
    "levels": (
        "ate 'y ~ sex' data.csv --epsilon 1",
        '"sex" = [LEVEL, LEVEL] in the file of --bounds',
    ),
    "gaps": ("ate 'y ~ t | gaps' data.csv --epsilon 1", '--missing "gaps=complete"'),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("typed", "words"), SHELL.values(), ids=SHELL.keys())
def test_mistakes_in_a_shell(typed, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gaps = {"gaps": [1.0, None] * 20}
    shell.study(40).assign(**gaps).to_csv("data.csv", index=False)
    assert words in shell.refused(capsys, *shlex.split(typed))


# --- habits that work


def test_an_interval_is_a_pair():
    interval = fit().conf_int()
    low, high = interval
    assert (interval[0], interval[1], interval[-1], len(interval)) == (low, high, high, 2)
    assert np.array(interval).tolist() == [low, high] == list(interval)
    assert isinstance(interval, Interval)
    with pytest.raises(IndexError):
        interval[2]


COMPUTED = {
    "unpacked": lambda x: (lambda low, high: low)(*x),
    "indexed": lambda x: x[0],
    "counted": len,
    "an array": np.array,
    "a number": float,
    "rounded": lambda x: round(x, 2),
    "compared": lambda x: x < 0.05,
    "compared from the right": lambda x: x < 0.05,
    "multiplied": lambda x: 1.96 * x,
    "subtracted": lambda x: 1.0 - x,
}


@pytest.mark.parametrize("computed", COMPUTED.values(), ids=COMPUTED.keys())
def test_what_is_not_available_says_why_wherever_it_is_used(computed):
    association = dpe.dp_ate("y ~ t", frame(), epsilon=1, bounds=BOUNDS, seed=1)
    assert isinstance(association.p_value, Unavailable)
    with pytest.raises(EstimationError, match="not available: an association is no test"):
        computed(association.p_value)


def test_the_names_of_statsmodels():
    """As statsmodels has them for the same regression without noise: Series by term."""
    smf = pytest.importorskip("statsmodels.formula.api")
    rng = np.random.default_rng(1)
    t = np.arange(5000) % 2
    data = pd.DataFrame({"y": (rng.random(5000) < 0.3 + 0.2 * t) * 1.0, "t": t})
    theirs = smf.ols("y ~ t", data).fit(cov_type="HC1")
    known = {"method": "diff_in_means", "design": "randomised", "bounds": {"y": (0, 1)}, "seed": 1}
    ours = dpe.dp_ate("y ~ t", data, epsilon=1e6, **known)
    for name, error in (("params", 1e-4), ("bse", 1e-3), ("pvalues", 1e-3)):
        series = getattr(ours, name)
        assert type(series) is type(getattr(theirs, name))
        assert series["t"] == pytest.approx(getattr(theirs, name)["t"], abs=error)
    assert ours.nobs == theirs.nobs == 5000


ELSEWHERE = {
    "coef": "fit.estimate",
    "confint": "fit.conf_int()",
    "ci": "fit.conf_int()",
    "se": "fit.std_error",
    "pvalue": "did you mean 'p_value'?",
    "risk_ratio": 'fit.effect("ratio")',
    "odds_ratio": 'fit.effect("odds")',
    "epsilon": "fit.guarantee",
    "resid": "a result holds no records",
    "to_csv": "fit.tidy()",
    "sumary": "did you mean 'summary'?",
}


@pytest.mark.parametrize(("name", "words"), ELSEWHERE.items())
def test_the_names_of_other_packages_are_answered(name, words):
    with pytest.raises(AttributeError) as caught:
        getattr(fit(), name)
    assert words in one_line(str(caught.value))
    for told in re.findall(r"fit\.(\w+)", words):  # and what is told is there
        assert hasattr(fit(), told)


def test_results_are_still_copied_and_pickled():
    assert copy.deepcopy(fit()) == fit() == pickle.loads(pickle.dumps(fit()))
    assert not hasattr(fit(), "_ipython_display_")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ate", "did you mean 'dp_ate'?"),
        ("dp_atee", "did you mean 'dp_ate'?"),
        ("ledger", "did you mean 'Ledger'?"),
        ("dp_rr", 'call fit.effect("ratio")'),
        ("coxph", "call dp_survival"),
        ("OLS", "call dp_ate, or dp_moments(...).regression"),
        ("read_csv", "call pandas.read_csv"),
    ],
)
def test_a_name_that_the_package_does_not_have(name, words):
    with pytest.raises(AttributeError) as caught:
        getattr(dpe, name)
    assert words in one_line(str(caught.value))
    for told in re.findall(r"dp_\w+", words):
        assert hasattr(dpe, told)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("RR", "ratio"), ("risk_ratio", "ratio"), ("odds ratio", "odds"), ("rd", "difference")],
)
def test_scales_have_the_names_of_epidemiology(name, scale):
    data = frame(y=np.arange(N) % 3 == 0)
    found = dpe.dp_ate("y ~ t", data, "diff_in_means", epsilon=1, seed=1)
    assert found.effect(name) == found.effect(scale)


def test_several_effects_have_a_value_for_each_term():
    data = dpe.simulate("three_arms", n=2000, seed=1)
    arms = dpe.dp_ate("outcome ~ treatment", data, "diff_in_means", epsilon=1, seed=1)
    assert arms.params.index.tolist() == ["low - none", "high - none"]
    assert arms.params.tolist() == arms.estimates.tolist()
    assert arms.pvalues.tolist() == arms.p_values().tolist()
    sites = dpe.combine([released("north"), released("south")])
    assert (sites.params["t"], sites.nobs) == (sites.estimate, 2 * N)


def test_what_estimates_no_effect_has_no_coefficients():
    balance = dpe.dp_balance("y ~ t | age", frame(), bounds={"age": (18, 90)}, epsilon=4, seed=1)
    for name in ("params", "bse", "pvalues"):
        with pytest.raises(AttributeError, match=f"Balance has no {name}, .* see tidy"):
            getattr(balance, name)
    assert balance.nobs == N


# --- weak budgets


def test_a_weak_budget_is_said_in_the_first_lines_and_costs_nothing_more():
    many = {"epsilon": 50, "bounds": {"y": (0, 1), "x": (0, 1), "age": (18, 90)}}
    said = "Weak privacy: epsilon = 50"
    ledger = dpe.Ledger(50)
    sexes = {"women": "sex == 'f'", "men": "sex == 'm'"}
    fits = [
        _fit(**many | {"seed": None}, ledger=ledger),
        _fit(**many, by=sexes),  # of which each has half of it
        dpe.dp_balance("y ~ t | age", frame(), **many),
        dpe.dp_cate("y ~ t | age", frame(), **many),
        dpe.dp_study("y ~ t | age", frame(), **many),
        dpe.dp_moments("y ~ t | age", frame(), **many),
        dpe.dp_qte("y ~ t", frame(), **many),
    ]
    assert ledger.spent == (50, 0)
    for found in fits:
        assert said in found.warnings
        head = " ".join(str(found.summary()).split("\nFormula")[0].split())
        assert said in head
        assert repr(found).endswith("weak privacy>")
    assert repr(fits[0].sensitivity()).endswith("weak privacy>")
    north, south = released("north", epsilon=50), released("south")
    sites = dpe.combine([north, south])
    assert f"north: {said}" in sites.warnings
    assert [repr(x).endswith("weak privacy>") for x in (north, south)] == [True, False]
    assert repr(sites).endswith("weak privacy>")
    assert "Weak" not in fit().warnings + repr(fit())


@pytest.mark.parametrize(
    ("epsilon", "delta", "n", "weak"),
    [
        (1.0, 0.0, 5, False),
        (10.0, 1e-6, 1000, False),
        (10.1, 0.0, 1000, True),
        (1.0, 1 / 1001, 1000, False),
        (1.0, 1 / 1000, 1000, True),
        (1.0, 0.01, 5, True),
    ],
)
def test_what_is_weak(epsilon, delta, n, weak):
    """More than 10, or a delta of 1/n; and it is said in one line."""
    words = dpe.Guarantee(epsilon, delta).warnings(n)
    assert words.startswith("Weak privacy: ") if weak else words == ""
    assert "\n" not in words


# --- near names


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("AGE", ["sex", "age"], "age"),
        ("birth weight", ["birth_weight"], "birth_weight"),
        ("smokr", ["smoker", "age"], "smoker"),
        ("ipw", ["private_psm", "private_ipw"], "private_ipw"),
        ("zz", ["sex", "age"], None),
        ("", ["sex"], None),
        (7, [7, 8], "7"),
    ],
)
def test_near_names(name, known, near):
    assert closest(name, known) == near


def test_public_functions_keep_their_signatures():
    """A check of arguments does not hide them from help and editors."""
    for name in ("dp_ate", "dp_cate", "dp_did", "plan", "combine"):
        function = getattr(dpe, name)
        assert "epsilon" in inspect.signature(function).parameters or name == "combine"
        assert function.__name__ == name
        assert function.__doc__


@pytest.mark.parametrize(
    ("shown", "name", "words"),
    [
        ("summary", "to_latex", "Summary has no to_latex; did you mean 'as_latex'?"),
        ("summary", "to_html", "did you mean 'as_html'?"),
        ("report", "to_markdown", "did you mean 'as_markdown'?"),
    ],
)
def test_names_of_summaries_and_reports(shown, name, words):
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(getattr(fit(), shown)(), name)


def test_a_record_in_two_formats_has_one_json(tmp_path):
    fit().report(tmp_path / "a.html")
    written = (tmp_path / "a.json").read_bytes()
    fit().report(tmp_path / "a.docx")
    assert (tmp_path / "a.json").read_bytes() == written
    (tmp_path / "a.docx").unlink()
    with pytest.raises(OptionError, match=re.escape("a.json exists")):
        _fit(seed=2).report(tmp_path / "a.docx")
    with pytest.raises(OptionError, match=re.escape("a.html exists")):
        fit().report(tmp_path / "a.html")


@each("time", ["age", "age - person", "clip(age - person, 0, 90)", "sqrt(age)"])
def test_times_are_refused_by_what_is_declared_and_never_by_the_data(time):
    """A time below 0 is refused where its range says that it can be, whatever the rows hold."""
    known = {"age": (0, 90)} | ({"person": (0, 90)} if "clip" in time else {})
    call = {"horizon": 9, "epsilon": 1, "bounds": known, "design": "randomised", "seed": 1}
    for age in (5.0, -5.0):
        assert dpe.dp_survival(f"Surv({time}, y > 0.5) ~ t", frame(age=age), **call).n == N
