"""What a judgement of a paper's statement says."""

from __future__ import annotations

from dataclasses import dataclass

VERDICTS = {True: "comes back", False: "does not", None: "cannot be checked"}


@dataclass(frozen=True)
class Found:
    """What was measured for a claim.

    ``holds``: True where the claim comes back, False where it does not, None where it cannot be
    checked. ``why`` explains the last two, and may explain the first. Where it has no number of
    its own, it stands in ``verdicts.toml``.
    """

    measured: str
    holds: bool | None
    why: str = ""

    def __post_init__(self) -> None:
        if self.holds not in VERDICTS:
            raise ValueError(f"holds must be True, False or None, got {self.holds!r}")
