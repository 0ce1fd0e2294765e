"""The vignettes that come with the package: their names, their source, and running one.

A vignette is a script with prose in its comments. ``dpeffects vignette`` lists them, and
``dpeffects vignette weighting`` runs one, tells its prose and saves its figures, with nothing but
the installed package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dpeffects.errors import DataError, MissingExtraError, OptionError, did_you_mean
from dpeffects.lazy import pd

_PACKAGE = Path(__file__).resolve().parents[1]
_PROSE = re.compile(r"^# %%\n((?:#.*\n)+)", re.MULTILINE)
"""What stands between two parts of a script."""
_ROLE = re.compile(r":\w+:`([^`]*)`")


def list_vignettes() -> pd.DataFrame:
    """Return names and titles of all vignettes, in the order in which to read them.

    Examples
    --------
    >>> list_vignettes().index[0]
    'quick_start'
    """
    titles = {name: _opening(vignette_path(name)).partition("\n")[0] for name in _names()}
    return pd.DataFrame({"title": titles}).rename_axis("vignette")


def vignette_path(name: str) -> Path:
    """Return the path of a vignette's script.

    Examples
    --------
    >>> vignette_path("weighting").name
    'weighting.py'
    """
    if name not in _names():
        hint = did_you_mean(name, _names()) or f" There are {', '.join(_names())}."
        raise OptionError(f"there is no vignette {name!r}.{hint}")
    return _folder() / f"{name}.py"


def run_vignette(name: str, figures: str | Path = ".", full: tuple[str, ...] | None = None) -> None:
    """Run a vignette, print its prose and save its figures as ``name_1.png`` and so on, in order.

    Figures that are open are closed first.

    Parameters
    ----------
    name
        One of :func:`list_vignettes`.
    figures
        The folder for the figures; it is made where there is none.
    full
        None for the quick mode; otherwise the tables on file are made anew, all of them or
        those that are named.
    """
    path, argv = vignette_path(name), sys.argv
    Path(figures).mkdir(parents=True, exist_ok=True)  # before a minute's work, not after it
    sys.argv = [str(path), *([] if full is None else ["--full", *full])]
    try:
        with _figures_saved(Path(figures), name) as save:
            source = path.read_text(encoding="utf-8")

            def tell(prose: str) -> None:
                save()
                print("", _ROLE.sub(r"\1", prose).replace("``", "`"), "", sep="\n", flush=True)

            tell(_opening(path))
            script = compile(_PROSE.sub(_told, source), str(path), "exec", dont_inherit=True)
            exec(script, {"__name__": "__main__", "__file__": str(path), "_tell": tell})
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        raise MissingExtraError(
            f'the vignette {name} needs matplotlib: pip install "dpeffects[plot]"'
        ) from None
    finally:
        sys.argv = argv


def _told(found: re.Match[str]) -> str:
    """Code that tells the prose of a script; every line after it keeps its number."""
    prose = "\n".join(line[2:] for line in found[1].splitlines())
    return f"_tell({prose!r})" + "\n" * found[0].count("\n")


@contextmanager
def _figures_saved(folder: Path, name: str) -> Iterator[Callable[[], None]]:
    """Save what a script shows or leaves open; without matplotlib there is nothing to save."""
    if find_spec("matplotlib") is None:
        yield lambda: None
        return
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("Agg")
    plt.close("all")  # a script draws on the current figure, if there is one
    number = 0

    def save(*_: object, **__: object) -> None:
        nonlocal number
        for key in plt.get_fignums():
            number += 1
            file = folder / f"{name}_{number}.png"
            plt.figure(key).savefig(file, dpi=150, bbox_inches="tight")
            plt.close(key)
            print(f"[figure: {file}]")

    shown, plt.show = plt.show, save
    try:
        yield save
        save()
    finally:
        plt.show = shown


def _names() -> list[str]:
    lines = (_folder() / "ORDER").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _opening(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem


def _folder() -> Path:
    """Inside a wheel, or beside the package in a checkout."""
    for folder in (_PACKAGE / "_vignettes", _PACKAGE.parent / "vignettes"):
        if (folder / "ORDER").is_file():
            return folder
    raise DataError("the vignettes are missing from this installation of dpeffects")
