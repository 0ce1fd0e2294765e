"""A warning is said of those whom it is about, and goes with them: subsets, arms, outcomes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects import abilities
from dpeffects.inference.estimate import NO_EFFECT
from dpeffects.report.plots.several_outcomes import _rows
from dpeffects.summary import each_warning
from tests.commands.shell import run
from tests.kinds_of_summaries import CALL, people
from tests.once import once

WORDS = "Weak adjustment: mostly noise"
BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
SEVERAL = {
    "subsets": lambda: dpe.dp_ate("y ~ t | x", people(), by="g", **CALL),
    "arms": lambda: dpe.dp_ate("y ~ arm | x", people(), **CALL),
    "groups": lambda: dpe.dp_cate("y ~ t | x", people(), release="groups", by="g", **CALL),
}


@once
def several(name):
    return SEVERAL[name]()


@pytest.mark.parametrize("name", SEVERAL)
def test_a_warning_names_the_effects_that_it_is_about(name):
    fit = several(name)
    fine = tuple(replace(x, identification="adjusted", warnings="") for x in fit.effects)
    odd = replace(fine[-1], identification="unadjusted", warnings=WORDS)
    mixed = replace(fit, effects=(*fine[:-1], odd))
    assert not mixed.associated
    told = each_warning(mixed.estimate_warnings)
    assert {f"{x} (only {fit.labels[-1]})" for x in (NO_EFFECT, WORDS)} <= set(told)
    alike = replace(fit, effects=tuple(replace(odd, value=x.value) for x in fine))
    assert {NO_EFFECT, WORDS} <= set(each_warning(alike.estimate_warnings))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_warning_of_an_effect_that_is_not_known_is_its_own(name):
    fit = several(name)
    first, *others = (replace(x, identification="adjusted", warnings="") for x in fit.effects)
    lost = replace(first, value=np.nan, warnings=WORDS)
    for some, told in ((others, f"{WORDS} (only {fit.labels[0]})"), ((), WORDS)):
        known = [*some] or [replace(x, warnings=WORDS) for x in others]
        mixed = replace(fit, effects=(lost, *known))
        assert told in each_warning(mixed.estimate_warnings)


@pytest.mark.parametrize("name", ["subsets", "arms"])
def test_effects_beside_an_association_are_effects(name):
    fit = several(name)
    known = [replace(x, identification="adjusted") for x in fit.effects]
    none = replace(known[0], identification="unadjusted")
    for effects in ((none, *known[1:]), (*known[:-1], none)):
        mixed = replace(fit, effects=effects)
        text = str(mixed.summary())
        assert mixed.identification == "adjusted"
        assert "Average treatment effects" in text
        assert "this is an association, not an effect" not in text
    assert replace(fit, effects=(none,) * len(known)).associated


@once
def study(**given):
    bounds = {**BOUNDS, "event": [0, 1]}
    asked = {"bounds": bounds, "subgroups": "g", "epsilon": 8, "seed": 1}
    return dpe.dp_study("y + event ~ t | x", people(), **asked | given)


def test_what_a_study_warns_of_goes_with_its_parts():
    fit = replace(study(), method_warnings=WORDS)
    parts = [fit.effect_on("y"), fit.effect_on("event"), fit.by("g"), dpe.compare(fit.by("g"))]
    parts += [fit.effect_on("event").effect("ratio"), fit.by("g").subset(fit.by("g").labels[0])]
    for part in parts:
        assert WORDS in " ".join(str(part.summary()).split())


def test_imbalance_of_a_trial_goes_with_its_effects():
    fit = study(design="randomised")  # it was not: the arms differ in x
    (words,) = fit._imbalanced
    assert words in fit.effect_on("y").warnings
    assert words in fit.by("g").warnings


def test_numbers_of_a_forest_plot_are_of_the_records_analysed():
    data, rng = people().copy(), np.random.default_rng(2)
    data["y"] = data["y"].mask(rng.random(len(data)) < 0.4)
    asked = {"bounds": BOUNDS, "subgroups": "g", "epsilon": 50, "missing": "complete", "seed": 1}
    fit = dpe.dp_study("y + d ~ t | x", data, **asked)
    whole, _, *parts = (row.texts[1] for row in _rows(fit, 0.95, True, ["g"]))
    numbers = [float(x.replace(",", "")) for x in (whole, *parts[:2])]
    assert numbers[0] == pytest.approx(data["y"].notna().sum(), rel=0.05)
    assert sum(numbers[1:]) == pytest.approx(numbers[0], abs=2)


def gaps(n=6000):
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"y": rng.random(n), "x": rng.random(n), "t": rng.integers(0, 2, n)})
    for name, share in {"y": 0.3, "x": 0.5}.items():
        data[name] = data[name].mask(rng.random(n) < share)
    return data


SUMS = ("one_step", "diff_in_means", "private_ipw", "regression")
OTHERS = ("dp_balance", "dp_qte", "dp_moments", "dp_study")


@pytest.mark.parametrize("method", ["auto", "clipped_contrast", *SUMS, *OTHERS])
def test_only_gaps_in_what_is_read_leave_records_out(method):
    data, bounds = gaps(), {"y": (0, 1), "x": (0, 1)}
    how = {"bounds": bounds, "missing": "complete", "epsilon": 50.0, "seed": 1}
    if method not in OTHERS:
        how["method"] = method
    call = getattr(dpe, method if method in OTHERS else "dp_ate")
    fit = call("y ~ t | x", data, **how)
    said = fit.sample["missing, complete"]
    named = [x for x in ("y", "x") if re.search(rf"\b{x}\b", said.partition(" of ")[2])]
    size = float(fit.sample["size"].split()[1].replace(",", ""))
    assert size == pytest.approx(len(data.dropna(subset=named)), rel=0.05)


DRAWN = {"ate": dpe.dp_ate, "att": dpe.dp_att, "atc": dpe.dp_atc, "cate": dpe.dp_cate}
DRAWN |= {name.removeprefix("dp_").replace("_", "-"): x for name, x in abilities.calls().items()}


@pytest.mark.parametrize("command", DRAWN)
def test_every_command_whose_result_has_a_picture_draws_it(command, capsys):
    returned = DRAWN[command].__annotations__["return"].split(" | ")[0]
    if getattr(dpe, returned)._picture:
        assert "--plot" in run(capsys, command, "--help")[1]
