"""README, guide and questions: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases import each

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "docs/guide", "docs/questions")
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).glob("*.md")
)
READMES = ["README.md", "data/README.md"]
FOUND = [*PAGES, *READMES, "SECURITY.md", "CONTRIBUTING.md"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", [*PAGES, *READMES])
def test_code_in_the_pages_runs(name, capsys, tmp_path, monkeypatch):
    """Blocks of a page run in order and share their names, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    space: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text(name), re.DOTALL):
        exec(compile(block, name, "exec"), space)


def test_the_summary_in_the_readme_is_what_is_printed(capsys):
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", text("README.md"), re.DOTALL)[:2]
    exec(compile(code, "README.md", "exec"), {})
    assert without_numbers(shown) == without_numbers(capsys.readouterr().out)


def without_numbers(summary):
    """Less what noise decides: the estimate, and cautions after the first."""
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
    assert len(shown.splitlines()) <= 115
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
