"""docs/site_release.md describes the document that the code makes."""

import json
import re
from dataclasses import replace
from pathlib import Path

from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    MeansPart,
    MeansVariance,
    SamplingVariance,
)
from dpeffects.services.sites import SiteRelease
from tests.sites.examples import estimate, release

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "site_release.md").read_text()
EXAMPLE = re.search(r"```json\n(.*?)```", TEXT, re.DOTALL).group(1)


def names(value, here=""):
    """Dotted names of all fields; entries of a list have the name of the list."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from names(entry, f"{here}.{key}".strip("."))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield here
        yield from names(value[0], here)
    else:
        yield here


def test_the_example_is_read():
    made = SiteRelease.from_json(EXAMPLE)
    assert made.site == "North"
    assert made.guarantee.status == "exact"
    assert made.signature is not None


def test_every_field_is_described_and_no_other():
    described = set(re.findall(r"^\| `([a-z_.]+)` \|", TEXT, re.MULTILINE))
    second = release(
        released=replace(
            estimate(),
            parts=(ErrorPart("clip", 0.1),),
            possible=(-1.0, 1.0),
            identification="adjusted",
        )
    )
    half = MeansVariance(SamplingVariance(0.1, 0.0, 1.0), 0.5, 0.5)
    means = ArmMeans(second.estimate, 0.0, (half,), parts=(MeansPart("level", 0.1, 0.1),))
    fourth = replace(second, released=replace(second.released, means=means))
    documents = json.loads(EXAMPLE), second.to_dict(), fourth.to_dict()
    made = {name for document in documents for name in names(document)} | {"released.means"}
    assert described == made | {"released.sampling.unavailable", "sample"}
