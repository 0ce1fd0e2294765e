"""The commands of plans, protocols and sites: plan, study, release, combine, ..., keygen."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import dpeffects as dpe
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.cli.estimates import with_data, with_data_for_method
from dpeffects.cli.free_commands import template
from dpeffects.cli.output import put_result, put_text, site_and_file
from dpeffects.errors import OptionError
from dpeffects.estimands import ESTIMANDS
from dpeffects.results.export import plain
from dpeffects.services import protocols
from dpeffects.services.office import office_commands
from dpeffects.services.planning.plan_tables import needed_blocks
from dpeffects.services.sites import signing
from dpeffects.services.sites.rules import RULES
from dpeffects.summary import Summary

_WHO_PAYS = ("data", "ledger", "dataset", "seed")

# --- the release of a site --------------------------------------------------------------------


def _signed(*, sign: str | None = None) -> None:
    """Signature.

    Parameters
    ----------
    sign
        Private key of this site (PEM); see dpeffects keygen.
    """


def _read_key(args: argparse.Namespace) -> None:
    """Read the key before anything is paid: one that cannot be read must not cost anything."""
    if args.sign is not None:
        args.private_key = signing.read_private(args.sign)


def _with_key_and_data(args: argparse.Namespace, values: Values) -> Values:
    _read_key(args)
    return with_data_for_method(args, values)


def _show_release(args: argparse.Namespace, release: Any) -> None:
    """Sign the release of a site where that was asked for, and write it."""
    if args.sign is not None:
        release = signing.sign(release, args.private_key)
    put_text(args, str(release), release.to_json())


# --- a whole study ----------------------------------------------------------------------------


def _at_site(
    *,
    protocol: str | None = None,
    site: str | None = None,
    request: str | None = None,
    sign: str | None = None,
) -> None:
    """Protocol and sites.

    Parameters
    ----------
    protocol
        TOML with all that is asked; see protocol-template.
    site
        Make the release of this site, for combine-studies.
    request
        Identifier of the request that the site answers.
    sign
        Private key of this site (PEM); see dpeffects keygen.
    """


def _prepare(args: argparse.Namespace, values: Values) -> Values:
    """Refuse arguments that do not go together; read the key and the data."""
    asked = {f.name for f in fields(dpe.Protocol)} & vars(args).keys() | {"option"}
    given = [name for name in sorted(asked) if getattr(args, name, None) is not None]
    if args.protocol is not None and given:
        raise OptionError(f"{given[0]} is given by the protocol: leave it out, or write it there")
    if args.protocol is None:
        if "formula" not in given or "epsilon" not in given:
            raise OptionError("give a formula and --epsilon, or a file with --protocol")
        if args.site is not None:
            raise OptionError("--site needs --protocol, the same one at all sites")
    for name in ("sign", "request"):
        if getattr(args, name) is not None and args.site is None:
            raise OptionError(f"--{name} is for the release of a site: write --site NAME too")
    for name in ("format", "record", "plot"):
        if getattr(args, name) is not None and args.site is not None:
            raise OptionError(f"--{name} cannot be used for the release of a site, which is JSON")
    _read_key(args)
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
    (_show_release if isinstance(made, dpe.StudyRelease) else put_result)(args, made)


# --- a protocol -------------------------------------------------------------------------------


def protocol_template(data: str) -> str:
    """Start the protocol of a study from a data file's column names.

    In a shell::

        dpeffects protocol-template patients.csv --out protocol.toml
    """
    return template(Path(protocols.__file__).with_name("protocol.toml"), data)


def _read_protocol(args: argparse.Namespace, values: Values) -> Values:
    """A formula, or the protocol of a file."""
    if values["formula"].endswith(".toml") and "~" not in values["formula"]:
        values["formula"] = dpe.read_protocol(values["formula"])
    return values


# --- plans --------------------------------------------------------------------------------------


def _needed(*, half_width: float | None = None, of: str = "epsilon") -> None:
    """The other way round.

    Parameters
    ----------
    half_width
        Also say what an interval of +-W takes.
    of
        In epsilon or in n.
    """


def _show_plan(args: argparse.Namespace, plan: dpe.Plan | dpe.StudyPlan) -> None:
    """Show a plan, and what is needed for a half-width where asked."""
    if args.half_width is None:
        return put_result(args, plan, "plan")
    needed = plan.required(args.half_width, of=args.of)

    def summary(form: str) -> Summary:
        made = plan.summary(form)
        more = needed_blocks(needed, args.half_width)
        return replace(made, blocks=(*made.blocks[:2], *more, *made.blocks[2:]))

    def to_dict() -> dict[str, Any]:
        return plan.to_dict() | {"needed": plain(needed.to_dict("records"))}

    return put_result(args, plan, "plan", summary=summary, to_dict=to_dict)


# --- the centre -------------------------------------------------------------------------------


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
        raise OptionError(f"the site {twice} is given twice: name the files, as in North=a/x.json")
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


def keygen(site: str, *, folder: str = ".") -> str:
    """Make a key pair with which a site signs its releases.

    Parameters
    ----------
    site
        Name of the site.
    folder
        Where to write the two files.

    In a shell::

        dpeffects keygen North --folder keys
    """
    private, public = signing.make_keys(site, folder)
    return (
        f"{private}: keep it here, it signs releases (dpeffects release --sign)\n"
        f"{public}: send it to the centre (dpeffects combine --public-keys)"
    )


# --- the commands -----------------------------------------------------------------------------

_CHOICES = {"of": ("epsilon", "n"), "estimand": ESTIMANDS}
COMMANDS = (
    Command("plan", dpe.plan, more=_needed, show=_show_plan, **in_a_shell("plan", **_CHOICES)),
    Command(
        "plan-study",
        dpe.plan_study,
        more=_needed,
        prepare=_read_protocol,
        show=_show_plan,
        **in_a_shell("plan-study", **_CHOICES),
    ),
    Command(
        "release",
        dpe.site_release,
        like=(dpe.dp_ate, dpe.site_release),
        more=_signed,
        prepare=_with_key_and_data,
        show=_show_release,
        **in_a_shell("release"),
    ),
    Command(
        "study",
        dpe.dp_study,
        more=_at_site,
        prepare=_prepare,
        call=_run_study,
        show=_show_study,
        **in_a_shell("study"),
    ),
    Command("protocol-template", protocol_template, **in_a_shell("protocol-template")),
    Command("combine", dpe.combine, **in_a_shell("combine", rule=RULES)),
    Command("combine-studies", dpe.combine_studies, **in_a_shell("combine-studies")),
    Command("combine-tables", combine_tables, **in_a_shell("combine-tables")),
    Command("regress", regress, **in_a_shell("regress")),
    Command("keygen", keygen, output=None),
    *office_commands.COMMANDS,
)
