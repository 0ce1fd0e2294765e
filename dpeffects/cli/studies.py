"""Commands that spend nothing: methods, plan, audit, bench, combine, combine-tables, ..."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpeffects as dpe
from dpeffects import documents
from dpeffects.cli.arguments import add_parameters, values_for
from dpeffects.cli.commands import Command
from dpeffects.cli.functions import function_command
from dpeffects.cli.output import (
    add_output_arguments,
    check_files,
    format_of,
    put_result,
    put_text,
)
from dpeffects.errors import DataError, OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import conditional_methods, registry, table_methods
from dpeffects.estimators.spec import MethodSpec
from dpeffects.leaderboard import entries, tasks
from dpeffects.results.export import plain
from dpeffects.results.numbers import number
from dpeffects.sites.rules import RULES
from dpeffects.summary import Summary, Table, noted

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 100_000_000
"""Of a result on file."""

# --- methods ----------------------------------------------------------------------------------


def add_methods_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the method and the output."""
    parser.add_argument("method", nargs="?", help="describe this one: options, defaults, shares")
    add_output_arguments(parser, ("text", "json"), conf_level=False)


def run_methods(args: argparse.Namespace) -> None:
    """List the methods, or describe one with its options and defaults.

    In a shell::

        dpeffects methods
        dpeffects methods private_psm
        dpeffects methods --format json
    """
    check_files(args)
    described = dpe.methods(args.method)  # refuses a name that is not there
    if format_of(args) == "json":
        kinds = (registry(), conditional_methods(), table_methods())
        specs = [spec for specs in kinds for spec in specs.values()]
        facts = [_facts(spec) for spec in specs if args.method in (None, spec.name)]
        text = json.dumps(facts[0] if len(facts) == 1 else facts, indent=2)
    elif args.method is None:
        text = _method_table()
    else:
        text = "\n\n\n".join(_wrapped(one) for one in str(described).split("\n\n\n"))
    put_text(args, "methods", text)


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
    options = spec.options()
    return {
        "method": spec.name,
        "title": spec.title,
        "about": spec.about,
        "estimands": list(spec.estimands),
        "levels": list(spec.levels),
        "guarantee": spec.guarantee,
        "covariates": spec.uses_covariates,
        "needs_delta": spec.needs_delta,
        "shares": {level: plain(spec.shares(level, options)) for level in spec.levels},
        "options": {f.name: plain(getattr(options, f.name)) for f in fields(options) if f.init},
        "citation": spec.citation,
    }


# --- plan -------------------------------------------------------------------------------------


def _add_half_width(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the other way round").add_argument
    add("--half-width", type=float, metavar="W", help="also say what an interval of +-W takes")
    add("--of", choices=["epsilon", "n"], default="epsilon", help="in epsilon (default) or n")


def _read_protocol(args: argparse.Namespace, values: dict[str, Any]) -> dict[str, Any]:
    """A formula, or the protocol of a file."""
    if values["formula"].endswith(".toml") and "~" not in values["formula"]:
        values["formula"] = dpe.read_protocol(values["formula"])
    return values


def _show_plan(args: argparse.Namespace, plan: dpe.Plan | dpe.StudyPlan) -> None:
    """Show a plan, and what is needed for a half-width where asked."""
    width = args.half_width
    needed = None if width is None else plan.needed(width, of=args.of)
    put_result(
        args,
        plan,
        "plan",
        summary=lambda form: _plan_summary(plan, form, needed, width),
        to_dict=lambda: _plan_dict(plan, needed),
    )


def _plan_summary(
    plan: dpe.Plan | dpe.StudyPlan, form: str, needed: pd.DataFrame | None, width: float
) -> Summary:
    summary = plan.summary(form)
    if needed is None:
        return summary
    found = [(str(name), value, str(why)) for name, value, why in needed.itertuples(index=False)]
    rows = ((name, number(x) if x == x else "out of reach") for name, x, _ in found)
    title = f"Needed for a half-width of {number(width)}"
    table = Table(title, (str(needed.columns[0]), str(needed.columns[1])), tuple(rows), "lr")
    notes = noted(f"{name}: {why}" for name, x, why in found if why and x != x)
    header, first, *rest = summary.blocks
    more = (table, notes) if notes else (table,)
    return Summary(summary.title, summary.alert, (header, first, *more, *rest))


def _plan_dict(plan: dpe.Plan | dpe.StudyPlan, needed: pd.DataFrame | None) -> dict[str, Any]:
    more = {} if needed is None else {"needed": plain(needed.to_dict("records"))}
    if isinstance(plan, dpe.StudyPlan):
        return plan.to_dict() | more
    setting = asdict(plan.setting) | {"bounds": dict(plan.setting.bounds)}
    methods = [asdict(row) | {"shares": dict(row.shares)} for row in plan.rows]
    return {"setting": plain(setting), "methods": plain(methods), **more}


# --- audit ------------------------------------------------------------------------------------


def _show_audit(args: argparse.Namespace, audit: dpe.AuditResult) -> int:
    """Show an audit, and return 1 where the promise is broken."""
    put_result(args, audit)
    return 1 if audit.violated else 0


# --- the leaderboard --------------------------------------------------------------------------


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench`, a list of what can be run, and a plot."""
    parser.add_argument("--list", action="store_true", help="show entries and data; run nothing")
    names = {"metavar": "NAME", "help": "default all; see --list"}
    seed, epsilon = {"help": "of data and noise"}, {"help": "budgets"}
    add_parameters(parser, dpe.bench, methods=names, data=names, seed=seed, epsilon=epsilon)
    parser.add_argument("--plot-epsilon", type=float, default=1.0, metavar="EPSILON")
    add_output_arguments(parser, conf_level=False, plot="draw how far each is from the best")


def run_bench(args: argparse.Namespace) -> None:
    r"""Run the leaderboard: methods x data x epsilon, against known effects.

    In a shell::

        dpeffects bench --list
        dpeffects bench --methods auto diff_in_means --data lalonde \
            --repeats 10
        dpeffects bench --workers 2 --path runs.csv     # everything; it resumes
    """
    if args.list:
        print(_entries_and_data())
        return
    check_files(args)
    values = values_for(args, dpe.bench)
    if args.plot is not None and args.plot_epsilon not in values["epsilon"]:
        raise OptionError(f"--plot-epsilon {args.plot_epsilon:g} is not among those of --epsilon")
    board = dpe.bench(**values)
    put_result(
        args,
        board,
        "leaderboard",
        to_dict=lambda: plain(board.tidy().to_dict("records")),
        plot=lambda: board.plot(args.plot_epsilon),
    )


def _entries_and_data() -> str:
    from tabulate import tabulate

    methods = [(e.name, e.by, e.guarantee, e.level) for e in entries().values()]
    data = [
        (t.name, f"{t.n:,}", "randomised" if t.randomised else "observational")
        for t in tasks().values()
    ]
    first = tabulate(methods, ("entry", "by", "guarantee", "level"))
    align = ("left", "right", "left")
    return f"{first}\n\n{tabulate(data, ('data', 'n', 'treatment'), colalign=align)}"


# --- sensitivity ------------------------------------------------------------------------------


def add_sensitivity_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file of a result, and the arguments of its method ``sensitivity``."""
    parser.add_argument("result", help="a result in JSON (dpeffects ate ... --out effect.json)")
    add_parameters(parser, dpe.Result.sensitivity, skip=["self", "conf_level"])
    add_output_arguments(parser, record=True, plot="draw estimate and interval against the bias")


def run_sensitivity(args: argparse.Namespace) -> None:
    r"""Say what confounding that was not adjusted for would do to an effect.

    In a shell::

        dpeffects sensitivity effect.json
        dpeffects sensitivity effect.json --bias 0.02 --plot bias.png
        dpeffects sensitivity effect.json --prevalence-difference 0.1 \
            --confounder-effect 0.2
    """
    check_files(args)
    try:
        fit = dpe.Result.from_json(documents.content(args.result, _MOST_BYTES))
    except documents.UnreadableError as reason:
        raise DataError(f"{args.result} cannot be read: {reason}") from None
    except DataError:
        raise DataError(f"{args.result} is not the JSON of an effect") from None
    put_result(args, fit.sensitivity(**values_for(args, dpe.Result.sensitivity)))


# --- tables of sites --------------------------------------------------------------------------


def add_tables_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files of the sites, and the output."""
    about = "results of the sites in JSON; a site is called as its file, or by NAME"
    parser.add_argument("releases", nargs="+", metavar="[NAME=]FILE", help=about)
    add_output_arguments(parser, record=True, plot="draw what the tables give together")


def run_tables(args: argparse.Namespace) -> None:
    """Add the tables of several sites (survival, ordinal, qte): one result for all records.

    In a shell::

        dpeffects combine-tables north.json south.json --plot curves.png
        dpeffects combine-tables North=files/1.json South=files/2.json
    """
    named = [_site_and_file(given) for given in args.releases]
    names = [name for name, _ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"site {twice} is given twice: name the files, as in North=a/x.json")
    args.releases = [path for _, path in named]
    check_files(args)
    put_result(args, dpe.combine_tables(dict(named)))


def _site_and_file(given: str) -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if equals and not Path(given).exists():
        return name, path
    return Path(given).stem, given


# --- regressions on moments -------------------------------------------------------------------


def add_regress_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the formula, the files of the moments, and the output."""
    parser.add_argument("formula", help='"y ~ t + x1", of columns that the moments have')
    about = "moments in JSON (dpeffects moments ... --out); those of several sites are added"
    parser.add_argument("releases", nargs="+", metavar="FILE", help=about)
    add_output_arguments(parser, record=True)


def run_regress(args: argparse.Namespace) -> None:
    """Regress on moments that were released (dpeffects moments); nothing is spent.

    In a shell::

        dpeffects regress "cost ~ treated + age" moments.json
        dpeffects regress "cost ~ treated*sex" north.json south.json --out table.tex
    """
    check_files(args)
    put_result(args, dpe.combine_moments(args.releases).regression(args.formula))


# --- the commands -----------------------------------------------------------------------------

_PLAN = """\
  dpeffects plan "y ~ t | age + sex" --n 5000 --epsilon 1 --bounds bounds.toml
  dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \\
      --method diff_in_means --half-width 0.02
  dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \\
      --plot plan.png
"""
_PLAN_STUDY = """\
  dpeffects plan-study "pain + died ~ t | age" --n 5000 --epsilon 1 \\
      --bounds bounds.toml --design randomised --outcome-sd pain=12 \\
      --outcome-mean died=0.1
  dpeffects plan-study "pain + died ~ t" --n 5000 --epsilon 1 \\
      --bounds bounds.toml --design randomised --half-width 0.05
  dpeffects plan-study protocol.toml --n 5000 --outcome-sd pain=12
"""
_AUDIT = """\
  dpeffects audit private_psm --level sample --epsilon 1 --workers 2
  dpeffects audit diff_in_means --epsilon 1 --format json --seed 1

exit code: 0 the bound is at most epsilon, 1 VIOLATED, 2 it could not be run
"""
_COMBINE = """\
  dpeffects combine north.json south.json east.json
  dpeffects combine *.json --rule ivw --trust keys/ \\
      --left-out "West=did not answer"
"""
COMMANDS = (
    Command.of("methods", run_methods, add_methods_arguments),
    function_command(
        "plan",
        "plan",
        _PLAN,
        skip=["conf_level"],
        changes={"bounds": {"required": True}, "estimand": {"choices": list(ESTIMANDS)}},
        more=_add_half_width,
        show=_show_plan,
        plot="draw half-width against epsilon (slow)",
    ),
    function_command(
        "plan-study",
        "plan_study",
        _PLAN_STUDY,
        skip=["conf_level"],
        changes={
            "formula": {"help": '"outcome + outcome ~ treatment | baseline", or a protocol.toml'},
            "design": {"choices": ("observational", "randomised"), "help": "of the study"},
            "subgroups": {"metavar": "TERM"},
        },
        more=_add_half_width,
        prepare=_read_protocol,
        show=_show_plan,
    ),
    function_command(
        "audit",
        "audit",
        _AUDIT,
        skip=["pairs", "library", "formula", "bounds"],
        changes={
            "epsilon": {"help": "what is promised"},
            "estimand": {"choices": list(ESTIMANDS), "help": "what it estimates"},
            "watch": {"choices": ["releases", "returned"], "help": "what the attacker sees"},
            "noise": {"choices": ["seeded", "secure"], "help": "seeded is faster"},
            "workers": {"help": "processes"},
            "seed": {"help": "makes the audit reproducible"},
        },
        show=_show_audit,
        conf_level=False,
    ),
    Command.of("bench", run_bench, add_bench_arguments),
    function_command(
        "combine",
        "combine",
        _COMBINE,
        skip=["conf_level"],
        changes={
            "releases": {"metavar": "FILE", "help": "site releases (dpeffects release)"},
            "rule": {"choices": list(RULES), "help": "ivw has the least error in most settings"},
            "trust": {"metavar": "FOLDER"},
            "request": {"metavar": "ID"},
            "left_out": {"metavar": "SITE=REASON", "help": "a site that did not answer"},
        },
        record=True,
    ),
    Command.of("combine-tables", run_tables, add_tables_arguments),
    Command.of("regress", run_regress, add_regress_arguments),
    Command.of("sensitivity", run_sensitivity, add_sensitivity_arguments),
)
