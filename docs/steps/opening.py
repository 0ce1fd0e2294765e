"""The table at the top of the README and of the site: private answers beside those without privacy.

``python docs/steps/opening.py`` makes it anew. Noise is seeded, so that the test can repeat it.
"""

from __future__ import annotations

import re
from pathlib import Path

import dpeffects as dpe

ROOT = Path(__file__).resolve().parents[2]
SHOWN_IN = ("README.md", "docs/index.md")
_TABLE = re.compile(r"<!-- opening -->\n(.*?)<!-- end -->", re.DOTALL)
_COVARIATES = "prenatal_first_trimester + married + mage + first_baby + medu"
_ROWS = (  # what is shown; data set, right side of the formula, arguments, units of the outcome
    (
        "aspirin: strokes within two weeks among 1,000 patients",
        ("ist", "stroke_14_days ~ treatment", {"method": "auto", "design": "randomised"}, 1000),
    ),
    (
        "smoking: birth weight in grams",
        ("birthweight", f"outcome ~ treatment | {_COVARIATES}", {"method": "auto"}, 1),
    ),
    (
        'the same, `method="private_psm"`',
        ("birthweight", f"outcome ~ treatment | {_COVARIATES}", {"method": "private_psm"}, 1),
    ),
)


def table() -> str:
    """Return the table: effects with 95 % intervals, private and not."""
    lines = ["| effect, 95 % interval | private, epsilon 1 | without privacy |", "|---|---|---|"]
    for name, (data, formula, arguments, units) in _ROWS:
        rows, digits = dpe.load_data(data), 1 if units > 1 else 0
        fit = dpe.dp_ate(formula, rows, epsilon=1, seed=1, **arguments)
        plain = dpe.reference(formula, rows, **arguments)
        half = 1.96 * plain.std_error
        ends = (fit.conf_int(0.95), (plain.estimate - half, plain.estimate + half))
        cells = [
            f"{units * value:.{digits}f} ({units * low:.{digits}f} to {units * high:.{digits}f})"
            for value, (low, high) in zip((fit.estimate, plain.estimate), ends, strict=True)
        ]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join([*lines, ""])


def shown(page: str) -> str:
    """Return the table as a page has it."""
    found = _TABLE.search((ROOT / page).read_text(encoding="utf-8"))
    return found[1] if found else ""


def main() -> None:
    """Write the table into the pages."""
    made = f"<!-- opening -->\n{table()}<!-- end -->"
    for page in SHOWN_IN:
        path = ROOT / page
        path.write_text(_TABLE.sub(lambda _: made, path.read_text(encoding="utf-8")), "utf-8")
    print(made)


if __name__ == "__main__":
    main()
