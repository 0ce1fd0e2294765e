"""Commands that spend a privacy budget on a data file: ate, att, atc, survival, qte, rate, ..."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import dpeffects as dpe
from dpeffects import abilities
from dpeffects.cli.functions import function_command
from dpeffects.cli.output import put_result, put_text
from dpeffects.errors import OptionError
from dpeffects.estimators import default_learner, get
from dpeffects.estimators._kernel_learner import RELEASES
from dpeffects.files import column_names, is_parquet, read_data
from dpeffects.inference.estimate import Unavailable
from dpeffects.results.export import plain
from dpeffects.results.scaled import SCALES, ScaledEffect
from dpeffects.sites import signing
from dpeffects.summary import Pairs, Summary

Values = dict[str, Any]


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


def _add_scale(parser: argparse.ArgumentParser) -> None:
    about = "say the effect on this scale too, by the mean outcomes of the arms"
    parser.add_argument("--scale", choices=[x for x in SCALES if x != "difference"], help=about)


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


def add_sign(parser: argparse.ArgumentParser) -> None:
    """Add the private key with which a site signs."""
    about = "private key of this site (PEM); see dpeffects keygen"
    parser.add_argument("--sign", metavar="KEY", help=about)


def _with_key_and_data(args: argparse.Namespace, values: Values) -> Values:
    """Read the key first: one that cannot be read must not cost anything."""
    if args.sign is not None:
        args.private_key = signing.read_private(args.sign)
    return with_data_for_method(args, values)


def _show_release(args: argparse.Namespace, release: dpe.SiteRelease) -> None:
    if args.sign is not None:
        release = signing.sign(release, args.private_key)
    put_text(args, repr(release), release.to_json())


# --- the commands -----------------------------------------------------------------------------

_RELEASE = """\
  dpeffects release "y ~ t | sex" patients.csv --site North --epsilon 1 \\
      --bounds bounds.toml --sign North.private.pem --out north.json
"""
by_blocks = partial(
    function_command,
    prepare=lambda args, values: with_data(values, batches=True),
    record=True,
)
"""The command of a function whose methods add up blocks of rows."""
COMMANDS = (
    *(
        function_command(
            name,
            f"dp_{name}",
            like=["dp_ate"],
            changes={
                "by": {
                    "metavar": "[NAME=]SUBSET",
                    "help": "an effect for each subset, or for the groups that terms make",
                },
                "means": {"help": "release mean outcomes where the method does not"},
                "check_bounds": {"help": "release how many values were outside their bounds"},
            },
            more=_add_scale,
            prepare=with_data_for_method,
            show=_show_effect,
            record=True,
        )
        for name in ("ate", "att", "atc")
    ),
    function_command(
        "cate",
        "dp_cate",
        changes={
            "release": {"choices": tuple(RELEASES), "help": "what is released"},
            "at": {"metavar": "FILE", "help": "points: covariates to query, taken as public"},
            "by": {"metavar": "TERMS"},
            "accept_asymptotic": {"help": "allow a guarantee that is only a claim"},
        },
        prepare=_with_data_for_cate,
        record=True,
        save="write the function; dpeffects.load_cate reads it",
    ),
    *(
        by_blocks(name.removeprefix("dp_").replace("_", "-"), call, **call.shell)
        for name, call in abilities.calls().items()
        if name != "dp_study"
    ),
    function_command(
        "release",
        "site_release",
        _RELEASE,
        like=("dp_ate", "site_release"),
        more=add_sign,
        prepare=_with_key_and_data,
        show=_show_release,
        formats=(),
        conf_level=False,
    ),
)
