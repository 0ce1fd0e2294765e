"""The layout is the way data flows, and the guards that keep it so bite when it is not.

Every rule is a function from files (dotted name -> text) to complaints. It is run on the package,
which must give none, and on the package with a violation planted, which must give one.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import dpeffects
from dpeffects.estimators import conditional_methods, registry
from dpeffects.services import sites
from tests.cases import each

ROOT = Path(dpeffects.__file__).parent
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip("."): (
        path.read_text()
    )
    for path in sorted(ROOT.rglob("*.py"))
}
for path in ROOT.rglob("*.pyi"):  # what packages load by name
    FILES[".".join(path.relative_to(ROOT).parts[:-1])] += path.read_text()

PACKAGES = {"", *(".".join(x.relative_to(ROOT).parts[:-1]) for x in ROOT.rglob("__init__.py"))}

# lower layers first; a module may import from its own layer or below
LAYERS = [
    ["arrays", "errors", "guarantee", "plugins", "progress", "estimands", "roots"],
    ["lazy", "dates"],
    ["type_checks", "documents", "file_output", "files", "summary"],
    ["privacy"],
    ["formula", "ledgers", "seeded"],
    ["design"],
    ["inference"],
    ["results"],
    ["estimators"],
    ["request", "flow", "subsets", "calls", "effects"],
    ["abilities"],
    ["report", "datasets"],
    ["cli"],
    ["__main__"],
    ["services"],
    ["replication"],
    ["evidence"],
    [""],
]


parse = functools.cache(ast.parse)


def trees(files):
    return {name: parse(text) for name, text in files.items()}


@functools.cache
def nodes(tree):
    """All nodes of a file, which every rule goes through."""
    return list(ast.walk(tree))


@pytest.fixture(scope="module", autouse=True)
def _forget():
    """Nodes of a whole package are much to carry along."""
    yield
    for known in (parse, nodes, imported):
        known.cache_clear()


@functools.cache
def imported(tree):
    """Modules of the package that a file imports, anywhere in it, as names below the package."""
    return list(_imported(tree))


def _imported(tree):
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpeffects"):
            below = node.module.removeprefix("dpeffects").lstrip(".")
            for alias in node.names:
                yield ".".join(filter(None, [below, alias.name]))
        elif isinstance(node, ast.Import):
            yield from (a.name[10:] for a in node.names if a.name.startswith("dpeffects."))


def module_of(name, files):
    """The file that an imported name is in."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def layer(name):
    top = name.split(".")[0]
    return next(rank for rank, names in enumerate(LAYERS) if top in names)


def imports_that_point_back(files):
    for name, tree in trees(files).items():
        for other in imported(tree):
            listed = name in LISTS and other.split(".")[0] in WINGS
            if layer(module_of(other, files)) > layer(name) and not listed:
                yield f"{name} imports {other} from a later layer"


def circles(files):
    """Modules that import each other, by way of whatever modules."""
    graph = {
        name: {module_of(other, files) for other in imported(tree)} - {name, ""}
        for name, tree in trees(files).items()
    }
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    while graph:  # drop what only leads to a circle
        used = set().union(*(others & graph.keys() for others in graph.values()))
        if used == graph.keys():
            yield f"modules import each other: {', '.join(sorted(graph))}"
            return
        graph = {name: others for name, others in graph.items() if name in used}


DRAWS = ("laplace", "gaussian", "respond", "flip")
MAY_DRAW = {"privacy.noise", "privacy.sample_splits", "evidence.auditing.attack", "datasets"}
MAY_DRAW |= {
    "evidence.simulations.runs",
    "evidence.simulations.simulators",
    "evidence.simulations.simulation",
    "services.planning.synthetic_records",
    "services.office.accounts",  # tokens and passwords, by `secrets`
    "evidence.leaderboard.problems",
}
MAY_DRAW |= {
    "seeded",
    "replication.unproved.generators.worker",
}  # from tables that are released already


DRAWS = {"random", "default_rng", "secrets", "urandom", "rvs", "Generator"}


def relative_imports(files):
    """Other rules read whole names."""
    for name, tree in trees(files).items():
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{name}:{node.lineno} imports by a relative name"
            called = getattr(node, "id", "") or getattr(node, "attr", "")
            if called in ("import_module", "__import__") and not name.startswith(LOADERS):
                yield f"{name}:{node.lineno} imports by a string"


LOADERS = ("estimators", "abilities", "plugins", "cli", "summary", "lazy")
"""They find methods, plugins, functions, the package `report` and public names by their names."""


def randomness(files):
    for name, tree in trees(files).items():
        if any(name == place or name.startswith(f"{place}.") for place in MAY_DRAW):
            continue
        for node in nodes(tree):
            used = {getattr(node, "attr", ""), getattr(node, "id", "")}
            if isinstance(node, ast.Import | ast.ImportFrom):
                whole = [getattr(node, "module", "") or "", *(a.name for a in node.names)]
                used = {part for dotted in whole for part in dotted.split(".")}
            if used & DRAWS:
                yield f"{name}:{node.lineno} draws"


UNPROVED = "replication.unproved"
HOLDS_ROWS = ("privacy", "design", UNPROVED, "evidence.auditing")
INSIDE = {"_source", "_rows", "_releaser", "_order", "exact_sums", "by_record"}
INSIDE |= {"in_memory", "gather", "fold"}
HIDDEN = {name for name in INSIDE if name.startswith("_")}


def rows_outside_the_curator(files):
    """Methods look at nothing but released values: they do not reach inside a curator."""
    for name, tree in trees(files).items():
        if name.startswith(HOLDS_ROWS):
            continue
        method = name.startswith(METHODS)
        for node in nodes(tree):
            inside = isinstance(node, ast.Attribute) and node.attr in INSIDE
            if inside and (method or "curator" in ast.unparse(node.value)):
                yield f"{name}:{node.lineno} looks inside a curator ({node.attr})"
            if method and isinstance(node, ast.Constant) and str(node.value) in HIDDEN:
                yield f"{name}:{node.lineno} names what is inside a curator ({node.value})"


READERS = ("design.table_reader", "design.engines")
METHODS = ("estimators", "abilities", "replication")
"""Folders that hold methods."""


def rows_imported_by_methods(files):
    files_of_privacy = {name for name in files if name.startswith("privacy.")}
    for name, tree in trees(files).items():
        if name.startswith(METHODS) and not name.startswith(UNPROVED):
            bad = {"Rows", "Source", "Releaser", "SecureNoise", "SeededNoise", "Ledger"}
            bad |= {"noise_source", "Sensitivity", "Steps"}
            for other in imported(tree):
                last = other.rpartition(".")[2]
                reads = other.startswith(READERS) and last != "written_out"  # names of columns
                if last in bad or other in files_of_privacy or reads:
                    yield f"{name} imports {other}"


def noise_outside_the_kernel(files):
    """Only the trusted folder, and what is marked as unproved, charges and draws."""
    for name, tree in trees(files).items():
        if name.startswith(("privacy", UNPROVED, "evidence.auditing")):
            continue
        for node in nodes(tree):
            draws = isinstance(node, ast.Attribute) and node.attr in (
                "laplace",
                "gaussian",
                "respond",
            )
            if draws and "releaser" in ast.unparse(node.value):
                yield f"{name}:{node.lineno} draws noise"
            named = {getattr(node, "id", ""), getattr(node, "attr", "")}
            named |= {a.name for a in getattr(node, "names", ()) if isinstance(a, ast.alias)}
            if "Sensitivity" in named:
                yield f"{name}:{node.lineno} types a sensitivity"


def second_clips(files):
    """In tier 1, contributions are kept in their sets in one place."""
    for name in ("privacy.curator", "privacy.rows"):
        for node in nodes(parse(files[name])):
            named = {getattr(node, "attr", ""), getattr(node, "id", "")}
            named |= {a.name for a in getattr(node, "names", ()) if isinstance(a, ast.alias)}
            if named & {"clip", "floor", "rint", "fmin", "fmax", "minimum", "maximum"}:
                yield f"{name}:{node.lineno} clips or rounds outside of sets"


def methods_in_conditions(files):
    names = {*registry(), *conditional_methods()}
    names -= {"auto", "regression"}  # options and tasks of learners have these values too
    for name, tree in trees(files).items():
        for node in nodes(tree):
            if isinstance(node, ast.Compare | ast.MatchValue):
                used = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                if used & names:
                    yield f"{name}:{node.lineno} compares with {used & names}"


def functions_that_shadow_modules(files):
    for package in {name.rpartition(".")[0] for name in files} | {""}:
        tree = parse(files.get(package, ""))
        for node in tree.body:
            if (
                isinstance(node, ast.FunctionDef)
                and ".".join(filter(None, [package, node.name])) in files
            ):
                yield f"{package or 'dpeffects'} defines {node.name}, and so is a module"
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    shown = alias.asname or alias.name
                    full = ".".join(filter(None, [package, shown]))
                    source = (node.module or "").removeprefix("dpeffects").lstrip(".")
                    if full in files and ".".join(filter(None, [source, alias.name])) != full:
                        yield f"{package or 'dpeffects'} names {shown}, and so is a module"


FORMATS = ("</", "<br", "\\\\begin", "\\\\text", "**", "```", "&nbsp;")
"""What is written in HTML, LaTeX or Markdown."""


def formats_in_abilities(files):
    """Abilities say what they have to say in plain words: formats are in the folder `report`."""
    for name, tree in trees(files).items():
        if name.split(".")[0] != "abilities":
            continue
        documented = {
            id(node.body[0].value)
            for node in nodes(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and isinstance(node.body[0], ast.Expr)
        }
        for node in nodes(tree):
            plain = not isinstance(node, ast.Constant) or id(node) in documented
            if not plain and any(mark in str(node.value) for mark in FORMATS):
                yield f"{name}:{node.lineno} writes a format"


LISTS = {"", "datasets", "report.plots"}
"""Packages whose stubs name what is loaded when it is first asked for."""


def wings_imported(files):
    """The core does without the wings: their methods, commands and names are found by name."""
    for name, tree in trees(files).items():
        if name.split(".")[0] not in WINGS and name not in LISTS:
            for other in imported(tree):
                if other.split(".")[0] in WINGS:
                    yield f"{name} imports {other}"


def names_for_two_things(files):
    """A class or a file is found by its name."""
    classes = [
        (node.name, name)
        for name, tree in trees(files).items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    modules = [(name.rpartition(".")[2], name) for name in files if name not in PACKAGES]
    for found in (classes, modules):
        known = {}
        for name, place in found:
            if name in known:
                yield f"{name} is in {known[name]} and in {place}"
            known[name] = place


RULES = [
    relative_imports,
    imports_that_point_back,
    circles,
    randomness,
    rows_outside_the_curator,
    rows_imported_by_methods,
    noise_outside_the_kernel,
    second_clips,
    methods_in_conditions,
    functions_that_shadow_modules,
    formats_in_abilities,
    wings_imported,
    names_for_two_things,
]


@each("rule", RULES)
def test_the_package_keeps_the_rule(rule):
    assert as_it_is(rule) == []


@functools.cache
def as_it_is(rule):
    return list(rule(FILES))


PLANTED = [
    (relative_imports, "privacy.domains", "from ..estimators import registry"),
    (relative_imports, "privacy.domains", "import importlib\nimportlib.import_module('x')"),
    (imports_that_point_back, "privacy.domains", "from dpeffects.estimators import registry"),
    (imports_that_point_back, "design.table_reader", "import dpeffects.flow"),
    (circles, "privacy.exact", "def f():\n    from dpeffects.privacy import curator"),
    (randomness, "estimators.default.one_step", "np.random.default_rng(0)"),
    (randomness, "estimators.default.one_step", "import numpy.random as r"),
    (randomness, "estimators.default.one_step", "from numpy.random import Generator"),
    (randomness, "inference.intervals", "def g(distribution):\n    return distribution.rvs(3)"),
    (rows_outside_the_curator, "estimators.default.one_step", "def g(c):\n    return c._source"),
    (rows_outside_the_curator, "abilities.balance", "def g(c):\n    getattr(c, '_source')"),
    (rows_outside_the_curator, "flow", "def g(curator):\n    return curator._rows"),
    (
        rows_imported_by_methods,
        "estimators.default.diff_in_means",
        "from dpeffects.privacy.rows import Rows",
    ),
    (
        rows_imported_by_methods,
        "estimators.learners.r_learner",
        "from dpeffects.privacy import rows",
    ),
    (
        noise_outside_the_kernel,
        "estimators.weighting.propensity",
        "def g(releaser):\n    releaser.laplace(1)",
    ),
    (
        noise_outside_the_kernel,
        "estimators.weighting.propensity",
        "from dpeffects.privacy.domains import Sensitivity as S",
    ),
    (second_clips, "privacy.curator", "def g(x):\n    return np.clip(x, 0, 1)"),
    (second_clips, "privacy.curator", "def g(x):\n    return np.minimum(x, 1)"),
    (second_clips, "privacy.rows", "from numpy import clip"),
    (methods_in_conditions, "effects", "def g(m):\n    return m == 'r_learner'"),
    (
        methods_in_conditions,
        "flow",
        "def g(m):\n    match m:\n        case 'private_psm':\n            return 1",
    ),
    (functions_that_shadow_modules, "", "from dpeffects.effects import dp_ate as results"),
    (functions_that_shadow_modules, "", "def results():\n    pass"),
    (formats_in_abilities, "abilities.rate", "def g(x):\n    return f'<b>{x}</b>'"),
    (formats_in_abilities, "abilities.late", "HEAD = '**effect**'"),
    (imports_that_point_back, "abilities.rate", "from dpeffects.report import html"),
    (rows_imported_by_methods, "abilities.rate", "from dpeffects.privacy.rows import Rows"),
    (rows_imported_by_methods, "replication.dpci", "from dpeffects.privacy.rows import Rows"),
    (wings_imported, "flow", "from dpeffects.replication import dpci"),
    (wings_imported, "cli.program", "def g():\n    import dpeffects.evidence.auditing"),
    (names_for_two_things, "design.table_reader", "class Estimate:\n    pass"),
]


BY_FILE = (relative_imports, randomness, rows_outside_the_curator, noise_outside_the_kernel)
BY_FILE += (methods_in_conditions,)
"""Rules that look at one file at a time, and not at the names of others."""


@each(("rule", "place", "line"), PLANTED)
def test_the_guard_finds_what_is_planted(rule, place, line):
    own = {place: FILES[place]}
    known, files = (list(rule(own)), own) if rule in BY_FILE else (as_it_is(rule), FILES)
    planted = {**files, place: f"{FILES[place]}\n\n{line}\n"}
    assert len(list(rule(planted))) > len(known)


def test_every_rule_is_tried():
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


CORE = 29_409
"""Lines of code of the core, which only become fewer: lower it with them. Raising it takes a line
in CHANGELOG.md that says what for."""
WINGS = ("replication", "evidence", "services")


def lines_of_code(text):
    """Lines that are no comment, no blank line and no docstring."""
    words, code = set(), set()
    for node in nodes(parse(text)):
        value = getattr(node, "value", None)
        if isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str):
            words |= set(range(node.lineno, node.end_lineno + 1))
    blank = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in blank:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - words)


def test_the_core_only_becomes_smaller():
    texts = {path.relative_to(ROOT): path.read_text() for path in ROOT.rglob("*.py")}
    core = [text for path, text in texts.items() if path.parts[0] not in WINGS]
    assert sum(map(lines_of_code, core)) <= CORE
    assert lines_of_code('"""Words."""\n\n# a comment\nx = (\n    1,\n)\n') == 3


def test_benchmarks_are_declarations():
    files = (ROOT.parent / "benchmarks").glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= 4_000


CONSTANTS = 110, 127
"""Numbers set by hand that methods have, as entries and as names in them. They only become fewer
too: one belief is one constant, and what data, another constant or mathematics give is none."""
TABLE = {"estimators.constants"}
"""Where they are, with what each was set by."""
BESIDE = {"estimators.default.posterior"}
"""Weights of a grid, which are beside it."""
NUMBER = re.compile(r'^(_?[A-Z][A-Z0-9_]*(?:, _?[A-Z][A-Z0-9_]*)*) = (?!\(\s*f?")[-0-9(.]', re.M)


def test_methods_have_ever_fewer_constants_and_those_in_one_table():
    methods = {name: text for name, text in FILES.items() if name.startswith(METHODS[:2])}
    found = {name: own for name, text in methods.items() if (own := NUMBER.findall(text))}
    entries = [names for own in found.values() for names in own]
    assert len(entries) <= CONSTANTS[0]
    assert sum(len(names.split(", ")) for names in entries) <= CONSTANTS[1]
    assert found.keys() == TABLE | BESIDE
    assert NUMBER.findall('A, _B = 0.1, 2\nWORDS = (\n    "a"\n)\nC = -1\n') == ["A, _B", "C"]


FIRST = ("noise", "exact_samplers", "ladder", "budget", "ledger", "charges", "rows", "domains")
FIRST += ("exact", "release")
TRUSTED, TIER_ONE = 3_344, 1_411
"""Lines of code of the trusted folder, and of what a reader of one release must read (tier 1 in
docs/decisions.md). They only become fewer too."""


def test_the_trusted_folder_only_becomes_smaller():
    sizes = {path.stem: lines_of_code(path.read_text()) for path in ROOT.glob("privacy/*.py")}
    assert sum(sizes.values()) <= TRUSTED
    assert sum(sizes[name] for name in (*FIRST, "curator")) <= TIER_ONE
    table = (ROOT.parent / "docs" / "decisions.md").read_text()
    _, first, second, _ = re.split(r"\*(?:tier 1|tier 2|a tier of its own):", table)
    assert {*FIRST, "curator"} == set(re.findall(r"`(\w+)\.py`", first))
    told = set(re.findall(r"`(\w+)\.py`", first + second))
    assert told == sizes.keys() - {"__init__"}


def test_the_map_names_every_folder_and_nothing_else():
    docs = ROOT.parent / "docs"
    drawn = (docs / "_static" / "architecture.svg").read_text()
    inside = (path for wing in WINGS for path in ROOT.glob(f"{wing}/*/__init__.py"))
    folders = {path.parent.name for path in (*ROOT.glob("*/__init__.py"), *inside)}
    assert set(re.findall(r"(\w+)/ ", drawn.replace("</", " ").replace("/<", "/ <"))) == folders
    page = (docs / "architecture.md").read_text()
    assert len(page.splitlines()) <= 50  # a screen
    for name in re.findall(r"`(\w+(?:/\w+)*\.py)`", page):
        places = [ROOT, ROOT.parent, *ROOT.glob("*/")]
        assert any((place / name).exists() for place in places), name


def loaded_by(code):
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_hardly_anything():
    modules = loaded_by("import dpeffects; assert dpeffects.__version__ and dpeffects.__all__")
    assert {name for name in modules if name.startswith("dpeffects")} == {
        "dpeffects",
        "dpeffects.lazy",
    }
    assert not modules & {"numpy", "pandas", "narwhals", "scipy", "opendp"}


def test_importing_a_folder_loads_no_library_until_it_is_needed():
    code = "import dpeffects.results, dpeffects.inference, dpeffects.datasets, dpeffects.formula"
    assert not loaded_by(code) & {"scipy", "pandas", "tabulate", "statsmodels", "formulaic"}


@each(
    ("call", "own"),
    [
        ("dp_ate('y ~ t | x', data", ""),
        ("dp_cate('y ~ t | x', data, release='groups', by='cut(x, [0, 2, 4])'", ""),
        ("dp_study('y ~ t | x', data", "dpeffects.abilities.study"),
    ],
)
def test_a_call_loads_no_library_and_no_method_that_it_can_do_without(call, own):
    code = f"""
import pandas as pd, dpeffects as dpe
data = pd.DataFrame({{"y": [0, 1] * 1000, "t": [0, 0, 1, 1] * 500, "x": [0, 1, 2, 3, 4] * 400}})
bounds = {{"y": (0, 1), "x": (0, 4)}}
print(dpe.{call}, epsilon=1, bounds=bounds).summary())
"""
    heavy = {"scipy.stats", "scipy.optimize", "scipy.linalg", "sklearn", "polars", "duckdb"}
    heavy |= {"matplotlib", "statsmodels", "dpeffects.ledgers"}
    heavy |= {f"dpeffects.{wing}" for wing in WINGS}
    abilities = {f"dpeffects.abilities.{file.stem}" for file in ROOT.glob("abilities/[!_]*.py")}
    assert not loaded_by(code) & (heavy | abilities - {own})


def test_commands_of_the_wings_can_be_imported_first():
    """The command line loads them by name, and they use it."""
    from dpeffects.cli.program import _PLACES

    for place in (place for place in _PLACES if not place.startswith("cli.")):
        subprocess.run([sys.executable, "-c", f"import dpeffects.{place}"], check=True)


def test_every_public_name_is_found_where_the_stub_says():
    inner = dpeffects.privacy, dpeffects.inference
    for package in (dpeffects, dpeffects.results, dpeffects.report, sites, *inner):
        assert all(getattr(package, name) is not None for name in package.__all__)


def test_names_that_are_not_loaded_are_listed():
    code = """
import dpeffects as dpe
from dpeffects.services import sites
for package in (dpe, dpe.results, dpe.report, sites):
    assert {"__file__", *package.__all__} <= set(dir(package))
    assert not set(package.__all__) & set(vars(package))
"""
    assert "dpeffects.results.average" not in loaded_by(code)


def test_modules_and_errors_are_found_by_their_names():
    assert dpeffects.errors.DPEffectsError is dpeffects.DPEffectsError
    for name in ("dp_nothing", "no.name at all", "", "__wrapped__"):
        with pytest.raises(AttributeError, match="has no attribute"):
            getattr(dpeffects, name)
