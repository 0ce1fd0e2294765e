"""The R package gives the numbers of Python, its own tests pass, and the code of its page runs.

All of it needs R with the packages NEEDED, and a Python with a shared library: elsewhere it is
skipped. ``python -m tests.test_r`` writes the output on the page anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "r.md"
NEEDED = ("reticulate", "testthat", "generics", "knitr", "broom", "png")
FIRST_CALL = 6.0
"""Seconds of computing that a first effect may take in a new session."""
BLOCK = re.compile(r"```r\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
END = "~~~ end of a block ~~~"


def run(code: str, library: Path, *arguments: str) -> str:
    """Run R code with the package, and this Python behind it; return what it prints."""
    script = library / "script.R"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        ["Rscript", "--vanilla", str(script), *arguments],
        env=_environment(library),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _environment(library: Path) -> dict[str, str]:
    return os.environ | {
        "R_LIBS": str(library),
        "RETICULATE_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "LC_ALL": "C.UTF-8",
    }


def release_inconsistency() -> str:
    """Why nothing of this can run here; empty where it can."""
    if shutil.which("Rscript") is None:
        return "R is not installed"
    check = "cat(all(vapply(commandArgs(TRUE), requireNamespace, TRUE, quietly = TRUE)))"
    there = subprocess.run(
        ["Rscript", "--vanilla", "-e", check, *NEEDED], capture_output=True, text=True
    )
    if there.stdout != "TRUE":
        return f"R has no packages {', '.join(NEEDED)}"
    shared = map(sysconfig.get_config_var, ("Py_ENABLE_SHARED", "PYTHONFRAMEWORK"))
    if not any(shared) and os.name != "nt":
        return "this Python was built without a shared library, which reticulate needs"
    return ""


def install(library: Path) -> None:
    """Install the R package into a library."""
    done = subprocess.run(
        ["R", "CMD", "INSTALL", f"--library={library}", str(ROOT / "r")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_package_has_this_version_and_every_call():
    description = (ROOT / "r" / "DESCRIPTION").read_text()
    assert f"\nVersion: {dpe.__version__}\n" in description
    exported = set(re.findall(r"^export\((\w+)\)", (ROOT / "r" / "NAMESPACE").read_text(), re.M))
    assert {name for name in dpe.__all__ if name.startswith("dp_")} <= exported


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if reason := release_inconsistency():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("library")
    install(folder)
    return folder


def test_help_pages_are_written_in_r():
    python = re.compile(r"[{]['\"]\w+['\"]:|\b(None|True|False|dict|tuple)\b|\bdpe\.|\bfit\.|\*\*")
    pages = sorted((ROOT / "r" / "man").glob("*.Rd"))
    assert pages
    for page in pages:
        assert not python.search(page.read_text(encoding="utf-8")), page.name


FIRST = """
library(dpeffects)
df <- data.frame(y = runif(400), t = rep(0:1, 200))
print(dp_ate(y ~ t, df, epsilon = 1, bounds = list(y = c(0, 1)), design = "randomised"))
"""


@pytest.mark.long
def test_a_first_effect_takes_seconds(library, tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")

    def seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    run(FIRST, library)  # compiles
    before = seconds()
    run(FIRST, library)
    assert seconds() - before < FIRST_CALL


@pytest.mark.long
def test_the_code_of_the_vignette_runs(library):
    """Also where nothing renders it."""
    code = "knitr::knit(commandArgs(TRUE), 'vignette.md', quiet = TRUE)"
    vignette = shutil.copy(ROOT / "r" / "vignettes" / "dpeffects.Rmd", library)
    run(f"setwd(dirname(commandArgs(TRUE))); {code}", library, str(vignette))
    made = (library / "vignette.md").read_text(encoding="utf-8")
    assert "was not run" not in made
    assert "Error" not in made
    assert made.count("figure/") >= 3


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("pandoc") is None, reason="R has no packages to render with: no pandoc"
)
def test_the_vignette_is_built(library):
    if "TRUE" not in run("cat(requireNamespace('rmarkdown', quietly = TRUE))", library):
        pytest.skip("R has no packages rmarkdown")
    vignette = shutil.copy(ROOT / "r" / "vignettes" / "dpeffects.Rmd", library)
    run("rmarkdown::render(commandArgs(TRUE), quiet = TRUE)", library, str(vignette))
    made = Path(vignette).with_suffix(".html").read_text(encoding="utf-8")
    assert "was not run" not in made
    assert made.count("<img") >= 3


@pytest.mark.long
def test_tests_of_the_package_pass(library):
    code = (
        "testthat::test_dir(commandArgs(TRUE), package = 'dpeffects', load_package = 'installed',"
        " reporter = 'check', stop_on_failure = TRUE)"
    )
    tests = shutil.copytree(ROOT / "r" / "tests" / "testthat", library / "tests")  # it writes there
    out = run(code, library, str(tests))
    assert re.search(r"FAIL 0 \| WARN 0 \| SKIP 0", out), out


FITS = """
library(dpeffects)
folder <- commandArgs(TRUE)
df <- read.csv(file.path(folder, "data.csv"), na.strings = "")
df$treated <- df$treated == 1
df$site <- factor(df$site)
df$admitted <- as.Date(df$admitted)
bounds <- list(
  y = c(0, 10), age = c(18, 90), site = c("N", "S", "it's"), dose = c(0, 3),
  admitted = as.Date(c("2020-01-01", "2020-12-31")), time = c(0, 100)
)
fits <- list(
  dp_ate(y ~ treated | age + site + I(dose^2) + admitted + cut(age, c(18, 40, 65, 90)), df,
    epsilon = 3, bounds = bounds, missing = "indicator", subset = ~ age >= 20 & site != "S",
    seed = 5),
  dp_cate(y ~ treated | age, df, release = "groups", by = ~site, epsilon = 3, bounds = bounds,
    seed = 6),
  dp_survival(Surv(time, event) ~ treated | age, df, horizon = 60, epsilon = 3, bounds = bounds,
    seed = 7)
)
numbers <- unlist(lapply(fits, function(fit) unlist(tidy(fit)[c("estimate", "conf.low")])))
writeLines(format(numbers, digits = 17, trim = TRUE), file.path(folder, "numbers.txt"))
"""


@pytest.mark.long
def test_numbers_are_those_of_python(library, tmp_path):
    rng = np.random.default_rng(3)
    n = 3000
    frame = pd.DataFrame(
        {
            "y": rng.uniform(0, 10, n).round(3),
            "treated": rng.integers(0, 2, n) == 1,
            "age": rng.integers(18, 91, n),
            "site": rng.choice(["N", "S", "it's"], n),
            "dose": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.uniform(0, 3, n).round(2)),
            "admitted": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, n), "D"),
            "time": rng.exponential(40, n).round(2).clip(0.01),
            "event": rng.integers(0, 2, n),
        }
    )
    frame.assign(treated=frame["treated"].astype(int)).to_csv(tmp_path / "data.csv", index=False)
    bounds = {
        "y": (0, 10),
        "age": (18, 90),
        "site": ["N", "S", "it's"],
        "dose": (0, 3),
        "admitted": ("2020-01-01", "2020-12-31"),
        "time": (0, 100),
    }
    given = {"epsilon": 3, "bounds": bounds}
    formula = "y ~ treated | age + site + I(dose**2) + admitted + cut(age, [18, 40, 65, 90])"
    chosen = {"missing": "indicator", "subset": "age >= 20 & site != 'S'"}
    fits = [
        dpe.dp_ate(formula, frame, **given, **chosen, seed=5),
        dpe.dp_cate("y ~ treated | age", frame, release="groups", by="site", **given, seed=6),
        dpe.dp_survival("Surv(time, event) ~ treated | age", frame, horizon=60, **given, seed=7),
    ]
    wanted = [fit.tidy()[["estimate", "conf_low"]].to_numpy().T.ravel() for fit in fits]
    run(FITS, library, str(tmp_path))
    lines = (tmp_path / "numbers.txt").read_text().split()
    found = np.array([float("nan" if line == "NA" else line) for line in lines])
    np.testing.assert_array_equal(found, np.concatenate(wanted))


def printed(blocks: list[str], library: Path) -> list[str]:
    """Run blocks of R code one after the other; return what each prints."""
    parts = []
    for i, block in enumerate(blocks):
        (library / f"block_{i}.R").write_text(block, encoding="utf-8")
        name = (library / f"block_{i}.R").as_posix()
        parts.append(f"source('{name}', print.eval = TRUE)\ncat('{END}\\n')\n")
    out = run("options(width = 100)\n" + "".join(parts), library)
    return out.split(f"{END}\n")[:-1]


@pytest.mark.long
def test_code_of_the_page_runs_and_prints_what_the_page_says(library):
    pairs = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    outputs = printed([code for code, _ in pairs], library)
    assert len(outputs) == len(pairs)
    for (code, wanted), found in zip(pairs, outputs, strict=True):
        if wanted:
            assert found == wanted, code


def renew() -> None:
    """Write what the code of the page prints to the page."""
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        outputs = iter(printed([code for code, _ in BLOCK.findall(text)], Path(folder)))

    def written(match: re.Match[str]) -> str:
        found = next(outputs)
        shown = f"\n\n```text\n{found}```" if match[2] is not None else ""
        return f"```r\n{match[1]}```{shown}"

    PAGE.write_text(BLOCK.sub(written, text), encoding="utf-8")


if __name__ == "__main__":
    renew()
