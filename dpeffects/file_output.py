"""Files to write: refused before anything is spent, written whole or not at all, never an input."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import glob, has_magic
from itertools import count
from pathlib import Path
from typing import Any

from dpeffects.errors import OptionError, refusal

StrPath = str | os.PathLike[str]

_SQLITE = b"SQLite format 3\0"
BESIDE = ("-journal", "-wal", "-shm", ".seen")
"""Endings of files that are read beside a ledger: they belong to it."""
_FORCE = "overwrite=True"
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


def check(
    path: StrPath, *, overwrite: bool = False, inputs: Iterable[Any] = (), force: str = _FORCE
) -> Path:
    """Return where a file goes, links followed, or refuse to write there.

    Refused are, with or without ``overwrite``: ``inputs`` by whatever name, SQLite databases (a
    ledger is one) and the files beside them, links to nothing, folders, and what is not a file.
    Nothing is left behind. ``force`` is how a user asks to overwrite.
    """
    with _one_sentence(path, force):
        name = os.fspath(path)
        if not name:
            raise ValueError
        if name.endswith(_SEPARATORS):
            raise OptionError(f"{name} is a folder; give the name of a file")
        target = Path(os.path.realpath(name))
        status = _status(target)
        if any(_same(target, source) for source in inputs):
            raise OptionError(refusal("input_file_never", name=name))
        _refuse_ledgers(name, target)
        _refuse_kinds(name, status)
        if status is None:
            with _partial_file(target):
                pass
        elif stat.S_ISREG(status.st_mode) and not overwrite:
            raise FileExistsError
    return target


def write(
    path: StrPath,
    content: str | bytes,
    *,
    overwrite: bool = False,
    inputs: Iterable[Any] = (),
    force: str = _FORCE,
) -> Path:
    """Check again and write: another reader sees the whole file or none of it.

    A file that has come there since is not replaced without ``overwrite``.
    """
    target = check(path, overwrite=overwrite, inputs=inputs, force=force)
    try:
        data = content.encode("utf-8") if isinstance(content, str) else content
    except UnicodeError:
        raise OptionError(f"{path} cannot be written: the name is not valid text") from None
    with _one_sentence(path, force):
        status = _status(target)
        if status is not None and stat.S_ISCHR(status.st_mode):
            with target.open("wb", buffering=0) as device:
                device.write(data)
        elif overwrite:
            replace_file(target, data)
        else:
            _write_new(target, data)
    return target


def replace_file(target: Path, data: bytes) -> None:
    """Write a file that takes the place of an earlier one, and its permissions, in one step."""
    status = _status(target)
    with _partial_file(target, data) as part:
        if status is not None:
            part.chmod(stat.S_IMODE(status.st_mode))
        part.replace(target)


def check_apart(paths: Iterable[StrPath]) -> None:
    """Refuse outputs that would go to the same file."""
    targets = [Path(os.path.realpath(path)) for path in paths]
    for i, target in enumerate(targets):
        if any(_same(target, other) for other in targets[:i]):
            raise OptionError("two outputs have the same file name; give each its own")


@contextmanager
def _one_sentence(path: StrPath, force: str) -> Iterator[None]:
    """Whatever is wrong with a path is one sentence about it."""
    try:
        yield
    except OptionError:
        raise
    except FileExistsError:
        raise OptionError(refusal("already_exists_give", path=path, force=force)) from None
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from None
    except (TypeError, ValueError):
        raise OptionError(f"not a valid file path: {path!r}") from None


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _same(target: Path, source: Any) -> bool:
    """True if an input is that file, by whatever name; ``source`` may be a pattern of names."""
    if not isinstance(source, str | os.PathLike) or "\0" in os.fspath(source):
        return False
    text = os.fspath(source)
    for name in (text, *(glob(text) if has_magic(text) else ())):
        if os.path.normcase(os.path.realpath(name)) == os.path.normcase(target):
            return True
        if target.exists() and os.path.exists(name) and os.path.samefile(target, name):
            return True
    return False


def _refuse_ledgers(name: str, target: Path) -> None:
    """Only the code of a ledger writes to one."""
    endings = [end for end in BESIDE if target.name.endswith(end) and target.name != end]
    if any(map(_is_database, [target, *(Path(str(target).removesuffix(e)) for e in endings)])):
        raise OptionError(refusal("is_a_ledger", name=name))


def _is_database(path: Path) -> bool:
    status = _status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _refuse_kinds(name: str, status: os.stat_result | None) -> None:
    if status is None:
        if os.path.islink(name):
            raise OptionError(f"{name} is a broken link; give the name of a file")
        return
    if stat.S_ISDIR(status.st_mode):
        raise OptionError(f"{name} cannot be written: it is a folder")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISCHR(status.st_mode)):
        raise OptionError(f"{name} cannot be written: it is not a regular file")
    if not os.access(name, os.W_OK):
        raise OptionError(f"{name} cannot be written: Permission denied")


@contextmanager
def _partial_file(target: Path, data: bytes = b"") -> Iterator[Path]:
    """A new file beside the target, gone at the end unless it has taken the target's place."""
    for number in count():
        part = target.with_name(f".{target.name[:20]}.{os.getpid()}-{number}.part")
        with suppress(FileExistsError):
            file = part.open("xb")
            break
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield part
    finally:
        part.unlink(missing_ok=True)


def _write_new(target: Path, data: bytes) -> None:
    """Give a file its name where nothing has that name yet."""
    with _partial_file(target, data) as part:
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with target.open("xb") as file:
                file.write(data)
