"""Tables: what is read is what was written, and errors say where."""

import contextlib
import gzip
import io
import json
import struct
import sys
import tracemalloc
import zipfile
from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import guards
from relvec import RVR
from relvec.app.tables import Table, TableError, as_table, binary, delimited, files, fit_table, read_table, write_table
from relvec.app.tables import table as table_module
from relvec.app.tables.cells import labels_of, parse_numbers
from relvec.app.tables.formats import arrow_file, excel, npz
from relvec.app.tables.kinds import describe
from relvec.app.tables.table import TableLimits

HEAD = "name,age\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_quotes_commas_lines_and_a_byte_order_mark(write):
    path = write('\ufeffname,note\r\n"Doe, Jane","she said ""hi"""\r\nRoe,"two\nlines"\r\n\r\n')
    table = read_table(path)
    assert table.names == ["name", "note"]
    assert table["name"].tolist() == ["Doe, Jane", "Roe"]
    assert table["note"].tolist() == ['she said "hi"', "two\nlines"]
    assert table.lines.tolist() == [2, 3]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(write, encoding):
    table = read_table(write("größe,x\nübergroß,1\n".encode(encoding)))
    assert table["größe"].tolist() == ["übergroß"]
    assert bool(table.notes) == (encoding in ("utf-16", "latin-1"))


@pytest.mark.parametrize(("text", "names"), [
    ("a;b\n1;2\n", ["a", "b"]), ("a\tb\n1\t2\n", ["a", "b"]), ("a|b\n1|2\n", ["a", "b"]), ("a\n1\n", ["a"]),
    ('"a;b",c\n1,2\n', ["a;b", "c"]),
])  # fmt: skip
def test_delimiters(write, text, names):
    assert read_table(write(text)).names == names


def test_decimal_commas_where_semicolons_separate(write):
    table = read_table(write("x;y\n1,5;1.234,5\nfoo,bar;2\n"))
    assert table["x"].tolist() == ["1.5", "foo,bar"]
    assert table["y"].tolist() == ["1234.5", "2"]


def test_headers_are_made_different_and_never_empty(write):
    table = read_table(write("x,,x, x ,\n1,2,3,4,5\n"))
    assert table.names == ["x", "column 2", "x (2)", "x (3)", "column 5"]
    assert len(table.notes) == 4


@pytest.mark.parametrize(("content", "message"), [
    (HEAD + "a,1\nb\n", r"row 2 \(line 3\): 1 cells where the header has 2"),
    (HEAD + 'a,"1\n2"\nb,1,2\n', r"row 2 \(line 4\): 3 cells"),
    ("", "is empty"), ("  \n \n", "is empty"), (HEAD, "a header and no rows"),
    (b"a,b\n\x00\x01,2\n", "NUL bytes"),
    (b"\x1f\x8bnot gzip at all", "gzip data are damaged"),
])  # fmt: skip
def test_a_bad_text_file_is_named_with_its_row(write, content, message):
    path = write(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(TableError, match="directory"):
        read_table(tmp_path)


def test_json_lines(write):
    table = read_table(write('{"a": 1, "b": "x"}\n\n{"b": null, "c": true, "a": 2.5}\n{"c": false}\n', "data.jsonl"))
    np.testing.assert_array_equal(table["a"], [1.0, 2.5, np.nan])
    assert table["b"].tolist() == ["x", None, None]
    assert table["c"].tolist() == [None, "true", "false"]
    assert table.lines.tolist() == [1, 3, 4]
    assert read_table(write('[{"a": 1}, {"a": 2}]', "list.json"))["a"].tolist() == [1, 2]


@pytest.mark.parametrize(("content", "message"), [
    ('{"a": 1}\n{"a": [1]}\n', r"row 2 \(line 2\), column 'a': expected one value, got a list"),
    ('{"a": 1}\n{"a": \n', "line 2: not valid JSON"), ("3\n", "expected an object"),
    ("[" * 100_000, "not valid JSON"),
])  # fmt: skip
def test_bad_json_lines(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content, "data.jsonl"))


def test_large_whole_numbers_are_kept_exactly(write):
    big = 2**53 + 1
    assert read_table(write(json.dumps({"id": big}) + "\n", "a.jsonl"))["id"].tolist() == [big]
    assert read_table(write(f'{{"id": {big}}}\n{{"id": null}}\n', "b.jsonl"))["id"].tolist() == [str(big), None]


def test_npz(write, tmp_path):
    np.savez(tmp_path / "a.npz", X=np.arange(6.0).reshape(3, 2), y=[1, 0, 1], feature_names=["u", "v"])
    table = read_table(tmp_path / "a.npz")
    assert table.names == ["u", "v", "y"] and table["v"].tolist() == [1.0, 3.0, 5.0]
    np.savez(tmp_path / "b.npz", X=np.asfortranarray(np.arange(6.0).reshape(3, 2)), c=["a", "b", "c"])
    assert read_table(tmp_path / "b.npz")["X2"].tolist() == [1.0, 3.0, 5.0]
    np.savez(tmp_path / "c.npz", X=np.zeros(3), y=np.zeros(2))
    with pytest.raises(TableError, match="differ in length"):
        read_table(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", X=np.array([{}], dtype=object))
    with pytest.raises(TableError, match="expected numbers"):
        read_table(tmp_path / "d.npz")


def test_an_npz_header_that_promises_too_much_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("X.npy", header.getvalue() + b"12345678")
    with pytest.raises(TableError, match="promises 8000000000000 bytes"):
        read_table(tmp_path / "huge.npz")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet", "t.feather", "t.csv.gz", "t.npz"])
def test_round_trip(tmp_path, name):
    if name.endswith(("parquet", "feather")):
        pytest.importorskip("pyarrow")
    table = Table({"id": np.array(["007", 'a,"b"\n', "ü"], dtype=object), "x": np.array([0.1, np.nan, 1e-300])})
    write_table(table, tmp_path / name)
    again = read_table(tmp_path / name)
    assert again["id"].tolist() == ["007", 'a,"b"', "ü"]
    x = [None if v is None or v == "" or v != v else float(v) for v in again["x"].tolist()]
    assert x == [0.1, None, 1e-300]
    assert not list(tmp_path.glob("*.part"))


def test_arrow_types(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import datetime
    import decimal

    import pyarrow.parquet

    made = pa.table({
        "i": pa.array([1, None, 3]), "b": pa.array([True, False, True]), "d": pa.array([decimal.Decimal("1.5")] * 3),
        "t": pa.array([datetime.datetime(2024, 1, 1), None, datetime.datetime(2024, 1, 3)]),
        "day": pa.array([datetime.date(2024, 1, 1)] * 3), "c": pa.array(["u", "v", None]).dictionary_encode(),
    })  # fmt: skip
    pyarrow.parquet.write_table(made, tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(table["i"], [1, np.nan, 3])
    assert table["b"].dtype == bool and table["d"].tolist() == [1.5] * 3
    assert table["t"].dtype.kind == table["day"].dtype.kind == "M" and np.isnat(table["t"][1])
    assert table["c"].tolist() == ["u", "v", None]
    pyarrow.parquet.write_table(pa.table({"l": [[1], [2]]}), tmp_path / "n.parquet")
    with pytest.raises(TableError, match="column 'l': expected one value"):
        read_table(tmp_path / "n.parquet")


def test_compressed(write):
    text = (HEAD + "a,1\n").encode()
    assert read_table(write(gzip.compress(text), "data.csv.gz"))["age"].tolist() == ["1"]
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(text)
    assert read_table(write(sink.getvalue().to_pybytes(), "data.csv.zst"))["age"].tolist() == ["1"]


def test_standard_input_is_recognised_by_its_content(monkeypatch):
    for data in (b"a,b\n1,2\n", b'{"a": 1, "b": 2}\n', gzip.compress(b"a,b\n1,2\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert read_table("-").names == ["a", "b"]


def test_without_pyarrow_the_extra_is_named(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"relvec\[data\]"):
        read_table(write(b"PAR1 and so on", "x.parquet"))
    if sys.version_info < (3, 14):
        with pytest.raises(TableError, match=r"zstd needs pyarrow.*relvec\[data\]"):
            read_table(write(b"\x28\xb5\x2f\xfd and so on", "x.csv.zst"))


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, None], "c": pandas.Categorical(["u", None]),
                              "n": pandas.array([1, None], dtype="Int64"),
                              "t": pandas.to_datetime(["2024-01-01", None]),
                              "b": [True, False], "s": ["a", None]})  # fmt: skip
    table = as_table(frame)
    assert table["c"].tolist() == ["u", None] and table["s"].tolist() == ["a", None]
    np.testing.assert_array_equal(table["n"], [1.0, np.nan])
    assert table["t"].dtype.kind == "M" and table["b"].dtype == bool


def test_an_unknown_column_is_answered_with_the_nearest():
    with pytest.raises(TableError, match="no column 'prise'; did you mean 'price'"):
        as_table({"price": [1.0]})["prise"]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=8)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_any_cells_survive_a_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    table = Table({"a": np.array([a for a, _ in rows], dtype=object), "b": np.array([b for _, b in rows], dtype=object),
                   "end": np.array(["x"] * len(rows), dtype=object)})  # fmt: skip
    write_table(table, path)
    again = read_table(path)
    for name, place in (("a", 0), ("b", 1)):
        assert [cell or "" for cell in again[name].tolist()] == [row[place].strip() for row in rows]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_table_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "noise"
    path.write_bytes(data)
    for format in (None, "csv", "jsonl", "npz"):
        try:
            assert len(read_table(path, format)) > 0
        except TableError as error:
            assert str(path) in str(error)


def test_the_fuzz_of_tables_and_pages():
    _, results, failures = guards.run("tables", 0, range(120))
    assert failures == [] and results["read"] > 20 and results["refused"] > 20 and results["pages"] == 120


@pytest.mark.parametrize("ending", [".csv.gz", ".npz"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, monkeypatch, ending):
    for module in (npz, files):
        monkeypatch.setattr(module, "LIMITS", TableLimits(min_unpacked_bytes=100_000))
    path = tmp_path / f"bomb{ending}"
    if ending == ".npz":
        np.savez_compressed(path, x=np.zeros(200_000))
    else:
        path.write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 200_000))
    with pytest.raises(TableError, match="to more than"):
        read_table(path)
    for module in (npz, files):
        monkeypatch.setattr(module, "LIMITS", TableLimits(min_unpacked_bytes=10_000_000))
    assert len(read_table(path)) >= 200_000


def test_columns_that_make_no_table_are_refused(tmp_path):
    with pytest.raises(TableError, match="differ in length"):
        as_table({"a": [1.0, 2.0], "b": [1.0]})
    with pytest.raises(TableError, match=r"an array of shape \(3,\)"):
        as_table([1.0, 2.0, 3.0])
    with pytest.raises(
        TableError, match=r"column 'a': expected one value for each row, got an array of shape \(2, 2\)"
    ):
        as_table({"a": np.ones((2, 2))})
    with pytest.raises(TableError, match="unknown format 'xls': one of"):
        read_table(tmp_path / "a.csv", format="xls")


def test_kinds_of_columns():
    table = as_table({
        "wait": np.array([90, "NaT"], dtype="timedelta64[s]"), "flag": np.array([True, False], dtype=object),
        "gap": [1, None], "whole": [1, 2**60], "long": [2**60, None], "text": np.array([b" a ", None], dtype=object),
        "mixed": np.array([True, "x"], dtype=object),
    })  # fmt: skip
    assert table["wait"][0] == 90.0 and np.isnan(table["wait"][1])
    assert table["flag"].dtype == bool and table["whole"].dtype == np.int64
    assert table["gap"].dtype == float and np.isnan(table["gap"][1])
    assert table["long"].tolist() == [str(2**60), None]  # no double holds it
    assert table["text"].tolist() == ["a", None] and table["mixed"].tolist() == ["true", "x"]


@pytest.mark.parametrize("suffix", [".npz", ".csv.gz", ".jsonl"])
def test_dates_and_gaps_survive_writing(tmp_path, suffix):
    table = as_table(
        {"day": np.array(["2024-01-02", "NaT"], dtype="datetime64[D]"), "x": [1.5, np.nan], "s": ["a", "b"]}
    )
    write_table(table, tmp_path / f"t{suffix}")
    back = read_table(tmp_path / f"t{suffix}")
    assert str(back["day"][0]) == "2024-01-02" and float(back["x"][0]) == 1.5
    assert back["x"][1] is None or np.isnan(back["x"][1])
    assert back["s"].tolist() == ["a", "b"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TableError, match=r"t\.csv: "):
        write_table(as_table({"x": [1.0]}), tmp_path / "t.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_tables_go_to_standard_output(capsysbinary):
    write_table(as_table({"x": [1.0]}), "-", format="npz")
    assert capsysbinary.readouterr().out[:2] == b"PK"
    write_table(as_table({"x": [1.0]}), "-", format="csv")
    assert capsysbinary.readouterr().out == b"x\n1.0\n"


def packed(name, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


def saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(("data", "message"), [
    (packed("a.npy", saved(np.zeros((2, 2, 2)))), r"'a' has shape \(2, 2, 2\)"),
    (packed("a.npy", b"\x93NUMPY\x07\x00" + saved(np.zeros(2))[8:]), "unknown version"),
    (packed("a.npy", saved(np.zeros(100))[:-792]), "promises 800 bytes"),
    (packed("a.txt", b"no array"), "no columns|is empty"),
    (b"\xff\xfea", "not valid UTF-16"),
    (b"[[1]]", "row 1: expected an object"), (b'{"a": [1]}', "line 1.*expected one value, got a list"),
])  # fmt: skip
def test_archives_and_texts_that_hold_no_table(write, data, message):
    with pytest.raises(TableError, match=message):
        read_table(write(data, "t.npz" if data[:2] == b"PK" else "t.jsonl"))


def test_arrays_of_two_axes_have_named_columns(write):
    out = io.BytesIO()
    np.savez(out, X=np.arange(6.0).reshape(3, 2), y=np.arange(3.0)[:, None], feature_names=np.array(["a", "b"]))
    assert read_table(write(out.getvalue(), "t.npz")).names == ["a", "b", "y"]
    out = io.BytesIO()
    np.savez(out, X=np.arange(6.0).reshape(3, 2), y=np.arange(4.0))
    with pytest.raises(TableError, match=r"differ in length: \{'X': 3, 'y': 4\}"):
        read_table(write(out.getvalue(), "t.npz"))


class Counted(str):
    """A name that counts how often it is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("names", [[f"c{i}" for i in range(2_000)], ["a"] * 2_000, ["a", "a (2)"] * 1_000])
def test_wide_headers_are_read_with_few_comparisons(names, monkeypatch):
    """A search of a list would compare two million times."""
    monkeypatch.setattr(delimited, "escape_controls", Counted)
    Counted.compared = 0
    found, _ = delimited.unique_names(names, "t.csv")
    assert len(set(map(str, found))) == len(names)
    assert Counted.compared < 20 * len(names)


def test_a_wide_file_is_read(write):
    names = [f"c{i}" for i in range(20_000)] + ["a"] * 20_000
    table = read_table(write(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"))
    assert len(table.names) == 40_000 and table.names[-1] == "a (20000)"


def test_columns_beyond_the_limit_are_refused(write, monkeypatch):
    monkeypatch.setattr(delimited, "LIMITS", TableLimits(max_columns=3))
    with pytest.raises(TableError, match=r"t\.csv: 4 columns, and at most 3 can be read; check the delimiter"):
        read_table(write("a,b,c,d\n1,2,3,4\n", "t.csv"))


def test_json_lines_with_a_key_of_its_own_in_every_row_are_refused(write):
    path = write("".join(f'{{"k{i}":1}}\n' for i in range(8_000)), "wide.jsonl")
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"1,\d+ rows and 1,\d+ columns are too many cells for a file of"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    sparse = write("".join(f'{{"k{i % 50}":1}}\n' for i in range(1_000)), "sparse.jsonl")
    assert len(read_table(sparse).names) == 50


@pytest.mark.parametrize(("name", "data"), [
    ("blank.csv.gz", b"a,b\n1,2\n" + b"\n" * 9_000), ("cells.csv.gz", b"a,b\n" + b",1\n" * 3_000),
    ("cells.tsv.gz", b"a\tb\n" + b"\t1\n" * 3_000), ("empty.jsonl.gz", b"{}\n" * 9_000),
    ("blank.jsonl.gz", b'{"a": 1}\n' + b"\n" * 9_000), ("list.json.gz", b"[" + b"{}," * 9_000 + b"{}]"),
])  # fmt: skip
def test_a_compressed_text_of_many_cells_is_refused(write, monkeypatch, name, data):
    """Cells take more memory than the letters they are made of, and the letters more than the file."""
    packed = gzip.compress(data)
    monkeypatch.setattr(delimited, "LIMITS", TableLimits(min_cells=4_000))
    found = []
    monkeypatch.setattr(TableLimits, "check_cells", lambda limits, *given: found.append(given) or check(limits, *given))
    with pytest.raises(TableError, match=f"too many cells for a file of {len(packed):,} bytes"):
        read_table(write(packed, name))
    assert max(rows * columns for rows, columns, _, _ in found) < 4_100 + 4 * len(packed)  # noticed in time
    monkeypatch.undo()
    with contextlib.suppress(TableError):  # some hold no columns, but none too many
        assert len(read_table(write(data, name.removesuffix(".gz")))) > 0


@pytest.mark.parametrize("line", ["," * 30, "a,b\n1,2" + "," * 30, '"a"' + "," * 300])
def test_a_line_of_many_cells_is_refused_before_they_are_made(write, monkeypatch, line):
    monkeypatch.setattr(delimited, "LIMITS", TableLimits(max_columns=20))
    with pytest.raises(TableError, match=r"\d columns, and at most 20 can be read"):
        read_table(write(line + "\n", "t.csv"))


@pytest.mark.parametrize(("text", "message"), [
    ("[", "not valid JSON"), ("[{}", "expected a comma or ] at character 4"), ("[{},]", "not valid JSON"),
    ('[{"a": 1}] 2', "there is more after the end"), ('[{"a": 1} {"a": 2}]', "expected a comma or ]"),
    ("[" * 100_000, "not valid JSON"), ("[]", "no columns found"),
])  # fmt: skip
def test_broken_lists_of_json_are_refused(write, text, message):
    with pytest.raises(TableError, match=message):
        read_table(write(text, "t.json"))


def test_a_list_of_json_may_have_blanks_and_gaps(write):
    table = read_table(write(' [ {"a": 1 , "b": "x,]"} ,\n\t{"a":2}\n] \n', "t.json"))
    assert table["a"].tolist() == [1, 2] and table["b"].tolist() == ["x,]", None] and table.lines is None


check = TableLimits.check_cells


def archived(shape, descr, length):
    """An archive of one array of zeros, well packed."""
    header, out = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(length))
    return out.getvalue()


@pytest.mark.parametrize(("data", "message"), [
    (archived((2_000_000,), "|S1", 2_000_000), "2,000,000 rows and 1 columns are too many cells"),
    (archived((200, 10_000), "<U1", 8_000_000), "200 rows and 10,000 columns are too many cells"),
    (archived((13_000_000,), "|u1", 13_000_000), "13,000,000 rows and 1 columns of numbers"),
    (archived((10,), "<c16", 160), "x.npy holds complex128"), (archived((10,), "|V8", 80), "x.npy holds"),
])  # fmt: skip
def test_a_small_archive_of_many_cells_is_refused(write, data, message):
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=message):
            read_table(write(data, "t.npz"))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_an_archive_that_is_compressed_again_has_the_limits_of_the_file(write, monkeypatch):
    inner = archived((100_000,), "|u1", 100_000)
    monkeypatch.setattr(npz, "LIMITS", TableLimits(min_unpacked_bytes=1_000, unpacked_per_byte=100))
    outer = gzip.compress(inner + bytes(10_000))
    assert len(outer) < len(inner) + 1_000
    with pytest.raises(TableError, match=f"unpack to more than {1_000 + 100 * len(outer)} bytes"):
        read_table(write(outer, "t.npz.gz"))


@pytest.mark.parametrize("text", [b"[" * 5_000, b"1" + b"-" * 5_000 + b"1", b"{" * 300, b"'" * 7])
def test_a_header_of_an_array_that_is_no_literal_is_refused(write, text):
    header = b"\x93NUMPY\x01\x00" + len(text + b"\n").to_bytes(2, "little") + text + b"\n"
    with pytest.raises(TableError, match=r"not a readable \.npz file"):
        read_table(write(packed("x.npy", header), "t.npz"))


def test_a_broken_member_of_an_archive_is_refused(write):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", saved(np.zeros(1_000)))
    data = bytearray(out.getvalue())
    data[60:80] = b"\xff" * 20
    with pytest.raises(TableError, match=r"not a readable \.npz file"):
        read_table(write(bytes(data), "t.npz"))


@pytest.mark.parametrize("order", ["<", ">"])
def test_text_in_an_archive_that_is_no_text_is_refused(write, order):
    letters = np.array([[0x41, 0x110000]], dtype=f"{order}u4")
    with pytest.raises(TableError, match=r"x\.npy holds numbers that are no letters"):
        read_table(write(packed("x.npy", saved(letters.view(f"{order}U2"))), "t.npz"))


def test_halves_of_letters_are_read_as_no_letter(write, tmp_path):
    """JSON may hold them, and no file takes them."""
    table = read_table(write('{"a": "x\\ud800", "b\\udfff": 1}\n{"a": "\\ud83d\\ude00", "b\\udfff": 2}\n', "t.jsonl"))
    assert table["a"].tolist() == ["x\ufffd", "\U0001f600"] and table.names == ["a", "b\\udfff"]
    write_table(table, tmp_path / "p.csv")
    assert read_table(tmp_path / "p.csv")["a"].tolist() == table["a"].tolist()


def test_control_characters_are_written_to_a_workbook_as_escapes(tmp_path):
    pytest.importorskip("openpyxl")
    write_table(as_table({"x\x1b": ["a\x00b", "c\nd", "e\uffff"]}), tmp_path / "p.xlsx")
    table = read_table(tmp_path / "p.xlsx")
    assert table.names == ["x\\x1b"] and table["x\\x1b"].tolist() == ["a\\x00b", "c\nd", "e\\uffff"]


@pytest.mark.parametrize("unit", ["Y", "M"])
def test_durations_without_a_fixed_length_are_refused(write, unit):
    with pytest.raises(TableError, match="column 'x': durations in months or years"):
        read_table(write(packed("x.npy", saved(np.array([1, 2], dtype=f"m8[{unit}]"))), "t.npz"))


def test_equal_names_in_an_archive_lose_no_column(write):
    out = io.BytesIO()
    np.savez(out, X=np.zeros((3, 2)), Y=np.ones((3, 2)), feature_names=np.array(["a", "b"]))
    table = read_table(write(out.getvalue(), "t.npz"))
    assert table.names == ["a", "b", "a (2)", "b (2)"] and table["a (2)"].tolist() == [1.0] * 3
    out = io.BytesIO()
    np.savez(out, X=np.zeros((3, 2)), feature_names=np.array("a"))
    assert read_table(write(out.getvalue(), "t.npz")).names == ["X1", "X2"]


def test_an_encrypted_member_of_an_archive_is_refused(write):
    data = bytearray(packed("x.npy", bytes(100)))
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    with pytest.raises(TableError, match="encrypted"):
        read_table(write(bytes(data), "t.npz"))


def test_a_shape_of_booleans_in_an_archive_is_refused(write):
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with pytest.raises(TableError, match=r"not a readable \.npz file"):
        read_table(write(packed("x.npy", header + bytes(8)), "t.npz"))


@pytest.mark.parametrize(("shape", "message"), [((-1,), "impossible shape"), ((0, 10**9), "1,000,000,000 columns")])
def test_impossible_shapes_in_an_archive_are_refused(write, shape, message):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with pytest.raises(TableError, match=message):
        read_table(write(packed("x.npy", header.getvalue() + bytes(10_000)), "t.npz"))


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A table of every kind of column in memory, and the same one in a Parquet file of several row groups."""
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    rng, n = np.random.default_rng(0), 400
    gaps = rng.random(n) < 0.1
    x = rng.normal(3.0, 2.0, n)
    columns = {
        "x": pa.array(x, mask=gaps), "count": pa.array(rng.integers(0, 50, n), mask=rng.random(n) < 0.02),
        "whole": rng.integers(0, 9, n), "city": pa.array(rng.choice(["Ulm", "Bonn", "Rom"], n), mask=gaps[::-1]),
        "yes": pa.array(rng.random(n) < 0.5, mask=rng.random(n) < 0.02),
        "when": np.datetime64("2020-01-01") + rng.integers(0, 1500, n), "y": np.sin(x) + 0.1 * rng.standard_normal(n),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=90)
    held = read_table(tmp_path / "t.parquet")
    monkeypatch.setattr(binary, "MAX_HELD_CELLS", 0)
    monkeypatch.setattr(table_module, "BLOCK_CELLS", 100 * len(columns))
    return held, read_table(tmp_path / "t.parquet")


def test_a_large_parquet_file_is_read_when_it_is_asked_for(stored):
    held, large = stored
    assert large.is_stored and not held.is_stored and len(large) == len(held) == 400
    rng = np.random.default_rng(1)
    for rows in (slice(85, 290), np.array([399, 0, 91, 90]), rng.random(400) < 0.3):
        some = large.take(rows).take(slice(1, 60))
        for name in held.names:
            expected = held.take(rows).take(slice(1, 60))
            assert labels_of(some[name]) == labels_of(expected[name])
            assert np.array_equal(some.numbers, expected.numbers)


def test_a_large_parquet_file_gives_the_model_of_a_table_in_memory(stored, monkeypatch):
    held, large = stored
    model = RVR(width=2.0)
    memory, file = (fit_table(table, "y", model=model).pipeline for table in (held, large))
    assert file["columns"].columns == memory["columns"].columns
    assert np.array_equal(file[:-1].transform(large), memory[:-1].transform(held))  # to the last bit
    assert np.array_equal(file[-1].relevance_, memory[-1].relevance_)
    assert np.array_equal(file.predict(held), memory.predict(held))
    assert file["columns"].record_["relevance"] == memory["columns"].record_["relevance"]
    monkeypatch.setattr(table_module, "BLOCK_CELLS", 10**6)  # medians, means and scales without blocks
    whole = fit_table(held, "y", model=model).pipeline
    np.testing.assert_allclose(file[:-1].transform(held), whole[:-1].transform(held), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("format", ["parquet", "feather"])
def test_a_small_file_of_many_equal_cells_is_refused(tmp_path, monkeypatch, format):
    pa = pytest.importorskip("pyarrow")

    path = tmp_path / f"bomb.{format}"
    table = pa.table({"x": np.zeros(300_000), "text": pa.array(["a long text " * 100] * 300_000).dictionary_encode()})
    if format == "parquet":
        pa.parquet.write_table(table, path, compression="zstd")
    else:
        pa.feather.write_feather(table, path, compression="zstd")
    monkeypatch.setattr(binary, "LIMITS", TableLimits(min_unpacked_bytes=1_000_000, unpacked_per_byte=1))
    with pytest.raises(TableError, match=f"bytes of {format.capitalize()} unpack to more than"):
        read_table(path)
    monkeypatch.undo()
    again = read_table(path)
    assert len(again) == 300_000 and again["text"][-1].startswith("a long text")


@pytest.mark.parametrize("format", ["parquet", "feather"])
@pytest.mark.parametrize("kind", ["one text", "text", "bytes", "large text", "fixed", "nested"])
def test_a_small_file_of_long_text_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, format, kind):
    """A text of many letters, or one that many cells repeat, packs to next to nothing."""
    pa = pytest.importorskip("pyarrow")

    long = "x" * 100_000 + " "
    cells = {
        "one text": pa.array([long * 300]), "text": pa.array([long] * 3_000).dictionary_encode(),
        "bytes": pa.array([long.encode()] * 3_000).dictionary_encode(), "nested": pa.array([[long] * 300]),
        "large text": pa.array([long] * 300, pa.large_string()),
        "fixed": pa.array([b"x" * 100_000] * 300, pa.binary(100_000)),
    }[kind]  # fmt: skip
    path = tmp_path / f"t.{format}"
    if format == "parquet":
        pa.parquet.write_table(pa.table({"x": cells}), path, compression="zstd")
    else:
        pa.feather.write_feather(pa.table({"x": cells}), path, compression="zstd")
    monkeypatch.setattr(binary, "LIMITS", TableLimits(min_unpacked_bytes=1_000_000, unpacked_per_byte=10))
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match=r"unpack to more than|expected one value for each row"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_rows_and_bytes_of_an_arrow_file_are_counted_from_its_headers(tmp_path):
    pa = pytest.importorskip("pyarrow")

    table = pa.table(
        {"x": np.arange(1000.0), "w": pa.array(["u", "v"] * 500).dictionary_encode(), "t": ["word"] * 1000}
    )
    for compression in ("zstd", "lz4", "uncompressed"):
        pa.feather.write_feather(table, tmp_path / "t.feather", compression=compression, chunksize=300)
        data = (tmp_path / "t.feather").read_bytes()
        rows, size = arrow_file.count_rows_and_bytes(data)
        assert rows == 1000 and table.nbytes <= size < 1.2 * table.nbytes
        assert len(read_table(tmp_path / "t.feather")) == 1000
    rng = np.random.default_rng(0)
    for _ in range(300):  # wherever a header points to
        broken = bytearray(data)
        for place in rng.integers(len(data) - 700, len(data) - 6, 3):
            broken[place] = rng.integers(256)
        with contextlib.suppress(ValueError, struct.error):
            arrow_file.count_rows_and_bytes(bytes(broken))


SPACE = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
STRINGS = (
    b'<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    b'spreadsheetml.sharedStrings+xml"/></Types>'
)
ONE = b'<row><c t="inlineStr"><is><t>x</t></is></c></row>'


def workbook(path, sheet, shared=b"", styles=b""):
    """A workbook whose sheet, shared strings and styles are XML of one's own."""
    openpyxl = pytest.importorskip("openpyxl")
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["x"])
    book.save(out)
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name).replace(b"</cellXfs>", styles + b"</cellXfs>")
            if b"sharedStrings" not in data:
                data = data.replace(b"</Types>", STRINGS)
            if name.endswith("sheet1.xml"):
                data = sheet.replace(b"@", b"<worksheet " + SPACE + b"><sheetData>") + b"</sheetData></worksheet>"
            if not name.endswith("sharedStrings.xml"):
                new.writestr(name, data)
        new.writestr("xl/sharedStrings.xml", b"<sst " + SPACE + b">" + shared + b"</sst>")


@pytest.mark.parametrize(("sheet", "shared", "styles", "message"), [
    (b"@<row>" + b"<c/>" * 3_000 + b"</row>", b"", b"", "sheet1.xml holds more than 2,000 parts in a row of cells"),
    (b"@<row>" + b"<row><c/></row>" * 3_000 + b"</row>", b"", b"", "sheet1.xml holds more than 2,000 parts"),
    (b"@" + ONE, b"<si>" + b"<t/>" * 3_000 + b"</si>", b"", "sharedStrings.xml holds more than 2,000 parts"),
    (b"@" + ONE, b"", b"<xf/>" * 3_000, "styles.xml holds more than 2,000 parts"),
    (b"@" + b'<row><c t="s"><v>0</v></c></row>' * 200, b"<si><t>" + b"x" * 1_000 + b" </t></si>", b"",
     "unpack to more than .* letters"),
    (b'<!DOCTYPE a [<!ENTITY e "x">]>@<row><c t="str"><v>&e;</v></c></row>', b"", b"", "declares a type of document"),
])  # fmt: skip
def test_a_workbook_that_takes_much_memory_is_refused(tmp_path, monkeypatch, sheet, shared, styles, message):
    monkeypatch.setattr(excel, "MAX_PARTS", 2_000)
    monkeypatch.setattr(excel, "LIMITS", TableLimits(min_unpacked_bytes=100_000, unpacked_per_byte=1))
    workbook(tmp_path / "t.xlsx", sheet, shared, styles)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.xlsx")


def test_a_workbook_with_xml_of_its_own_is_read(tmp_path):
    workbook(tmp_path / "t.xlsx", b"@" + ONE + ONE.replace(b">x<", b">y<"))
    assert read_table(tmp_path / "t.xlsx")["x"].tolist() == ["y"]
    shared = b"@" + b'<row><c t="s"><v>0</v></c></row>' * 3
    workbook(tmp_path / "t.xlsx", shared, b"<si><t>name </t></si>")
    assert read_table(tmp_path / "t.xlsx")["name"].tolist() == ["name", "name"]


def test_control_characters_of_names_become_escapes(write):
    table = read_table(write("a\x1b[31m,b\n1,2\n"))
    assert table.names == ["a\\x1b[31m", "b"] and "called" in table.notes[0]


def test_nothing_from_a_table_reaches_a_terminal_as_a_command(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_table(as_table({"x": ["\x1b[2J", "fine"]}), "-")
    assert "\x1b" not in capsys.readouterr().out


def test_tables_are_written_in_a_known_format_or_refused(tmp_path):
    for name in ("p.xls", "p.sqlite", "p.csv.zst"):
        with pytest.raises(TableError, match="tables cannot be written as"):
            write_table(as_table({"x": [1.0]}), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    write_table(as_table({"x": [1.0]}), tmp_path / "without_a_suffix")
    assert (tmp_path / "without_a_suffix").read_text() == "x\n1.0\n"


def test_an_excel_workbook_is_read_and_written(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ((None, None), ("n", "when", "x", None), (1, datetime(2024, 1, 31), "=1+1", None), (2, None, "b", None)):
        book.active.append(row)
    book.active["C3"].data_type = "s"  # text that begins like a formula
    book.create_sheet("other")
    book.save(path := tmp_path / "t.xlsx")
    table = read_table(path)
    assert table.names == ["n", "when", "x"] and table.lines.tolist() == [3, 4]
    assert table["n"].tolist() == [1, 2] and table["x"].tolist() == ["=1+1", "b"]
    assert table["when"].tolist() == ["2024-01-31 00:00:00", None]
    assert table.notes == ("the first of 2 sheets was read, 'Sheet'",)
    write_table(table, again := tmp_path / "again.xlsx")
    assert read_table(again)["x"].tolist() == ["=1+1", "b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(again.read_bytes())))
    assert read_table("-").names == table.names  # recognised by its content
    again.write_bytes(again.read_bytes()[:-40])
    with pytest.raises(TableError, match=r"again.xlsx: not a readable Excel file"):
        read_table(again)


def test_a_small_workbook_cannot_become_a_large_table(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for _ in range(1500):
        sheet.append([None] * 2000 + ["x"])
    book.save(path := tmp_path / "wide.xlsx")
    with pytest.raises(TableError, match="too many cells"):
        read_table(path)
    book = openpyxl.Workbook()
    book.active.append(["x"])
    book.save(near := io.BytesIO())
    with zipfile.ZipFile(near) as old, zipfile.ZipFile(tmp_path / "long.xlsx", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'<row r="1"', b'<row r="900000000"'))
    with pytest.raises(TableError, match="a row beyond 1,048,576"):
        read_table(tmp_path / "long.xlsx")


def test_times_are_hours(write):
    column = describe(read_table(write("t,x\n7:30,a\n14:00:36,b\n36:15,a\n,b\nlate,a\n" + "0:45,b\n" * 20)))[0]
    assert (column.kind, column.unit) == ("number", "h:mm") and "'late' in row 5" in column.note
    values = parse_numbers(np.array(["7:30", "14:00:36", "0:75"], dtype=object), column.style)[0]
    np.testing.assert_allclose(values, [7.5, 14.01, np.nan])


@pytest.mark.parametrize("text", ["0,1.5\n1,2\n", "Sales of 2023,,\nmonth,units,price\n1,2,3\n"])
def test_a_file_whose_first_line_is_no_header_is_told(write, text):
    with pytest.raises(TableError, match="does not look like a header"):
        read_table(write(text))["price"]
