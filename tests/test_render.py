"""Summaries in four formats: valid, self-contained, escaped, loud where they must be."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpeffects as dpe
from dpeffects.errors import MissingExtraError, OptionError
from dpeffects.guarantee import Guarantee
from dpeffects.summary import Notes, Pairs, Prose, Summary, Table, explained, printed
from tests.cases import each
from tests.reading import (
    HOSTILE,
    SPACE,
    detexed,
    from_markdown,
    page,
    self_contained,
    shown,
    spaced,
    squeezed,
    tables,
)
from tests.releases import BOUNDS, NAMES, everything, frame, release
from tests.test_results import make


@each("name", NAMES)
def test_all_four_formats_of_all_results(name):
    fit = release(name)
    summary = fit.summary()
    guarantees = [r.guarantee for r in getattr(fit, "releases", (fit,))]
    text = summary.as_text()
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    html = self_contained(summary.as_html())
    whole = self_contained(summary.as_html(standalone=True))
    markdown = from_markdown(summary.as_markdown())
    latex = summary.as_latex()
    for guarantee in guarantees:
        sentence = squeezed(guarantee.sentence())
        assert sentence in squeezed(text)
        assert sentence in squeezed(shown(html))
        assert sentence in squeezed(shown(whole))
        assert sentence in squeezed(shown(markdown))
        assert sentence in detexed(latex)
    blocks = [b for b in summary.blocks if isinstance(b, Table)]
    assert len(tables(page(summary.as_html()))) == len(blocks)
    for made, block in zip(tables(page(summary.as_html())), blocks, strict=True):
        assert made == [list(map(spaced, row)) for row in (block.columns, *block.rows)]
    assert fit._repr_html_() == summary.as_html() == summary._repr_html_()
    assert str(fit.summary()) == text


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", NAMES)
def test_word_files_have_the_same_tables(name, tmp_path):
    docx = pytest.importorskip("docx")
    summary = release(name).summary()
    path = summary.as_docx(tmp_path / "summary.docx")
    found = docx.Document(str(path))
    texts = [paragraph.text for paragraph in found.paragraphs]
    assert texts[0] == spaced(summary.title)
    for line in summary.warnings:
        assert any(spaced(line) in spaced(text) for text in texts)
    made = [
        [[spaced(cell.text) for cell in row.cells] for row in table.rows] for table in found.tables
    ]
    for block in summary.blocks:
        if isinstance(block, Table):
            assert [list(map(spaced, row)) for row in (block.columns, *block.rows)] in made
        elif isinstance(block, Pairs):
            assert [list(map(spaced, row)) for row in block.rows] in made
        elif isinstance(block, Notes):
            assert {spaced(item) for item in block.items} <= {spaced(text) for text in texts}


def test_word_files_take_any_name_and_are_never_overwritten_unasked(tmp_path):
    docx = pytest.importorskip("docx")
    table = Table("Names", ("name", "n"), tuple((name, "1") for name in HOSTILE), "lr", total=True)
    summary = Summary(HOSTILE[0], "*** \x00 loud ***", (table, Prose("\ud800 text"), Notes(("a",))))
    path = summary.as_docx(tmp_path / "names.docx")
    found = docx.Document(str(path)).tables[0]
    shown_names = [spaced(row.cells[0].text) for row in found.rows[1:]]
    assert shown_names == [spaced(name) for name in HOSTILE]
    before = path.read_bytes()
    with pytest.raises(OptionError, match="overwrite=True"):
        summary.as_docx(path)
    with pytest.raises(OptionError, match=r"study\.docx"):
        summary.as_docx(tmp_path / "names.doc")
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["names.docx"]


def test_without_the_library_word_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("dpeffects.report.word.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'^Word files need .*"dpeffects\[word\]"$'):
        Summary("a", "", ()).as_docx(tmp_path / "a.docx")
    with pytest.raises(MissingExtraError):
        release("study").report(tmp_path / "a.docx")
    assert not list(tmp_path.iterdir())


LOUD = {
    "void": (make(guarantee=Guarantee(1.0, void=("seeded",))), "NOT PRIVATE: a seed was set"),
    "asymptotic": (make(guarantee=Guarantee(1.0, kind="asymptotic")), "ASYMPTOTIC CLAIM"),
    "claimed effects": ("claimed", "ASYMPTOTIC CLAIM"),
    "seeded site": ("seeded site", "NOT PRIVATE: a seed was set"),
}
"""What voids a reading, in capitals."""
WARNED = {"hardly adjusted": ("points", "Weak adjustment")}
"""What is a warning, and no more."""


@pytest.mark.parametrize("name", [*LOUD, *WARNED])
def test_what_must_not_be_overlooked_stands_out_without_colour(name):
    fit, words = (LOUD | WARNED)[name]
    fit = release(fit) if isinstance(fit, str) else fit
    summary = fit.summary()
    mark = "*** " if name in LOUD else "Warning: "
    assert mark + words in "\n".join(summary.as_text().splitlines()[2:5])
    warnings = [n for n in page(summary.as_html()).iter() if n.get("role") == "alert"]
    assert any(words in "".join(node.itertext()) for node in warnings)
    assert "border: 2px solid" in summary.as_html()
    box = re.search(r"\\fbox\{\\parbox.*?\\bfseries ! (.*)", summary.as_latex())
    assert words in box[1]
    quotes = from_markdown(summary.as_markdown()).iter(f"{SPACE}blockquote")
    strong = [s for quote in quotes for s in quote.iter(f"{SPACE}strong")]
    assert any(words in "".join(node.itertext()) for node in strong)


def test_nothing_is_loud_when_all_is_well():
    summary = release("randomised").summary()
    assert 'role="alert"' not in summary.as_html()
    assert r"\fbox" not in summary.as_latex()
    assert "> **" not in summary.as_markdown()


def others(tmp_path):
    """What is shown and is not a result."""
    ledger = dpe.create_ledger(tmp_path / "s.db", "study", epsilon=3)
    dpe.dp_ate("y ~ t", frame(), "diff_in_means", epsilon=1, bounds=BOUNDS, ledger=ledger, seed=1)
    call = {"bounds": BOUNDS, "method": "diff_in_means", "repeats": 2}
    return {
        "plan": (dpe.plan("y ~ t", n=100, epsilon=1, **call), "epsilon = 1, delta = 0"),
        "audit": (dpe.audit("diff_in_means", epsilon=1, runs=200, seed=1), "epsilon = 1 (exact)"),
        "ledger": (ledger, "epsilon 3, delta 0"),
    }


def test_plans_audits_and_ledgers(tmp_path):
    for thing, promise in others(tmp_path).values():
        summary = thing.summary()
        assert all(len(line) <= 80 for line in summary.as_text().splitlines())
        for seen in (
            squeezed(summary.as_text()),
            squeezed(shown(self_contained(thing._repr_html_()))),
            squeezed(shown(from_markdown(summary.as_markdown()))),
            detexed(summary.as_latex()),
        ):
            assert squeezed(promise) in seen
    assert "SOME CHARGES PROTECT NOBODY" in summary.as_markdown()


# --- names ----------------------------------------------------------------------------------------


def hostile(*names):
    cells = tuple((name, name) for name in names)
    blocks = (
        Pairs(cells, names[0]),
        Table(names[0], names[:2], cells, "lr", total=True),
        Notes(names, names[-1]),
        Prose(names[0], names[-1]),
    )
    return Summary(names[0], f"*** {names[0]} ***\n*** {names[-1]} ***", blocks)


def test_hostile_names_are_only_text_in_html():
    html = hostile(*HOSTILE).as_html(standalone=True)
    tree = self_contained(html)
    (table,) = tables(tree)
    assert table[1:] == [[spaced(name)] * 2 for name in HOSTILE]


def test_hostile_names_are_only_text_in_markdown():
    tree = from_markdown(hostile(*HOSTILE).as_markdown())
    found = {node.tag.split("}")[1] for node in tree.iter() if "}" in node.tag}
    assert not found & {"script", "a", "img", "code", "em", "del", "h1", "h2", "ol"}
    for table in tables(tree):
        assert table[1:] == [[spaced(name)] * 2 for name in HOSTILE]
    items = [spaced("".join(n.itertext())) for n in tree.iter() if n.tag.endswith("}li")]
    assert items == [spaced(name) for name in HOSTILE]


def test_hostile_names_do_not_break_lines_of_text():
    lines = hostile(*HOSTILE).as_text().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert not re.search("[\x00-\x08\x1b\u202e]", "\n".join(lines))


NAME = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30).filter(
    lambda text: spaced(text)
)


@given(st.lists(NAME, min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_name_is_read_back_from_html_and_markdown(names):
    summary = hostile(*names)
    want = [[squeezed(spaced(name))] * 2 for name in names]
    for tree in (self_contained(summary.as_html()), from_markdown(summary.as_markdown())):
        table = tables(tree)[-1]
        kept = [[squeezed(cell).replace("\ufffd", "") for cell in row] for row in table[1:]]
        lost = re.compile("[\ufdd0-\ufdef\ufff0-\uffff]|[\\U0001fffe-\\U0010ffff]")
        for made, original in zip(kept, want, strict=True):
            assert lost.sub("", made[0]) == lost.sub("", original[0])
    summary.as_latex()
    assert all(len(line) <= 80 for line in summary.as_text().splitlines())


# --- LaTeX ----------------------------------------------------------------------------------------


def compiled(tmp_path, *bodies):
    """Text of the PDF that a TeX engine makes of summaries, and what it complained about."""
    engine = shutil.which("pdflatex")
    if engine is None:
        pytest.skip("no pdflatex here: LaTeX is not compiled")
    head, tail = Summary("", "", ()).as_latex(standalone=True).split("{\\footnotesize", 1)
    end = "\\end{document}\n"
    assert tail.endswith(end)
    (tmp_path / "all.tex").write_text(head + "\n\\clearpage\n".join(bodies) + end, "utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    for _ in range(2):  # longtable measures in the first run
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=900)
        log = done.stdout.decode("latin-1")
        assert done.returncode == 0, log[-2000:]
    if shutil.which("pdftotext") is None:
        return log, None
    subprocess.run(["pdftotext", "-raw", "all.pdf", "all.txt"], cwd=tmp_path, check=True)
    ligatures = dict(zip(range(0x1B, 0x20), ("ff", "fi", "fl", "ffi", "ffl"), strict=True))
    return log, (tmp_path / "all.txt").read_text("utf-8").translate(ligatures)


def too_wide(log):
    return [float(x) for x in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", log)]


@pytest.mark.long
def test_latex_of_all_results_compiles_and_fits(tmp_path):
    log, text = compiled(tmp_path, *(f.summary().as_latex() for f in everything().values()))
    assert max(too_wide(log), default=0.0) < 10.0  # a word or two, never a table
    if text is not None:
        seen = squeezed(text).replace("-", "")
        for fit in everything().values():
            for guarantee in (r.guarantee for r in getattr(fit, "releases", (fit,))):
                assert squeezed(guarantee.sentence()).replace("-", "") in seen


def test_latex_of_hostile_names_compiles(tmp_path):
    many = Table("Many", ("a", "b"), tuple((str(i), HOSTILE[i % 14]) for i in range(90)), "rl")
    log, text = compiled(
        tmp_path, hostile(*HOSTILE).as_latex(), Summary("Long", "", (many,)).as_latex()
    )
    assert max(too_wide(log), default=0.0) < 60.0
    if text is not None:
        seen = squeezed(text)
        for name in ("<script>alert(1)</script>", "100%_done", "a|b||c", "[0,1]"):
            assert name in seen
        assert "root:" not in seen  # nothing was read from a file
        assert "[U+4E2D]" in seen  # what the fonts do not have is named


def test_latex_uses_booktabs_only():
    text = hostile(*HOSTILE).as_latex()
    assert r"\toprule" in text
    assert r"\midrule" in text
    assert r"\hline" not in text


def test_a_summary_survives_without_blocks():
    empty = Summary("Title", "", ())
    assert empty.as_text() == "Title\n" + "=" * 80
    self_contained(empty.as_html())


@pytest.mark.parametrize(("ratio", "told"), [(7.2, "about 8 times the epsilon"), (5e5, "")])
def test_a_suppressed_number_that_no_epsilon_shows_needs_records(ratio, told):
    """It said "about 500000 times the epsilon"."""
    table = Table("", ("", "x"), (("a", printed("1", ratio)),), "lr")
    (note,) = (x for x in explained(Summary("", "", (table,))).blocks if isinstance(x, Notes))
    assert (told or "need many more records than there are") in note.items[0]
    assert ("times the epsilon" in note.items[0]) == bool(told)
