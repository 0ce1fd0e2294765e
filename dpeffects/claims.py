"""The numbered claims of privacy/PROOFS.md, by title, for those who read a result."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HEADING = re.compile(r"^## Claim (\d+)\. (.+)$", re.MULTILINE)


@cache
def titles() -> dict[int, str]:
    """Return the title of each claim, as it stands above its proof; 0 is for unproved releases.

    Examples
    --------
    >>> titles()[2], titles()[0]
    ('Discrete Laplace on integers', 'no proof here')
    """
    text = Path(__file__).with_name("privacy").joinpath("PROOFS.md").read_text(encoding="utf-8")
    proved = {int(number): title for number, title in _HEADING.findall(text)}
    return {0: "no proof here", **proved}


def title_of(claim: int) -> str:
    """Return the title of a claim; files of earlier versions may have numbers that are gone."""
    return titles().get(claim, "of an earlier numbering")
