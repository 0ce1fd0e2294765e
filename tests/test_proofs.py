"""PROOFS.md is complete: one numbered claim for each primitive, and every charge cites one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.estimators import proved

ROOT = Path(dpe.__file__).parent
TEXT = (ROOT / "privacy" / "PROOFS.md").read_text()
CLAIMS = {
    int(number): (title, body)
    for number, title, body in re.findall(
        r"^## Claim (\d+)\. ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, flags=re.M | re.S
    )
}
SOURCES = sorted((ROOT / "privacy").glob("*.py"))
CHARGING = {"release", "flip", "pay", "smooth_laplace", "claimed_gaussian", "by_library"}
"""Methods of a releaser that charge the ledger."""
UNPROVED = {37}


def test_claims_are_numbered_without_gaps():
    assert list(CLAIMS) == list(range(1, len(CLAIMS) + 1))
    assert len({title for title, _ in CLAIMS.values()}) == len(CLAIMS)


@pytest.mark.parametrize("number", CLAIMS)
def test_a_claim_has_a_proof_or_says_that_it_has_none(number):
    title, body = CLAIMS[number]
    if number in UNPROVED:
        assert "not proved" in title
        assert "There is no proof" in " ".join(body.split())
    else:
        by_others = re.search(r"\(\d{4}\), Theorem", body)
        assert "∎" in body or by_others
    assert len(body.split()) > 10


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func.attr, ast.unparse(node.func.value)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_every_charge_names_a_claim(path):
    """Where a releaser is asked for something, a claim is given, and it is there."""
    for node, name, owner in calls(ast.parse(path.read_text())):
        if name in CHARGING and owner.split(".")[-1].lstrip("_") == "releaser":
            given = [k.value for k in node.keywords if k.arg == "claim"]
            assert given, f"{path.name}:{node.lineno} charges without a claim"
            if isinstance(given[0], ast.Constant):
                assert given[0].value in CLAIMS
            else:  # a problem knows its own, or callers in this file say it
                assert ast.unparse(given[0]) in ("problem.claim", "claim")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_a_claim_that_is_passed_on_is_given_by_every_caller(path):
    tree = ast.parse(path.read_text())
    passing = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "claim" in [a.arg for a in node.args.kwonlyargs]
    }
    for node, name, owner in calls(tree):
        if name in passing and owner == "self":
            given = [k.value for k in node.keywords if k.arg == "claim"]
            assert given, f"{path.name}:{node.lineno} passes no claim on"
            assert isinstance(given[0], ast.Name) or given[0].value in CLAIMS


def test_what_a_problem_claims_is_there():
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "claim":
                returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
                found += [r.value for r in returned if isinstance(r, ast.Constant)]
    assert found
    assert set(found) <= set(CLAIMS)


def mentioned(text):
    """Numbers in "claim 7", "claims 15, 16" and "claims 20 and 21"."""
    for group in re.findall(r"\bclaims? (\d+(?:(?:, | and |-)\d+)*)", text, flags=re.I):
        for part in re.split(r", | and ", group):
            ends = [int(x) for x in part.split("-")]
            yield from range(ends[0], ends[-1] + 1)


def test_what_is_mentioned_is_there_and_nothing_is_left_out():
    cited = set()
    for path in sorted(ROOT.rglob("*.py")):
        numbers = set(mentioned(path.read_text()))
        numbers |= {int(n) for n in re.findall(r"claim=(\d+)", path.read_text())}
        assert numbers <= set(CLAIMS), f"{path.name} cites {numbers - set(CLAIMS)}"
        cited |= numbers
    assert set(mentioned(TEXT)) <= set(CLAIMS)
    assert cited == set(CLAIMS)


def frame(n=60):
    rng = np.random.default_rng(0)
    x = rng.random(n)
    return pd.DataFrame(
        {"y": rng.random(n), "t": rng.random(n) < 0.3 + 0.4 * x, "x": x, "g": ["a", "b"] * (n // 2)}
    )


BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
PATHS = {
    **{
        f"{name}, {level}": (name, {"level": level})
        for name, spec in proved().items()
        for level in spec.levels
    },
    "public arms": ("diff_in_means", {"arms": "public"}),
    "noise on the weights": ("private_ipw", {"propensity": "output"}),
    "halves": ("private_ipw", {"split": True}),
    "Gaussian": ("private_ipw", {"noise": "gaussian", "delta": 1e-5}),
    "blocks": ("private_aipw", {"adjust": "all", "blocks": 3, "regression": True}),
    "smooth variance": ("smooth_matching", {"variance_noise": "smooth"}),
    "found bounds": ("diff_in_means", {"bounds": {}, "epsilon": 8.0}),
}
EFFECTS = {
    "function": {},
    "kernel": {"noise": "kernel"},
    "points": {"release": "points", "at": {"x": [0.2, 0.8]}},
    "groups": {"release": "groups", "by": "g"},
}


def checked(spends):
    assert spends
    for spend in spends:
        assert spend.claim in CLAIMS
        assert spend.epsilon > 0 or spend.delta > 0 or "claim 26" in spend.label
        if spend.mechanism in ("Laplace", "Gaussian", "smooth Laplace"):
            assert all(s > 0 for s in (*spend.sensitivity, *spend.scale))


@pytest.mark.parametrize(("name", "given"), PATHS.values(), ids=PATHS)
def test_every_spend_of_a_method_cites_a_claim(name, given):
    spec = proved()[name]
    formula = "y ~ t | g" if spec.needs_strata else "y ~ t | x"
    call = {"epsilon": 1.0, "delta": 1e-5 * spec.needs_delta, "bounds": BOUNDS, "seed": 1, **given}
    checked(dpe.dp_ate(formula, frame(1200), name, **call).spends)


@pytest.mark.parametrize("given", EFFECTS.values(), ids=EFFECTS)
def test_every_spend_of_conditional_effects_cites_a_claim(given):
    fit = dpe.dp_cate("y ~ t | x", frame(), epsilon=1, delta=1e-5, bounds=BOUNDS, seed=1, **given)
    checked(fit.spends)


def test_every_spend_of_balance_cites_a_claim():
    found = dpe.dp_balance(
        "y ~ t | x", frame(), epsilon=1, delta=1e-5, bounds=BOUNDS, adjusted=True, seed=1
    )
    checked(found.spends)
    assert {spend.share for spend in found.spends} == {
        "balance",
        "propensity",
        "overlap",
        "adjusted",
    }
