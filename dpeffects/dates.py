"""Dates as numbers: days since a declared date, the same bits in memory and on every engine.

Year, month and day are whole numbers far below 2^53, and so is every step from them to a count of
days: sums, products and floors of floats are exact. The time of day is not read.
"""

from __future__ import annotations

import datetime
from typing import Any

import narwhals.stable.v2 as nw

from dpeffects.errors import BoundsError, DataError, refusal
from dpeffects.lazy import pd

KIND = "days since "
"""Followed by the first date: what a column of dates is read as."""
TEXT = (
    r"^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-9]))(?:[ t][0-9:.]*)?$"
)
"""Dates as text, in small letters: 2020-01-31, perhaps with a time."""


def as_date(value: Any) -> datetime.date | None:
    """Return a date that a user wrote, None where it is none; a time zone is refused.

    Examples
    --------
    >>> as_date("2020-01-31"), as_date(18)
    (datetime.date(2020, 1, 31), None)
    """
    if type(value).__module__ == "numpy" and type(value).__name__ == "datetime64":
        value = str(value.astype("datetime64[D]"))
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise BoundsError(f'a declared date must have no time zone: write "{value.date()}"')
        return value.date() if value == value else None  # NaT
    return value if isinstance(value, datetime.date) else None


def is_date(dtype: Any) -> bool:
    """Whether a column holds dates, with or without times, by its type."""
    return isinstance(dtype, nw.Date | nw.Datetime) or dtype in (nw.Date, nw.Datetime)


def refuse_zone(name: str, dtype: Any) -> None:
    """Refuse times with a zone: which day they are on depends on where one stands."""
    if getattr(dtype, "time_zone", None):
        raise DataError(refusal("time_zone", name=name))


def undeclared(name: str) -> BoundsError:
    """What to say of dates that nobody declared."""
    return BoundsError(refusal("undeclared_dates", name=name))


def days(name: str, dtype: Any, kind: str) -> nw.Expr:
    """Return a column of dates, or of text, as days since the date in ``kind``."""
    first = datetime.date.fromisoformat(kind.removeprefix(KIND)).toordinal()
    column = nw.col(name)
    if is_date(dtype):
        parts = (column.dt.year(), column.dt.month(), column.dt.day())
    else:
        text = column.str.strip_chars().str.to_lowercase()
        date = nw.when(text.str.contains(TEXT)).then(text)
        parts = (date.str.slice(0, 4), date.str.slice(5, 2), date.str.slice(8, 2))
    year, month, day = (part.cast(nw.Float64) for part in parts)
    # years begin in March, so that a leap day is the last of its year
    early = month <= 2.0
    year = year - nw.when(early).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
    month = nw.when(early).then(month + 9.0).otherwise(month - 3.0)
    leaps = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor()
    before = ((month * 153.0 + 2.0) / 5.0).floor()
    return year * 365.0 + leaps + before + day - (306.0 + first)


def from_objects(frame: nw.DataFrame[Any], kinds: dict[str, str]) -> nw.DataFrame[Any]:
    """Read columns of Python's dates, which pandas keeps as objects, as days."""
    made = {}
    for name, kind in kinds.items():
        if frame.schema[name] != nw.Object:
            continue
        first = datetime.date.fromisoformat(kind.removeprefix(KIND)).toordinal()
        found = []
        for value in frame[name].to_list():
            if pd.isna(value):
                found.append(float("nan"))
                continue
            if getattr(value, "tzinfo", None) is not None:
                refuse_zone(name, nw.Datetime(time_zone="UTC"))
            date = as_date(value)
            if date is None:
                raise DataError(refusal("column_declared_dates", name=name))
            found.append(float(date.toordinal() - first))
        made[name] = nw.new_series(name, found, nw.Float64, backend=frame.implementation)
    return frame.with_columns(*made.values()) if made else frame
