"""Files are read as declared: no record decides how another is read, by any reader.

Hostile CSV files are read by everything in the package that reads one, and by a plain reader
written here. Both find the same rows, or one line that is refused by its number.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pytest

import dpeffects as dpe
from dpeffects.cli.estimates import with_data
from dpeffects.design.codebook import opened
from dpeffects.design.frames import unpack
from dpeffects.errors import BoundsError, DataError
from dpeffects.files import LONGEST, column_names, read_data
from dpeffects.services.gate.records import read_columns

PACKAGE = Path(dpe.__file__).parent
NAMES = ("id", "y", "t", "note")
BOUNDS = {"y": (0, 1)}


# --- a plain reader -------------------------------------------------------------------------------


def plain(content):
    """The rows of a file after its header, or the number of its first line that is not plain."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    carriage, rows = lines[0].endswith(b"\r"), []
    for number, line in enumerate(lines, 1):
        last = number == len(lines) and not content.endswith(b"\n")
        if carriage and not last:
            if not line.endswith(b"\r"):
                return number
            line = line[:-1]
        try:
            row = fields(line.decode())
        except ValueError:
            return number
        if row is None or len(line) + 2 > LONGEST or len(row) != len((rows or [row])[0]):
            return number
        rows.append(row)
    return [tuple(field or None for field in row) for row in rows[1:]]


def fields(line):
    """The fields of a line, or None where it is not as RFC 4180 has it."""
    if not line or line[0] == "\ufeff" or "\r" in line or "\0" in line:
        return None
    row, rest = [], "," + line
    while rest:
        if rest[:1] != ",":
            return None
        rest = rest[1:]
        if rest.startswith('"'):
            marked = rest[1:].replace('""', "\0\0")
            end = marked.find('"')
            if end < 0:
                return None
            row.append(rest[1 : 1 + end].replace('""', '"'))
            rest = rest[2 + end :]
        else:
            field, comma, after = rest.partition(",")
            if '"' in field:
                return None
            row.append(field)
            rest = comma + after
    return row


# --- hostile files --------------------------------------------------------------------------------

WORDS = r"""#7 # ## // -- ; % ! 'a' ' `a` \ \, \n a;b a|b NA N/A #N/A NULL null None nan NaN inf
-inf . - ? 007 1e5 0x10 1_000 2020-01-31 TRUE é 中文 😀 =1+1 @a $a {a} <a> a=b *"""
FIELDS = [*WORDS.split(), "", " ", "  a  ", "\t", "a\tb", "\x0b", "\x0c", "\x1a", "\x1c", "\x7f"]
FIELDS += ["\x85", "\u2028", "\ufeff", "\ufeffa", "\u200b", "a" * 70_000]
QUOTED = ['""', '" "', '"a,b"', '"a""b"', '""""', '""""""', '"#7"', '"\\"', '","', '"NA"', '"a;b"']
LINES = {
    "a quote in a field": b'7,0.5,1,a"b',
    "an inch": b'7,0.5,1,5"',
    "a quote that is not closed": b'7,0.5,1,"a',
    "a first quote that is not closed": b'"7,0.5,1,a',
    "two quotes that are not closed": b'"7,0.5,1,"a',
    "text after a quote": b'7,0.5,1,"a"b',
    "a space after a quote": b'7,0.5,1,"a" ',
    "a space before a quote": b'7,0.5,1, "a"',
    "a backslash for a quote": b'7,0.5,1,"a\\"b"',
    "three quotes": b'7,0.5,1,"""',
    "a short row": b"7,0.5,1",
    "one field": b"7",
    "a long row": b"7,0.5,1,a,b",
    "a comma at the end": b"7,0.5,1,a,",
    "commas": b",,,",
    "too many commas": b",,,,,,",
    "a comment": b"# a comment",
    "a comment with commas": b"#,a,comment,here",
    "semicolons": b"7;0.5;1;a",
    "tabs": b"7\t0.5\t1\ta",
    "nothing": b"",
    "a space": b" ",
    "a second header": b"id,y,t,note",
    "other types": b"id,DOUBLE,int,x",
    "a line break in quotes": b'7,0.5,1,"a\nb"',
    "the rest of a row in the next line": b"7,0.5\n,1,a",
    "a carriage return in quotes": b'7,0.5,1,"a\rb"',
    "a carriage return": b"7,0.5,1,a\rb",
    "only a carriage return": b"\r",
    "rows with a carriage return between": b"7,0.5,1,a\r8,0.5,1,b",
    "the other end": None,
    "a carriage return too many": b"7,0.5,1,a\r",
    "NUL": b"7,0.5,1,a\0b",
    "only NUL": b"\0",
    "Latin-1": "7,0.5,1,é".encode("latin-1"),
    "UTF-16": "7,0.5,1,a".encode("utf-16"),
    "half a character": "7,0.5,1,é".encode()[:-1],
    "a surrogate": b"7,0.5,1,\xed\xa0\x80",
    "bytes of gzip": gzip.compress(b"7,0.5,1,a", mtime=0),
    "end of a file": b"\x1a",
    "the longest line": b"7,0.5,1," + b"a" * (LONGEST - 10),
    "a longer line": b"7,0.5,1," + b"a" * (LONGEST - 8),
    "a very long line": b"7,0.5,1," + b"a" * 3 * LONGEST,
}


def record(k, note=b"n"):
    return b"%d,%.2f,%d,%b" % (k, (k % 7) / 8, k % 2, note)


def file_with(odd, place, end=b"\n", rows=12, bom=False, closed=True):
    """A file whose record at ``place`` is an odd line."""
    lines = [",".join(NAMES).encode(), *map(record, range(rows))]
    other = b"\n" if end == b"\r\n" else b"\r\n"
    ends = [end] * (rows + 1)
    if odd is None:
        ends[1 + place] = other
    else:
        lines[1 + place] = odd
    text = b"".join(line + stop for line, stop in zip(lines, ends, strict=True))
    return b"\xef\xbb\xbf" * bom + (text if closed else text.removesuffix(ends[-1]))


def hostile():
    """Files by name: each odd line or field first, within and last, with ends of all kinds."""
    rng = np.random.default_rng(3)
    odd = dict(LINES)
    for k, field in enumerate([*map(str.encode, FIELDS), *map(str.encode, QUOTED)]):
        odd[f"field {k}"] = b"7,0.5,1," + field
        odd[f"first field {k}"] = field + b",0.5,1,n"
    for name, line in odd.items():
        for place in (0, 5, 11):
            if line is not None and len(line) > LONGEST // 2 and place != 5:
                continue
            end = (b"\n", b"\r\n")[rng.integers(2)]
            bom, closed = (rng.random(2) < (0.3, 0.7)).tolist()
            yield f"{name}, {place}, {end!r}", file_with(line, place, end, 12, bom, closed)
    for k in range(40):  # several odd lines at once
        some = [line for line in odd.values() if line is not None and len(line) < 100_000]
        chosen = [some[i] for i in rng.integers(len(some), size=3)]
        lines = [",".join(NAMES).encode(), *map(record, range(6)), *chosen, record(9)]
        yield f"several {k}", b"\n".join(lines) + b"\n"
    for kind, note in {"comments": b"#n", "quotes": b'"n"', "signs": b"'n'", "none": b""}.items():
        for mixed in (1, 2):
            lines = [record(k, note if k % mixed == 0 else b"n") for k in range(40)]
            if kind == "comments":
                lines[1::2] = [b"#" + line for line in lines[1::2]]
            yield f"many {kind} {mixed}", b"\n".join([",".join(NAMES).encode(), *lines])


# --- readers --------------------------------------------------------------------------------------


def on_engine(path, monkeypatch):
    frame, _, _ = unpack(str(path), None)
    return frame.collect().rows()


def on_duckdb(path, monkeypatch):
    pytest.importorskip("duckdb")
    return on_engine(path, monkeypatch)


def on_polars(path, monkeypatch):
    pytest.importorskip("polars")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "duckdb", None)
        return on_engine(path, monkeypatch)


def in_memory(path, monkeypatch):
    return texts(read_data(str(path)))


def on_the_command_line(path, monkeypatch):
    return texts(with_data({"data": str(path)}, batches=True)["data"])


def compressed(path, monkeypatch):
    other = path.with_suffix(".csv.gz")
    other.write_bytes(gzip.compress(path.read_bytes(), 1))
    return texts(read_data(str(other)))


def compressed_on_duckdb(path, monkeypatch):
    other = path.with_suffix(".CSV.gz")
    other.write_bytes(gzip.compress(path.read_bytes(), 1))
    return on_engine(other, monkeypatch)


def compressed_on_polars(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "duckdb", None)
        return compressed_on_duckdb(path, monkeypatch)


READERS = (on_duckdb, on_polars, in_memory, on_the_command_line)
READERS += (compressed, compressed_on_duckdb, compressed_on_polars)
READERS = {reader.__name__: reader for reader in READERS}


def texts(frame):
    return [tuple(x if isinstance(x, str) else None for x in row) for row in frame.to_numpy()]


def differs(found, content, monkeypatch, path):
    """Readers that do not find what the plain reader finds."""
    path.write_bytes(content)
    for name, reader in READERS.items():
        try:
            same = sorted(map(repr, reader(path, monkeypatch))) == sorted(map(repr, found))
        except DataError as error:
            said = str(error).replace(str(path.parent), "")
            same = isinstance(found, int) and f"line {found} is not 4 fields" in said
            same = same and re.sub(r"(?i)data\.csv(\.gz)?", "", said).isascii()
        except Exception:  # of a library
            same = False
        if not same:
            yield name


def test_hostile_files_have_the_same_rows_or_are_refused_by_line(tmp_path, monkeypatch):
    """DuckDB took a comment mark from the rows, so that one id made others vanish."""
    files, wrong = dict(hostile()), {}
    for name, content in files.items():
        found = plain(content)
        if readers := list(differs(found, content, monkeypatch, tmp_path / "data.csv")):
            wrong[name] = readers
    assert len(files) >= 500
    assert sum(isinstance(plain(content), int) for content in files.values()) > 100
    assert not wrong, f"{len(wrong)} of {len(files)}: {list(wrong.items())[:20]}"


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_a_refusal_comes_before_the_charge_and_says_nothing_of_the_line(
    tmp_path, monkeypatch, engine
):
    if engine == "polars":
        monkeypatch.setitem(sys.modules, "duckdb", None)
    path, refused = tmp_path / "data.csv", 0
    for what, line in LINES.items():
        for place in (2, 9):
            content = file_with(line, place)
            if not isinstance(plain(content), int):
                continue
            path.write_bytes(content)
            ledger = dpe.Ledger(1)
            with pytest.raises(DataError, match=rf"line {2 + place} is not 4 fields") as found:
                dpe.dp_ate("y ~ t", path, "diff_in_means", bounds=BOUNDS, epsilon=1, ledger=ledger)
            assert "a comment" not in str(found.value), what
            assert not ledger.charges
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("mark", ["#7", "A4", "'7", "%7", "//", "\\", '"#7"'])
def test_an_id_that_is_not_used_moves_no_estimate(tmp_path, monkeypatch, mark):
    """One id `#7` took a record away, and one id `A4` brought a thousand back."""
    ids = [mark, *(f"#{k}" if k % 2 else str(k) for k in range(1, 400))]
    rows = [f"{one},{(k % 7) / 8},{k % 2},n" for k, one in enumerate(ids)]
    (tmp_path / "data.csv").write_text("\n".join([",".join(NAMES), *rows]))
    found = set()
    for hidden in ({}, {"duckdb": None}):
        with monkeypatch.context() as patched:
            for module in hidden:
                patched.setitem(sys.modules, module, None)
            fit = dpe.dp_ate(
                "y ~ t", tmp_path / "data.csv", "diff_in_means", bounds=BOUNDS, epsilon=1, seed=1
            )
        found.add((fit.n, fit.estimate))
    assert len(found) == 1
    assert fit.n == 400


def test_a_site_reads_every_line_by_itself_and_never_refuses_one(tmp_path):
    """A quote that was not closed took all later records of a site with it."""
    path = tmp_path / "data.csv"

    def read(content):
        path.write_bytes(content)
        return list(zip(*read_columns(path, NAMES).values(), strict=True))

    usual = read(file_with(record(5), 5))
    for content in dict(hostile()).values():
        expected, found = plain(content), read(content)
        assert len(found) == content.removesuffix(b"\n").count(b"\n")
        if not isinstance(expected, int):
            assert [tuple(field or None for field in row) for row in found] == expected
    for what, line in LINES.items():
        if line is not None and b"\n" not in line:
            found = read(file_with(line, 5))
            assert found[:5] + found[6:] == usual[:5] + usual[6:], what


def test_every_reader_is_one_of_those():
    """Whatever reads a file of rows stands in one of three modules; others read public files."""
    reading = "read_csv scan_csv read_parquet scan_parquet read_table read_schema read_json reader"
    reading += " DictReader read_excel read_feather ParquetFile open_csv loadtxt genfromtxt"
    call = re.compile(rf"\b(?<!def )(?:{reading.replace(' ', '|')})\(")
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    code = {path: re.sub(r'"[^"\n]*"|pandas\.read_\w+', "", text) for path, text in texts.items()}
    found = {path.relative_to(PACKAGE).as_posix() for path in code if call.search(code[path])}
    rows = {"files.py", "design/engines.py", "services/gate/records.py"}
    public = {"datasets/descriptions.py", "datasets/loaders.py", "cli/free_commands.py"}
    public |= {"replication/papers/stored_tables.py", "evidence/simulations/simulation.py"}
    assert found == rows | public


# --- headers, several files, Parquet, codebooks ---------------------------------------------------


def test_headers_are_public_and_read_alike(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_text('"a ""b"", c",,*,d\n1,2,3,4\n')
    assert column_names(str(path)) == ['a "b", c', "", "*", "d"]
    for name, reader in READERS.items():
        assert reader(path, monkeypatch) == [("1", "2", "3", "4")], name
    for header, words in {
        "a,a": "two columns named 'a'",
        "": "it is empty",
        "\n": "line 1 is not",
        'a"b,c\n': "line 1 is not",
        "a\rb\n": "it is not a CSV file",
    }.items():
        path.write_bytes(header.encode())
        for reader in READERS.values():
            with pytest.raises(DataError, match=words):
                reader(path, monkeypatch)
    path.write_text("T,t\n1,2\n")
    assert in_memory(path, monkeypatch) == on_polars(path, monkeypatch) == [("1", "2")]
    with pytest.raises(DataError, match="capital letters only"):
        on_duckdb(path, monkeypatch)


def test_a_column_named_as_a_pattern_is_refused_where_an_engine_takes_it_as_one(tmp_path):
    """`*` failed in words of the engine, and `^y$` could have been another column."""
    import duckdb
    import polars as pl

    rows = {"y": [0.1, 0.5] * 20, "t": [0, 1] * 20}
    for name in ("*", "^y$"):
        data = pd.DataFrame(rows | {name: [0.5] * 40})
        given = {"bounds": {"y": (0, 1), name: (0, 1)}, "epsilon": 1, "method": "private_ipw"}
        assert dpe.dp_ate(f"y ~ t | `{name}`", data, **given).n == 40
        table = pl.from_pandas(data)
        for frame in (table, table.lazy(), duckdb.from_arrow(table.to_arrow())):
            with pytest.raises(DataError, match="as a pattern: rename"):
                dpe.dp_ate(f"y ~ t | `{name}`", frame, **given)


@pytest.mark.parametrize("reader", [on_duckdb, on_polars])
def test_several_files_are_those_named_and_declare_the_same(tmp_path, monkeypatch, reader):
    """DuckDB rounded 3.5 to 4, where an earlier file had whole numbers; `[1]` was a pattern."""
    for folder, text in {"y=7": "a,b\n1,2\n", "y=8": "a,b\n3,\n"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f.csv").write_text(text)
    every = os.fspath(tmp_path / "*" / "f.csv")
    assert reader(every, monkeypatch) == [("1", "2"), ("3", None)]
    (tmp_path / "y=8" / "f.csv").write_text("b,a\n3,4\n")
    with pytest.raises(DataError, match="different headers"):
        reader(every, monkeypatch)
    for name, value in {"w[1]": 1, "w1": 2}.items():
        (tmp_path / f"{name}.csv").write_text(f"a,b\n{value},0\n")
        pd.DataFrame({"a": [value]}).to_parquet(tmp_path / f"{name}.parquet")
    assert reader(tmp_path / "w[1].csv", monkeypatch) == [("1", "0")]
    assert reader(tmp_path / "w[1].parquet", monkeypatch) == [(1,)]
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "y=7" / "f.parquet")
    assert reader(tmp_path / "y=7" / "f.parquet", monkeypatch) == [(1,)]
    pd.DataFrame({"a": [3.5]}).to_parquet(tmp_path / "y=8" / "f.parquet")
    with pytest.raises((DataError, nw.exceptions.NarwhalsError)):
        reader(os.fspath(tmp_path / "*" / "f.parquet"), monkeypatch)


def test_codebooks_are_read_as_data_is_and_have_a_largest_size(tmp_path):
    book = tmp_path / "book.csv"
    book.write_text('name,lower,upper,levels\n#age,18,90,\nsex,,,"f,m"\nNA,0,1,\n')
    assert opened(book) == {"#age": (18, 90), "sex": ["f", "m"], "NA": (0, 1)}
    book.write_text('name,lower,upper,levels\nage,18,90,\nsex,,,"f\n')
    with pytest.raises(DataError, match="line 3 is not 4 fields"):
        opened(book)
    for name in ("book.toml", "book.csv", "book.parquet"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(10_000_001)
        with pytest.raises(BoundsError, match="larger than 10000000 bytes"):
            opened(tmp_path / name)
