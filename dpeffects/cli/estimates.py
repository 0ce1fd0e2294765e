"""Commands that spend a privacy budget on a data file: ate, att, atc, survival, qte, rate, ..."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import dpeffects as dpe
from dpeffects import abilities
from dpeffects.cli.arguments import Values, in_a_shell
from dpeffects.cli.commands import Command
from dpeffects.cli.output import put_result, put_text
from dpeffects.errors import OptionError
from dpeffects.estimators import default_learner, get
from dpeffects.estimators.learners.r_learner import RELEASES
from dpeffects.files import column_names, is_parquet, read_data
from dpeffects.inference.estimate import Unavailable
from dpeffects.results.export import plain
from dpeffects.results.scaled import SCALES, ScaledEffect
from dpeffects.sites import signing
from dpeffects.summary import Pairs, Summary

_WHO_PAYS = ("data", "ledger", "dataset", "seed")

# --- data in the form that a method takes -----------------------------------------------------


def with_data(values: Values, *, batches: bool) -> Values:
    """Read the data, or leave a Parquet file where it is read in batches and something can."""
    path = values["data"]
    able = any(find_spec(engine) for engine in ("duckdb", "polars"))
    if batches and able and is_parquet(path) and column_names(path):
        return values
    return values | {"data": read_data(path)}


def with_data_for_method(args: argparse.Namespace, values: Values, estimand: str = "ATE") -> Values:
    """Read the data of an estimate, if its method does not read batches."""
    if not is_parquet(values["data"]):
        return with_data(values, batches=False)
    spec = get(values["method"], estimand)
    names = {field.name for field in fields(spec.options) if field.init}
    options = spec.make_options({name: x for name, x in values.items() if name in names})
    return with_data(values, batches=not options.needs_memory())


def _with_data_for_cate(args: argparse.Namespace, values: Values) -> Values:
    _check_release(args, values["release"])
    if args.at is not None:
        values["at"] = read_data(args.at)
    values["method"] = values["method"] or default_learner(values["release"])
    return with_data_for_method(args, values, "CATE")


def _check_release(args: argparse.Namespace, release: str) -> None:
    for name, value, needed in (
        ("--at", args.at, "points"),
        ("--by", args.by, "groups"),
        ("--save", args.save, "function"),
    ):
        if value is not None and release != needed:
            raise OptionError(f"{name} is for --release {needed}")
        if value is None and release == needed and needed != "function":
            raise OptionError(f"--release {release} needs {name}")


# --- the scale of an effect -------------------------------------------------------------------


def _scaled(*, scale: str | None = None) -> None:
    """Scale.

    Parameters
    ----------
    scale
        Say the effect on this scale too, by the mean outcomes of the arms.
    """


def _show_effect(args: argparse.Namespace, fit: Any) -> None:
    """Show an average effect, on another scale too where that was asked for."""
    if args.scale is None:
        return put_result(args, fit)
    said = {name: _on_scale(one, args) for name, one in _each(fit).items()}
    title, level = f"Effect on the scale {args.scale}", args.conf_level
    block = Pairs(tuple((name, str(found)) for name, found in said.items()), title)

    def summary(form: str) -> Summary:
        made, place = fit.summary(form, conf_level=level), 1 if form == "short" else 2
        return replace(made, blocks=(*made.blocks[:place], block, *made.blocks[place:]))

    def to_dict() -> dict[str, Any]:
        return fit.to_dict(level) | {"scaled": {name: plain(x) for name, x in said.items()}}

    return put_result(args, fit, summary=summary, to_dict=to_dict)


def _each(fit: Any) -> dict[str, dpe.Result]:
    """The effects of a result, by name."""
    if isinstance(fit, dpe.Result):
        return {fit.treatment: fit}
    one = fit.contrast if isinstance(fit, dpe.ArmEffects) else fit.subset
    return {label: one(label) for label in fit.labels}


def _on_scale(fit: dpe.Result, args: argparse.Namespace) -> ScaledEffect | Unavailable:
    """The effect on the scale, or why there is none: what was paid for is shown all the same."""
    try:
        return fit.effect(args.scale, args.conf_level)
    except OptionError as error:
        return Unavailable(str(error))


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
    put_text(args, repr(release), release.to_json())


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


# --- the commands -----------------------------------------------------------------------------


def by_blocks(name: str, call: Any) -> Command:
    """The command of a function whose methods add up blocks of rows."""
    return Command(
        name,
        call,
        changes=call.shell["changes"],
        prepare=lambda args, values: with_data(values, batches=True),
        output={"record": True, **call.shell["output"]},
    )


_SCALES = [name for name in SCALES if name != "difference"]
COMMANDS = (
    *(
        Command(
            name,
            getattr(dpe, f"dp_{name}"),
            like=[dpe.dp_ate],
            more=_scaled,
            prepare=with_data_for_method,
            show=_show_effect,
            **in_a_shell("ate", scale=_SCALES),
        )
        for name in ("ate", "att", "atc")
    ),
    Command(
        "cate",
        dpe.dp_cate,
        prepare=_with_data_for_cate,
        **in_a_shell("cate", release=RELEASES),
    ),
    *(
        by_blocks(name.removeprefix("dp_").replace("_", "-"), call)
        for name, call in abilities.calls().items()
        if name != "dp_study"
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
)
