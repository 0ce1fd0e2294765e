"""All results are written to JSON and read again."""

from __future__ import annotations

import contextlib
import json

import pytest

import dpeffects as dpe
from dpeffects.errors import DataError
from tests.releases import NAMES, release

BOUNDS = {"y": (0, 1), "x": ["a", "b"]}


def is_read_again(result):
    text = result.to_json()
    again = type(result).from_json(text)
    assert json.loads(again.to_json()) == json.loads(text)
    assert str(again.summary()) == str(result.summary())
    assert again.tidy().to_csv() == result.tidy().to_csv()
    return again


@pytest.mark.parametrize("name", [*NAMES, "balance", "randomisation test"])
def test_releases(name):
    fit = release(name)
    assert str(is_read_again(fit).report()) == str(fit.report())


def test_what_is_computed_is_written_and_not_read():
    fit = release("randomised")
    document = fit.to_dict(0.5)
    assert document["estimate"] == fit.estimate
    assert document["conf_int"]["lower"] == fit.conf_int(0.5).lower
    assert "influence" not in document["released"]  # a row function of the call
    assert type(fit).from_dict(document | {"estimate": 99.0, "conf_int": None}) == fit
    test = fit.test().to_dict()
    assert test["hypothesis"] == fit.test().hypothesis
    assert "again" not in test


def test_plans_audits_and_studies():
    fits = {"means": {"method": "diff_in_means"}}
    is_read_again(dpe.plan("y ~ t | x", n=400, epsilon=1, bounds=BOUNDS, repeats=1))
    is_read_again(dpe.audit("diff_in_means", epsilon=1, runs=200, seed=1))
    is_read_again(dpe.simulate_study(fits, "confounded", n=200, epsilon=1, repeats=2, seed=1))
    is_read_again(dpe.bench(["diff_in_means"], data=["confounded"], repeats=1, epsilon=1, seed=1))


def test_releases_of_a_changed_combination_are_checked_again():
    document = release("sites").to_dict()
    document["releases"][0]["estimate"] = "much"
    with pytest.raises(dpe.DPEffectsError):
        dpe.CombinedEffect.from_dict(document)
    with pytest.raises(DataError, match="Combined"):
        dpe.CombinedEffect.from_json("[]")


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_a_document_as_deep_as_it_likes(depth):
    deep = f'"details": {{"deep": {"[" * depth + "]" * depth}}}'
    text = json.dumps(release("groups").to_dict() | {"details": "here"})
    with contextlib.suppress(DataError):
        dpe.CateEffects.from_json(text.replace('"details": "here"', deep))


def test_changed_documents_that_cannot_be_shown_are_refused_when_they_are_read():
    """They used to fail later, with errors of Python's own, or of a library."""
    balance = release("balance").to_dict()
    balance["counts"][0] = balance["counts"][0][:-1]
    with pytest.raises(DataError, match="Balance"):
        dpe.Balance.from_json(json.dumps(balance))
    fit = release("groups")
    lone_surrogate = json.dumps(fit.to_dict() | {"citation": "\ud800"})
    for text in (lone_surrogate, fit.to_json() + "\ud800"):
        with pytest.raises(DataError, match="CateEffects"):
            dpe.CateEffects.from_json(text)
