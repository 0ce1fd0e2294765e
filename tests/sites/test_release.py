"""Site releases: they round-trip, hold no data, and whatever is wrong with one is our error."""

import copy
import json
import math
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.documents import canonical, checksum, parse_json
from dpeffects.errors import OptionError, ReleaseError
from dpeffects.estimators import proved
from dpeffects.guarantee import Guarantee
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable
from dpeffects.services.sites import SiteRelease, site_release
from tests.cases import each
from tests.refused import refusals
from tests.sites.examples import estimate, release, with_parts

N = 400
RNG = np.random.default_rng(0)
DATA = pd.DataFrame(
    {
        "y": RNG.random(N),
        "t": RNG.integers(0, 2, N),
        "x": RNG.random(N),
        "g": RNG.choice(["a", "b"], N),
    }
)
BOUNDS = {"y": (0, 1), "x": (0, 1), "g": ["a", "b"]}
METHODS = {
    "diff_in_means": {},
    "private_psm": {},
    "private_ipw": {"delta": 1e-5},
    "auto": {},
    "smooth_matching": {"delta": 1e-5},
    "global_matching": {},
    "sample_aggregate": {},
    "model_folds": {},
    "clipped_contrast": {},
    "one_step": {},
    "regression": {"epsilon": 60},
}


def formula(method):
    return "y ~ t | g" if "matching" in method else "y ~ t | x + g"


def sent(method="diff_in_means", **arguments):
    arguments = {"epsilon": 1, "bounds": BOUNDS, "seed": 1} | METHODS[method] | arguments
    return site_release(formula(method), DATA, site="North", method=method, **arguments)


# --- what is sent --------------------------------------------------------------------------------


def test_every_method_is_here():
    assert set(proved()) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_the_result_survives_and_round_trips(method, tmp_path):
    arguments = {"epsilon": 1, "bounds": BOUNDS, "seed": 1} | METHODS[method]
    result = dpe.dp_ate(formula(method), DATA, method, **arguments)
    made = sent(method)
    assert made.estimate == result.estimate
    assert made.n == N
    assert made.guarantee == result.guarantee
    assert made.charges == result.charges
    assert made.std_error == result.std_error
    assert made.released.laplace == result.released.laplace
    assert made.released.gaussian == result.released.gaussian
    for name in ("parts", "possible", "identification"):
        assert getattr(made.released, name) == getattr(result.released, name)
    assert SiteRelease.from_json(made.to_json()) == made
    assert SiteRelease.from_dict(made.to_dict()) == made
    made.save(tmp_path / "a.json")
    again = SiteRelease.load(tmp_path / "a.json")
    assert again == made
    assert canonical(again.to_dict()) == canonical(made.to_dict())


def test_without_a_variance_the_reason_is_kept():
    made = sent(variance=False)
    assert isinstance(made.released.sampling, Unavailable)
    again = SiteRelease.from_json(made.to_json())
    assert again == made
    assert "variance=False" in str(again.std_error)


def test_other_estimands_and_requests():
    made = sent("private_ipw", estimand="ATT", request="r-17")
    assert (made.estimand, made.request) == ("ATT", "r-17")
    assert SiteRelease.from_json(made.to_json()).request == "r-17"
    with pytest.raises(OptionError, match="ATE, ATT, ATC"):
        sent(estimand="LATE")


def test_document_is_small_and_holds_no_data():
    marked = DATA.assign(y=DATA["y"] * 0 + 0.123456789)
    text = site_release(
        "y ~ t", marked, site="A", method="diff_in_means", epsilon=1, bounds=BOUNDS
    ).to_json()
    assert len(text) < 5000
    assert "0.123456789" not in text


test_nothing_is_spent_on_a_name_that_cannot_be_sent = refusals(
    partial(site_release, "y ~ t", DATA, method="diff_in_means", epsilon=1, bounds=BOUNDS),
    *(({"site": site}, "site") for site in ("", " North", "a\nb", "x" * 101, 7, None)),
    error=ReleaseError,
)


def test_what_cannot_be_sent():
    with pytest.raises(ReleaseError, match="Result"):
        SiteRelease.from_result("fit", "North")
    result = dpe.dp_ate("y ~ t", DATA, "diff_in_means", epsilon=1, bounds=BOUNDS, seed=1)
    undefined = replace(result, released=replace(result.released, value=math.nan))
    with pytest.raises(ReleaseError, match=r"JSON|finite"):
        SiteRelease.from_result(undefined, "North")
    odd = SamplingVariance(math.inf, 1.0, math.inf)
    made = SiteRelease.from_result(replace(result, released=Estimate(1.0, odd)), "North")
    assert "not a finite number" in str(made.std_error)


def test_unbounded_variance_and_negative_bound():
    made = release(released=estimate(largest=math.inf))
    assert made.to_dict()["released"]["sampling"]["largest"] is None
    assert SiteRelease.from_json(made.to_json()) == made
    result = dpe.dp_ate("y ~ t", DATA, "diff_in_means", epsilon=1, bounds=BOUNDS, seed=1)
    below = replace(result, released=Estimate(1.0, SamplingVariance(-3.0, 1.0, -2.0)))
    assert SiteRelease.from_result(below, "A").released.sampling.largest == 0.0


def test_line_breaks_in_a_formula_are_spaces():
    text = "y ~ t |\n  x +\n  g"
    made = site_release(text, DATA, site="A", method="auto", epsilon=1, bounds=BOUNDS, seed=1)
    assert made.formula == "y ~ t | x + g"


def test_repr():
    assert repr(release()).startswith("<dpeffects site release 'North': ATE 0.30 (se 0.10)")


# --- what is read --------------------------------------------------------------------------------

GOOD = with_parts().to_dict()


def changed(path, value, document=GOOD):
    """A document with one field changed and a checksum that fits."""
    made = copy.deepcopy(document)
    spot = made
    for key in path[:-1]:
        spot = spot[key]
    if value is KeyError:
        del spot[path[-1]]
    else:
        spot[path[-1]] = value
    made["checksum"] = checksum(made)
    return made


def paths(value, here=()):
    """Every place in a document."""
    if here:
        yield here
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from paths(entry, (*here, key))


PATHS = [path for path in paths(GOOD) if path != ("checksum",)]
BAD = {
    "another format": (("format",), "result", "not a site release"),
    "a later version": (("version",), 2, "its format has version 2"),
    "version as text": (("version",), "1", "version '1'"),
    "version true": (("version",), True, "version True"),
    "no n": (("n",), KeyError, "lacks the field n"),
    "unknown field": (("colour",), "red", "unknown field colour"),
    "n of zero": (("n",), 0, "n must be a whole number from 1"),
    "n with a fraction": (("n",), 10.5, "n must be a whole number"),
    "estimate as text": (("released", "value"), "0.3", "released.value must be a number, not text"),
    "estimate true": (
        ("released", "value"),
        True,
        "released.value must be a number, not true or false",
    ),
    "huge estimate": (("released", "value"), 1e300, "at most 1e\\+60"),
    "huge whole estimate": (("released", "value"), 10**400, "at most 1e\\+60"),
    "negative noise": (("released", "laplace"), [-1.0], "not be negative"),
    "negative Gaussian noise": (("released", "gaussian"), -1.0, "not be negative"),
    "negative noise scale": (("released", "sampling", "noise_scale"), -0.1, "not be negative"),
    "negative bound": (("released", "sampling", "largest"), -0.1, "not be negative"),
    "negative exact variance": (
        ("released", "sampling"),
        {"value": -0.1, "noise_scale": 0.0, "largest": 1.0},
        "released.sampling.value must not be negative",
    ),
    "no variance": (("released", "sampling"), KeyError, "released lacks the field sampling"),
    "no reason": (("released", "sampling"), {"unavailable": ""}, "is empty"),
    "epsilon of zero": (("guarantee", "epsilon"), 0, "must be positive"),
    "delta above one": (("guarantee", "delta"), 1.5, "at most 1"),
    "unknown unit": (("guarantee", "unit"), "household", "record or outcome"),
    "unknown kind": (("guarantee", "kind"), "sure", "exact or asymptotic"),
    "unknown estimand": (("estimand",), "LATE", "ATE or ATT or ATC"),
    "void as text": (("guarantee", "void"), "seeded", "must be a list, not text"),
    "escape sequence": (("site",), "\x1b[31mNorth", "cannot be printed"),
    "lone surrogate": (("formula",), "y ~ \ud800", "cannot be printed"),
    "empty formula": (("formula",), "", "formula is empty"),
    "long text": (("formula",), "x" * 20_000, "longer"),
    "long list": (("released", "notes"), ["x"] * 20_000, "more than"),
    "unprintable list entry": (("released", "notes"), ["a\x00"], "cannot be printed"),
    "no basis": (("released", "identification"), KeyError, "lacks the field identification"),
    "another basis": (("released", "identification"), "certain", "identification must be"),
    "one end": (("released", "possible"), [1.0], "a lower and an upper end"),
    "ends the wrong way round": (("released", "possible"), [1.0, -1.0], "a lower and an upper end"),
    "a range of words": (("released", "possible"), ["a", "b"], "possible must be a number"),
    "negative part": (("released", "parts", 0, "variance"), -1.0, "not be negative"),
    "part without a name": (("released", "parts", 0, "name"), "", "is empty"),
    "noise in words": (("released", "parts", 0, "noise"), "no", "true or false"),
    "spends as object": (("charges",), {}, "must be a list, not an object"),
    "spend as number": (("charges", 0), 3, "must be an object, not a whole number"),
}


@each("case", BAD)
def test_what_is_wrong_is_said(case):
    path, value, words = BAD[case]
    with pytest.raises(ReleaseError, match=words):
        SiteRelease.from_dict(changed(path, value))


def test_a_negative_released_variance_is_noise():
    made = SiteRelease.from_dict(
        changed(("released", "sampling", "value"), -0.5, release().to_dict())
    )
    assert made.variance > 0


@each("value", [None, True, 3, -1.5, "x", "", [], {}, [[]], {"a": 1}, b"x", {1}])
@each("path", PATHS)
def test_wrong_types_everywhere(path, value):
    document = copy.deepcopy(GOOD)
    try:
        document = changed(path, value)
    except TypeError:  # not JSON: the checksum cannot be made to fit
        document = copy.deepcopy(GOOD)
        document[path[0]] = value
    _never_crashes(document)


def _never_crashes(document):
    """Either it is read, and gives the same text again, or it is our error."""
    said = ""
    try:
        made = SiteRelease.from_dict(document)
    except ReleaseError as error:
        said = str(error)
        made = None
    assert len(said.splitlines()) == (made is None)
    assert made is None or canonical(made.to_dict()) == canonical(document)


@each("path", PATHS)
def test_a_change_without_a_new_checksum_is_noticed(path):
    document = copy.deepcopy(GOOD)
    spot = document
    for key in path[:-1]:
        spot = spot[key]
    old = spot[path[-1]]
    spot[path[-1]] = old + 1 if isinstance(old, int | float) else f"{old}x"
    with pytest.raises(ReleaseError):
        SiteRelease.from_dict(document)


def test_checksum_is_the_standard_one():
    import hashlib

    body = {k: v for k, v in GOOD.items() if k != "checksum"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert GOOD["checksum"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1, 2]", "object, not a list"),
        ("3", "object, not a whole number"),
        ("null", "object, not null"),
        ('{"format": 1, "format": 2}', "'format' is given twice"),
        ('{"estimate": NaN}', "NaN is not a finite number"),
        ('{"estimate": -Infinity}', "-Infinity is not a finite number"),
        ("[" * 100_000, "nested|JSON"),
        ('{"n": ' + "9" * 5000 + "}", "JSON|site release"),
        (b"\xff\xfe", "not valid JSON"),
        (3, "not valid JSON"),
        (None, "not valid JSON"),
        (json.dumps(GOOD).replace('"value": 0.3', '"value": 1e999'), "finite"),
        ("\ufeff" + json.dumps(GOOD), "byte order mark"),
    ],
)
def test_text_that_is_not_a_release(text, words):
    with pytest.raises(ReleaseError, match=words):
        SiteRelease.from_json(text)


def test_files(tmp_path):
    for name, content in {"a": b"\xff\xff", "b": b"", "c": b"{}"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ReleaseError, match=name):
            SiteRelease.load(tmp_path / name)
    for path in (tmp_path / "missing.json", tmp_path, "a\0b", 3, None, ["a"]):
        with pytest.raises(ReleaseError, match="cannot be read"):
            SiteRelease.load(path)
    with pytest.raises(ReleaseError, match="cannot be written"):
        release().save(tmp_path / "no" / "folder.json")
    for path in ("a\0b", 3, None):
        with pytest.raises(ReleaseError, match="not a valid file path"):
            release().save(path)
    (tmp_path / "big").write_bytes(b" " * 10_000_001)
    with pytest.raises(ReleaseError, match="larger"):
        SiteRelease.load(tmp_path / "big")


def test_read_release_takes_what_holds_one(tmp_path):
    made = release()
    made.save(tmp_path / "a.json")
    for source in (made, made.to_dict(), tmp_path / "a.json", str(tmp_path / "a.json")):
        assert SiteRelease.read(source) == made
    for source in (3, None, b"x", [made], made.to_json().encode()):
        with pytest.raises(ReleaseError, match="SiteRelease, a dict or a path"):
            SiteRelease.read(source)


# --- fuzz ----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["record", "exact", "ATE", "sample", 1, 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(st.text(max_size=200), st.binary(max_size=100), JSON)
@settings(max_examples=200, deadline=None)
def test_any_text_bytes_and_document(text, data, value):
    for read, sent in (("json", text), ("json", data), ("dict", value)):
        with pytest.raises(ReleaseError):
            getattr(SiteRelease, f"from_{read}")(sent)


@given(st.lists(st.tuples(st.sampled_from(PATHS), JSON), min_size=1, max_size=3))
@settings(max_examples=500, deadline=None)
def test_mutated_documents(mutations):
    document = copy.deepcopy(GOOD)
    for path, value in mutations:
        try:
            document = changed(path, value, document)
        except (KeyError, IndexError, TypeError, ValueError):
            continue
    _never_crashes(document)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_text(data):
    text = release().to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(st.text(max_size=4))
    cut = data.draw(st.integers(0, 5))
    with suppress(ReleaseError):
        SiteRelease.from_json(text[:at] + piece + text[at + cut :])


@given(
    value=st.floats(-1e50, 1e50),
    variance=st.floats(-1e3, 1e3),
    scale=st.floats(1e-9, 1e3),
    laplace=st.lists(st.floats(0, 1e6), max_size=5),
    n=st.integers(1, 2**53),
    epsilon=st.floats(1e-6, 100) | st.integers(1, 9),
    text=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20),
)
@settings(max_examples=150, deadline=None)
def test_any_release_round_trips(value, variance, scale, laplace, n, epsilon, text):
    made = release(
        site=text[:100],
        formula=text,
        n=n,
        released=estimate(value, variance, scale, 1e9, tuple(laplace)),
        guarantee=Guarantee(epsilon, void=(text,)),
    )
    again = SiteRelease.from_json(made.to_json())
    assert again == made
    assert canonical(again.to_dict()) == canonical(parse_json(made.to_json()))


# --- who counts -----------------------------------------------------------------------------------


def test_a_site_says_who_counts():
    data = people()
    given = {"epsilon": 4, "method": "diff_in_means", "bounds": {"y": (0, 1)}, "seed": 1}
    sent = {
        name: dpe.site_release("y ~ t", data, site=name, **given | more)
        for name, more in {
            "rows": {},
            "people": {"unit": "person"},
            "adults": {"subset": "age >= 18"},
            "others": {"subset": "age>=18", "seed": 2},
            "old": {"subset": "age >= 65"},
        }.items()
    }
    for one in sent.values():
        assert SiteRelease.from_json(one.to_json()) == one
        bare = replace(one, released=replace(one.released, means=None))
        assert SiteRelease.from_json(bare.to_json()) == bare
    assert sent["people"].guarantee.unit == "all rows of one person"
    assert dpe.combine([sent["adults"], sent["others"]]).n == 2 * len(data)
    by_records = dpe.combine([sent["adults"], sent["others"]], "all")
    assert any("not of the records analysed" in note for note in by_records.notes)
    for other in ("people", "old", "rows"):
        with pytest.raises(
            ReleaseError, match=r"differ in (what they protect|their analysis sample)"
        ):
            dpe.combine([sent["adults"], sent[other]])


def people(n=2000):
    rng = np.random.default_rng(2)
    t = rng.integers(0, 2, n)
    y = np.clip(0.4 + 0.2 * t + rng.normal(0, 0.1, n), 0, 1)
    return pd.DataFrame(
        {"y": y, "t": t, "person": np.arange(n) // 2, "age": rng.integers(0, 90, n)}
    )


@pytest.mark.parametrize("sample", [[], {"a": 1}, {"a": "x" * 20_000}, {"\n": "a"}, "adults"])
def test_who_counts_is_read_strictly(sample):
    given = {
        "epsilon": 4,
        "method": "diff_in_means",
        "bounds": {"y": (0, 1)},
        "subset": "age >= 18",
    }
    document = dpe.site_release("y ~ t", people(), site="North", **given).to_dict()
    document["sample"] = sample
    with pytest.raises(ReleaseError):
        SiteRelease.from_dict(document | {"checksum": checksum(document)})


def test_a_site_sends_one_effect():
    with pytest.raises(OptionError, match="one effect"):
        dpe.site_release("y ~ t", people(), site="North", epsilon=1, by=["age < 9"])


def test_parts_that_releases_share_are_checked_in_each_of_them():
    """What is kept once is told apart by types too: a whole number is not written as a fraction."""
    _, good = (SiteRelease.from_dict(changed(("guarantee", "epsilon"), 1.0)) for _ in range(2))
    assert SiteRelease.from_dict(changed(("guarantee", "epsilon"), 1.0)).guarantee is good.guarantee
    whole = SiteRelease.from_dict(changed(("guarantee", "epsilon"), 1))
    assert type(whole.guarantee.epsilon) is int
    with pytest.raises(
        ReleaseError, match=r"guarantee\.epsilon must be a number, not true or false"
    ):
        SiteRelease.from_dict(changed(("guarantee", "epsilon"), True))
    with pytest.raises(ReleaseError, match=r"charges\.claim must be a whole number"):
        SiteRelease.from_dict(changed(("charges", 0, "claim"), 7.0))


def test_what_somebody_does_to_one_release_leaves_others_alone():
    """Two sites send the same sample; who reads the first changes theirs."""
    one, other = (release(site).to_json() for site in ("North", "South"))
    SiteRelease.from_json(one).sample["rows"] = 5
    assert SiteRelease.from_json(other).to_json() == other
