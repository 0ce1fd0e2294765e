"""Synthetic data: fitted tables against brute force, what the library gets, what comes back."""

from __future__ import annotations

import ast
import itertools
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.errors import EstimationError, MissingExtraError, OptionError
from dpeffects.ledgers.composition import epsilon_of_rho
from dpeffects.replication.unproved.generators import environment
from dpeffects.replication.unproved.generators.measured_tables import FittedDistribution, Tree
from tests.plain import plain

SIZES = {"t": 2, "y": 4, "a": 3, "b": 3, "c": 2}
NAMES = list(SIZES)
CLIQUES = [("y", "t"), ("t", "y", "a"), ("b", "a"), ("c",), ("a",)]
FORMULA = "y ~ t | x + g + k"
BOUNDS = {"y": (0, 10), "x": (0, 1), "g": ["a", "b", "c"], "k": range(3)}
CALL = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS, "accept_library": True}
READY = (environment.folder() / "bin" / "python").exists()
needs_library = pytest.mark.skipif(not READY, reason="dpeffects synthetic-setup has not run")


def test_the_worker_imports_what_stands_beside_it():
    """It runs in an environment of its own, where most machines cannot try it."""
    folder = Path(environment.__file__).parent
    beside = {path.stem: path for path in folder.glob("*.py")}
    used = 0
    for node in ast.walk(ast.parse((folder / "worker.py").read_text())):
        own = isinstance(node, ast.ImportFrom) and (node.module in beside or "." not in node.module)
        if own and node.module not in sys.stdlib_module_names:
            tree = ast.parse(beside[node.module].read_text())
            made = {getattr(x, "name", "") for x in tree.body}
            made |= {t.id for x in tree.body if isinstance(x, ast.Assign) for t in x.targets}
            assert {alias.name for alias in node.names} <= made
            used += 1
    assert used == 1


def summed(joint, clique):
    """A table of a joint distribution, in the order of the clique."""
    kept = [name for name in NAMES if name in clique]
    table = joint.sum(axis=tuple(i for i, name in enumerate(NAMES) if name not in clique))
    return table.transpose([kept.index(name) for name in clique])


def multiplied(potentials):
    """The joint distribution that potentials stand for, cell by cell."""
    logs = np.zeros(list(SIZES.values()))
    for clique, table in potentials.items():
        kept = [name for name in NAMES if name in clique]
        turned = table.transpose([clique.index(name) for name in kept])
        logs = logs + turned.reshape([SIZES[n] if n in clique else 1 for n in NAMES])
    joint = np.exp(logs)
    return joint / joint.sum()


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.full(np.prod(list(SIZES.values())), 0.3)).reshape(list(SIZES.values()))


@pytest.fixture(scope="module")
def fitted(truth):
    measured = [(c, 1000 * summed(truth, c).reshape(-1), 1.0) for c in CLIQUES]
    return FittedDistribution(SIZES, measured, 1000, steps=3000)


def test_exact_tables_are_met(truth, fitted):
    for clique in CLIQUES:
        np.testing.assert_allclose(fitted.project(clique), 1000 * summed(truth, clique), atol=1e-6)


def test_every_table_is_that_of_the_joint_distribution(fitted):
    joint = multiplied(fitted.potentials)
    for size in (1, 2, 3):
        for names in itertools.permutations(NAMES, size):
            found = fitted.project(names)
            np.testing.assert_allclose(found, 1000 * summed(joint, names), atol=1e-9)


def test_records_have_the_joint_distribution(fitted):
    n = 100_000
    drawn = fitted.sample(np.random.default_rng(1).random((n, len(SIZES))))
    counts = np.zeros(list(SIZES.values()))
    np.add.at(counts, tuple(drawn[name] for name in NAMES), 1)
    assert np.abs(counts / n - multiplied(fitted.potentials)).max() < 5 * np.sqrt(0.25 / n)


def test_a_fit_starts_where_the_last_one_ended(truth, fitted):
    measured = [(c, 1000 * summed(truth, c).reshape(-1), 1.0) for c in [*CLIQUES, ("c", "b")]]
    again = FittedDistribution(SIZES, measured, 1000, fitted.potentials, steps=0)
    for clique in CLIQUES:
        np.testing.assert_allclose(again.project(clique), fitted.project(clique), atol=1e-9)


def test_the_tree_holds_every_clique_in_one_table():
    cliques = [("a", "b"), ("b", "c"), ("c", "y"), ("y", "a")]  # a ring: one chord is needed
    tree = Tree(SIZES, cliques)
    for clique in cliques:
        first, *rest = tree.sorted(clique)
        assert set(rest) <= set(tree.later[first])
    assert max(len(later) for later in tree.later.values()) == 2


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    t = rng.random(n) < 0.5
    x, k = rng.random(n), rng.integers(0, 3, n)
    y = np.clip(2 + 4 * t + 2 * x + rng.normal(0, 1, n), 0, 10)
    return pd.DataFrame({"y": y, "t": t, "x": x, "g": rng.choice(list("abc"), n), "k": k})


@pytest.fixture
def asked(monkeypatch):
    """Requests that were sent, answered with the records themselves."""
    sent = []

    def ask(request):
        sent.append(request)
        return {"codes": request["codes"], "tables": request["workload"]}

    monkeypatch.setattr(environment, "ask", ask)
    monkeypatch.setattr(environment, "require", lambda: None)
    return sent


def test_records_come_back_as_they_were_up_to_cells(asked):
    data = frame(2000)
    fit = dpe.dp_ate(FORMULA, data, "synthetic", cells=32, outcome_cells=64, **CALL)
    reference = plain(FORMULA, data, "synthetic", bounds=BOUNDS)
    assert fit.estimate == pytest.approx(reference.estimate, abs=0.02)
    assert fit.guarantee.status == "library"
    assert "not available" in str(fit.conf_int())
    assert " nan" not in str(fit.summary())
    assert " nan" not in str(fit.report())


def test_cells_follow_from_bounds_and_types(asked):
    dpe.dp_ate(FORMULA, frame(), "synthetic", cells=5, outcome_cells=7, **CALL)
    sizes = asked[0]["sizes"]
    assert sorted(sizes.values()) == sorted([5, 2, 2, 3, 2, 7])  # x, two levels, k, t, y
    for name, codes in asked[0]["codes"].items():
        assert 0 <= min(codes) <= max(codes) < sizes[name]


def test_a_record_changes_its_own_codes_only(asked):
    data, other = frame(), frame()
    other.loc[7, ["y", "x", "k"]] = [99.0, -5.0, 40]
    other.loc[7, "t"] = not other.loc[7, "t"]
    for each in (data, other):
        dpe.dp_ate(FORMULA, each, "synthetic", seed=1, **CALL)  # records in the same order
    one, two = asked
    assert one["sizes"] == two["sizes"]
    assert one["workload"] == two["workload"]
    assert one["rho"] == two["rho"]
    moved = {
        i
        for name in one["codes"]
        for i, (a, b) in enumerate(zip(one["codes"][name], two["codes"][name], strict=True))
        if a != b
    }
    assert len(moved) == 1


def test_the_rho_that_is_asked_for_is_what_the_budget_allows(asked):
    fit = dpe.dp_ate(FORMULA, frame(), "synthetic", **CALL)
    assert epsilon_of_rho(asked[0]["rho"], 1e-5) <= 1.0 + 1e-6
    assert [(s.epsilon, s.delta) for s in fit.charges] == [(1.0, pytest.approx(1e-5))]


def test_the_ledger_is_charged_before_the_library_draws(monkeypatch):
    def fails(request):
        raise EstimationError("no answer")

    monkeypatch.setattr(environment, "ask", fails)
    monkeypatch.setattr(environment, "require", lambda: None)
    ledger = dpe.Ledger(1.0, 1e-5)
    with pytest.raises(EstimationError):
        dpe.dp_ate(FORMULA, frame(), "synthetic", ledger=ledger, **CALL)
    assert float(ledger.spent[0]) == pytest.approx(1.0)


def test_without_its_environment_nothing_is_charged(monkeypatch, tmp_path):
    monkeypatch.setenv("DPEFFECTS_GENERATORS", str(tmp_path / "none"))
    ledger = dpe.Ledger(1.0, 1e-5)
    with pytest.raises(MissingExtraError, match="dpeffects synthetic-setup"):
        dpe.dp_ate(FORMULA, frame(), "synthetic", ledger=ledger, **CALL)
    assert ledger.spent == (0, 0)


@pytest.mark.parametrize(
    ("option", "value"),
    [("generator", "gan"), ("cells", 1), ("cells", 2.5), ("workload", "all"), ("clip", 0.7)],
)
def test_bad_options(option, value):
    with pytest.raises(OptionError, match=option):
        dpe.dp_ate(FORMULA, frame(), "synthetic", **{option: value}, **CALL)


def test_a_delta_is_needed():
    with pytest.raises(OptionError, match="delta"):
        dpe.dp_ate(FORMULA, frame(), "synthetic", **{**CALL, "delta": 0.0})


@needs_library
@pytest.mark.parametrize("generator", ["aim", "mst"])
def test_the_library_finds_a_large_effect(generator):
    """With a large budget the only loss is that of cells and tables."""
    call = {**CALL, "epsilon": 50.0}
    fit = dpe.dp_ate(FORMULA, frame(3000), "synthetic", generator=generator, **call)
    assert fit.estimate == pytest.approx(4.0, abs=0.4)


@needs_library
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("generator", ["aim", "mst"])
def test_draws_cost_what_was_paid(generator, seed):
    rng = np.random.default_rng(0)
    sizes = {"t": 2, "y": 4, "x0": 3, "x1": 3, "x2": 8}
    codes = {name: rng.integers(0, size, 300).tolist() for name, size in sizes.items()}
    workload = [["t", "y", "x0"], ["t", "y", "x1"], ["t", "y", "x2"]]
    request = {"generator": generator, "workload": workload, "codes": codes, "sizes": sizes}
    answer = environment.ask({**request, "rho": 0.3, "seed": seed})
    assert 0.8 * 0.3 <= answer["spent"] <= 0.3 * (1 + 1e-9)


@needs_library
@pytest.mark.parametrize("generator", ["aim", "mst"])
def test_a_seed_repeats_the_noise_of_the_library(generator):
    def once(seed):
        call = {**CALL, "seed": seed}
        return dpe.dp_ate(FORMULA, frame(), "synthetic", generator=generator, **call).estimate

    first = once(1)
    environment._stop()  # a new process, with its own order of sets
    assert once(1) == first
    assert once(2) != first
    assert once(None) != once(None)  # no seed stays behind


@needs_library
def test_the_process_stays_and_survives_bad_requests():
    with pytest.raises(EstimationError, match="failed with KeyError"):
        environment.ask({"codes": {}})
    process = environment._started[os.getpid()]
    dpe.dp_ate(FORMULA, frame(), "synthetic", **CALL)
    assert environment._started[os.getpid()] is process
    process.kill()
    process.wait()
    dpe.dp_ate(FORMULA, frame(), "synthetic", **CALL)
