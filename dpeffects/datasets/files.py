"""Finding the csv files that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpeffects.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).resolve().parents[1]


def _data_path(name: str, package: Path = _PACKAGE) -> Path:
    """Return the path of a bundled file: inside a wheel, or beside the package in a checkout."""
    for folder in (package / "_data", package.parent / "data"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"the data file {name} is missing from this installation of dpeffects")


def read_bundled(name: str) -> pd.DataFrame:
    """Read one bundled csv file."""
    import pandas as pd

    return pd.read_csv(_data_path(name))
