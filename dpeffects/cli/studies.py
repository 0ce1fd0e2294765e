"""Commands that spend nothing: methods, plan, combine, combine-tables, ..."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import dpeffects as dpe
from dpeffects import documents
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.cli.output import format_of, put_result, site_and_file
from dpeffects.errors import DataError, OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import conditional_methods, registry, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.planning.inverse import needed_blocks
from dpeffects.results.export import plain
from dpeffects.sites.rules import RULES
from dpeffects.summary import Summary

_MOST_BYTES = 100_000_000
"""Of a result on file."""

# --- methods ----------------------------------------------------------------------------------


def methods(method: str | None = None, as_json: bool = False) -> str:
    """List the methods, or describe one with its options and defaults.

    In a shell::

        dpeffects methods
        dpeffects methods private_psm
        dpeffects methods --format json
    """
    described = dpe.methods(method)  # refuses a name that is not there
    if as_json:
        kinds = (registry(), conditional_methods(), table_methods())
        specs = [spec for specs in kinds for spec in specs.values()]
        facts = [_facts(spec) for spec in specs if method in (None, spec.name)]
        return json.dumps(facts[0] if len(facts) == 1 else facts, indent=2)
    if method is None:
        return _method_table()
    return "\n\n\n".join(_wrapped(one) for one in str(described).split("\n\n\n"))


def _method_table() -> str:
    from tabulate import tabulate

    table = tabulate(dpe.methods(), headers="keys", showindex=False)  # type: ignore[arg-type]
    return f"{table}\n\nThe first level is the default. dpeffects methods NAME describes one."


def _wrapped(text: str) -> str:
    """Title, facts and options keep their lines; the paragraphs after them are filled."""
    title, facts, options, *paragraphs = text.split("\n\n")
    lines = [
        *(textwrap.fill(line, 80) for line in title.splitlines()),
        "",
        *(textwrap.fill(line, 80, subsequent_indent=" " * 11) for line in facts.splitlines()),
    ]
    filled = (textwrap.fill(" ".join(paragraph.split()), 80) for paragraph in paragraphs)
    return "\n\n".join(["\n".join(lines), options, *filled])


def _facts(spec: MethodSpec) -> dict[str, Any]:
    names = ("title", "about", "estimands", "levels", "guarantee", "needs_delta", "citation")
    facts, options = {name: plain(getattr(spec, name)) for name in names}, spec.options()
    facts |= {"covariates": spec.uses_covariates}
    facts["shares"] = {level: plain(spec.shares(level, options)) for level in spec.levels}
    facts["options"] = {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.init}
    return {"method": spec.name, **facts}


# --- plan -------------------------------------------------------------------------------------


def _needed(*, half_width: float | None = None, of: str = "epsilon") -> None:
    """The other way round.

    Parameters
    ----------
    half_width
        Also say what an interval of +-W takes.
    of
        In epsilon or in n.
    """


def _read_protocol(args: argparse.Namespace, values: Values) -> Values:
    """A formula, or the protocol of a file."""
    if values["formula"].endswith(".toml") and "~" not in values["formula"]:
        values["formula"] = dpe.read_protocol(values["formula"])
    return values


def _show_plan(args: argparse.Namespace, plan: dpe.Plan | dpe.StudyPlan) -> None:
    """Show a plan, and what is needed for a half-width where asked."""
    if args.half_width is None:
        return put_result(args, plan, "plan")
    needed = plan.needed(args.half_width, of=args.of)

    def summary(form: str) -> Summary:
        made = plan.summary(form)
        more = needed_blocks(needed, args.half_width)
        return replace(made, blocks=(*made.blocks[:2], *more, *made.blocks[2:]))

    def to_dict() -> dict[str, Any]:
        return plan.to_dict() | {"needed": plain(needed.to_dict("records"))}

    return put_result(args, plan, "plan", summary=summary, to_dict=to_dict)


# --- results on file --------------------------------------------------------------------------


def _read_effect(args: argparse.Namespace, values: Values) -> Values:
    path = values["self"]
    text = documents.read(path, _MOST_BYTES)
    try:
        return values | {"self": dpe.Result.from_json(text)}
    except DataError:
        raise DataError(f"{path} is not the JSON of an effect") from None


def combine_tables(releases: Sequence[str]) -> Any:
    """Add the tables of several sites (survival, ordinal, qte): one result for all records.

    In a shell::

        dpeffects combine-tables north.json south.json --plot curves.png
        dpeffects combine-tables North=files/1.json South=files/2.json
    """
    named = [site_and_file(given) for given in releases]
    names = [name for name, _ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"site {twice} is given twice: name the files, as in North=a/x.json")
    return dpe.combine_tables(dict(named))


def regress(formula: str, releases: Sequence[str]) -> Any:
    """Regress on moments that were released (dpeffects moments), which spends nothing.

    Parameters
    ----------
    formula
        "y ~ t + x1", of columns that the moments have.
    releases
        Moments in JSON (by dpeffects moments --out); those of several sites are added.

    In a shell::

        dpeffects regress "cost ~ treated + age" moments.json
        dpeffects regress "cost ~ treated*sex" north.json south.json --out table.tex
    """
    return dpe.combine_moments(releases).regression(formula)


# --- the commands -----------------------------------------------------------------------------

_PLAN = {"of": ("epsilon", "n"), "estimand": ESTIMANDS}
COMMANDS = (
    Command(
        "methods",
        methods,
        prepare=lambda args, values: values | {"as_json": format_of(args) == "json"},
        **in_a_shell("methods"),
    ),
    Command("plan", dpe.plan, more=_needed, show=_show_plan, **in_a_shell("plan", **_PLAN)),
    Command(
        "plan-study",
        dpe.plan_study,
        more=_needed,
        prepare=_read_protocol,
        show=_show_plan,
        **in_a_shell("plan-study", **_PLAN),
    ),
    Command("combine", dpe.combine, **in_a_shell("combine", rule=RULES)),
    Command("combine-studies", dpe.combine_studies, **in_a_shell("combine-studies")),
    Command("combine-tables", combine_tables, **in_a_shell("combine-tables")),
    Command("regress", regress, **in_a_shell("regress")),
    Command(
        "sensitivity",
        dpe.Result.sensitivity,
        prepare=_read_effect,
        **in_a_shell("sensitivity"),
    ),
)
