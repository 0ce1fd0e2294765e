"""The documentation site: it builds without a warning, its links hold, its figures are true.

The site is built here without running the vignettes: `test_vignettes.py` runs each of them, and
``make docs`` builds the site with their output.
"""

from __future__ import annotations

import inspect
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.estimators import proved, registry
from dpeffects.estimators.default.score_curvature import spike_and_slab
from dpeffects.guarantee import KINDS
from dpeffects.privacy.charges import NoisyValue
from dpeffects.services.sites.rules import RULES

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide"
pytestmark = pytest.mark.long  # `make test-long` installs the extra "docs"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


def test_site_builds_and_is_whole(tmp_path):
    """One test, because workers of a parallel run do not share what was built."""
    source, built = tmp_path / "source", tmp_path / "html"
    left_out = shutil.ignore_patterns(".*", "tests", "_build", "generated", "__pycache__", "dist")
    shutil.copytree(ROOT, source, ignore=left_out)
    options = ["-q", "-W", "--keep-going", "-D", "plot_gallery=0"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(source / "docs"), str(built)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    from check_links import problems

    assert sorted(problems(built)) == []
    folder = built / "generated" / "api"
    reference = "".join(page.read_text() for page in folder.glob("*.html"))
    described = set(re.findall(r'id="(?:module-)?dpeffects\.(\w+)"', reference))
    assert sorted(set(dpe.__all__) - described) == []
    proofs = (built / "generated" / "proofs.html").read_text()
    claims = re.findall(r"^## (Claim \d+)\.", _proofs(), re.MULTILINE)
    assert claims
    assert [claim for claim in claims if claim not in proofs] == []
    for vignette in (ROOT / "vignettes").glob("*.py"):
        assert (built / "generated" / "vignettes" / f"{vignette.stem}.html").exists()
    import check_pages
    from steps.search import finds

    if check_pages.browser():
        narrow = check_pages.WIDTHS[:1]  # what a wide screen cuts off, a narrow one does too
        assert check_pages.problems(built, narrow) == []
        assert check_pages.not_found(built, finds()) == []
        assert check_pages.not_found(built, {"odds": "versions"})  # a page that has no such word


def _proofs() -> str:
    return (ROOT / "dpeffects" / "privacy" / "PROOFS.md").read_text(encoding="utf-8")


def test_link_checker_finds_what_is_wrong(tmp_path):
    from check_links import problems

    (tmp_path / "a.html").write_text(
        '<a href="b.html">x</a><a href="gone.html">x</a><a href="b.html#here">x</a>'
        '<a href="b.html#there">x</a><a href="https://example.org">x</a>'
        '<a href="http://example.org">x</a><script src="https://cdn.example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="here">x</p>')
    found = [line.split(": ", 1)[1] for line in problems(tmp_path)]
    assert found == [
        "gone.html does not exist",
        "b.html#there has no such fragment",
        "http://example.org is not https",
        "https://cdn.example.org/x.js is loaded from elsewhere",
    ]


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs the browser chromium")
def test_page_checker_finds_what_is_cut_off(tmp_path):
    from check_pages import problems

    wide = "<pre>" + 300 * "x" + "</pre>"
    (tmp_path / "a.html").write_text(
        f'<!doctype html><article><div style="overflow-x: auto">{wide}</div>'
        f'<section style="overflow-x: hidden">{wide}</section></article>'
    )
    (tmp_path / "b.html").write_text(
        f"<!doctype html><article><math><mi>n</mi></math>{wide}</article>"
    )
    found = [re.sub(r"\d+ px( wide)?$", "...", line) for line in problems(tmp_path, (390,))]
    assert found == [
        "a.html at 390 px: section hides ...",
        "b.html at 390 px: the page is ...",
    ]


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs the browser chromium")
def test_page_checker_finds_lines_of_code_that_are_cut(tmp_path):
    from check_pages import problems

    line = "<pre style='overflow-x: auto; width: 300px'>" + 80 * "x" + "</pre>"
    (tmp_path / "a.html").write_text(f"<!doctype html><article>{line}</article>")
    assert problems(tmp_path, (390, 1280)) == ["a.html at 1280 px: a line of 80 characters is cut"]


def test_the_reference_lists_every_public_name_once():
    from steps import reference

    areas = [name for _, _, names in reference.AREAS.values() for name in names]
    assert sorted(areas) == sorted(set(dpe.__all__) - {"plots"})
    listed = re.findall(r"\* - :py:obj:`(\w+)`\n     - (.+)", reference.texts()["api/index.rst"])
    assert sorted(name for name, _ in listed) == sorted(areas)
    for name, first in listed:
        assert first.endswith("."), name


def test_words_of_the_search_belong_to_pages():
    from steps.search import finds, words

    for page in [*words(), *finds().values()]:
        assert (ROOT / "docs" / f"{page}.md").exists(), page


def test_formulas_keep_every_character():
    from steps.formulas import typeset

    def bare(text):
        for sign, plain in (("≤", "<="), ("≥", ">="), ("≠", "!=")):
            text = text.replace(sign, plain)
        return re.sub(r"</?su[bp]>|[_^(){}]", "", text)

    assert bare(typeset(_proofs())) == bare(_proofs())
    assert typeset("v_i^2 <= 2^(b+1)") == "v<sub>i</sub><sup>2</sup> ≤ 2<sup>b+1</sup>"


# --- which method ---------------------------------------------------------------------------------


def rows(page: str, heading: str) -> pd.DataFrame:
    """Read a table of a page back, without the code that wrote it."""
    lines = page.split(f"## {heading}")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(cells[2:], columns=cells[0]).set_index(cells[0][0])


def test_which_method_names_every_method():
    from steps import which_method

    found = rows(which_method.text(), "What each method can do")
    listed = dpe.methods().query("estimands != 'CATE'").set_index("method")
    assert sorted(found.index) == sorted(f"`{name}`" for name in listed.index)
    for name in listed.index:
        for column in ("estimands", "levels", "guarantee"):
            assert found[column][f"`{name}`"] == listed[column][name]


def test_which_method_names_what_can_be_called():
    """What is set as code is a method, a function, a rule, an option, or read off a result."""
    from steps import which_method

    page = re.sub(r"\{[\w:]+\}`[^`]+`", "", which_method.text())  # links
    functions = [getattr(dpe, name) for name in dpe.__all__]
    functions = [value for value in functions if inspect.isfunction(value)]
    options = {name for call in functions for name in inspect.signature(call).parameters}
    options |= {name for spec in registry().values() for name in vars(spec.options())}
    options |= {kind.accept for kind in KINDS.values()}
    names = {*dpe.methods()["method"], *dpe.__all__, *RULES, *options}
    for code in re.findall(r"`([^`\n]+)`", page):
        name, _, given = code.partition("=")
        if given or code.endswith("="):
            assert name in options, code
        elif code.startswith("fit."):
            assert hasattr(dpe.Result, re.match(r"fit\.(\w+)", code)[1]), code
        else:
            assert name in names, code


@pytest.mark.parametrize(("n", "epsilon"), [(40_000, 0.06), (400_000, 0.06), (40_000, 2.0)])
def test_the_power_of_the_check_is_as_documented(n, epsilon):
    """Sums of the size that the page computes, with noise of the distribution that they have."""
    from steps.bends import seen_bend

    k, overlap, runs, rng = 13, 0.2, 400, np.random.default_rng(5)
    variance, chance = np.repeat([0.172, 0.125, 0.356], [5, 3, 5]), 0.0032 * 0.5 / (0.1 * k)
    unit, sd = n * overlap * np.sqrt(variance), np.sqrt(n * overlap * variance)
    noise = NoisyValue(np.zeros(k), 2.0 / epsilon, None, False, (k + 1) * (k + 2) / 3.0)
    bends, named, falsely = seen_bend(noise, unit, sd, chance), 0, 0
    for run in range(runs):
        at = run % k
        drawn = noise.scale * rng.gamma(k + 1.0) * rng.uniform(-1, 1, k) + sd * rng.normal(size=k)
        drawn[at] += bends[at] * unit[at]
        seen = replace(noise, value=drawn)
        found, _, _ = spike_and_slab(seen, sd, math.sqrt(0.1) * unit, chance)
        named += found[at] > 0.5
        falsely += (np.delete(found, at) > 0.5).any()
    assert 0.72 < named / runs < 0.88
    assert falsely < 0.03 * runs


def test_bends_of_the_documented_size_are_named_in_calls():
    from steps import bends

    found = bends.power(40_000, 1.0, flexible=0)
    assert found == pytest.approx({"square": 0.55, "product": 0.65, "step": 0.35}, abs=0.06)
    for bend, least, most in ((found["square"], 5, 10), (0.0, 0, 0)):
        frames = (bends.records(40_000, seed, "square", bend) for seed in range(10))
        told = [bends.call(x, 1.0, seed=k, flexible=0).warnings for k, x in enumerate(frames)]
        assert least <= sum("not linear in x1" in warnings for warnings in told) <= most


def test_which_method_agrees_with_the_results_on_file():
    from steps import which_method

    page, results = which_method.text(), ROOT / "benchmarks" / "results"
    found = rows(page, "Errors at epsilon 1").loc["`private_ipw`"]
    board = rows((results / "leaderboard.md").read_text(), "Relative error, epsilon 1")
    shown = float(found["lalonde, n = 445"])
    assert shown == pytest.approx(float(board.loc["private_ipw", "lalonde"]), rel=0.006)
    found = rows(page, "Intervals and seconds").loc["`private_ipw`"]
    coverage = pd.read_csv(results / "coverage.csv")
    kept = coverage.query(
        "method == 'private_ipw' and level == 'sample' and part == 'grid' and design == 'trial'"
    ).dropna(subset="cover95")
    runs = kept["runs"] * (1 - kept["refused"]) * (1 - kept["absent"])
    covered = 100 * np.average(kept["cover95"], weights=runs)
    assert found["trials, %"] == f"{covered:.1f}"
    seconds = pd.read_csv(results / "seconds.csv").set_index(["method", "n"])["seconds"]
    assert found["seconds, n = 100,000"] == f"{seconds['private_ipw', 100_000]:.2g}"
    conditional = pd.read_csv(results / "cate.csv").set_index(["data", "case", "epsilon"])["pehe"]
    shown = rows(page, "Conditional effects").loc["`dr_learner`"].iloc[0]
    value = conditional["data set 1", "DR-learner, function", 1.0]
    assert shown["error, epsilon 1"] == f"{value:.2f}"


def test_which_method_follows_the_results(tmp_path, monkeypatch):
    from steps import which_method

    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    path = tmp_path / "results" / "seconds.csv"
    frame = pd.read_csv(path)
    frame.loc[(frame["method"] == "private_ipw") & (frame["n"] == 100_000), "seconds"] = 98.7
    frame.to_csv(path, index=False)
    monkeypatch.setattr(which_method, "RESULTS", tmp_path / "results")
    found = rows(which_method.text(), "Intervals and seconds")
    assert found["seconds, n = 100,000"]["`private_ipw`"] == "99"


def test_times_at_scale_in_the_guide_are_those_on_file():
    found = pd.read_csv(ROOT / "benchmarks/results/scale.csv").set_index(["method", "records"])
    text = (GUIDE / "engines.md").read_text()
    marked = text.partition("<!-- scale -->\n")[2].partition("<!-- end -->")[0]
    for method, shown in rows(f"## Short\n\n{marked}", "Short").iterrows():
        for head in ("CPU s", "peer, CPU s"):
            assert float(shown[head]) == pytest.approx(found.loc[(method, 10**7), head], rel=1e-5)


def test_coverage_in_the_guide_is_that_on_file():
    text, page = (GUIDE / "accuracy.md").read_text(), ROOT / "benchmarks/results/coverage.md"
    marked = text.partition("<!-- coverage -->\n")[2].partition("<!-- end -->")[0]
    shown, found = rows(f"## Short\n\n{marked}", "Short"), rows(page.read_text(), "In short")
    assert sorted(shown.index) == [f"`{name}`" for name in sorted(proved())]
    pd.testing.assert_frame_equal(shown, found.loc[shown.index, shown.columns])


# --- the leaderboard ------------------------------------------------------------------------------

BOARD = ROOT / "benchmarks" / "results" / "leaderboard.csv"


def cell(data, n, fit, epsilon, error, level="sample", by="dpeffects"):
    return {
        **{"data": data, "n": n, "fit": fit, "epsilon": epsilon, "error": error, "level": level},
        **{"by": by, "guarantee": "exact", "runs": 50},
    }


def test_the_decision_table_follows_the_leaderboard(tmp_path, monkeypatch):
    """By hand: geometric means 0.2 and 0.4 up to 0.5; at 1 and 4, 0.2 against 0.21 is a tie."""
    from steps import which_method

    cells = [
        *(cell("ihdp_a", 747, "auto", e, x) for e, x in ((0.1, 0.1), (0.5, 0.4))),
        *(cell("ihdp_a", 747, "private_ipw", e, x) for e, x in ((0.1, 0.2), (0.5, 0.8))),
        *(cell("ihdp_a", 747, "auto", e, x) for e, x in ((1, 0.1), (4, 0.4))),
        *(cell("ihdp_a", 747, "private_ipw", e, x) for e, x in ((1, 0.21), (4, 0.21))),
        cell("ihdp_a", 747, "theirs", 1, 0.01, by="baseline"),
        cell("ihdp_a", 747, "private_psm_label", 1, 0.05, level="label"),
        cell("ist", 19_408, "diff_in_means", 0.1, 0.3),
    ]
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    pd.DataFrame(cells).to_csv(tmp_path / "results" / "leaderboard.csv", index=False)
    monkeypatch.setattr(which_method, "RESULTS", tmp_path / "results")
    found = rows(which_method.text(), "What to use when").reset_index()
    assert found.to_numpy().tolist() == [
        ["whole records", "randomised", "10,000 and more", "ist", "`diff_in_means` (0.3)", "-"],
        [
            *("whole records", "observational", "up to 2,000", "ihdp_a", "`auto` (0.2)"),
            "`auto` (0.2), `private_ipw` (0.21)",
        ],
        [
            *("outcomes only", "observational", "up to 2,000", "ihdp_a", "-"),
            '`private_psm` with `level="label"` (0.05)',
        ],
    ]
    said = which_method.bar()
    assert "In 4 of 5 places" in said  # theirs is far ahead at epsilon 1
    assert "`auto` by itself in 2 of 4" in said  # not at 1, and at 4 it is private_ipw
    (tmp_path / "results" / "leaderboard.csv").unlink()
    assert "no results are on file" in which_method.text()


@pytest.mark.skipif(not BOARD.exists(), reason="the leaderboard has not been run")
def test_the_guide_shows_the_best_of_the_leaderboard():
    text = (GUIDE / "accuracy.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- leaderboard -->(.*?)<!-- end -->", text, re.DOTALL)[1]
    lines = [line for line in found.splitlines() if line.startswith("|")]
    head, _, *body = ([x.strip() for x in line.strip("|").split("|")] for line in lines)
    cells = pd.read_csv(BOARD)
    cells = cells[(cells["guarantee"] == "exact") & (cells["level"] == "sample")]
    assert len(body) == cells["data"].nunique()
    for name, _, *shown in body:
        for column, value in zip(head[2:], shown, strict=True):
            part = cells[(cells["data"] == name) & (cells["epsilon"] == float(column.split()[1]))]
            errors = part.set_index("fit")["error"]
            fit, error = value.split()
            assert errors[fit] == errors.min()
            assert float(error) == pytest.approx(errors.min(), rel=0.006)


def test_the_table_at_the_top_is_what_the_calls_give():
    from PIL import Image
    from steps import opening

    made = opening.table(opening.results())
    for page in opening.SHOWN_IN:
        assert opening.shown(page) == made, f"python docs/steps/opening.py  # {page}"
    with Image.open(opening.PICTURE) as picture:
        assert picture.text["Description"] == made  # what it was drawn from


# --- what tables by arm are worth -------------------------------------------------------------


def test_figures_of_tables_in_the_guide_are_those_on_file():
    from steps import which_method

    text = " ".join((GUIDE / "accuracy.md").read_text(encoding="utf-8").split())
    rates = which_method.table("rates", "Trials")["ratio covered"]
    assert f"{rates.min():g} to {rates.max():g} % of the 95 % intervals of [rate ratios]" in text
    scales = which_method.table("scales", "draws of")
    held = scales[["ratio", "odds"]].apply(
        lambda column: pd.to_numeric(column.astype(str).str.removesuffix(" %"), errors="coerce")
    )
    trial = scales["population"].str.startswith("trial")
    low, high = held[trial].min(axis=None), held[trial].max(axis=None)
    assert f"{low:g} to {high:g} % of the 95 % intervals of [ratios and odds ratios]" in text
    low, high = held[~trial].min(axis=None), held[~trial].max(axis=None)
    assert f"{low:g} to {high:g} % in confounded studies" in text
    survival = which_method.table("survival", "Coverage of 95 %").filter(regex="ence$|ratio$")
    low, high = survival.min(axis=None), survival.max(axis=None)
    assert f"(../../benchmarks/results/survival.md) {low:g} to {high:g} % cover" in text
    adjusted = which_method.table("adjusted_tables", "draws of").filter(like="covers")
    held = adjusted.apply(lambda column: pd.to_numeric(column.astype(str).str.removesuffix(" %")))
    low, high = held.min(axis=None), held.max(axis=None)
    assert f"results/adjusted_tables.md) {low:g} to {high:g} %" in text
    errors = which_method.table("quantiles", "Error over that")
    errors = errors.drop(columns=["outcome", "bar"], errors="ignore").apply(
        pd.to_numeric, errors="coerce"
    )
    low, high = errors.min(axis=None), errors.max(axis=None)
    assert f"n = 10,000 and epsilon 1 are {low:g} to {high:g} times those" in text
    power = which_method.table("randomisation_test", "Power")
    own, fisher = power[["number", "chance"]], power["Fisher"]
    assert f"its power is {own.min(axis=None):g} to {own.max(axis=None):g} where" in text
    assert f"without privacy is {fisher.min():g} to {fisher.max():g}." in text
