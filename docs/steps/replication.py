"""The page of all claims of the papers, with what was measured and a verdict: docs/replication.md.

``python docs/steps/replication.py`` writes it anew from the tables on file.
"""

from __future__ import annotations

from pathlib import Path

from dpeffects.replication.papers import papers, verdicts

PAGE = Path(__file__).resolve().parents[1] / "replication.md"
_HEAD = """\
# The papers, claim by claim

Every numbered algorithm, table and figure of the papers behind this package, and every theorem with
something to compute, has a row here: what the paper says, what we measured, and whether the two
agree. *Comes back*: our measurement agrees, standard errors considered. *Does not*: it disagrees.
*Cannot be checked*: the paper leaves out what would be needed, or the data are not public; the last
column says which. A figure may have several rows, since it may support several statements.
What did not come back at first was read again: does a plain reading of the text, the usual file
of the data or the usual preprocessing bring it back? These readings have an implementation of
their own, written from the text alone (`tests/second_reading.py`,
[all of them](../benchmarks/results/second_reading.md)), and the bar of the first one.
Where one brings a statement back, the third column has it after *Read again*; a reading that the
text does not allow (noise that would not be private, a condition that is not stated) may explain a
number and does not change a verdict. All others that were tried are in the last column, failures
among them; *Read once* says that there were none. Readings are chosen for each statement: that one
brings back a figure does not make it the authors'.
A difference below two standard errors is no finding. What "similar", "most" or "generally" means is
our choice, a few of them made after a first look; each is in the function that judges the claim
(`dpeffects/replication/papers`), and the numbers are there to disagree with.

No measurement on this page is typed by hand. They are small tables in
[data/papers](../data/README.md) that come with the package
(`dpeffects.replication.papers.table`). To make them anew, run a vignette with `--full`; to make one
of them, add its name:

```sh
python vignettes/weighting.py --full table_2
```

Where a paper is wrong, [Corrections to the source papers](corrections.md) has the printed
statement, the right one and why; [What we corrected in the papers](../vignettes/corrected.py)
computes examples.
"""


def text() -> str:
    """Return the page."""
    found = verdicts()
    lines = ["| paper | items | claims | come back | do not | cannot be checked |"]
    lines += ["|---|---|---|---|---|---|"]
    for key, paper in papers().items():
        own = [row.verdict for row in found.rows if row.paper == key]
        counts = [own.count(name) for name in ("comes back", "does not", "cannot be checked")]
        name = f"{paper.short} ({key})"
        lines.append(
            f"| {name} | {len(paper.items)} | {len(own)} | {' | '.join(map(str, counts))} |"
        )
    return "\n".join([_HEAD, *lines, "", found.markdown()])


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
