"""The proofs are complete: numbered claims with a proof, code and tests, and code cites them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.cases import each

HOME = Path(__file__).parents[1]
ROOT = HOME / "dpeffects"


def claims_in(path):
    """Titles and bodies by number, "L1" for ledgers."""
    pattern = r"^## Claim (L?\d+)\. ([^\n]+)\n(.*?)(?=^## |\Z)"
    found = re.findall(pattern, path.read_text(), flags=re.M | re.S)
    return {number: (title, body) for number, title, body in found}


TEXTS = {
    "privacy": ROOT / "privacy" / "PROOFS.md",
    "ledgers": ROOT / "ledgers" / "PROOFS.md",
    "replication/unproved": ROOT / "replication" / "unproved" / "CLAIMS.md",
}
CLAIMS = {int(number): claim for number, claim in claims_in(TEXTS["privacy"]).items()}
OF_LEDGERS = claims_in(TEXTS["ledgers"])
ALL = {f"{number}": claim for number, claim in CLAIMS.items()} | OF_LEDGERS
CHARGING = {"release", "laplace", "gaussian", "respond", "smooth_laplace", "along"}
"""Methods of a releaser that charge the ledger."""


def test_claims_are_numbered_without_gaps():
    assert list(CLAIMS) == list(range(1, len(CLAIMS) + 1))
    assert list(OF_LEDGERS) == [f"L{k}" for k in range(1, len(OF_LEDGERS) + 1)]
    assert len({title for title, _ in ALL.values()}) == len(ALL)


@each("number", ALL)
def test_a_claim_has_a_proof_code_and_tests(number):
    _, body = ALL[number]
    statement, proof = body.split("*Proof.*", 1)
    assert len(statement.split()) > 10
    assert "∎" in proof
    assert re.search(r"^\*Code: ", proof, flags=re.M)
    assert re.search(r"^\*Tests: `tests/", proof, flags=re.M)


def test_what_has_no_proof_says_so():
    parts = re.split(r"^## ", TEXTS["replication/unproved"].read_text(), flags=re.M)[1:]
    assert len(parts) == 3
    for part in (" ".join(part.split()) for part in parts):
        assert "There is no proof" in part or "What is *not* proved here" in part
        assert "**Who claims" in part
        assert "∎" not in part


@cache
def defined(path):
    """Names of functions and classes of a file, methods with their class."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (n.name for n in node.body if isinstance(n, ast.FunctionDef))
            names |= {f"{node.name}.{name}" for name in inside}
    return names


def named_code(text):
    """Files, and names of their functions and classes, of the lines that name code."""
    for line in re.findall(r"^\*Code: (.*?)\.\*$", text, flags=re.M | re.S):
        for part in " ".join(line.split()).split("; "):
            file, names = part.split(": ")
            yield file.strip("`"), {name.strip("`") for name in names.split(", ")}


@pytest.mark.parametrize("folder", TEXTS)
def test_named_code_is_there(folder):
    found = list(named_code(TEXTS[folder].read_text()))
    assert found
    for file, names in found:
        assert (ROOT / folder / file).exists(), file
        assert names <= defined(ROOT / folder / file), file


@pytest.mark.parametrize("folder", TEXTS)
def test_named_tests_are_there(folder):
    files = set(re.findall(r"`((?:tests|benchmarks)/[\w/.]+)`", TEXTS[folder].read_text()))
    assert files
    assert [file for file in sorted(files) if not (HOME / file).exists()] == []


def constants(node):
    return {x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and type(x.value) is int}


def claimed(tree):
    """Numbers that code gives as a claim, by line.

    They are keywords, class variables, pairs of them, and arguments of `minimise.Fit.draw`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("fit.draw", "_linear"):
            numbers = (x for x in node.args if isinstance(x, ast.Constant))
            yield from ((node.lineno, x.value) for x in numbers if type(x.value) is int)
        if isinstance(node, ast.keyword) and node.arg == "claim":
            yield from ((node.value.lineno, number) for number in constants(node.value))
        if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if {ast.unparse(target) for target in targets} & {"claim", "claims"}:
                yield from ((node.lineno, number) for number in constants(node.value))


FILES = sorted(ROOT.rglob("*.py"))


@each("path", FILES)
def test_claims_that_code_gives_are_there(path):
    """Zero stands for "no proof here", and is given by unproved releases only."""
    numbers = {number for _, number in claimed(ast.parse(path.read_text()))}
    if "unproved" in path.parts:
        assert numbers <= {0}
    else:
        assert numbers <= set(CLAIMS)


@each("path", sorted((ROOT / "privacy").glob("*.py")))
def test_a_claim_names_the_code_that_gives_it(path):
    tree = ast.parse(path.read_text())
    inner = [(f"{c.name}.", c.body) for c in tree.body if isinstance(c, ast.ClassDef)]
    kinds = ast.FunctionDef | ast.ClassDef
    nodes = [
        (a + x.name, x) for a, b in [("", tree.body), *inner] for x in b if isinstance(x, kinds)
    ]
    for line, number in claimed(tree):
        giving = [name for name, x in nodes if x.lineno <= line <= x.end_lineno][-1]
        code = dict(named_code(CLAIMS[number][1]))[path.name]
        assert {giving} & {*code, *(name.partition(".")[0] for name in code)}, (line, number)


@pytest.mark.parametrize("path", sorted((ROOT / "privacy").glob("*.py")), ids=lambda p: p.stem)
def test_every_charge_names_a_claim(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = ast.unparse(node.func.value).split(".")[-1].lstrip("_")
        if node.func.attr in CHARGING and owner == "releaser":
            given = {keyword.arg for keyword in node.keywords}
            assert given & {"claim", None}, f"{path.name}:{node.lineno} charges without a claim"


def mentioned(text):
    """Numbers in "claim 7", "claims 15, 16", "claims 20 and 21", "claims 13-16", "claim L2"."""
    pattern = r"\bclaims? (L?\d+(?:(?:, | and | to |-)L?\d+)*)"
    for group in re.findall(pattern, " ".join(text.split()), flags=re.I):
        for part in re.split(r", | and ", group):
            ends = re.split(r"-| to ", part)
            if len(ends) == 2:
                yield from (str(k) for k in range(int(ends[0]), int(ends[1]) + 1))
            else:
                yield part


def test_what_is_mentioned_is_there_and_nothing_is_left_out():
    cited = set()
    for path in FILES:
        text = path.read_text()
        numbers = set(mentioned(text)) | {str(n) for _, n in claimed(ast.parse(text)) if n}
        assert numbers <= set(ALL), f"{path} cites {numbers - set(ALL)}"
        cited |= numbers
    assert cited == set(ALL)
    documents = [*TEXTS.values(), *(HOME / "docs").glob("*.md"), *(HOME / "vignettes").glob("*.py")]
    for path in documents:
        assert set(mentioned(path.read_text())) <= {"0", *ALL}, path
