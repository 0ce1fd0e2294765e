"""What may be skipped, and why. A test that is skipped for another reason fails.

`.ci/run` installs all that it can of what tests need, and names what it could not have in
``MAY_SKIP``. Where that is not set, on somebody's own machine, everything here may be missing.
"""

from __future__ import annotations

import os
import re

NEEDED = {
    "lifelines": r"could not import 'lifelines'",  # another library of survival, to compare with
    "accounting": r"could not import 'dp_accounting'",  # another accountant, to compare with
    "data": r"dpeffects\[data\]",  # data sets that other packages carry
    "federation": r"dpeffects\[federation\]",
    "office": r"dpeffects\[office\]",
    "spark": r"Spark is not installed",  # 400 MB
    "java": r"Spark needs Java",
    "generators": r"dpeffects synthetic-setup has not run",  # an environment of old libraries
    "r": r"R is not installed|R has no packages",
    "pandoc": r"R has no packages (to render with|rmarkdown)",
    "shared": r"built without a shared library",  # the Python, which is as it is
    "tex": r"no pdflatex here",
    "postgresql": r"PostgreSQL (is not installed|in .* does not start)",
    "browser": r"needs the browser chromium",  # 300 MB, with its driver
}
"""Reasons by the name of what is missing; the names are those of `.ci/run`."""
ANYWHERE = (
    r"pandas 3 has no such names of columns",
    r"cannot mount a small file system",  # in a container
    r"root may write anywhere",
    r"the system does not tell",  # how much memory is used
    r"needs process groups|openssl is not installed",  # another system
    r"the leaderboard has not been run",
)


def may_be(reason: str) -> bool:
    """Whether a test may be skipped for a reason, here."""
    missing = os.environ.get("MAY_SKIP")
    names = NEEDED if missing is None else missing.split()
    return any(re.search(known, reason) for known in (*ANYWHERE, *map(NEEDED.__getitem__, names)))
