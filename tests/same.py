"""Whether two versions give the same numbers and the same words.

    git worktree add /tmp/before 841214ee
    python tests/same.py /tmp/before            # all calls of tests/calls.py: a minute
    python tests/same.py /tmp/before survival   # those whose name has this in it
    python tests/same.py --keep before.json     # keep what this version gives ...
    python tests/same.py before.json            # ... and compare later

Every call is made with the same seed on the same records. Numbers must be equal to 1e-10, words and
the names of fields the same, but for checksums and what is no part of a result. So must the public
names, their arguments, the methods with their options, and the commands. It ends with 1 where
something differs.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CLOSE = 1e-10
_LEFT_OUT = ("influence", "checksum")
"""How rows make an estimate, which is no part of a result, and what changes with any last digit."""


def answered(call: Any) -> dict[str, Any]:
    """What a call gives, in all its forms, or how it fails."""
    from tests.neighbours import BOUNDS, Pair, frame

    data = frame(call.n, 1)
    try:
        fit = _run(call, data, Pair("same", data, data, 0, BOUNDS))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    found: dict[str, Any] = {"repr": repr(fit)}
    if hasattr(fit, "to_json"):
        found["json"] = json.loads(fit.to_json())
    if hasattr(fit, "tidy"):
        found["tidy"] = json.loads(fit.tidy().to_json(orient="records", double_precision=15))
    if hasattr(fit, "summary"):
        whole = fit.summary()
        found["summary"] = str(whole)
        for form in ("as_html", "as_latex", "as_markdown"):
            if hasattr(whole, form):
                found[form] = getattr(whole, form)()
        found["short"] = str(fit.summary("short"))
    if hasattr(fit, "paragraph"):
        found["paragraph"] = str(fit.paragraph())
    return found


def _run(call: Any, data: Any, pair: Any) -> Any:
    import dpeffects as dpe
    from tests.neighbours import SITES

    given = {"epsilon": 1.0, **call.given, "seed": 1}
    given["bounds"] = {c: b for c, b in pair.bounds.items() if c in call.declared}
    if call.method:
        given["method"] = call.method
    if call.function == "study_release":
        seed = given.pop("seed")
        return dpe.study_release(
            dpe.Protocol(call.text(pair), **given), data, site="north", seed=seed
        )
    if call.function == "site_release":
        given["site"] = "north"
    if call.function == "dp_multisite":
        given |= {"site": "site", "sites": SITES}
    return getattr(dpe, call.function)(call.text(pair), data, **given)


def public() -> dict[str, Any]:
    """Every public name with its arguments or attributes, every method with its options."""
    import dpeffects as dpe
    from dpeffects.cli.commands import make_parser
    from dpeffects.cli.program import COMMANDS
    from dpeffects.estimators import conditional_methods, registry, table_methods

    found: dict[str, Any] = {}
    for name in sorted(dpe.__all__):
        thing = getattr(dpe, name)
        if inspect.isclass(thing):
            names = {*dir(thing), *getattr(thing, "__dataclass_fields__", ())}
            found[name] = sorted(x for x in names if not x.startswith("_"))
        elif callable(thing):
            found[name] = list(inspect.signature(thing).parameters)
        else:
            found[name] = "a value"
    kinds = (registry(), conditional_methods(), table_methods())
    for name, spec in ((k, spec) for specs in kinds for k, spec in specs.items()):
        options = sorted(f.name for f in fields(spec.options) if f.init)
        found.setdefault(f"method {name}", []).append(options)
    for action in make_parser(COMMANDS)._actions:
        for command, parser in (getattr(action, "choices", None) or {}).items():
            named = [a.option_strings or [a.dest, a.metavar] for a in parser._actions]
            found[f"command {command}"] = sorted({str(x) for names in named for x in names})
    return found


def everything(some: str) -> dict[str, Any]:
    """All calls by their names."""
    from tests.calls import CALLS

    warnings.simplefilter("ignore")
    chosen = {k: c for k, c in CALLS.items() if some in k and c.function != "answer"}
    return {"public": public()} | {name: answered(call) for name, call in chosen.items()}


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two trees of results differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(k for k in other if k not in one)]:
            if key in _LEFT_OUT:
                continue
            if key not in one or key not in other:
                yield f"{place}/{key}: only {'after' if key not in one else 'before'}"
            else:
                yield from differences(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{place}/{k}")
    elif isinstance(one, str) and isinstance(other, str) and "\n" in one:
        for k, (a, b) in enumerate(zip(one.splitlines(), other.splitlines(), strict=False)):
            if a != b:
                yield f"{place}, line {k + 1}\n  - {a}\n  + {b}"
        if one.count("\n") != other.count("\n"):
            yield f"{place}: {one.count(chr(10))} lines before, {other.count(chr(10))} after"
    elif not _same(one, other):
        yield f"{place}\n  - {one}\n  + {other}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return one == other or math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)


def of_tree(tree: Path, some: str) -> Any:
    """What a checkout gives; or what is kept in a file."""
    if tree.is_file():
        return json.loads(tree.read_text())
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "same.json")
        env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--keep", str(kept), "--only", some]
        subprocess.run(command, cwd=tree, env=env, check=True)
        return json.loads(kept.read_text())


def main() -> int:
    """Compare, or keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", nargs="?", type=Path)
    parser.add_argument("some", nargs="?", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    if asked.keep:
        sys.path.insert(0, os.getcwd())
        asked.keep.write_text(json.dumps(everything(asked.only)))
        return 0
    before, after = of_tree(asked.before, asked.some), of_tree(HERE, asked.some)
    if asked.some:
        before = {k: v for k, v in before.items() if k in after}
    found = list(differences(before, after))
    print(*found, f"{len(after) - 1} calls, {len(found)} differences", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
