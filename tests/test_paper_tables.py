"""table(): the few lines of every kind of result that a journal prints, in all formats."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

import dpeffects as dpe
from dpeffects.errors import OptionError
from dpeffects.report.comparison import Comparison
from dpeffects.results.average import Result
from dpeffects.results.number_format import number
from dpeffects.results.result_base import ResultBase
from dpeffects.summary import Prose, Table
from tests.cases import each
from tests.kinds_of_summaries import NAMES, TRIAL, made, people
from tests.reading import (
    detexed,
    from_markdown,
    page,
    self_contained,
    shown,
    spaced,
    squeezed,
    tables,
)
from tests.test_render import compiled, too_wide

LONGEST = {"average": 5, "survival": 5}
NO_INTERVALS = ("balance", "randomisation test", "moments")


def having():
    return [name for name in NAMES if isinstance(made(name), ResultBase | Comparison)]


def only(summary):
    """The one table of a summary, and the text below it."""
    (table,) = (block for block in summary.blocks if isinstance(block, Table))
    foot = next(block for block in summary.blocks if isinstance(block, Prose))
    return table, foot.text


@each("name", having())
def test_the_lines_of_a_journal(name):
    fit = made(name)
    table, foot = only(fit.table())
    assert len(set(map(len, (table.columns, *table.rows)))) == 1
    assert len({row[0] for row in table.rows}) == len(table.rows)
    guarantees = [x.guarantee for x in getattr(fit, "fits", (fit,))]
    for guarantee in guarantees:
        assert f"epsilon = {number(guarantee.epsilon)}, delta = " in foot
        assert f"unit of protection: {guarantee.unit}" in foot
    assert f"n = {fit.n:,} " in foot if isinstance(fit, ResultBase) else "n" in table.columns
    if isinstance(fit, Result):
        assert len(table.rows) <= LONGEST["average"]
    if name in NO_INTERVALS:
        return
    assert len(table.rows) <= LONGEST.get(name, max(len(fit.tidy()) + 3, 5))
    where = table.columns.index("95 % CI")
    cells = [row[where - 1 : where + 1] for row in table.rows]
    for row in fit.tidy().to_dict("records"):
        if name == "survival" and row["term"].startswith(("rmst_t", "rmst_c", "rmst_r", "log")):
            continue
        if name == "survival" and row["term"] == "risk_ratio":
            continue
        assert any(_says(*own, row) for own in cells), row


def _says(value, interval, row):
    """Whether cells have the numbers of a row of `tidy`, in its unit or in per cent."""
    ends = interval.split(" to ")
    if interval == "n/a":
        return row["conf_low"] != row["conf_low"] and _close(value, row["estimate"])
    numbers = (row["estimate"], row["conf_low"], row["conf_high"])
    return all(map(_close, (value, *ends), numbers)) or all(
        _close(text, 100.0 * x) for text, x in zip((value, *ends), numbers, strict=True)
    )


def _close(text, value):
    if text in ("suppressed", "\N{EN DASH}", "infinity"):
        return True
    digits = len(text.partition(".")[2].partition("e")[0])
    return float(text) == pytest.approx(value, rel=1e-3, abs=0.51 * 10.0**-digits + 1e-12)


@each("name", having())
def test_in_every_format(name):
    summary = made(name).table()
    table, foot = only(summary)
    wanted = [list(map(spaced, row)) for row in (table.columns, *table.rows)]
    assert tables(page(summary.as_html())) == [wanted]
    assert spaced(foot) in shown(self_contained(summary.as_html(standalone=True)))
    assert spaced(foot) in shown(from_markdown(summary.as_markdown()))
    assert max(map(len, summary.as_text().splitlines())) <= 80
    latex = summary.as_latex()
    for part in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert latex.count(part) == 1
    plain = detexed(latex.replace(r"\textless{}", "<").replace(r"\textgreater{}", ">"))
    for row in table.rows:
        for cell in row:
            assert squeezed(cell).replace("\N{EN DASH}", "--") in plain
    body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")]
    assert not re.search(r"(?:^|& |to )-(?:\{\})?\d", body, re.MULTILINE)  # a hyphen for a minus


def test_the_latex_of_all_kinds_compiles_and_fits(tmp_path):
    log, _ = compiled(tmp_path, *(made(name).table().as_latex() for name in having()))
    assert not too_wide(log)


def test_a_page_of_word_in_portrait(tmp_path):
    docx = pytest.importorskip("docx")
    for name in having():
        path = made(name).table().as_docx(tmp_path / f"{name}.docx")
        document = docx.Document(str(path))
        (section,), (_,) = document.sections, document.tables
        assert section.page_width < section.page_height
    office = shutil.which("libreoffice")
    if office and shutil.which("pdfinfo"):
        files = [str(path) for path in tmp_path.glob("*.docx")]
        command = [office, "--headless", "--convert-to", "pdf", "--outdir", str(tmp_path), *files]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        for path in tmp_path.glob("*.pdf"):
            about = subprocess.run(["pdfinfo", path], capture_output=True, text=True, check=True)
            assert re.search(r"Pages: +1\n", about.stdout), path.name


def test_risks_are_in_per_cent_with_their_difference_and_ratio():
    data = people().assign(y=lambda x: (x["y"] > 0.5).astype(int))
    fit = dpe.dp_ate("y ~ t", data, **TRIAL | {"bounds": {"y": [0, 1]}})
    table, _ = only(fit.table(conf_level=0.9))
    assert table.columns == ("", "estimate", "90 % CI", "P")
    names = [row[0] for row in table.rows]
    assert names == ["risk, treated, %", "risk, control, %", "risk difference, %", "risk ratio"]
    assert float(table.rows[2][1]) == pytest.approx(100.0 * fit.estimate, abs=0.1)
    assert float(table.rows[3][1]) == pytest.approx(fit.effect("ratio").estimate, abs=0.01)


def test_what_voids_a_reading_stands_above():
    for name, words in (
        ("adjusted", "NOT PRIVATE: a seed was set"),
        ("claimed", "ASYMPTOTIC"),
        ("study without baseline", "ASSOCIATION"),
    ):
        assert any(words in line for line in made(name).table().warnings)
    _, foot = only(made("points").table())
    assert "privacy noise only" in foot
    assert "P" not in only(made("study without baseline").table())[0].columns


def test_other_tables_by_name():
    study = made("study")
    assert str(study.table("results")) == str(study.table())
    assert study.table("table1").title.startswith("Table 1")
    assert study.table("budget").title == "Privacy budget"
    alone = study.table(simultaneous=False)
    assert "for one outcome each and not adjusted for multiplicity" in only(alone)[1]
    assert only(alone)[0].rows != only(study.table())[0].rows
    with pytest.raises(OptionError, match=r"results, by g, .*table1, budget"):
        study.table("table2")
    with pytest.raises(OptionError, match="several effects"):
        made("adjusted").table(simultaneous=True)
    with pytest.raises(OptionError, match="conf_level"):
        study.table(conf_level=95)
