"""Values on their way out: to a frame, to JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpeffects.inference.estimate import Unavailable

if TYPE_CHECKING:
    import pandas as pd


def or_nan(value: float | Unavailable) -> float:
    """Return the number, or NaN where it is not available."""
    return math.nan if isinstance(value, Unavailable) else float(value)


def frame_of(rows: list[dict[str, Any]], columns: list[str] | None = None) -> pd.DataFrame:
    """Return rows as a pandas frame."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def plain(value: Any) -> Any:
    """Reduce a value to what JSON can hold."""
    if isinstance(value, Unavailable):
        return {"unavailable": value.reason}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "unavailable": f"not a finite number ({value})"}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
