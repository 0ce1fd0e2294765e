"""An interval is one of what the heading says: that of an association allows for no confounding."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import dpeffects as dpe
from dpeffects.estimators import table_methods
from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    Estimate,
    MeansPart,
    SamplingVariance,
)
from dpeffects.results.table_results import TableEffects
from tests.calls import TABLED
from tests.kinds_of_summaries import CALL, people
from tests.once import once

CALLS = {
    "dp_ate": lambda: dpe.dp_ate("y ~ t", people(), on_unadjusted="warn", **CALL),
    "dp_ate of arms": lambda: dpe.dp_ate("y ~ arm", people(), on_unadjusted="warn", **CALL),
    "dp_survival": lambda: dpe.dp_survival("Surv(time, event) ~ t", people(), horizon=50, **CALL),
    "dp_qte": lambda: dpe.dp_qte("y ~ t", people(), **CALL),
    "dp_ordinal": lambda: dpe.dp_ordinal("level ~ t", people(), **CALL),
    "dp_rate": lambda: dpe.dp_rate("event ~ t", people(), offset="time", per=100, **CALL),
    "dp_study": lambda: dpe.dp_study("y + event ~ t", people(), design="observational", **CALL),
    "dp_moments": lambda: dpe.dp_moments("y ~ t | x", people(), **CALL).effect("y ~ t"),
}
"""One association of each function that can give one; an instrument is taken to be randomised."""


@once
def association(name):
    return CALLS[name]()


def test_every_function_that_can_give_an_association_is_among_the_calls():
    functions = {name for name, method in TABLED.items() if method in table_methods()}
    assert functions <= {*CALLS, "dp_late"}


@pytest.mark.parametrize("name", CALLS)
def test_the_interval_of_an_association_has_no_part_for_confounding(name):
    fit = association(name)
    assert fit.associated
    estimates = [fit.released] if isinstance(fit, dpe.Result) else [*getattr(fit, "effects", ())]
    if isinstance(fit, TableEffects):
        assert fit.arm_table.confounding is None
        estimates += [term.released for term in fit.terms()]
    for estimate in estimates:
        means = estimate.means.parts if estimate.means is not None else ()
        assert not [x for x in (*estimate.parts, *means) if "confounding" in x.name]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [name for name in CALLS if name != "dp_moments"])
def test_the_allowance_for_confounding_has_an_interval_of_its_own_name(name):
    fit = association(name)
    own, effect = (np.atleast_2d([*f()]) for f in (fit.conf_int, fit.effect_conf_int))
    known = np.isfinite(own).all(axis=1)
    assert (effect[known, 0] <= own[known, 0] + 1e-12).all()
    assert (effect[known, 1] >= own[known, 1] - 1e-12).all()
    assert (np.diff(effect[known]) > 1.5 * np.diff(own[known])).any()
    said = " ".join(str(fit.summary()).split())
    assert "interval for the effect, which assumes confounding as strong as it usually is" in said
    assert "fit.effect_conf_int()" in said
    assert np.array_equal(
        type(fit).from_json(fit.to_json()).effect_conf_int(),
        effect.squeeze() if isinstance(fit, dpe.Result) else effect,
        equal_nan=True,
    )


def test_an_estimate_that_is_called_an_association_puts_confounding_aside():
    known = SamplingVariance(1.0, 0.0, 4.0)
    parts = (
        ErrorPart("confounding of the usual strength (a guess)", 3.0),
        ErrorPart("winsorisation bias", 0.5),
    )
    means = ArmMeans(
        1.0,
        0.0,
        (),
        parts=(MeansPart("confounding of the usual strength (a guess)", 1.0, -1.0),),
    )
    effect = Estimate(1.0, known, parts=parts, means=means)
    found = replace(effect, identification="unadjusted")
    assert found.bias_variance == 0.5
    assert found.means.parts == ()
    assert found.allowed == parts[:1]
    assert replace(found, value=2.0).allowed == parts[:1]
    assert found.as_effect().bias_variance == effect.bias_variance
    assert "allowed" in {f.name for f in fields(Estimate)}


def test_parts_for_confounding_are_known_by_their_names():
    folder = Path(dpe.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    names = re.findall(r'ErrorPart\(\s*f?"([^"]*)"', text)
    assert len(names) > 8
    assert all("confounding" in name for name in names if "onfound" in name)
    parts = tuple(ErrorPart(name, 1.0) for name in names)
    known = SamplingVariance(1.0, 0.0, 4.0)
    allowed = Estimate(1.0, known, parts=parts, identification="unadjusted").allowed
    assert [x.name for x in allowed] == [name for name in names if "onfound" in name] != []
