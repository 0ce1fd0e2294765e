"""What commands write: formats, files, records for a review board, plots."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from dpeffects import file_output
from dpeffects.errors import MissingExtraError, OptionError, refusal
from dpeffects.inference.intervals import check_conf_level
from dpeffects.report.word import ENDING, render_word, word_file
from dpeffects.summary import FORMATS, Prose, Summary, renderer

_ENDINGS = {".json": "json", **{renderer(name).ending: name for name in FORMATS}}
_PLOT_ENDINGS = (".png", ".pdf", ".svg")
_INPUTS = (
    *("data", "bounds", "ledger", "at", "sign"),
    *("path", "public_keys", "releases", "self", "protocol"),
)
"""Arguments that name files to read."""


# --- arguments --------------------------------------------------------------------------------


def add_output_arguments(
    parser: argparse.ArgumentParser,
    formats: Iterable[str] = (*FORMATS, "json"),
    *,
    conf_level: bool = True,
    record: bool = False,
    plot: str = "",
    save: str = "",
) -> None:
    """Add the format and the file; where asked for, confidence level, record, plot and function."""
    add = parser.add_argument_group("output").add_argument
    if formats:
        by_ending = "default: by the ending of --out, else text"
        add("--format", choices=list(formats), help=by_ending)
        add("--short", action="store_true", help="what matters most, in about ten lines")
    add("--out", metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="overwrite files")
    if conf_level:
        level: dict[str, Any] = {"type": _conf_level, "default": 0.95, "metavar": "LEVEL"}
        add("--conf-level", **level, help="of intervals; default 0.95")
    if record:
        add("--record", metavar="FILE.html", help="write the record for a review board, and JSON")
    if plot:
        add("--plot", metavar="FILE.png", help=plot)
    if save:
        add("--save", metavar="FILE", help=save)


def _conf_level(text: str) -> float:
    value = float(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"it must be between 0 and 1, got {text}")
    try:
        return check_conf_level(value)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# --- checks before anything is spent ----------------------------------------------------------


def check_files(args: argparse.Namespace) -> None:
    """Refuse inputs that are no files, and outputs that exist, are inputs or cannot be written."""
    for path in _inputs(args):
        _refuse_devices(path)
    for word in filter(_is_word, (args.out, getattr(args, "record", None))):
        word_file(word)
    outputs = [args.out, getattr(args, "save", None), *_record_files(args), *_plot_files(args)]
    paths = [path for path in outputs if path is not None]
    for path in paths:
        _check_file(args, path)
    file_output.check_apart(paths)
    known, ending = (*_ENDINGS, ENDING, ""), Path(args.out or "").suffix.lower()
    if getattr(args, "format", "") is None and ending not in known:
        raise OptionError(refusal("out_cannot_end", out=args.out, endings=", ".join(known[:-1])))


def _check_file(args: argparse.Namespace, path: str) -> None:
    file_output.check(path, overwrite=args.force, inputs=_inputs(args), force="--force")


def _inputs(args: argparse.Namespace) -> Iterator[str]:
    for name in _INPUTS:
        value = getattr(args, name, None)
        if value is not None:
            yield from (site_and_file(x)[1] for x in value) if isinstance(value, list) else [value]
    if getattr(args, "public_keys", None) is not None:
        yield str(Path(args.public_keys) / "*.pem")


def site_and_file(given: str) -> tuple[str, str]:
    """Return the site and the path of [NAME=]FILE; without a name it is that of the file."""
    name, equals, path = given.partition("=")
    if equals and not Path(given).exists():
        return name, path
    return Path(given).stem, given


def _refuse_devices(path: str) -> None:
    """A pipe would wait, and a device may never end. What else is wrong shows when it is read."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OptionError(f"{path} cannot be read: it is not a regular file")


def _record_files(args: argparse.Namespace) -> tuple[str, ...]:
    """The files of a record: the page, and its JSON twin."""
    path = getattr(args, "record", None)
    if path is None:
        return ()
    if Path(path).suffix.lower() not in (".html", ENDING):
        raise OptionError(f"--record must be an .html or {ENDING} file, got {path!r}")
    from dpeffects.report.review_record import twin_of

    return path, str(twin_of(Path(path)))


def _is_word(path: str | None) -> bool:
    return path is not None and Path(path).suffix.lower() == ENDING


def _plot_files(args: argparse.Namespace) -> tuple[str, ...]:
    path = getattr(args, "plot", None)
    if path is None:
        return ()
    if Path(path).suffix.lower() not in _PLOT_ENDINGS:
        endings = ", ".join(_PLOT_ENDINGS)
        raise OptionError(f"--plot must be a file that ends in {endings}, got {path!r}")
    if find_spec("matplotlib") is None:
        raise MissingExtraError('plots need matplotlib: pip install "dpeffects[plot]"')
    return (path,)


# --- results ----------------------------------------------------------------------------------


def put(args: argparse.Namespace, made: Any) -> None:
    """Print or write what a command made: a result, a text, or nothing."""
    if isinstance(made, str) and hasattr(args, "out"):
        put_text(args, args.owner.prog.split("-")[-1].split()[-1], made)
    elif isinstance(made, str):
        print(made)
    elif made is not None:
        put_result(args, made)


def put_result(
    args: argparse.Namespace,
    result: Any,
    title: str = "",
    *,
    summary: Callable[[str], Summary] | None = None,
    to_dict: Callable[[], Any] | None = None,
    plot: Callable[[], Any] | None = None,
) -> None:
    """Print or write a result in the format asked for; then its record and its plot.

    The functions stand in for the methods of the result of that name.
    """
    content: bytes | None = None
    if format_of(args) == "json":
        plain = (to_dict or _at_level(args, result.to_dict))()
        text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False)
    else:
        form = "short" if args.short else "full"
        made = _said_here(args, (summary or _at_level(args, result.summary))(form))
        text = renderer(format_of(args)).document(made)
        if args.format is None and _is_word(args.out):
            content = render_word(made)
    put_text(args, title or repr(result), text, content)
    if getattr(args, "save", None) is not None:
        _check_file(args, args.save)
        result.save(args.save, overwrite=args.force)
    if getattr(args, "record", None) is not None:
        for path in _record_files(args):
            _check_file(args, path)
        _at_level(args, result.report)(args.record, overwrite=args.force)
    if getattr(args, "plot", None) is not None:
        _write_plot(args, plot or _at_level(args, result.plot))


def _said_here(args: argparse.Namespace, summary: Summary) -> Summary:
    """A short summary says how a shell shows the rest."""
    if not args.short:
        return summary
    told = "Full results: without --short."
    if hasattr(args, "record"):
        again = " Another call is another release." if hasattr(args, "epsilon") else ""
        told = f"Full results: without --short, or in the file of --record FILE.html.{again}"
    if getattr(args, "record", None) is not None:
        told = f"Full results: {args.record}"
    return replace(summary, blocks=(*summary.blocks[:-1], Prose(told)))


def put_text(args: argparse.Namespace, title: str, text: str, content: bytes | None = None) -> None:
    """Print a text, or write it to the file asked for; what was paid for is never lost.

    ``content`` is what a file has in the place of the text.
    """
    if args.out is None:
        print(text)
        return
    try:
        _write(args, args.out, text.rstrip("\n") + "\n" if content is None else content)
    except OptionError as error:
        print(text)
        raise OptionError(f"{error}; the result was printed instead") from None
    print(f"{title} written to {args.out}")


def format_of(args: argparse.Namespace) -> str:
    """Return the format that was asked for, or that of the ending of --out."""
    ending = Path(args.out or "").suffix.lower()
    return args.format or _ENDINGS.get(ending, "text")


def _at_level(args: argparse.Namespace, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a result, at the confidence level asked for where it takes one."""
    if hasattr(args, "conf_level") and "conf_level" in inspect.signature(method).parameters:
        return partial(method, conf_level=args.conf_level)
    return method


def _write_plot(args: argparse.Namespace, plot: Callable[[], Any]) -> None:
    image, kind = BytesIO(), Path(args.plot).suffix.lower().lstrip(".")
    plot().figure.savefig(image, format=kind, dpi=150, bbox_inches="tight")
    _write(args, args.plot, image.getvalue())
    print(f"plot written to {args.plot}")


def _write(args: argparse.Namespace, path: str, content: str | bytes) -> None:
    file_output.write(path, content, overwrite=args.force, inputs=_inputs(args), force="--force")
