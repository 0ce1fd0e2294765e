"""The numbered claims of PROOFS.md, by title."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HEADING = re.compile(r"^## Claim (\d+)\. (.+)$", re.MULTILINE)


@cache
def titles() -> dict[int, str]:
    """Return the title of each claim, as it stands above its proof.

    Examples
    --------
    >>> titles()[2]
    'Discrete Laplace on integers'
    """
    text = Path(__file__).with_name("PROOFS.md").read_text(encoding="utf-8")
    return {int(number): title for number, title in _HEADING.findall(text)}
