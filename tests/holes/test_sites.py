"""What a site answers depends on the question, its policy and n, and on nothing in its records."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpeffects.design.bounds import Bounds, DeclaredFrame
from dpeffects.errors import (
    DataError,
    EstimationError,
    OptionError,
    PolicyError,
    ReleaseError,
)
from dpeffects.estimators import proved
from dpeffects.ledgers.memory import Ledger
from dpeffects.services.federation import collect
from dpeffects.services.gate import Policy, answer, trial_runs
from dpeffects.services.gate import answers as site
from dpeffects.services.gate.records import SiteColumns
from dpeffects.services.sites import SiteRelease, combine, dp_multisite, site_release
from dpeffects.services.sites.consistency import release_inconsistency
from dpeffects.services.sites.signing import make_keys, read_private, sign
from tests.federation.sites import policy, question
from tests.sites.examples import SPEND, estimate, release

N = 120
ENTRIES = {
    "total_epsilon": 1e6,
    "max_epsilon": 10.0,
    "max_delta": 1e-5,
    "total_delta": 0.9,
    "methods": sorted(proved()),
    "estimands": ["ATE", "ATT", "ATC"],
    "bounds": {
        "y": {"range": [0, 5]},
        "x": {"range": [0, 10]},
        "region": {"levels": ["N", "S"]},
    },
}
ORACLE = "I(((abs(y - 4.2) + 3.254)**3 - 34.455031064)**0.5) ~ t | x"


def texts(treated=0.5):
    """The fields of a CSV file, as text; the first record is an ordinary one."""
    rng = np.random.default_rng(5)
    t = (np.arange(N) < treated * N).astype(int)
    t = rng.permutation(t) if 0 < treated < 1 else t
    columns = {"y": rng.random(N) * 5, "t": t, "x": rng.random(N) * 10}
    return pd.DataFrame(columns).astype(str).assign(region=rng.choice(["N", "S"], N))


NASTY = {
    "missing outcome": {"y": ""},
    "outcome is NaN": {"y": "NaN"},
    "outcome is infinite": {"y": "inf"},
    "outcome is minus infinity": {"y": "-Infinity"},
    "text in a numeric column": {"y": "high", "x": "n/a"},
    "extreme values": {"y": "1e308", "x": "-1e308"},
    "beyond all floats": {"y": "9" * 400, "x": "1e999"},
    "the oracle's value": {"y": "4.2"},
    "ends of the ranges": {"y": "0", "x": "0"},
    "another level": {"region": "W"},
    "empty level": {"region": ""},
    "spaces around values": {"y": " 4.5 ", "region": " S "},
    "neither arm": {"t": "2"},
    "treatment in words": {"t": "yes"},
    "missing treatment": {"t": ""},
    "everything missing": {"y": "", "t": "", "x": "", "region": ""},
}
QUESTIONS = {
    "means": {"formula": "y ~ t", "method": "diff_in_means"},
    "oracle": {"formula": ORACLE, "method": "auto", "epsilon": 0.01},
    "oracle, weighted": {"formula": ORACLE, "method": "private_ipw"},
    "adjusted": {"formula": "y ~ t | x + region", "method": "auto", "epsilon": 5},
    "always adjusted": {
        "formula": "y ~ t | x",
        "method": "one_step",
        "options": {"clip": 0.1},
    },
    "on the treated": {"formula": "y ~ t | x*region", "method": "private_ipw", "estimand": "ATT"},
    "hardly penalised": {
        "formula": "y ~ t | x + region",
        "method": "private_ipw",
        "options": {"penalty": 1e-12},
    },
    "matched": {"formula": "y ~ t | cut(x, [0, 2, 5, 10])", "method": "private_psm", "epsilon": 9},
    "strata": {"formula": "y ~ t | region", "method": "smooth_matching", "delta": 1e-6},
    "all strata": {"formula": "y ~ t | region", "method": "global_matching"},
    "folds": {"formula": "y ~ t | bs(x, knots=[5], lower_bound=0, upper_bound=10)"}
    | {"method": "model_folds"},
    "blocks": {"formula": "log(y + 1) ~ t | I(x**2)", "method": "sample_aggregate"},
    "undefined": {"formula": "log(y) ~ t | I(1 / x)", "method": "auto"},
    "level of the formula": {
        "formula": "y ~ t | C(region, levels=['N', 'S', 'W'])",
        "method": "auto",
    },
    "option": {"formula": "y ~ t", "method": "diff_in_means", "options": {"arms": 1e300}},
}


@pytest.fixture
def frozen(monkeypatch):
    """The same noise for the same question, so that only the records can make a difference."""
    real = site.released
    monkeypatch.setattr(site, "released", lambda *a, **k: real(*a, seed=11, **k))


def replies(folder, data, questions=QUESTIONS, **changes):
    """Whether each question was answered, and the reason where it was not.

    That released values do not allow an estimate is an answer: it is a function of releases.
    """
    folder.mkdir()
    found, north = {}, policy(folder, data, **{**ENTRIES, **changes})
    for name, asked in questions.items():
        reply = answer(question(name.replace(" ", "-").replace(",", ""), **asked), north)
        reason = reply.get("reason", "")
        found[name] = "ok" if reason == site.NO_ESTIMATE else (reply["status"], reason)
        if reply["status"] == "ok":
            found[name] = "ok"
    return found


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Replies of a site whose records are all in order."""
    return replies(tmp_path_factory.mktemp("usual") / "site", texts())


def test_most_questions_are_answered(usual):
    refused = {name for name, reply in usual.items() if reply != "ok"}
    assert {"undefined", "level of the formula", "option"} <= refused
    assert len(refused) <= 5


@pytest.mark.sampled(5)
@pytest.mark.parametrize("record", NASTY)
def test_no_record_changes_whether_or_how_a_site_refuses(tmp_path, frozen, usual, record):
    """One record that was missing, no number or no level made the site refuse, for nothing."""
    data = texts()
    data.loc[3, list(NASTY[record])] = list(NASTY[record].values())
    assert replies(tmp_path / "site", data) == usual


@pytest.mark.sampled(5)
@pytest.mark.parametrize("treated", [0, 1 / N, 1 - 1 / N, 1])
def test_who_is_treated_does_not_show(tmp_path, frozen, usual, treated):
    """A site with one treated record answered; with none it was "not ready", at no cost."""
    assert replies(tmp_path / "site", texts(treated)) == usual


def test_the_exact_value_of_a_record_cannot_be_asked_for(tmp_path, frozen):
    """The formula was answered where nobody had y = 4.2, and refused where one record had."""
    asked = {"oracle": QUESTIONS["oracle"]}
    there = texts()
    there.loc[3, "y"] = "4.2"
    found = [replies(tmp_path / n, d, asked) for n, d in (("a", texts()), ("b", there))]
    assert found[0] == found[1]


@pytest.mark.parametrize("column", ["y", "t", "x", "region"])
def test_the_type_of_a_stored_column_does_not_show(tmp_path, frozen, usual, column):
    """One text makes a whole stored column text, and questions were refused by its type."""
    data = texts().astype({"y": float, "t": int, "x": float})
    typed = data.astype({column: object})
    typed[column] = typed[column].astype(str)
    for name, frame in (("typed", data), ("text", typed)):
        (tmp_path / name).mkdir()
        frame.to_parquet(tmp_path / name / "data.parquet")
        north = replace(policy(tmp_path / name, **ENTRIES), data=tmp_path / name / "data.parquet")
        north.check()
        reply = answer(question(formula="y ~ t | x + region", method="auto"), north)
        assert reply["status"] == "ok"


def test_a_failure_of_another_kind_is_a_refusal_in_fixed_words(monkeypatch):
    """Exceptions that are not the package's own went through `answer`, and could quote values."""
    layout = SiteColumns({"y": (0, 1)}, frozenset({"t"}))
    task = trial_runs.Rehearsal(
        "y ~ t", {"method": "diff_in_means", "epsilon": 1}, layout, 50, 60, 500
    )
    assert trial_runs._reason(task) == ""
    for error, words in (
        (RuntimeError("4711"), trial_runs.UNUSABLE),
        (IndexError("4711"), trial_runs.UNUSABLE),
        (MemoryError(), trial_runs.TOO_LARGE),
        (EstimationError("no luck"), ""),
        (OptionError("clip must be below 1"), "clip must be below 1"),
    ):

        def fails(*args, error=error, **kwargs):
            raise error

        monkeypatch.setattr("dpeffects.dp_ate", fails)
        assert trial_runs._reason(task) == words


@pytest.mark.parametrize("step", ["store", "load", "grant", "task"])
def test_answer_never_raises(tmp_path, monkeypatch, step):
    """Whatever goes wrong at a site, the centre gets one sentence."""
    north = policy(tmp_path)

    def fails(*args, **kwargs):
        raise RuntimeError("4711")

    monkeypatch.setattr(Policy, step, fails)
    reply = answer(question(), north)
    assert (reply["status"], reply["reason"]) == ("refused", site.NOT_READY)


ARMS = [
    (name, estimand)
    for name, spec in proved().items()
    for estimand in spec.estimands
    if "sample" in spec.levels
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("method", "estimand"), ARMS)
def test_every_method_works_with_an_empty_arm(method, estimand):
    """Where nobody may be told that an arm is empty, the method must go on."""
    spec = proved()[method]
    formula = "y ~ t | region" if spec.needs_strata else "y ~ t | x + region"
    bounds = {"y": (0, 5), "x": (0, 10), "region": ["N", "S"]}
    delta = 1e-6 if spec.needs_delta else 0.0
    for treated in (0, 1 / N, 1):
        data = texts(treated).astype({"y": float, "t": int, "x": float})
        for frame in (data, data.assign(y=5.0, x=0.0, region="S")):
            arguments = {"method": method, "estimand": estimand, "epsilon": 2.0, "delta": delta}
            with suppress(EstimationError):  # of released values
                asked = DeclaredFrame(frame, Bounds.declared(bounds), interactive=False)
                site_release(formula, asked, site="a", seed=3, **arguments)
    with pytest.raises(DataError, match="one of the two arms is empty"):
        site_release(formula, data, site="a", bounds=bounds, **arguments)


# --- several sites on one machine ---------------------------------------------------------------


def hospitals(**changes):
    data = texts().astype({"y": float, "t": float, "x": float})
    data["hospital"] = np.repeat(["A", "B"], N // 2)
    for column, values in changes.items():
        data.loc[data["hospital"] == "B", column] = values
    return data


@pytest.mark.parametrize("change", [{"y": np.nan}, {"t": 1.0}, {"region": "W"}, {"t": 3.0}])
def test_all_sites_are_checked_before_the_first_one_pays(change):
    """The first site was charged before the second one's data was looked at."""
    ledgers = {name: Ledger(5.0) for name in "AB"}
    with pytest.raises(DataError, match="site 'B'"):
        dp_multisite(
            "y ~ t | region",
            hospitals(**change),
            site="hospital",
            epsilon={"A": 1, "B": 1},
            ledger=ledgers,
            bounds={"y": (0, 5), "region": ["N", "S"]},
        )
    assert [float(ledger.spent[0]) for ledger in ledgers.values()] == [0.0, 0.0]
    assert [ledger.remaining[0] for ledger in ledgers.values()] == [5.0, 5.0]


@pytest.mark.parametrize("method", ["private_psm", "private_ipw"])
def test_no_site_is_left_out_because_of_its_records(method):
    """With almost no penalty a site was left out as "did not converge", or not, by one record."""
    far = hospitals()
    far.loc[0, ["y", "x"]] = [0.0, 10.0]
    left_out = [
        dp_multisite(
            "y ~ t | x + I(x**2) + region",
            data,
            site="hospital",
            epsilon={"A": 50, "B": 50},
            method=method,
            bounds={"y": (0, 5), "x": (0, 10), "region": ["N", "S"]},
            penalty=1e-12,
            **({"as_printed": True} if method == "private_psm" else {}),
            rule="all",
            seed=1,
        ).left_out
        for data in (hospitals(), far)
    ]
    assert left_out == [{}, {}]


# --- questions are bounded -----------------------------------------------------------------------


def points(count):
    return "[" + ", ".join(f"{10 * i / count:.3g}" for i in range(count)) + "]"


def test_columns_are_counted_before_they_are_made(tmp_path):
    """Two cuts of 150 points make 22,000 columns: the site hung on it, for free."""
    north = policy(tmp_path, texts(), **ENTRIES)
    wide = f"y ~ t | cut(x, {points(150)}):C(region):I(x**2)"
    reply = answer(question(formula=wide, method="auto"), north)
    assert reply["reason"] == "the formula makes more than this site's maximum of 200 columns"
    both = {name: {"range": [0, 10]} for name in ("y", "x", "w")}
    columns = {"outcome": ["y"], "treatment": ["t"], "covariates": ["x", "w"]}
    north = policy(tmp_path, texts().assign(w="1"), **{**ENTRIES, "bounds": both}, columns=columns)
    wide = f"y ~ t | cut(x, {points(150)}):cut(w, {points(150)})"
    reply = answer(question(formula=wide, method="auto"), north)
    assert "200 columns" in reply["reason"]
    assert north.store().spent == (0, 0)


@pytest.mark.long
def test_a_question_beyond_its_memory_costs_nothing(tmp_path, monkeypatch):
    """It is stopped on made-up records, and the site goes on answering."""
    north, real = policy(tmp_path), Policy.task
    asked = question(formula="y ~ t | x*region", method="auto")
    monkeypatch.setattr(Policy, "task", lambda *a: replace(real(*a), n=3_000_000, megabytes=20))
    assert answer(asked, north)["reason"] == trial_runs.TOO_LARGE
    assert north.store().spent == (0, 0)
    monkeypatch.setattr(Policy, "task", real)
    assert answer(asked, north)["status"] == "ok"


@pytest.mark.long
def test_a_question_beyond_its_time_is_stopped():
    """Half a million records in no time: the process is killed, a new one takes its place."""
    layout = SiteColumns({"y": (0, 1), "x": (0, 1)}, frozenset({"t"}))
    slow = {"method": "model_folds", "epsilon": 1}
    task = trial_runs.Rehearsal("y ~ t | x", slow, layout, 500_000, 0, 4000)
    assert trial_runs._tried(task) == trial_runs.TOO_LARGE
    assert trial_runs._tried(replace(task, n=200, seconds=60)) == ""


# --- what a centre takes -------------------------------------------------------------------------


def test_an_old_signed_release_does_not_answer_a_new_request(tmp_path):
    """A signature does not date a release: one of last year was taken for this year's."""
    sent = []
    for name, asked in (("North", "2026"), ("South", "2025")):
        private, _ = make_keys(name, tmp_path)
        sent.append(sign(release(name, request=asked), read_private(private)))
    with pytest.raises(ReleaseError, match="'North' and 'South' answer different requests"):
        combine(sent, public_keys=tmp_path)
    with pytest.raises(ReleaseError, match="'South' answers the request '2025', not '2026'"):
        combine(sent, public_keys=tmp_path, request="2026")
    with pytest.raises(ReleaseError, match="'North' answers no request, not '2026'"):
        combine([release("North")], request="2026")
    with pytest.raises(ReleaseError, match="different requests"):
        combine([release("North", request="2026"), release("South")])
    assert len(combine(sent[:1], public_keys=tmp_path, request="2026").used) == 1


LIES = {
    "no noise to speak of": ({"released": estimate(laplace=(1e-12,))}, "less noise"),
    "no noise": ({"released": estimate(laplace=())}, "less noise"),
    "no charges": ({"charges": ()}, "no charges"),
    "charges too small": ({"charges": (replace(SPEND, epsilon=0.5),)}, "do not add up"),
    "charges too large": ({"charges": (SPEND, SPEND)}, "do not add up"),
    "a delta for nothing": ({"charges": (replace(SPEND, delta=1e-9),)}, "do not add up"),
    "no range": ({"bounds": ()}, "range of its outcome"),
    "a range in words": ({"bounds": (("y", "N, S", "declared"),)}, "range of its outcome"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_site_with_impossible_numbers_takes_no_weight(lie):
    """A claimed noise of 1e-12 took all weight, and a release without charges was accepted."""
    change, words = LIES[lie]
    with pytest.raises(ReleaseError, match="'South' is not plausible") as error:
        combine([release("North"), release("South", **change)])
    assert words in str(error.value)


def test_the_centre_leaves_out_what_is_not_plausible():
    asked = question("q1", formula="y ~ t | x", epsilon=1.0)
    sent = [
        release("north", request="q1"),
        release("south", request="q1", released=estimate(laplace=(1e-12,))),
    ]
    made = [(r.site, {"status": "ok", "request": "q1", "release": r.to_dict()}) for r in sent]
    collected = collect(made, ["north", "south"], asked)
    assert list(collected.releases) == ["north"]
    assert "less noise" in collected.left_out["south"]
    assert collected.combine().left_out == collected.left_out


@pytest.mark.sampled(4)
@pytest.mark.parametrize("method", proved())
def test_what_the_package_releases_is_plausible(method):
    """The checks of a centre must never leave out an honest site."""
    spec, rng = proved()[method], np.random.default_rng(1)
    formula = "y ~ t | region" if spec.needs_strata else "y ~ t | x + region"
    delta = 1e-6 if spec.needs_delta else 0.0
    checked = 0
    for n, part in ((60, 0.5), (1000, 0.03), (4000, 0.5)):
        y, x = 1e6 + rng.random(n), rng.random(n) * 10
        region = rng.choice(["N", "S"], n)
        data = pd.DataFrame({"y": y, "t": rng.random(n) < part, "x": x, "region": region})
        for level, epsilon in [(lv, e) for lv in spec.levels for e in (0.05, 1.0, 37.0, 1e5)]:
            try:
                made = site_release(
                    formula,
                    data,
                    site="a",
                    bounds={"y": (1e6, 1e6 + 20), "x": (0, 10), "region": ["N", "S"]},
                    seed=n,
                    **{"method": method, "level": level, "epsilon": epsilon, "delta": delta},
                )
            except (EstimationError, OptionError):
                continue
            assert release_inconsistency(made) == ""
            checked += 1
    assert checked >= 6


# --- files ---------------------------------------------------------------------------------------


def paths(folder):
    (folder / "large").write_bytes(b" " * 10_000_001)
    made = [folder, folder / "large", "/dev/zero"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")
        made.append(folder / "pipe")
    return made


def test_what_is_not_a_small_regular_file_is_refused_at_once(tmp_path):
    """A device was read until memory ran out, and a pipe was waited for without end."""
    pytest.importorskip("cryptography")
    for path in paths(tmp_path):
        with pytest.raises(ReleaseError, match=r"not a regular file|larger than|cannot be read"):
            SiteRelease.load(path)
        with pytest.raises(ReleaseError):
            read_private(path)
        with pytest.raises(PolicyError):
            Policy.read(path)
        with pytest.raises(PolicyError):
            replace(policy(tmp_path), data=Path(path)).load()
