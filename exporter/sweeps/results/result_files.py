"""Files of results: SQLite databases and Parquet files, which an interrupted sweep can continue."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sqlite3
import types
from collections.abc import Iterable

from ....registration import ModelFileError, OpsettaError, UsageError
from ...files.output import locks
from ...files.output.output_paths import resolve
from ...files.output.publishing import publish
from ..rows import COLUMNS, KEY, Key, Row

PARQUET = ".parquet"
SQLITE = (".sqlite", ".sqlite3", ".db")
_MARK = "opsetta.sweep"
_VERSION = 1
_APPLICATION = 0x6F707374
"""What marks a database as one of results, `opst`."""
_SQL = {"str": "TEXT", "int": "INTEGER", "float": "REAL"}
_SIGNATURES = {PARQUET: b"PAR1", ".sqlite": b"SQLite format 3\0"}


def is_results(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the extension of a file of results."""
    return pathlib.Path(path).suffix in (PARQUET, *SQLITE)


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a file of results.

    Raises:
        OpsettaError: the file cannot be read, or holds something else.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        raise OpsettaError(f"there is no results file '{file}'")
    if _is_parquet(file):
        return _read_parquet(file)
    _check_signature(file, ".sqlite")
    with contextlib.closing(_connect(file)) as database:
        return _read_database(database, file)


class ResultsFile:
    """A file of results that rows are added to. Every row is on the disk when `add` returns.

    A Parquet file cannot grow: its rows go to a database beside it, `<name>.part.sqlite`, and into the file
    when it is closed. A database that a killed process left behind is taken up again.

    Attributes:
        rows: all rows by their key.

    Raises:
        ModelFileError: the file cannot be written, or another sweep writes to it.
        UsageError: its name has another ending.
        OpsettaError: it exists and holds something else, or pyarrow is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        if not is_results(self.path):
            listed = ", ".join((PARQUET, *SQLITE))
            raise UsageError(f"the results file must end in one of {listed}, not '{self.path}'")
        status = resolve(self.path).status
        existing = read_rows(self.path) if status is not None and status.st_size else []
        self._is_parquet = _is_parquet(self.path)
        if self._is_parquet:
            _pyarrow()
        self._is_new = status is None
        self._database_path = (
            # A Parquet file cannot be appended to: rows are kept in a database until the sweep ends.
            self.path.with_name(f"{self.path.name}.part.sqlite") if self._is_parquet else self.path
        )
        self._database = _connect(self._database_path, create=True)
        self._descriptor = os.open(self._database_path, os.O_RDONLY)
        try:
            # Two sweeps into one file would each write rows that the other does not know of.
            if locks.acquire(self._descriptor) == locks.Lock.BUSY:
                raise ModelFileError(f"another sweep writes to '{self.path}'")
            later = _read_database(self._database, self._database_path)
        except BaseException:
            self._release()
            raise
        self.rows: dict[Key, Row] = {row.key: row for row in [*existing, *later]}

    def add(self, row: Row) -> None:
        """Add a row, in place of one with the same key."""
        self.rows[row.key] = row
        names = ", ".join(COLUMNS)
        values = ", ".join("?" * len(COLUMNS))
        try:
            with self._database:
                self._database.execute(
                    f"INSERT OR REPLACE INTO results ({names}) VALUES ({values})", dataclasses.astuple(row)
                )
        except sqlite3.Error as error:
            raise ModelFileError(f"'{self._database_path}' cannot be written: {error}") from error

    def close(self) -> None:
        """Finish the file. A new one without rows is removed."""
        is_empty = self._is_new and not self.rows
        if self._is_parquet and not is_empty:
            _write_parquet(self.path, self.rows.values())
        self._release()
        if self._is_parquet or is_empty:
            self._database_path.unlink(missing_ok=True)

    def _release(self) -> None:
        # Closing a descriptor of the file ends the locks of SQLite, so it comes last.
        self._database.close()
        os.close(self._descriptor)

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _is_parquet(path: pathlib.Path) -> bool:
    return path.suffix == PARQUET


def _check_signature(file: pathlib.Path, extension: str) -> None:
    """Refuse a file with the wrong signature."""
    signature = _SIGNATURES[extension]
    try:
        with file.open("rb") as content:
            beginning = content.read(len(signature))
    except OSError as error:
        raise ModelFileError(f"'{file}' cannot be read: {error.strerror}") from error
    if beginning != signature:
        raise _foreign(file)


def _foreign(file: pathlib.Path) -> OpsettaError:
    return OpsettaError(f"'{file}' has no results of a sweep of this version of opsetta: choose another file")


def _connect(file: pathlib.Path, create: bool = False) -> sqlite3.Connection:
    """A database of results.

    Args:
        create: whether an empty or missing file becomes one.

    Raises:
        ModelFileError: it cannot be opened.
        OpsettaError: it holds something else.
    """
    try:
        database = sqlite3.connect(file)
        try:
            if create and not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                columns = ", ".join(f"{name} {_SQL[type_name]}" for name, type_name in COLUMNS.items())
                with database:
                    # The mark tells a database of results from any other one, which must not be changed.
                    database.execute(f"PRAGMA application_id = {_APPLICATION}")
                    database.execute(f"PRAGMA user_version = {_VERSION}")
                    database.execute(f"CREATE TABLE results ({columns}, PRIMARY KEY ({', '.join(KEY)}))")
            marks = [
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            ]
            if marks != [_APPLICATION, _VERSION]:
                raise _foreign(file)
        except BaseException:
            database.close()
            raise
    except sqlite3.DatabaseError as error:
        raise ModelFileError(f"'{file}' cannot be opened: {error}") from error
    return database


def _read_database(database: sqlite3.Connection, file: pathlib.Path) -> list[Row]:
    try:
        records = database.execute(f"SELECT {', '.join(COLUMNS)} FROM results ORDER BY rowid").fetchall()
    except sqlite3.Error as error:
        raise _foreign(file) from error
    return [Row(*values) for values in records]


def _pyarrow() -> types.ModuleType:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise OpsettaError(
            "Parquet files need pyarrow: pip install 'opsetta[fleet]', or write to a .sqlite file"
        ) from error
    package: types.ModuleType = pyarrow
    return package


def _read_parquet(file: pathlib.Path) -> list[Row]:
    _check_signature(file, PARQUET)
    pyarrow = _pyarrow()
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise ModelFileError(f"'{file}' cannot be read: {' '.join(str(error).split())}") from error
    if (table.schema.metadata or {}).get(_MARK.encode()) != str(_VERSION).encode():
        raise _foreign(file)
    return [Row(**values) for values in table.to_pylist()]


def _write_parquet(path: pathlib.Path, rows: Iterable[Row]) -> None:
    pyarrow = _pyarrow()
    arrow_types = {"str": pyarrow.string(), "int": pyarrow.int64(), "float": pyarrow.float64()}
    schema = pyarrow.schema(
        [(name, arrow_types[type_name]) for name, type_name in COLUMNS.items()],
        metadata={_MARK: str(_VERSION)},
    )
    table = pyarrow.Table.from_pylist([dataclasses.asdict(row) for row in rows], schema)
    publish(path, lambda file, location: pyarrow.parquet.write_table(table, file))
