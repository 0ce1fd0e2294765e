"""Table and picture at the top of the README and of the site: private answers beside those without.

``python docs/steps/opening.py`` makes both anew. Noise is seeded, so that the test can repeat it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import dpeffects as dpe

ROOT = Path(__file__).resolve().parents[2]
SHOWN_IN = ("README.md", "docs/index.md")
PICTURE = ROOT / "docs" / "_static" / "opening.png"
_TABLE = re.compile(r"<!-- opening -->\n(.*?)<!-- end -->", re.DOTALL)
_COVARIATES = "prenatal_first_trimester + married + mage + first_baby + medu"
_MATCHED = {"method": "private_psm"}
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
        ("birthweight", f"outcome ~ treatment | {_COVARIATES}", _MATCHED, 1),
    ),
    (
        'the same, `method="private_psm", level="label"`',
        ("birthweight", f"outcome ~ treatment | {_COVARIATES}", _MATCHED | {"level": "label"}, 1),
    ),
)


class Found(NamedTuple):
    """An effect and both ends of its 95 % interval, in the units that are shown."""

    estimate: float
    low: float
    high: float
    digits: int

    def __str__(self) -> str:
        value, low, high = (f"{x:.{self.digits}f}" for x in self[:3])
        return f"{value} ({low} to {high})"


def results() -> dict[str, tuple[Found, Found]]:
    """Return each effect, private and without privacy."""
    found = {}
    for name, (data, formula, arguments, units) in _ROWS:
        rows, digits = dpe.load_data(data), 1 if units > 1 else 0
        fit = dpe.dp_ate(formula, rows, epsilon=1, seed=1, **arguments)
        plain = dpe.reference(formula, rows, **arguments)
        half = 1.96 * plain.std_error
        ends = (fit.conf_int(0.95), (plain.estimate - half, plain.estimate + half))
        private, not_private = (
            Found(units * value, units * low, units * high, digits)
            for value, (low, high) in zip((fit.estimate, plain.estimate), ends, strict=True)
        )
        found[name] = (private, not_private)
    return found


def table(found: dict[str, tuple[Found, Found]]) -> str:
    """Return the table: effects with 95 % intervals, private and not."""
    lines = ["| effect, 95 % interval | private, epsilon 1 | without privacy |", "|---|---|---|"]
    lines += [f"| {name} | {private} | {plain} |" for name, (private, plain) in found.items()]
    return "\n".join([*lines, ""])


def shown(page: str) -> str:
    """Return the table as a page has it."""
    found = _TABLE.search((ROOT / page).read_text(encoding="utf-8"))
    return found[1] if found else ""


def draw(found: dict[str, tuple[Found, Found]]) -> None:
    """Draw the intervals of the table; the file keeps the table that it shows."""
    from matplotlib.figure import Figure

    aspirin, smoking, matched, label = found.values()
    panels = (
        ("Aspirin, a trial of 19,408 patients:\nstrokes among 1,000", {"": aspirin}),
        (
            "Smoking, 4,642 births:\nbirth weight in grams",
            {"default": smoking, "matching": matched, "matching, label level": label},
        ),
    )
    figure = Figure(figsize=(7, 3.1), layout="constrained")
    for ax, (title, effects) in zip(figure.subplots(1, 2), panels, strict=True):
        labels = []
        for method, pair in effects.items():
            for kind, one in zip(("private", "not private"), pair, strict=True):
                place = -len(labels)
                colour = "C0" if kind == "private" else "0.55"
                ax.plot(one[1:3], [place] * 2, color=colour, linewidth=3, solid_capstyle="butt")
                ax.plot(one.estimate, place, "o", color=colour, markersize=7)
                labels.append(f"{method}, {kind}".removeprefix(", "))
        ax.axvline(0, color="0.8", linewidth=1, zorder=0)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_yticks([-place for place in range(len(labels))], labels)
        ax.set_ylim(-len(labels) + 0.4, 0.6)
        ax.locator_params(axis="x", nbins=5)
        ax.spines[["left", "right", "top"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    figure.savefig(PICTURE, dpi=180, metadata={"Description": table(found), "Software": None})


def main() -> None:
    """Write the table into the pages, and the picture beside them."""
    found = results()
    made = f"<!-- opening -->\n{table(found)}<!-- end -->"
    for page in SHOWN_IN:
        path = ROOT / page
        path.write_text(_TABLE.sub(lambda _: made, path.read_text(encoding="utf-8")), "utf-8")
    draw(found)
    print(made)


if __name__ == "__main__":
    main()
