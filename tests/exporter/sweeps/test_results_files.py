"""Files of results: SQLite and Parquet, what they refuse, and what is left after an interruption."""

import math
import pathlib
import sqlite3
import sys

import pytest

from opsetta.exporter.sweeps.results.result_files import ResultsFile, read_rows
from opsetta.exporter.sweeps.rows import DIFFERS, PASSED, Row
from opsetta.registration import ModelFileError, OpsettaError

FIRST = Row("a", 9, "own", "own", "none", PASSED, nodes=3, parity_error=1e-7, fingerprint="f")
SECOND = Row("b", 13, "batch=2", "float16", "rknn", DIFFERS, "VerificationError", "é", parity_error=math.inf)
BOTH = pytest.mark.parametrize("suffix", [".sqlite", ".parquet"])


@BOTH
def test_rows_come_back_as_they_were(tmp_path, suffix):
    path = tmp_path / f"results{suffix}"
    with ResultsFile(path) as file:
        file.add(FIRST)
        file.add(SECOND)
    assert read_rows(path) == [FIRST, SECOND]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@BOTH
def test_a_row_replaces_that_of_the_same_job(tmp_path, suffix):
    path = tmp_path / f"results{suffix}"
    later = Row("a", 9, "own", "own", "none", DIFFERS)
    for row in (FIRST, SECOND, later):
        with ResultsFile(path) as file:
            file.add(row)
    assert sorted(read_rows(path), key=lambda row: row.model) == [later, SECOND]


@BOTH
def test_a_file_without_rows_is_not_left_behind(tmp_path, suffix):
    ResultsFile(tmp_path / f"results{suffix}").close()
    assert list(tmp_path.iterdir()) == []


@BOTH
def test_rows_of_a_killed_process_are_taken_up(tmp_path, suffix):
    path = tmp_path / f"results{suffix}"
    with ResultsFile(path) as file:
        file.add(FIRST)
    killed = ResultsFile(path)
    killed.add(SECOND)
    # What the system does with the files of a process that ends.
    killed._release()
    with ResultsFile(path) as file:
        assert list(file.rows.values()) == [FIRST, SECOND]
    assert read_rows(path) == [FIRST, SECOND]


@BOTH
def test_two_sweeps_do_not_write_to_one_file(tmp_path, suffix):
    path = tmp_path / f"results{suffix}"
    with ResultsFile(path) as file:
        file.add(FIRST)
        with pytest.raises(ModelFileError, match="another sweep writes to"):
            ResultsFile(path)
    assert read_rows(path) == [FIRST]


@BOTH
@pytest.mark.parametrize("content", [b"some text that somebody wrote", b"PAR1", b"SQLite format 3\0"])
def test_other_files_are_refused_and_stay(tmp_path, suffix, content):
    path = tmp_path / f"other{suffix}"
    path.write_bytes(content)
    for use in (read_rows, ResultsFile):
        with pytest.raises(OpsettaError):
            use(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_other_tables_are_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table, database = tmp_path / "table.parquet", tmp_path / "data.sqlite"
    pyarrow.parquet.write_table(pyarrow.table({"model": ["a"]}), table)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE results (model TEXT)")
    connection.close()
    for path in (table, database):
        with pytest.raises(OpsettaError, match="no results of a sweep of this version"):
            ResultsFile(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("results.csv", r"end in one of \.parquet, \.sqlite"),
        ("missing/results.sqlite", "there is no folder"),
        ("folder.parquet", "it is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(tmp_path, name, message):
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(OpsettaError, match=message):
        ResultsFile(tmp_path / name)


def test_a_missing_file_has_no_rows(tmp_path):
    with pytest.raises(OpsettaError, match="there is no results file"):
        read_rows(tmp_path / "none.sqlite")


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OpsettaError, match=r"pip install 'opsetta\[fleet\]', or write to a \.sqlite file"):
        ResultsFile(pathlib.Path(tmp_path) / "results.parquet")
    assert list(tmp_path.iterdir()) == []
