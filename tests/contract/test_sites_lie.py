"""A site may say whatever it likes: what is impossible is refused, the rest is bounded or named.

Every function that combines sites is given three honest releases and one whose document says
something else: each of its numbers is replaced in turn, alone and together with an effect that is
as large as it can be. The combination must refuse it, or say the name of the site among its
warnings, or be about what it was. A function that combines and is not among `WAYS` is an error.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.documents import checksum
from dpeffects.errors import DPEffectsError, EstimationError, ReleaseError
from dpeffects.inference.estimate import SamplingVariance, Unavailable
from dpeffects.inference.intervals import interval
from dpeffects.services.federation import collect
from dpeffects.services.sites import CombinedEffect, SiteRelease, StudyRelease, combine
from dpeffects.services.sites.notes import away, named
from dpeffects.services.sites.robust import MedianErrorDistribution
from dpeffects.services.sites.rules import RULES, supported
from tests.federation.sites import question
from tests.sites.examples import estimate, release, releases

SITES = ("North", "South", "East", "Liar")
N = 400
BOUNDS = {"y": (0, 1), "x": (0, 1)}


def people(seed: int) -> pd.DataFrame:
    rng, t = np.random.default_rng(seed), np.arange(N) % 2
    y = (rng.random(N) < 0.3 + 0.1 * t).astype(float)
    return pd.DataFrame({"t": t, "y": y, "x": rng.random(N), "offset": np.ones(N)})


@dataclass(frozen=True)
class Way:
    """A way to combine sites: what they send, how it is read, and who says the largest effect."""

    send: Callable[[pd.DataFrame, str, int], Any]
    read: Callable[[dict[str, Any]], Any]
    combine: Callable[[dict[str, Any]], Any]
    most: Callable[[dict[str, Any]], None]


def _with_checksum(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"checksum": checksum(document)}


def _effect(document: dict[str, Any]) -> None:
    document["released"]["value"] = 0.9
    document["released"]["means"] |= {"treated": 0.95, "control": 0.05}


def _sums(document: dict[str, Any]) -> None:
    whole = document["sums"]["whole"]
    for sign, sizes, sums in zip((1, -1), whole["sizes"], whole["sums"], strict=True):
        sums[0][0] = sign * sizes[0] / 2.0


def _counts(document: dict[str, Any]) -> None:
    document["arm_table"]["counts"] = [[0.0, 199.0], [203.0, 0.0]]


def _moments(document: dict[str, Any]) -> None:
    entries, columns = document["matrix"]["entries"], document["matrix"]["columns"]
    entries[4] = 0.9 * entries[3] * columns[1]["size"] / columns[0]["size"]


_PROTOCOL = dpe.Protocol("y ~ t", epsilon=1, design="randomised", bounds={"y": (0, 1)})
_EFFECT = {"method": "diff_in_means", "epsilon": 1, "bounds": BOUNDS, "design": "randomised"}
_TABLE = {"epsilon": 1, "design": "randomised", "bounds": {"y": [0, 1]}}
WAYS = {
    "combine": Way(
        lambda data, site, seed: dpe.site_release("y ~ t", data, site=site, **_EFFECT, seed=seed),
        lambda document: SiteRelease.from_dict(_with_checksum(document)),
        lambda sent: dpe.combine(list(sent.values())),
        _effect,
    ),
    "combine_studies": Way(
        lambda data, site, seed: dpe.study_release(_PROTOCOL, data, site=site, seed=seed),
        lambda document: StudyRelease.from_dict(_with_checksum(document)),
        lambda sent: dpe.combine_studies(list(sent.values())),
        _sums,
    ),
    "combine_tables": Way(
        lambda data, site, seed: dpe.dp_ordinal("y ~ t", data, **_TABLE, seed=seed),
        lambda document: dpe.OrdinalEffects.from_json(json.dumps(document)),
        dpe.combine_tables,
        _counts,
    ),
    "combine_moments": Way(
        lambda data, site, seed: dpe.dp_moments(
            "y ~ t", data, epsilon=1, bounds=BOUNDS, design="randomised", seed=seed
        ),
        lambda document: dpe.Moments.from_json(json.dumps(document)),
        dpe.combine_moments,
        _moments,
    ),
}
SENT = {
    name: {site: way.send(people(i), site, i) for i, site in enumerate(SITES)}
    for name, way in WAYS.items()
}


def test_every_function_that_combines_is_here() -> None:
    assert {name for name in dpe.__all__ if name.startswith("combine")} == WAYS.keys()


# --- lies ----------------------------------------------------------------------------------------


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    """All numbers of a document, and where they stand."""
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(entry, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def put(document: dict[str, Any], path: tuple[Any, ...], value: float) -> dict[str, Any]:
    found = made = copy.deepcopy(document)
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = value
    return made


def lies(
    document: dict[str, Any], few: bool = False
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The document with one number replaced by a few others."""
    for path, value in numbers(document):
        whole = isinstance(value, int)
        more = {value + 99} if few else {-value, 1e-6 * value, value + 99}
        for lie in ({0, 1e6 * value} | more) - {value}:
            yield (*path, lie), put(document, path, int(lie) if whole else float(lie))


@dataclass(frozen=True)
class Seen:
    """What a combination says: effects with their intervals, and warnings."""

    effects: np.ndarray
    warning_lines: str

    def is_about(self, honest: Seen) -> bool:
        """Whether no estimate moved by three standard errors, and intervals are as wide."""
        half, own = (np.ptp(x.effects[:, 1:], axis=1) / 2.0 for x in (honest, self))
        moved = np.abs(self.effects[:, 0] - honest.effects[:, 0])
        known = np.isfinite(own)
        return bool(
            (moved <= 1.5 * half).all()
            and (own >= 0.5 * half)[known].all()
            and (own <= 5 * half)[known].all()
        )


def seen(fit: Any) -> Seen:
    if isinstance(fit, CombinedEffect):
        ends = fit.conf_int()
        low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
        return Seen(np.array([(fit.estimate, low, high)]), fit.warnings)
    if isinstance(fit, dpe.StudyEffects):
        own, words = fit.effects[0], fit.method_warnings
    elif isinstance(fit, dpe.Moments):
        own, words = fit.effect().released, fit.method_warnings
    else:
        own, words = fit.terms()[0].released, fit.method_warnings
    ends = interval(own)
    low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
    return Seen(np.array([(own.point, low, high)]), words)


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The honest document of the site that lies, and one with as large an effect as there is."""
    plain = json.loads(SENT[name]["Liar"].to_json())
    plain.pop("checksum", None)
    large = copy.deepcopy(plain)
    WAYS[name].most(large)
    return {"": plain, "largest effect": large}


Combining = Callable[[dict[str, Any]], Any]


def unanswered(name: str, ways: dict[str, Combining], given: str) -> list[tuple[Any, ...]]:
    """Lies that are neither refused nor named, and change a combination."""
    honest = {rule: seen(combined(SENT[name])) for rule, combined in ways.items()}
    assert not any("Liar" in own.warning_lines for own in honest.values())
    found = []
    for path, document in lies(documents(name)[given], few=len(ways) == 1):
        for rule, combined in ways.items():
            try:
                told = seen(combined(SENT[name] | {"Liar": WAYS[name].read(document)}))
            except DPEffectsError:
                continue
            if "Liar" not in told.warning_lines and not told.is_about(honest[rule]):
                found.append((rule, *path))
    return found


def by_rule(rule: str) -> Combining:
    return lambda sent: combine(list(sent.values()), rule)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("given", ["", "largest effect"])
@pytest.mark.parametrize("name", WAYS)
def test_a_lie_is_refused_or_bounded_or_named(name: str, given: str) -> None:
    rules = {rule: by_rule(rule) for rule in RULES}
    ways = rules if name == "combine" else {"": WAYS[name].combine}
    assert unanswered(name, ways, given) == []


@pytest.mark.parametrize("name", WAYS)
def test_the_first_lines_name_the_site(name: str) -> None:
    document = documents(name)["largest effect"]
    fit = WAYS[name].combine(SENT[name] | {"Liar": WAYS[name].read(document)})
    assert "Liar: outlying: differs from the other sites" in " ".join(
        str(fit.summary()).split()[:90]
    )
    assert "outlying" not in seen(WAYS[name].combine(SENT[name])).warning_lines


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "its estimate is far": {"value": 99.0, "means": {"treated": 99.0, "control": 0.0}},
    "calls possible": {"possible": [50.0, 60.0]},
    "calls possible are": {"possible": [-0.1, 0.1]},
    "range of its means": {"means": {"possible": [0.0, 3.0]}},
    "a mean is far": {"value": 0.5, "means": {"treated": 9.5, "control": 9.0}},
    "less noise than the difference": {"means": {"laplace": [], "gaussian": []}},
    "less noise than n": {"laplace": [1e-9], "gaussian": 0.0},
}


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_what_is_impossible_is_refused(words: str) -> None:
    document = documents("combine")[""]
    told = document["released"]
    for name, claim in IMPOSSIBLE[words].items():
        told[name] = told[name] | claim if isinstance(claim, dict) else claim
    liar = WAYS["combine"].read(document)
    with pytest.raises(ReleaseError, match=rf"'Liar' is not plausible: .*{words}"):
        combine([*list(SENT["combine"].values())[:3], liar])


def test_covariates_that_explain_a_risk_are_no_lie() -> None:
    """Factors of variance below 1 / n were refused, in a quarter of honest releases of weights."""
    rng, call = np.random.default_rng(1), {"epsilon": 30, "bounds": {"y": [0, 1], "x": [0, 1]}}
    for method in ("one_step", "private_ipw"):
        sent = []
        for site in "abc":
            x, t = rng.integers(0, 2, (2, 900))
            y = np.where(rng.random(900) < 0.01, 1 - x, x)
            data = pd.DataFrame({"y": y, "t": t, "x": x})
            sent.append(dpe.site_release("y ~ t | x", data, site=site, method=method, **call))
        assert combine(sent).n == 2700


def test_a_claimed_variance_of_risks_does_not_shorten_the_interval_of_their_ratio() -> None:
    rng, call = np.random.default_rng(2), {"epsilon": 2, "bounds": {"y": [0, 1]}, "seed": 1}
    sent = []
    for site in "abc":
        t = rng.integers(0, 2, 600)
        data = pd.DataFrame({"y": (rng.random(600) < 0.2 + 0.1 * t).astype(int), "t": t})
        sent.append(dpe.site_release("y ~ t", data, site=site, method="diff_in_means", **call))
        call["seed"] += 1
    means = sent[2].released.means
    lie = replace(sent[2].released, means=replace(means, design=(1e-9, 1e-9, 0.0)))
    honest, other = (combine([*sent[:2], x]) for x in (sent[2], replace(sent[2], released=lie)))
    widths = [float(np.diff(x.effect("ratio").conf_int())[0]) for x in (honest, other)]
    assert widths[1] > 0.95 * widths[0]


# --- twins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
def test_a_copied_release_is_refused(name: str) -> None:
    """Under another name, with another n and other claims about its noise."""
    way, document = WAYS[name], documents(name)[""]
    copied = document | {"site": "Copy"} if "site" in document else document
    sent = SENT[name] | {"Copy": way.read(copied)}
    with pytest.raises(ReleaseError, match="sent the same release"):
        way.combine(sent)
    with pytest.raises(ReleaseError, match="sent the same release"):
        way.combine(SENT[name] | {"Copy": way.read(copied | {"n": document["n"] + 1})})


def test_a_copy_is_refused_by_the_centre_of_a_federation() -> None:
    asked = question("q1", formula="y ~ t", epsilon=1.0)
    own = release("a", formula="y ~ t", request="q1")
    sent = [own, replace(own, site="b")]
    made = [(r.site, {"status": "ok", "request": "q1", "release": r.to_dict()}) for r in sent]
    with pytest.raises(ReleaseError, match="'a' and 'b' sent the same release"):
        collect(made, ["a", "b"], asked).combine()


def test_a_few_counts_may_be_equal_by_chance() -> None:
    blind = Unavailable("variance=False was asked for")
    ended = replace(estimate(0.0), sampling=blind)
    assert combine([release(x, released=ended) for x in "ab"], "all").estimate == 0.0


# --- the rule "robust" ---------------------------------------------------------------------------


@pytest.mark.parametrize("j", [3, 4, 5, 6, 20])
def test_no_site_moves_the_median_beyond_the_others(j: int) -> None:
    """Whatever one site says of its effect, its errors and its records."""
    rng = np.random.default_rng(j)
    values = rng.normal(0.1, 0.05, j)
    honest = releases(values[:-1], rng.uniform(1e-3, 1e-2, j - 1))
    alone = [r.released.value for r in honest]
    widest = max(r.std_error for r in honest)
    for value in (-1.0, -0.2, 0.1, 0.3, 1.0):
        for variance, n in ((0.0, 1000), (1e-9, 10**9), (0.01, 1000), (1.0, 500)):
            liar = release("Liar", n=n, released=estimate(value, variance, 0.0))
            fit = combine([*honest, liar], "robust")
            assert min(alone) <= fit.estimate <= max(alone)
            low, high = fit.conf_int()
            assert min(alone) - 6 * widest < low <= high < max(alone) + 6 * widest


@pytest.mark.sampled(5)
@pytest.mark.parametrize("j", [3, 4, 5, 20])
def test_the_interval_holds_whatever_one_site_says(j: int) -> None:
    """The largest lie to one side, errors being normal: P(covered) is the binomial's."""
    rng = np.random.default_rng(j)
    sd = rng.uniform(0.5, 2.0, j)
    errors = rng.normal(size=(1500, j)) * sd
    errors[:, -1] = 50.0
    covered = []
    for own in errors:
        point = float(np.median(own))
        covered.append(
            abs(point) <= MedianErrorDistribution(own - point, sd, 0.0).upper_point(0.025)
        )
    assert np.mean(covered) > 0.94


def test_the_median_has_one_law() -> None:
    fit = combine(releases([0.1, 0.16, 0.3, 0.05], [1e-3, 2e-3, 5e-3, 1e-3]), "robust")
    for null in (-0.1, 0.0, 0.05, 0.12, 0.13, 0.4):
        p = fit.test(null).p_value
        for alpha in (0.01, 0.05, 0.2):
            low, high = fit.conf_int(1.0 - alpha)
            assert (p < alpha) == (not low <= null <= high)
    assert fit.error_distribution.tail(fit.error_distribution.upper_point(0.1)) == pytest.approx(
        0.1
    )
    assert fit.p_value == pytest.approx(fit.test(0.0).p_value)
    assert isinstance(fit.means, Unavailable)


def test_two_sites_have_no_median_that_one_cannot_move() -> None:
    with pytest.raises(EstimationError, match="needs at least three sites"):
        combine(releases([0.1, 0.2]), "robust")


def test_a_common_bias_does_not_average_out() -> None:
    dist = MedianErrorDistribution(np.zeros(50), np.full(50, 0.1), 0.2)
    assert dist.upper_point(0.025) > 1.9 * 0.2
    assert dist.unit == pytest.approx(math.hypot(replace(dist, bias=0.0).unit, 0.2))


# --- parts ---------------------------------------------------------------------------------------


def test_a_sampling_variance_has_the_support_of_other_sites() -> None:
    n, most = np.array([100.0, 200.0, 100.0]), np.ones(3)
    assert supported(n, np.array([0.0, 0.02, 0.04]), most).tolist() == [0.01, 0.0, 0.0]
    assert supported(n[:1], np.array([0.0]), most[:1]).tolist() == [0.0]
    assert supported(n, np.array([0.0, 9.0, 9.0]), 0.1 * most).tolist() == [0.1, 0.0, 0.0]
    sure = release("S", 0.3, released=replace(estimate(0.3), sampling=SamplingVariance(0, 0, 0)))
    fit = combine([*releases([0.1, 0.12, 0.08], [9e-4] * 3), sure])
    assert max(fit.weights) < 4.0 / (4.0 + 3.0)


def test_effects_that_differ_are_not_an_accusation() -> None:
    rng = np.random.default_rng(2)
    sites, n = [f"S{j}" for j in range(10)], np.full(10, 100.0)
    value, variance = rng.normal(0.0, 0.3, (10, 1)), np.full((10, 1), 1e-4)
    shares = n / n.sum()
    assert named(sites, shares, n, variance[:, 0], away(value, variance)) == ()
    value[3] = 5.0
    (words,) = named(sites, shares, n, variance[:, 0], away(value, variance))
    assert words.startswith("S3: outlying: differs from the other sites")
