"""README, guide and questions: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "docs/guide", "docs/questions", "docs/from")
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).glob("*.md")
)
READMES = ["README.md", "data/README.md"]
FOUND = [*PAGES, *READMES, "SECURITY.md", "CONTRIBUTING.md"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


@pytest.mark.long
@pytest.mark.parametrize("name", [*PAGES, *READMES])
def test_code_in_the_pages_runs(name, tmp_path, monkeypatch):
    """Blocks of a page run in order, and give what is kept in docs/outputs, noise aside."""
    from steps import outputs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    made = [output.text for output in outputs.run(name)]
    if name in PAGES and made:
        shown = outputs.kept(name)
        assert shown, "the code has changed: make outputs"
        assert [kinds(text) for text in shown] == [kinds(text) for text in made]
        one, other = labels("".join(shown)), labels("".join(made))
        assert len(one & other) >= 0.75 * max(len(one), len(other)), sorted(one ^ other)


def kinds(output):
    """Which of text, tables and pictures an output has, in order."""
    return [line[:3] for line in output.splitlines() if re.match(r"```text|!\[|\| ---", line)]


def labels(output):
    """All words but those of warnings, which noise decides; so do numbers, and where lines end."""
    return set(re.findall(r"[^\W\d]{2,}", re.sub(r"\*\*\*.*?\*\*\*", "", output, flags=re.DOTALL)))


def test_outputs_are_of_the_code_on_their_pages():
    from steps import outputs

    shown = {path.relative_to(outputs.KEPT) for path in outputs.KEPT.rglob("*.md")}
    pages = outputs.pages()
    assert sorted(f"docs/{path}" for path in shown) == sorted(pages)
    assert [name for name in pages if not outputs.kept(name)] == []  # make outputs
    pictures = {path.name for path in outputs.KEPT.rglob("*.png")}
    told = "".join(text for name in pages for text in outputs.kept(name))
    assert sorted(re.findall(r"\((.*?\.png)\)", told)) == sorted(pictures)


def test_outputs_are_those_of_a_notebook(tmp_path, monkeypatch):
    from steps import outputs

    code = "import pandas as pd\nprint(1)\nprint(2)\npd.DataFrame({'a': [0.5], 'b': ['x']})\n"
    blocks = [
        ("", code),
        (" no-run", "1 / 0\n"),
        (" no-output", "k = 3\nprint(k)\n"),
        ("", "k\nk + 1\n"),
        ("", "from matplotlib import pyplot as plt\nplt.plot([1, 2])\n"),
    ]
    (tmp_path / "page.md").write_text("".join(f"```python{w}\n{c}```\n\n" for w, c in blocks))
    monkeypatch.setattr(outputs, "ROOT", tmp_path)
    found = outputs.run("page.md")
    assert [output.text for output in found] == [
        "```text\n1\n\n2\n```\n\n| a | b |\n| ---: | --- |\n| 0.5 | x |\n",
        "",
        "```text\n4\n```\n",
        "![Drawn by the code above](page-1.png)\n",
    ]
    assert found[3].pictures["page-1.png"].startswith(b"\x89PNG")


def test_the_summary_in_the_readme_is_what_is_printed(capsys):
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", text("README.md"), re.DOTALL)[:2]
    exec(compile(code, "README.md", "exec"), {})
    assert without_numbers(shown) == without_numbers(capsys.readouterr().out)


def without_numbers(summary):
    """Less what noise decides: the estimate, and warnings after the first."""
    summary = re.sub(r"(\*\*\* [^;*]*)[^*]*\*\*\*", r"\1", summary)
    lines = [line.split() for line in summary.strip().splitlines()]
    return [line[:1] if line[:1] == ["Estimate"] else line for line in lines]


def anchors(name):
    """Names of the headings of a page, as hosts of code and the site make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text(name), flags=re.DOTALL), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@each("name", FOUND)
def test_links_to_files_and_headings_lead_somewhere(name):
    for link in re.findall(r"\]\(([^()\s]+)\)", text(name)):
        path, _, heading = link.partition("#")
        if ":" in path:
            continue
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), link
        if heading:
            assert heading in anchors(target.resolve().relative_to(ROOT).as_posix()), link


def test_the_readme_is_two_screens_and_a_picture():
    shown = text("README.md")
    assert len(shown.splitlines()) < 110
    pictures = re.findall(r"!\[[^\]]+\]\(([^()\s]+)\)", shown)
    assert pictures
    assert all((ROOT / name).stat().st_size < 100_000 for name in pictures)


def test_every_page_of_the_guide_is_in_its_list():
    for folder in ("docs/guide", "docs/questions"):
        pages = {Path(name).stem for name in PAGES if Path(name).parent.as_posix() == folder}
        index = text(f"{folder}/index.md")
        listed = re.search(r"```{toctree}\n.*?\n\n(.*?)```", index, re.DOTALL)[1].split()
        assert sorted(listed) == sorted(pages - {"index"})
        assert all(f"({name}.md)" in index for name in listed)
