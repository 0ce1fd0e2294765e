"""Studies of several sites: what is sent, what is refused, and what they give together."""

import json
import math
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.documents import checksum
from dpeffects.errors import BoundsError, DataError, OptionError, ReleaseError
from dpeffects.services.sites import signing

BOUNDS = {"y": (0, 10), "died": (0, 1), "sex": ["f", "m"], "age": (18, 90)}
NAMES = ("North", "South")


def people(seed, n, treated, base):
    """Two sites: one where outcomes are low and most are treated, one the other way round."""
    rng = np.random.default_rng(seed)
    t = (rng.random(n) < treated).astype(int)
    sex = rng.choice(["f", "m"], n)
    y = np.clip(10 * base - 0.5 * t + 0.7 * (sex == "m") + rng.normal(0, 1, n), 0, 10)
    died = (rng.random(n) < base / 2 + 0.1 * t).astype(int)
    age = rng.uniform(18, 90, n)
    return pd.DataFrame({"t": t, "sex": sex, "age": age, "y": y, "died": died})


SITES = {"North": people(1, 1200, 0.8, 0.7), "South": people(2, 2000, 0.2, 0.3)}


def protocol(epsilon=1.0, **changes):
    usual = {
        "bounds": BOUNDS,
        "design": "randomised",
        "subgroups": ["sex", "cut(age, [18, 50, 90])"],
    }
    return dpe.Protocol("y + died ~ t | age + sex", epsilon=epsilon, **usual | changes)


def sent(asked=None, data=SITES, **given):
    asked = asked or protocol()
    return [
        dpe.study_release(asked, frame, site=site, seed=seed, **given)
        for seed, (site, frame) in enumerate(data.items())
    ]


def difference(frame, y):
    arms = [frame.loc[frame.t == arm, y] for arm in (1, 0)]
    variance = sum(x.var() / len(x) for x in arms)
    return arms[0].mean() - arms[1].mean(), variance


def pooled(y, keep=lambda frame: frame.t >= 0, weight=len):
    """The mean of the sites' differences, each for its own records, by hand."""
    parts = [frame[keep(frame)] for frame in SITES.values()]
    sizes = np.array([weight(part) for part in parts], float)
    found = [difference(part, y) for part in parts]
    w = sizes / sizes.sum()
    return sum(w * [x for x, _ in found]), math.sqrt(sum(w**2 * [v for _, v in found]))


# --- together ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(1e7, 0.0), (1e7, 1e-6)])
def test_without_noise_it_is_what_the_records_give(epsilon, delta):
    fit = dpe.combine_studies(sent(protocol(epsilon, delta=delta)))
    assert fit.n == 3200
    table = fit.tidy().set_index("term")
    for y in ("y", "died"):
        effect, error = pooled(y)
        assert table.loc[y, "estimate"] == pytest.approx(effect, abs=1e-4)
        assert table.loc[y, "std_error"] == pytest.approx(error, rel=0.01)
    by_sex = fit.by("sex").tidy().set_index("term")
    for level in ("f", "m"):
        effect, error = pooled("y", lambda frame, level=level: frame.sex == level)
        assert by_sex.loc[f"y | sex {level}", "estimate"] == pytest.approx(effect, abs=1e-3)
        assert by_sex.loc[f"y | sex {level}", "std_error"] == pytest.approx(error, rel=0.02)
    at = fit.by("site").tidy().set_index("term")
    for name, frame in SITES.items():
        found = at.loc[f"died | {name}", "estimate"]
        assert found == pytest.approx(difference(frame, "died")[0], abs=1e-4)


def test_arms_that_sites_fill_differently_do_not_confound():
    """Treatment lowers y everywhere; records of both sites in one heap say the opposite."""
    heap = pd.concat(SITES.values())
    assert difference(heap, "y")[0] > 1.0
    fit = dpe.combine_studies(sent(protocol(20.0)))
    low, high = fit.conf_int()[0]
    assert low < -0.5 < high < 0.0


def test_baseline_variables_are_those_of_all_records():
    fit = dpe.combine_studies(sent(protocol(1e6)))
    heap = pd.concat(SITES.values())
    row = fit.table1().set_index(["variable", "level"]).loc[("age", "")]
    assert row["treated_mean"] == pytest.approx(heap.age[heap.t == 1].mean(), rel=1e-4)
    assert row["control_sd"] == pytest.approx(heap.age[heap.t == 0].std(), rel=1e-3)
    assert fit.sizes["treated"] == pytest.approx(int(heap.t.sum()), abs=0.1)


def test_effects_on_the_treated_count_sites_by_their_treated():
    fit = dpe.combine_studies(sent(protocol(1e6, estimand="ATT")))
    effect, _ = pooled("y", weight=lambda part: (part.t == 1).sum())
    assert fit.estimates[0] == pytest.approx(effect, abs=1e-3)
    assert abs(effect - pooled("y")[0]) > 1e-3


def test_noise_of_sites_is_independent():
    releases = sent(protocol(0.5))
    fit = dpe.combine_studies(releases)
    parts = [release.study.effects[0].noise_variance for release in releases]
    w = np.array([1200, 2000]) / 3200
    assert fit.effects[0].noise_variance == pytest.approx(float(w**2 @ parts), rel=1e-6)


def test_what_weights_leave_does_not_average_out():
    """Adjusted sites: possible confounding may have one sign everywhere."""
    asked = protocol(4.0, design="observational", subgroups=[])
    releases = sent(asked)
    fit = dpe.combine_studies(releases)
    assert fit.identification == "adjusted"
    sds = [math.sqrt(release.study.effects[0].bias_variance) for release in releases]
    w = np.array([1200, 2000]) / 3200
    assert min(sds) > 0.0
    assert math.sqrt(fit.effects[0].bias_variance) == pytest.approx(float(w @ sds), rel=1e-6)


def test_a_site_that_only_has_an_association_makes_it_one():
    """A model that a small site cannot learn is not a reason to call the others' word its own."""
    north, south = sent(protocol(4.0, design="observational", subgroups=[]))
    alone = replace(south, identification="unadjusted")
    assert dpe.combine_studies([north, alone]).associated


def test_the_guarantee_is_that_of_each_site_for_its_own():
    one = dpe.study_release(protocol(1.0), SITES["North"], site="North")
    other = dpe.study_release(protocol(0.5), SITES["South"], site="South")
    unnamed = [replace(x, protocol="") for x in (one, other)]
    fit = dpe.combine_studies(unnamed)
    assert (fit.guarantee.epsilon, fit.charges) == (1.0, ())
    assert fit.details["site South"] == "n = 2000, epsilon = 0.5"


def test_it_is_shown_written_and_read_again():
    fit = dpe.combine_studies(sent(), left_out={"West": "did not answer"})
    again = dpe.StudyEffects.from_json(fit.to_json())
    assert again == fit
    assert str(again.summary()) == str(fit.summary())
    assert "left out: did not answer" in str(fit.summary())
    assert max(map(len, str(fit.summary()).splitlines())) <= 80
    assert fit.interactions().shape[0] == 4
    assert str(fit.report())


def test_one_effect_goes_to_the_rules_of_combine():
    combined = dpe.combine([release.effect_on("y") for release in sent(protocol(20.0))], "all")
    fit = dpe.combine_studies(sent(protocol(20.0)))
    assert combined.estimate == pytest.approx(fit.estimates[0], rel=1e-9)


def test_small_sites_with_much_noise_are_an_answer():
    """Sizes come out negative, and whatever follows is finite or unbounded, and shown."""
    tiny = {name: frame.head(30) for name, frame in SITES.items()}
    for seed in range(5):
        releases = [
            dpe.study_release(protocol(0.01), frame, site=name, seed=seed + 10 * k)
            for k, (name, frame) in enumerate(tiny.items())
        ]
        fit = dpe.combine_studies(releases)
        assert np.isfinite(fit.estimates).all()
        assert str(fit.summary())
        assert str(fit.by("sex"))


def test_many_sites():
    data = {f"site {k}": SITES["South"].iloc[k::20] for k in range(20)}
    fit = dpe.combine_studies(sent(protocol(1.0), data))
    assert fit.n == 2000
    assert len(fit.effects[0].laplace) <= 12
    whole = sum(e.noise_variance for e in fit.effects)
    assert math.isfinite(whole)
    assert (fit.conf_int()[:, 0] < fit.conf_int()[:, 1]).all()


# --- what is sent -----------------------------------------------------------------------------


def test_a_release_round_trips(tmp_path):
    release = sent()[0]
    assert dpe.StudyRelease.from_json(release.to_json()) == release
    release.save(tmp_path / "north.json")
    assert dpe.StudyRelease.load(tmp_path / "north.json") == release
    assert release.protocol == protocol().fingerprint
    assert "study release 'North': 2 outcomes" in repr(release)
    release.save(tmp_path / "north.json")  # a release may be replaced, nothing else
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ReleaseError, match="exists"):
        release.save(tmp_path / "other.json")


def test_nothing_but_released_numbers_is_sent():
    text = sent()[0].to_json()
    for value in SITES["North"].y.head(20):
        assert repr(value) not in text
    assert '"effects"' not in text


def test_the_study_of_a_release_is_the_site_s_own():
    asked = protocol()
    own = asked.run(SITES["North"], seed=0)
    release = sent(asked)[0]
    assert release.study.tidy().to_csv() == own.tidy().to_csv()
    assert release.study.by("sex").tidy().to_csv() == own.by("sex").tidy().to_csv()
    assert release.study.table1().to_csv() == own.table1().to_csv()
    assert release == dpe.StudyRelease.from_result(own, "North")


def test_what_a_site_cannot_send():
    fit = dpe.combine_studies(sent())
    with pytest.raises(ReleaseError, match="several sites"):
        dpe.StudyRelease.from_result(fit, "all")
    with pytest.raises(ReleaseError, match="dp_study"):
        dpe.StudyRelease.from_result(fit.effect_on("y"), "North")
    ledger = dpe.Ledger(5)
    for asked, error, told in (
        (protocol(sites=["West"]), OptionError, "is for West, not for 'North'"),
        (protocol(bounds=BOUNDS | {"sex": ["f", "m", "x\xa0y"]}), OptionError, "cannot be printed"),
        (protocol(minimum_n=5000), DataError, "needs 5000 records"),
        (protocol(bounds={"y": (0, 10), "died": (0, 1), "sex": ["f", "m"]}), BoundsError, "of age"),
    ):
        with pytest.raises(error, match=told):
            dpe.study_release(asked, SITES["North"], site="North", ledger=ledger)
    assert ledger.spent == (0, 0)


# --- what is refused --------------------------------------------------------------------------


def changed(release, **entries):
    """A document with other entries and the checksum that goes with them."""
    document = {**release.to_dict(), **entries}
    return document | {"checksum": checksum(document)}


def refused(releases, told, **given):
    with pytest.raises(ReleaseError) as caught:
        dpe.combine_studies(releases, **given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_releases_that_do_not_go_together_are_refused():
    north, south = sent()
    refused(north, "takes a list of releases, such as")
    refused([], "no release to combine")
    refused([north, north], "from the site 'North'")
    refused([north, changed(north, site="West")], "'North' and 'West' sent the same release")
    other = dpe.study_release(protocol(2.0), SITES["South"], site="South")
    refused([north, other], "differ in the protocol")
    told = "'South' used another protocol"
    refused([south], told, protocol=protocol(2.0))
    refused([changed(south, protocol="")], f"{told}: none", protocol=protocol())
    refused([changed(south, request="r1"), north], "answer different requests")
    refused([south], "answers no request, not 'r1'", request="r1")
    named = protocol(sites=["North"])
    refused([changed(south, protocol=named.fingerprint)], "is not named", protocol=named)
    large = protocol(minimum_n=1500)
    refused([changed(north, protocol=large.fingerprint)], "needs 1500", protocol=large)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bounds": BOUNDS | {"age": (18, 100)}}, "'age [18, 90]' and 'age [18, 100]'"),
        ({"subgroups": ["sex"]}, "the subgroups"),
        ({"formula": "y ~ t | age + sex"}, "the formula"),
        ({"estimand": "ATT"}, "the estimand"),
        ({"bounds": BOUNDS | {"sex": ["m", "f"]}, "subgroups": []}, "the subgroups"),
        ({"subset": "age > 30"}, "who counts"),
    ],
)
def test_releases_without_a_protocol_must_be_of_the_same_study(change, told):
    one, other = protocol(5.0), replace(protocol(5.0), **change)
    pair = [
        replace(x, protocol="")
        for x in (
            dpe.study_release(one, SITES["North"], site="North", seed=1),
            dpe.study_release(other, SITES["South"], site="South", seed=2),
        )
    ]
    refused(pair, told)


def test_sites_that_a_protocol_names_are_missed():
    asked = protocol(sites=["North", "South", "West"])
    fit = dpe.combine_studies(sent(asked), protocol=asked)
    assert fit.details["site West"] == "left out: sent nothing"


def test_releases_that_cannot_be_are_refused():
    north = sent()[0]
    sums = north.to_dict()["sums"]

    def whole(**entries):
        return {**sums, "whole": {**sums["whole"], **entries}}

    quiet = [[x / 1e9 for x in row] for row in sums["whole"]["noise"]]
    refused([changed(north, sums=whole(noise=quiet))], "less noise than its epsilon")
    refused([changed(north, n=10)], "more records than it says")
    refused([changed(north, charges=[])], "no charges")
    far = [[[1e9, 0.0]]] * 2
    refused([changed(north, sums=whole(sums=far))], "far beyond the ranges")
    for entries in (
        {"sizes": [[1.0]]},
        {"sizes": [[1.0, 2.0], [3.0]]},
        {"sums": [[1.0]]},
        {"noise": [[-1.0, 1.0]] * 3},
        {"levels": ["a", "b"]},
        {"sizes": []},
    ):
        with pytest.raises(ReleaseError, match=r"do not fit together|the same lengths|sums"):
            dpe.StudyRelease.from_dict(changed(north, sums=whole(**entries)))
    outcomes = [{**sums["outcomes"][0], "low": 10.0}, sums["outcomes"][1]]
    for entries in ({"contrasts": [[0, 7]]}, {"outcomes": outcomes}, {"arms": ["a", "a"]}):
        with pytest.raises(ReleaseError, match="do not fit together"):
            dpe.StudyRelease.from_dict(changed(north, sums={**sums, **entries}))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"format": "dpeffects site release"}, "not a study release"),
        ({"version": 2}, "version 2"),
        ({"version": True}, "version True"),
        ({"more": 1}, "unknown field more"),
        ({"n": 1.5}, "n must be a whole number"),
        ({"site": "a\x1b[31m"}, "cannot be printed"),
        ({"identification": "faith"}, "identification must be"),
        ({"sums": []}, "sums must be an object"),
        ({"guarantee": {}}, "guarantee lacks"),
    ],
)
def test_documents_that_are_none(entries, told):
    with pytest.raises(ReleaseError, match=told.replace("[", r"\[")):
        dpe.StudyRelease.from_dict(changed(sent()[0], **entries))
    with pytest.raises(ReleaseError, match="must be a JSON object, not a list"):
        dpe.StudyRelease.from_dict([])


def _places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(entry, (*path, key))


def _set(document, path, value):
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def test_damage_is_noticed_and_never_worse():
    """Any entry replaced by anything: refused in our words, or read, combined and shown."""
    north, south = sent(protocol(1.0, subgroups=["sex"]))
    text, chance = north.to_json(), Random(1)
    places = [path for path in _places(json.loads(text)) if path and path[0] != "checksum"]
    junk = [None, True, -1, 0, 3, 1e59, -1e59, "", "x", [], {}, [[]], [1.0], {"a": 1}, 1e-300]
    for _ in range(60):
        document = json.loads(text)
        _set(document, chance.choice(places), chance.choice(junk))
        plain = json.loads(json.dumps(document))
        with suppress(ReleaseError):  # the checksum is not that of the document
            assert dpe.StudyRelease.from_dict(plain).to_dict() == north.to_dict()
        document["checksum"] = checksum(document)
        with suppress(ReleaseError):
            fit = dpe.combine_studies([document, south])
            assert str(fit.summary())


def test_bytes_that_changed_are_noticed(tmp_path):
    content, chance = sent()[0].to_json().encode(), Random(2)
    path = tmp_path / "north.json"
    for _ in range(60):
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        with suppress(ReleaseError):
            assert dpe.StudyRelease.load(path).to_json().encode() == content
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReleaseError, match=r"north\.json: this is not valid JSON"):
        dpe.StudyRelease.load(path)


# --- signatures -------------------------------------------------------------------------------


def test_signed_releases(tmp_path):
    releases = []
    for release in sent():
        private, _ = signing.make_keys(release.site, tmp_path)
        releases.append(signing.sign(release, private))
    fit = dpe.combine_studies(releases, public_keys=tmp_path)
    assert fit == dpe.combine_studies(sent())
    north, south = releases
    refused([north, replace(south, signature=None)], "is not signed", public_keys=tmp_path)
    refused([replace(north, site="South")], "signed by another key", public_keys=tmp_path)
    forged = changed(south, n=2001)
    refused([north, forged], "does not fit its release", public_keys=tmp_path)
    assert dpe.StudyRelease.from_json(north.to_json()) == north
