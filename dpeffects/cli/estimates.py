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
from dpeffects.cli.output import put_result
from dpeffects.errors import OptionError
from dpeffects.estimators import default_learner, get
from dpeffects.estimators.learners.r_learner import RELEASES
from dpeffects.files import PARQUET, column_names, is_parquet, read_data
from dpeffects.inference.estimate import Unavailable
from dpeffects.results.export import plain
from dpeffects.results.scaled import SCALES, ScaledEffect
from dpeffects.summary import Pairs, Summary

# --- data in the form that a method takes -----------------------------------------------------


def with_data(values: Values, *, batches: bool) -> Values:
    """Read the data, or leave a Parquet file where it is read in batches and something can.

    What is at an address is a dataset of an office.
    """
    path = values["data"]
    if path.startswith(("https://", "http://")):
        office, _, name = path.rstrip("/").rpartition("/")
        return values | {"data": dpe.connect(office)[name]}
    able = any(find_spec(engine) for engine in ("duckdb", "polars"))
    if batches and able and is_parquet(path) and column_names(path):
        return values
    return values | {"data": read_data(path)}


def with_data_for_method(args: argparse.Namespace, values: Values, estimand: str = "ATE") -> Values:
    """Read the data of an estimate, if its method does not read batches."""
    if not values["data"].lower().endswith(PARQUET):
        return with_data(values, batches=False)
    spec = get(values["method"], estimand)
    names = {field.name for field in fields(spec.options) if field.init}
    options = spec.make_options({name: x for name, x in values.items() if name in names})
    return with_data(values, batches=not options.needs_memory())


def _with_data_for_cate(args: argparse.Namespace, values: Values) -> Values:
    _check_release(args, values["release"])
    if args.at is not None:
        values["at"] = read_data(args.at)
    method = {"method": values["method"] or default_learner(values["release"])}
    return with_data_for_method(args, values | method, "CATE") | {"method": values["method"]}


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
        "cate", dpe.dp_cate, prepare=_with_data_for_cate, **in_a_shell("cate", release=RELEASES)
    ),
    *(
        by_blocks(name.removeprefix("dp_").replace("_", "-"), call)
        for name, call in abilities.calls().items()
    ),
)
