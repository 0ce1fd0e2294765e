"""Outputs that are kept in tests/golden; ``python -m tests.commands.golden`` writes them anew.

Noise is seeded and what is printed is rounded, so any machine gives the same text. The methods here
release counts and sums of whole numbers; nothing rests on the last digits of a fitted model.
"""

import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

from dpeffects import cli
from tests.commands.shell import ESTIMATE, FORMULA, write_files

FOLDER = Path(__file__).resolve().parents[1] / "golden"
SIMPLE = ["y ~ t", *ESTIMATE, "--method", "diff_in_means", "--seed", "1"]
STRATA = ["y ~ t | sex", *ESTIMATE, "--method", "smooth_matching", "--delta", "1e-6"]
PLAN = ["plan", "y ~ t", "--n", "500", "--epsilon", "1", "--bounds", "bounds.toml"]
TRIAL = ["--design", "randomised", "--seed"]
LIFE = ["survival", "Surv(age, y) ~ t", *ESTIMATE, "--horizon", "90", "--bins", "6", *TRIAL]
LEDGER = ["--ledger", "study.db", "--dataset", "nsw"]

CASES = {
    "ate": [["ate", *SIMPLE]],
    "ate_short": [
        ["ate", *SIMPLE, "--short"],
        ["ate", *SIMPLE, "--short", "--by", "sex", "--scale", "ratio"],
        [*PLAN, "--method", "diff_in_means", "--half-width", "0.1", "--short"],
        [*LIFE, "1", "--short"],
    ],
    "ate_label": [["ate", *SIMPLE, "--level", "label", "--conf-level", "0.9"]],
    "ate_strata": [["ate", *STRATA, "--seed", "2"]],
    "ate_no_variance": [["ate", *SIMPLE, "--no-variance"]],
    "ate_counting": [["ate", *SIMPLE, "--subset", "age >= 30", "--cluster", "age",
                      "--clusters", "73"]],
    "ate_by": [["ate", *SIMPLE, "--by", "sex + cut(age, [18, 50, 90])"]],
    "methods": [["methods"]],
    "methods_private_psm": [["methods", "private_psm"]],
    "methods_private_psm_json": [["methods", "private_psm", "--format", "json"]],
    "template_csv": [["bounds-template", "data.csv"]],
    "template_parquet": [["bounds-template", "data.parquet"]],
    "plan": [[*PLAN, "--method", "diff_in_means", "--half-width", "0.1"]],
    "plan_study": [["plan-study", "y + I(age > 50) ~ t", *PLAN[2:], "--design", "randomised",
                    "--subgroups", "sex", "--outcome-mean", "y=0.3", "--half-width", "0.1"]],
    "audit": [["audit", "diff_in_means", "--level", "label", "--epsilon", "1", "--runs", "1000",
               "--no-variance", "--seed", "1"]],
    "sites": [
        ["release", *STRATA, "--seed", "1", "--site", "North", "--out", "north.json"],
        ["release", *STRATA, "--seed", "2", "--site", "South", "--out", "south.json"],
        ["combine", "north.json", "south.json"],
    ],
    "survival": [[*LIFE, "1"]],
    "qte": [["qte", "age ~ t", *ESTIMATE, "--quantiles", "0.25", "0.5", *TRIAL, "1"]],
    "ordinal": [["ordinal", "sex ~ t", *ESTIMATE, *TRIAL, "1"]],
    "rate": [["rate", "y ~ t", *ESTIMATE, "--offset", "age", "--per", "1000", *TRIAL, "1"]],
    "randomisation_test": [["randomisation-test", "I(y > 0.5) ~ t", *ESTIMATE,
                            "--treated-share", "0.5", "--seed", "1"]],
    "tables": [
        [*LIFE, "1", "--out", "north.json"],
        [*LIFE, "2", "--out", "south.json"],
        ["combine-tables", "north.json", "South=south.json"],
        ["combine-tables", "north.json", "north.json"],
        ["combine-tables", "north.json", "bounds.toml"],
    ],
    "study": [["study", "y + sex ~ t | age", *ESTIMATE, "--subgroups", "cut(age, [18, 50, 90])",
               *TRIAL, "1"]],
    "study_sites": [
        ["protocol-template", "data.csv"],
        ["study", "data.csv", "--protocol", "protocol.toml", "--site", "North",
         "--out", "North.json", "--seed", "1"],
        ["study", "data.csv", "--protocol", "protocol.toml", "--site", "South",
         "--out", "South.json", "--seed", "2"],
        ["combine-studies", "North.json", "South.json", "--protocol", "protocol.toml"],
        ["combine-studies", "North.json", "North.json"],
        ["study", "data.csv", "--protocol", "protocol.toml", "--epsilon", "1"],
        ["study", "data.csv", "--protocol", "bounds.toml"],
    ],
    "ledger": [
        ["ledger", "create", "study.db", "--dataset", "nsw", "--epsilon", "1.5"],
        ["ate", *SIMPLE, *LEDGER, "--out", "effect.txt"],
        ["ledger", "list", "study.db"],
        ["ate", *SIMPLE, *LEDGER],
    ],
    "errors": [
        ["ate", FORMULA, "none.csv", "--epsilon", "1"],
        ["ate", "y ~ t | height", *ESTIMATE],
        ["ate", FORMULA, *ESTIMATE, "--method", "private_pms"],
        ["ate", FORMULA, *ESTIMATE, "--option", "desing=randomised"],
        ["ate", FORMULA, *ESTIMATE, "--option", "adjust=all"],
        ["ate", FORMULA, *ESTIMATE, "--unit", "patient"],
        ["ate", FORMULA, *ESTIMATE, "--method", "private_psm", "--option", "as_printed=true",
         "--subset", "age >= 30"],
        ["ate", FORMULA, *ESTIMATE, "--by", "age < 30"],
        ["release", FORMULA, *ESTIMATE, "--site", "North", "--by", "sex"],
        ["plan", FORMULA, "--n", "500", "--epsilon", "1", "--bounds", "bounds.toml",
         "--option", "unit=patient"],
        ["cate", FORMULA, *ESTIMATE, "--release", "groups"],
        ["survival", "age ~ t", *ESTIMATE, "--horizon", "90"],
        ["qte", "age ~ t", *ESTIMATE, "--quantiles", "50"],
        ["rate", "y ~ t", *ESTIMATE, "--offset", "years"],
        ["randomisation-test", "age ~ t", *ESTIMATE, "--treated-share", "0.5"],
        ["plan", FORMULA, "--n", "500", "--epsilon", "0", "--bounds", "bounds.toml"],
    ],
    "demo": [["demo", "--seed", "1"]],
}  # fmt: skip


def output(name):
    """Everything that a case prints, with its command lines and exit codes.

    A ledger's id is another one every time.
    """
    text = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            for arguments in CASES[name]:
                print("$ dpeffects", *(f'"{a}"' if " " in a else a for a in arguments))
                print(f"[exit code {cli.main(arguments)}]")
    return re.sub(r'ledger_id = "\w+"', 'ledger_id = "..."', text.getvalue())


def main():
    os.environ["COLUMNS"] = "80"
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        (FOLDER / f"{name}.txt").write_text(output(name), encoding="utf-8")
        print(f"wrote {FOLDER / name}.txt")


if __name__ == "__main__":
    main()
