"""Commands of a whole study: protocol-template, study, combine-studies."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

import dpeffects as dpe
from dpeffects.cli.commands import Command, one_line
from dpeffects.cli.estimates import Values, add_sign, with_data
from dpeffects.cli.functions import function_command
from dpeffects.cli.output import check_files, put_result, put_text
from dpeffects.cli.setup import add_template_arguments, entries_of
from dpeffects.errors import OptionError
from dpeffects.sites import signing

_WHO_PAYS = ("data", "ledger", "dataset", "seed")
_TEMPLATE = """\
# Protocol of a study: everything that it asks, before anybody looks at data.
# Made from the columns of {path}; no row was read.
# Fill in what is in capitals, and take away the # of what you need.

formula = "OUTCOME + OUTCOME ~ TREATMENT | BASELINE + BASELINE"
epsilon = 1.0                     # the whole price, at each site
design = "observational"          # or "randomised"
# delta = 1e-6                    # 0 is pure privacy
# subgroups = ["SEX", "cut(AGE, [18, 65, 100])"]
# subset = "AGE >= 18"
# unit = "PATIENT"                # several rows are one person's
# weights = "WEIGHT"
# missing = "complete"            # or "error", "indicator"
# contrasts = "pairwise"          # of more than two arms
# sites = ["North", "South"]      # who takes part
# minimum_n = 100                 # records of a site, at least

# [options]                       # see dpeffects methods study
# adjust = true

# What each variable could be, from what it means: see dpeffects bounds-template.
[bounds]"""


def run_template(args: argparse.Namespace) -> None:
    """Start the protocol of a study from a data file's column names.

    In a shell::

        dpeffects protocol-template patients.csv --out protocol.toml
    """
    check_files(args)
    head = _TEMPLATE.format(path=one_line(args.data))
    put_text(args, "template", "\n".join([head, *entries_of(args.data)]))


# --- study ------------------------------------------------------------------------------------


def _add_protocol(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("protocol and sites").add_argument
    add("--protocol", metavar="FILE", help="TOML with all that is asked; see protocol-template")
    add("--site", metavar="NAME", help="make the release of this site, for combine-studies")
    add("--request", metavar="ID", help="identifier of the request that the site answers")
    add_sign(parser)


def _prepare(args: argparse.Namespace, values: Values) -> Values:
    """Refuse arguments that do not go together; read the key and the data."""
    asked = {f.name for f in fields(dpe.Protocol)} & vars(args).keys() | {"option"}
    given = [name for name in sorted(asked) if getattr(args, name, None) is not None]
    if args.protocol is not None and given:
        raise OptionError(f"{given[0]} is what the protocol says: leave it out, or write it there")
    if args.protocol is None:
        if "formula" not in given or "epsilon" not in given:
            raise OptionError("give a formula and --epsilon, or a file with --protocol")
        if args.site is not None:
            raise OptionError("--site needs --protocol: all sites run the same one")
    for name in ("sign", "request"):
        if getattr(args, name) is not None and args.site is None:
            raise OptionError(f"--{name} is for a release: say which site's with --site")
    for name in ("format", "record", "plot"):
        if getattr(args, name) is not None and args.site is not None:
            raise OptionError(f"--{name} is not for the release of a site, which is JSON")
    if args.sign is not None:
        args.private_key = signing.read_private(args.sign)
    if args.protocol is not None:
        values = {name: values[name] for name in _WHO_PAYS}
        args.read_protocol = dpe.read_protocol(args.protocol)
    return with_data(values, batches=True)


def _run_study(args: argparse.Namespace, values: Values) -> Any:
    if args.protocol is None:
        return dpe.dp_study(**values)
    if args.site is None:
        return args.read_protocol.run(**values)
    site = {"site": args.site, "request": args.request or ""}
    return dpe.study_release(args.read_protocol, **values, **site)


def _show_study(args: argparse.Namespace, made: Any) -> None:
    if not isinstance(made, dpe.StudyRelease):
        return put_result(args, made)
    if args.sign is not None:
        made = signing.sign(made, args.private_key)
    return put_text(args, repr(made), made.to_json())


_COMBINE = """\
  dpeffects combine-studies north.json south.json
  dpeffects combine-studies *.json --protocol protocol.toml --trust keys/ \\
      --out results.html --plot forest.png
"""
COMMANDS = (
    Command.of("protocol-template", run_template, add_template_arguments),
    function_command(
        "study",
        "dp_study",
        changes={
            "formula": {"nargs": "?", "help": '"outcome + outcome ~ treatment | baseline"'},
            "epsilon": {"required": False},
            "subgroups": {"metavar": "TERM"},
            "design": {"choices": ("observational", "randomised"), "help": "of the study"},
            "check_bounds": {"help": "release how many values were outside their bounds"},
        },
        more=_add_protocol,
        prepare=_prepare,
        call=_run_study,
        show=_show_study,
        record=True,
        plot="draw the effects (forest plot)",
    ),
    function_command(
        "combine-studies",
        "combine_studies",
        _COMBINE,
        changes={
            "releases": {"metavar": "FILE", "help": "releases of sites (dpeffects study --site)"},
            "protocol": {"metavar": "FILE", "help": "what the sites were asked to run"},
            "trust": {"metavar": "FOLDER"},
            "request": {"metavar": "ID"},
            "left_out": {"metavar": "SITE=REASON", "help": "a site that did not answer"},
        },
        record=True,
        plot="draw the effects (forest plot)",
    ),
)
