"""Releases are read the same, and refused the same, whatever is known of those before."""

import copy
import json
from dataclasses import fields, replace

import pytest

from dpeffects.documents import checksum, parse_json
from dpeffects.errors import ReleaseError
from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    MeansPart,
    MeansVariance,
    SamplingVariance,
)
from dpeffects.services.sites import SiteRelease, document, document_cache
from dpeffects.services.sites.document import Signature
from dpeffects.services.sites.document_cache import parse_alike
from dpeffects.type_checks import FieldError
from tests.sites.examples import estimate, release

_MEANS = ArmMeans(
    0.5,
    0.2,
    tuple(MeansVariance(SamplingVariance(0.01, 0.001, 1.0), *arm) for arm in ((1, 0.0), (0.0, 1))),
    laplace=((0.02, 0.0), (0.0, 0.03)),
    parts=(MeansPart("models", 0.1, -0.1, True),),
    possible=(0.0, 1.0),
)
_RICH = replace(estimate(), parts=(ErrorPart("100 % noise", 0.01, True),), possible=(-1.0, 1.0))
RELEASES = {
    "bare": release(),
    "with parts": release(released=replace(_RICH, identification="adjusted", notes=("a note",))),
    "of a sample": release(sample={"subset": "age > 50"}),
    "with means": release(released=replace(_RICH, means=_MEANS)),
    "signed": release(signature=Signature("ed25519", "sha256:ab", "c2ln")),
    "other letters": release("Zürich", formula="größe ~ 100 %s | x"),
}


def outcome(made_of, text):
    """What reading gives, where types show (1 is not 1.0), or the words of the refusal."""
    try:
        made = made_of(text)
        return repr([(f.name, getattr(made, f.name)) for f in fields(made)])
    except ReleaseError as error:
        return str(error)


def afresh(text):
    """Read a document as if it were the first."""
    document._checks.cache_clear()
    document.SENT._made.clear()
    document_cache._last.clear()
    return SiteRelease.from_json(text)


def places(value, here=()):
    yield here
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*here, key))


def with_value(document, path, value):
    made = copy.deepcopy(document)
    spot = made
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    return made


@pytest.mark.parametrize("name", RELEASES)
def test_good_releases_are_read_again_as_they_were_first(name):
    text = RELEASES[name].to_json()
    first = outcome(afresh, text)
    assert outcome(SiteRelease.from_json, text) == first
    assert SiteRelease.from_json(text) == RELEASES[name]
    one, other = (SiteRelease.from_json(text) for _ in range(2))
    assert (one.guarantee, one.charges, one.bounds) == (
        other.guarantee,
        other.charges,
        other.bounds,
    )
    assert (one.guarantee is other.guarantee, one.charges is other.charges) == (True, True)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["bare", "with means", "signed"])
@pytest.mark.parametrize("value", [None, True, 1, 1.0, -1.5, 1e300, "x", "", [], {}, [[1.0]]])
def test_any_change_is_read_or_refused_as_ever(name, value):
    document = RELEASES[name].to_dict()
    for path in list(places(document))[1:]:
        made = with_value(document, path, value)
        SiteRelease.from_json(json.dumps(document))  # what is right about it is known
        texts = [json.dumps(made), json.dumps(made | {"checksum": checksum(made)})]
        for text in texts:
            assert outcome(SiteRelease.from_json, text) == outcome(afresh, text)


@pytest.mark.parametrize("name", ["with means", "signed"])
def test_a_name_that_stands_twice_is_refused_wherever_it_is(name):
    document = RELEASES[name].to_dict()
    text = json.dumps(document)
    SiteRelease.from_json(text)
    objects = [
        path for path in places(document) if isinstance(_at(document, path), dict) and path != ()
    ]
    for path in [(), *objects]:
        inner = json.dumps(_at(document, path))
        for field, value in _at(document, path).items():
            again = f'{{"{field}": {json.dumps(value)}, {inner[1:]}'
            made = text.replace(inner, again, 1)
            assert made != text
            assert json.loads(made) == document
            with pytest.raises(ReleaseError, match=f"the field '{field}' is given twice"):
                SiteRelease.from_json(made)


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def test_fields_that_are_missing_or_new_are_named():
    document = RELEASES["with parts"].to_dict()
    SiteRelease.from_json(json.dumps(document))
    for name in document:
        text = json.dumps({k: v for k, v in document.items() if k != name})
        assert outcome(SiteRelease.from_json, text) == outcome(afresh, text)
    text = json.dumps(document | {"colour": "red"})
    with pytest.raises(ReleaseError, match="unknown field colour"):
        SiteRelease.from_json(text)


def read(parse, text):
    try:
        return repr(parse(text))
    except FieldError as error:
        return str(error)


def test_any_text_is_read_as_if_it_were_the_first():
    """Entries that are written as before are not read again: nor may they be taken for others."""
    text = RELEASES["with means"].to_json()
    odd = ["{}", "", "[1]", '{"n":1}', '{"n":12}', '{"n":1', '{"n":1}}', '{"n" :1}', '{,"n":1}']
    odd += ['{"n":1,}', '{"n":1,"n":1}', '{"n":1} ', ' {"n":1}', '{"n"', "{", '{"n":[1]', "null"]
    odd += [
        '{"a":"x"}',
        '{"a":"x\\""}',
        '{"a":"x\\"}',
        '{"a":{"n":1,"n":1}}',
        '{"a":NaN}',
        "\ufeff{}",
    ]
    cut = [text[:end] for end in range(0, len(text), 7)]
    gaps = [text[:at] + " " + text[at:] for at in range(0, len(text), 11)]
    gone = [text[:at] + text[at + 1 :] for at in range(0, len(text), 5)]
    for made in (text, *odd, text, *cut, text, *gaps, text, *gone, b"{}", 3, None):
        assert read(parse_alike, made) == read(parse_json, made)


def test_a_long_entry_does_not_stand_in_the_way_of_shorter_ones():
    parse_alike('{"n":"' + "x" * 1000 + '"}')
    one, other = (parse_alike('{"n":[1.5]}') for _ in range(2))
    assert one["n"] is other["n"]


def test_what_is_kept_is_bounded():
    for j in range(300):
        parse_alike(f'{{"field {j}":{j}}}')
    parse_alike('{"n":"' + "x" * 200_000 + '"}')
    assert sum(len(text) for text, _ in document_cache._last.values()) < 200_000
    assert len(document_cache._last) <= 100
    document_cache._last.clear()
