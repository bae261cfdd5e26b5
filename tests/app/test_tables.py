"""Tables: what is read is what was written, and errors say where."""

import gzip
import io
import json
import os
import stat
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import guards
from relvec.app.tables import TableError, as_table, describe, read_table, write_table
from relvec.app.tables.cells import list_labels, parse_numbers
from relvec.app.tables.inputs import Limits
from relvec.app.tables.table import unique_names

pa = pytest.importorskip("pyarrow")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")
openpyxl = pytest.importorskip("openpyxl")

HEAD = "name,age\n"
SMALL = Limits(min_unpacked_bytes=100_000, unpacked_per_byte=1)


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def cells_of(table, name):
    """Return the cells of a column, None where missing."""
    return [None if pandas.isna(cell) else cell for cell in table[name].tolist()]


# ---------------------------------------------------------------- delimited text


def test_quotes_commas_lines_and_a_byte_order_mark(write):
    table = read_table(write('\ufeffname,note\r\n"Doe, Jane","she said ""hi"""\r\nRoe,"two\nlines"\r\n\r\n'))
    assert table.names == ["name", "note"] and table.numbers.tolist() == [1, 2]
    assert table["name"].tolist() == ["Doe, Jane", "Roe"]
    assert table["note"].tolist() == ['she said "hi"', "two\nlines"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(write, encoding):
    table = read_table(write("größe,x\nübergroß,1\n".encode(encoding)))
    assert table["größe"].tolist() == ["übergroß"]
    assert bool(table.notes) == (encoding in ("utf-16", "latin-1"))


@pytest.mark.parametrize(("text", "names"), [
    ("a;b\n1;2\n", ["a", "b"]), ("a\tb\n1\t2\n", ["a", "b"]), ("a|b\n1|2\n", ["a", "b"]), ("a\n1\n", ["a"]),
    ('"a;b",c\n1,2\n', ["a;b", "c"]), ("sep=;\na;b\n1;2\n", ["a", "b"]),
    ("\ufeffsep=|\r\na,x|b\r\n1|2\r\n", ["a,x", "b"]),
    ("\n\na,b\n1,2\n", ["a", "b"]),
])  # fmt: skip
def test_delimiters(write, text, names):
    table = read_table(write(text))
    assert table.names == names and table[names[0]].tolist() == ["1"]


def test_decimal_commas_where_semicolons_separate(write):
    table = read_table(write("x;y\n1,5;1.234,5\nfoo,bar;2\n;1,234\n"))
    assert cells_of(table, "x") == ["1.5", "foo,bar", None]
    assert table["y"].tolist() == ["1234.5", "2", "1.234"]


def test_headers_are_made_different_and_never_empty(write):
    table = read_table(write("x,,x, x ,\n1,2,3,4,5\n"))
    assert table.names == ["x", "column 2", "x (2)", "x (3)", "column 5"]
    assert len(table.notes) == 4


@pytest.mark.parametrize(("content", "message"), [
    (HEAD + "a,1\nb\n", r"row 2: 1 cells where the header has 2"),
    (HEAD + 'a,"1\n2"\nb,1,2\n', r"row 2: 3 cells"), (HEAD + 'a,1\n"b,2\nc,3\n', "check the quotes"),
    ("", "is empty"), ("  \n \n", "is empty"), (HEAD, "a header and no rows"),
    (b"a,b\n\x00\x01,2\n", "NUL bytes"), (b"\xff\xfea", "not valid UTF-16"),
    (b"\x1f\x8bnot gzip at all", "gzip data are damaged"), ("a" * 200_000 + ",b\n1,2\n", "not a readable header"),
])  # fmt: skip
def test_a_bad_text_file_is_named_with_its_row(write, content, message):
    path = write(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_blank_lines_are_no_rows(write):
    table = read_table(write("a,b\n1,2\n\n   \n3,\n"))
    assert table["a"].tolist() == ["1", "3"] and cells_of(table, "b") == ["2", None]


@pytest.mark.parametrize("names", [[f"c{i}" for i in range(20_000)], ["a"] * 20_000, ["a", "a (2)"] * 10_000])
def test_wide_files_are_read(write, names):
    table = read_table(write(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"))
    assert len(set(table.names)) == 20_000
    assert table.names == unique_names(names, "t")[0]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=8)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_any_cells_survive_a_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    table = as_table({"a": [a for a, _ in rows], "b": [b for _, b in rows], "end": ["x"] * len(rows)})
    write_table(table, path)
    again = read_table(path)
    for name in ("a", "b"):
        assert [cell or "" for cell in cells_of(again, name)] == table[name].tolist()


# ---------------------------------------------------------------- JSON


def test_json_lines(write):
    table = read_table(write('{"a": 1, "b": "x"}\n\n{"b": null, "c": true, "a": 2.5}\n{"c": false}\n', "data.jsonl"))
    np.testing.assert_array_equal(table["a"], [1.0, 2.5, np.nan])
    assert cells_of(table, "b") == ["x", None, None] and cells_of(table, "c") == [None, "true", "false"]
    listed = read_table(write(' [ {"a": 1 , "b": "x,]"} ,\n\t{"a":2}\n] \n', "list.json"))
    assert listed["a"].tolist() == [1, 2] and cells_of(listed, "b") == ["x,]", None]


@pytest.mark.parametrize(("content", "message"), [
    ('{"a": 1}\n{"a": \n', "line 2: not valid JSON"), ("3\n", "line 1: expected an object"),
    ("[[1]]", "row 1: expected an object"), ("[" * 100_000, "not valid JSON"), ("[", "not valid JSON"),
    ("[{},]", "not valid JSON"), ('[{"a": 1}] 2', "not valid JSON"), ("[]", "no columns found"),
])  # fmt: skip
def test_bad_json(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content, "data.jsonl"))


def test_nested_cells_do_not_stop_a_table(write):
    table = read_table(write('{"a": 1, "b": [1, 2]}\n{"a": 2, "b": {"c": 1}}\n{"a": 4}\n', "t.jsonl"))
    assert [column.kind for column in describe(table)] == ["number", "text"]


def test_large_whole_numbers_are_kept_exactly(write):
    big = 2**53 + 1
    assert read_table(write(json.dumps({"id": big}) + "\n", "a.jsonl"))["id"].tolist() == [big]
    assert read_table(write(f'{{"id": {big}}}\n{{"id": null}}\n', "b.jsonl"))["id"].tolist()[0] == str(big)


def test_halves_of_letters_are_read_as_no_letter(write, tmp_path):
    """JSON may hold them, and no file takes them."""
    table = read_table(write('{"a": "x\\ud800", "b\\udfff": 1}\n{"a": "\\ud83d\\ude00", "b\\udfff": 2}\n', "t.jsonl"))
    assert table["a"].tolist() == ["x\ufffd", "\U0001f600"] and table.names == ["a", "b\\udfff"]
    write_table(table, tmp_path / "p.csv")
    assert read_table(tmp_path / "p.csv")["a"].tolist() == table["a"].tolist()


# ---------------------------------------------------------------- arrays, Arrow and workbooks


def test_npz(write, tmp_path):
    np.savez(tmp_path / "a.npz", X=np.arange(6.0).reshape(3, 2), y=[1, 0, 1], feature_names=["u", "v"])
    table = read_table(tmp_path / "a.npz")
    assert table.names == ["u", "v", "y"] and table["v"].tolist() == [1.0, 3.0, 5.0]
    np.savez(tmp_path / "b.npz", X=np.asfortranarray(np.arange(6.0).reshape(3, 2)), c=["a", "b", "c"])
    assert read_table(tmp_path / "b.npz")["X2"].tolist() == [1.0, 3.0, 5.0]
    np.savez(tmp_path / "c.npz", X=np.zeros((3, 2)), Y=np.ones((3, 2)), z=np.ones((3, 1)), feature_names=["a", "b"])
    assert read_table(tmp_path / "c.npz").names == ["a", "b", "a (2)", "b (2)", "z"]


@pytest.mark.parametrize(("arrays", "message"), [
    ({"X": np.zeros(3), "y": np.zeros(2)}, "differ in length"),
    ({"a": np.zeros((2, 2, 2))}, r"'a' has shape \(2, 2, 2\)"),
    ({"X": np.array([{}], dtype=object)}, "allow_pickle|holds object"),
    ({"X": np.zeros(3, complex)}, "holds complex128"),
    ({"x": np.array([1, 2], dtype="m8[M]")}, "durations in months or years"),
])  # fmt: skip
def test_archives_that_hold_no_table(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "t.npz")


def packed(name, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, data)
    return out.getvalue()


def header(shape, descr="<f8"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


@pytest.mark.parametrize("data", [
    packed("X.npy", header((10**12,)) + bytes(8)), packed("a.npy", b"\x93NUMPY\x07\x00" + header((2,))[8:] + bytes(16)),
    packed("a.npy", header((100,)) + bytes(8)), packed("x.npy", header((-1,)) + bytes(8)), packed("a.txt", b"no array"),
    packed("x.npy", b"\x93NUMPY\x01\x00\x88\x13" + b"[" * 4_999 + b"\n"), b"PK\x03\x04 and nothing",
])  # fmt: skip
def test_broken_archives_are_refused(write, data):
    with pytest.raises(TableError, match=r"t\.npz"):
        read_table(write(data, "t.npz"))


@pytest.mark.parametrize("format", ["parquet", "feather"])
def test_arrow_types(tmp_path, format):
    big = 2**60
    made = pa.table({
        "i": pa.array([1, None, 3]), "b": pa.array([True, False, True]), "d": pa.array([Decimal("1.5")] * 3),
        "t": pa.array([datetime(2024, 1, 1), None, datetime(2024, 1, 3)]), "day": pa.array([date(2024, 1, 1)] * 3),
        "zone": pa.array([datetime(2024, 1, 1)] * 3, pa.timestamp("ns", "Europe/Berlin")),
        "c": pa.array(["u", "v", None]).dictionary_encode(), "k": pa.array([1, 1, 2]).dictionary_encode(),
        "big": pa.array([big, None, 2]), "bytes": pa.array([b"a", b"\xff", None]), "l": [[1], [2], []],
        "large": pa.array(["x", "y", None], pa.large_string()), "none": pa.nulls(3), "f": pa.array([1.5, None, 2.0]),
    })  # fmt: skip
    (parquet.write_table if format == "parquet" else feather.write_feather)(made, tmp_path / f"t.{format}")
    table = read_table(tmp_path / f"t.{format}")
    np.testing.assert_array_equal(table["i"], [1, np.nan, 3])
    np.testing.assert_array_equal(table["f"], [1.5, np.nan, 2.0])
    assert table["b"].dtype == bool and parse_numbers(table["d"])[0].tolist() == [1.5] * 3
    assert table["t"].dtype.kind == table["zone"].dtype.kind == "M" and cells_of(table, "t")[1] is None
    assert list_labels(table["day"]) == ["2024-01-01"] * 3 and list_labels(table["k"]) == ["1", "1", "2"]
    assert cells_of(table, "c") == ["u", "v", None] and cells_of(table, "large") == ["x", "y", None]
    assert cells_of(table, "big") == [str(big), None, "2"] and cells_of(table, "bytes") == ["a", "\ufffd", None]
    kinds = {column.name: column.kind for column in describe(table)}
    assert kinds["l"] == "text" and kinds["none"] == "constant" and kinds["day"] == "constant"


def test_a_damaged_arrow_file_is_refused_before_a_cell_is_touched(tmp_path):
    """Offsets of text that lie outside of it end the process where they are believed."""
    path = tmp_path / "t.feather"
    table = pa.table({"x": np.arange(20.0), "c": ["some text"] * 20})
    feather.write_feather(table, path, compression="uncompressed")
    data = path.read_bytes()
    offsets = np.arange(0, 9 * 21, 9, dtype=np.int32).tobytes()
    assert data.count(offsets) == 1
    wrong = np.frombuffer(offsets, np.int32).copy()
    wrong[10] = 1_600_000_000
    path.write_bytes(data.replace(offsets, wrong.tobytes()))
    code = f"from relvec.app.tables import read_table; read_table({str(path)!r})['c'].tolist()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "not a readable Feather file" in done.stderr


def test_a_file_that_is_called_parquet_and_is_not(write):
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(write("x,y\n1,2\n", "t.parquet"))


def test_an_excel_workbook_is_read_and_written(tmp_path, monkeypatch):
    book = openpyxl.Workbook()
    for row in ((None, None), ("n", "when", "x", None), (1, datetime(2024, 1, 31), "=1+1", None), (2, None, "b", None)):
        book.active.append(row)
    book.active["C3"].data_type = "s"  # text that begins like a formula
    book.create_sheet("other").append(["y"])
    book["other"].append([7])
    book.save(path := tmp_path / "t.xlsx")
    table = read_table(path)
    assert table.names == ["n", "when", "x"] and table["n"].tolist() == [1, 2]
    assert table["x"].tolist() == ["=1+1", "b"] and cells_of(table, "when") == ["2024-01-31 00:00:00", None]
    assert table.notes == ("the first of 2 sheets was read ('Sheet', 'other'); choose another with --sheet",)
    assert read_table(path, sheet="other")["y"].tolist() == [7]
    with pytest.raises(TableError, match=r"there is no column 'y'.*'other'\); choose another with --sheet"):
        table["y"]
    with pytest.raises(TableError, match="there is no sheet 'third'; there are Sheet, other"):
        read_table(path, sheet="third")
    write_table(table, again := tmp_path / "again.xlsx")
    assert read_table(again)["x"].tolist() == ["=1+1", "b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(again.read_bytes())))
    assert read_table("-").names == table.names  # recognised by its content
    again.write_bytes(again.read_bytes()[:-40])
    with pytest.raises(TableError, match=r"again.xlsx: not a readable Excel file"):
        read_table(again)


def test_sheets_belong_to_workbooks(write):
    with pytest.raises(TableError, match="read as csv, which has no sheets"):
        read_table(write("a\n1\n"), sheet="one")


def test_control_characters_are_written_to_a_workbook_as_escapes(tmp_path):
    write_table(as_table({"x\x1b": ["a\x00b", "c\nd", "e\uffff"]}), tmp_path / "p.xlsx")
    table = read_table(tmp_path / "p.xlsx")
    assert table.names == ["x\\x1b"] and table["x\\x1b"].tolist() == ["a\\x00b", "c\nd", "e\\uffff"]


# ---------------------------------------------------------------- what is not read


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(TableError, match="directory"):
        read_table(tmp_path)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/random"])
def test_devices_are_refused(device):
    if not (os.path.exists(device) and stat.S_ISCHR(os.stat(device).st_mode)):
        pytest.skip(f"no {device}")
    with pytest.raises(TableError, match="neither a file nor a pipe"):
        read_table(device)
    with open(device, "rb") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        with pytest.raises(TableError, match="standard input: neither a file nor a pipe"):
            read_table("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_read_up_to_the_limit(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")

    def feed(data):
        with open(path, "wb") as file:
            try:
                for _ in range(100):
                    file.write(data)
            except BrokenPipeError:
                pass

    for data, limits, message in (
        (b"a,b\n", Limits(), None),
        (bytes(1 << 20), Limits(max_bytes=10_000), "10,000 bytes"),
    ):
        thread = threading.Thread(target=feed, args=(data,))
        thread.start()
        if message is None:
            assert len(read_table(path, "csv", limits=limits)) == 99
        else:
            with pytest.raises(TableError, match=f"larger than {message}, the most that is read"):
                read_table(path, "csv", limits=limits)
        thread.join()


def test_files_beyond_the_limit_are_not_read(tmp_path):
    with open(path := tmp_path / "t.csv", "wb") as file:
        file.write(b"a,b\n")
        file.truncate(10**12)  # of which the disk holds nothing
    with pytest.raises(TableError, match="larger than 2,000,000,000 bytes, the most that is read; take a part"):
        read_table(path)


def test_columns_beyond_the_limit_are_refused(write):
    with pytest.raises(TableError, match=r"t\.csv: 4 columns, and at most 3 can be read; check the delimiter"):
        read_table(write("a,b,c,d\n1,2,3,4\n", "t.csv"), limits=Limits(max_columns=3))


def test_a_file_that_unpacks_to_a_large_one_is_refused(tmp_path):
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 200_000))
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros(200_000))
    for path in tmp_path.iterdir():
        with pytest.raises(TableError, match=r"unpacks? to "):
            read_table(path, limits=SMALL)
        assert len(read_table(path)) == 200_000


@pytest.mark.parametrize(("name", "data"), [
    ("blank.csv.gz", b"a,b\n1,2\n" + b"\n" * 90_000), ("cells.csv.gz", b"a,b\n" + b",1\n" * 30_000),
    ("empty.jsonl.gz", b"{}\n" * 30_000), ("list.json.gz", b"[" + b"{}," * 30_000 + b"{}]"),
    ("wide.jsonl", "".join(f'{{"k{i}":1}}\n' for i in range(1_000)).encode()),
])  # fmt: skip
def test_a_text_of_too_many_cells_is_refused(write, name, data):
    """Cells take more memory than the letters they are made of, and the letters more than the file."""
    path = write(gzip.compress(data) if name.endswith(".gz") else data, name)
    with pytest.raises(TableError, match="unpack to more than"):
        read_table(path, limits=SMALL)


@pytest.mark.parametrize("format", ["parquet", "feather"])
@pytest.mark.parametrize("kind", ["numbers", "one text", "repeated", "nested"])
def test_a_small_file_of_arrow_that_becomes_a_large_table_is_refused(tmp_path, format, kind):
    long = "x" * 100_000 + " "
    made = {
        "numbers": pa.array(np.zeros(300_000)), "one text": pa.array([long * 30]), "nested": pa.array([[long] * 30]),
        "repeated": pa.array([long] * 3_000).dictionary_encode(),
    }[kind]  # fmt: skip
    path = tmp_path / f"t.{format}"
    write = parquet.write_table if format == "parquet" else feather.write_feather
    write(pa.table({"x": made}), path, compression="zstd")
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match="unpack to more than"):
            read_table(path, limits=Limits(min_unpacked_bytes=1_000_000, unpacked_per_byte=1))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def rewritten(path, old, new):
    """Write a workbook of one cell, with a part of its sheet exchanged."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.active.append(["x"])
    book.active.append([1])
    book.save(out)
    with zipfile.ZipFile(out) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in plain.namelist():
            made.writestr(name, plain.read(name).replace(old, new) if "sheet1" in name else plain.read(name))


def test_a_small_workbook_cannot_become_a_large_table(tmp_path):
    rewritten(path := tmp_path / "far.xlsx", b'r="A2"', b'r="ZZZ2"')
    with pytest.raises(TableError, match="2 rows and 18,278 columns unpack to more than"):
        read_table(path, limits=SMALL)
    rewritten(path := tmp_path / "long.xlsx", b'<row r="2"', b'<row r="900000000"')
    with pytest.raises(TableError, match="a row beyond 1,048,576"):
        read_table(path)
    rewritten(path := tmp_path / "big.xlsx", b"<sheetData>", b"<sheetData>" + b" " * 1_000_000)
    with pytest.raises(TableError, match="unpacks to 1,"):
        read_table(path, limits=SMALL)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_table_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "noise"
    path.write_bytes(data)
    for format in (None, "csv", "jsonl", "npz", "parquet", "feather", "excel"):
        try:
            assert len(read_table(path, format)) > 0
        except TableError as error:
            assert str(path) in str(error)


def test_the_fuzz_of_tables_and_pages():
    _, results, failures = guards.run("tables", 0, range(120))
    assert failures == [] and results["read"] > 20 and results["refused"] > 20 and results["pages"] == 120


# ---------------------------------------------------------------- in memory


def test_compressed(write):
    text = (HEAD + "a,1\n").encode()
    assert read_table(write(gzip.compress(text), "data.csv.gz"))["age"].tolist() == ["1"]
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(text)
    assert read_table(write(sink.getvalue().to_pybytes(), "data.csv.zst"))["age"].tolist() == ["1"]


def test_standard_input_is_recognised_by_its_content(monkeypatch):
    for data in (b"a,b\n1,2\n", b'{"a": 1, "b": 2}\n', gzip.compress(b"a,b\n1,2\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert read_table("-").names == ["a", "b"]


@pytest.mark.parametrize("package", ["pandas", "pyarrow", "openpyxl"])
def test_without_a_package_the_extra_is_named(write, monkeypatch, package):
    path = tmp = write("x,y\n1,2\n")
    if package == "openpyxl":
        write_table(read_table(tmp), path := tmp.with_suffix(".xlsx"))
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"needs {package}, which is not installed: pip install 'relvec\[tables\]'"):
        read_table(path)


def test_data_frames():
    frame = pandas.DataFrame({"x": [1.0, None], "c": pandas.Categorical(["u", None]),
                              "n": pandas.array([1, None], dtype="Int64"),
                              "t": pandas.to_datetime(["2024-01-01", None]),
                              "z": pandas.to_datetime(["2024-01-01T02:00+02:00", None]),
                              "b": [True, False], "s": ["a", None]}, index=[7, 7])  # fmt: skip
    table = as_table(frame)
    assert cells_of(table, "c") == ["u", None] and cells_of(table, "s") == ["a", None]
    np.testing.assert_array_equal(table["n"], [1.0, np.nan])
    assert table["t"].dtype.kind == "M" and table["b"].dtype == bool and table["z"].tolist()[0] == frame["t"].iloc[0]
    polars = pytest.importorskip("polars")
    table = as_table(polars.DataFrame({"x": [1, None], "s": ["a", None]}))
    assert cells_of(table, "x") == [1.0, None] and cells_of(table, "s") == ["a", None]


def test_an_unknown_column_is_answered_with_the_nearest():
    with pytest.raises(TableError, match="no column 'prise'; did you mean 'price'"):
        as_table({"price": [1.0]})["prise"]


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


def test_kinds_of_values():
    table = as_table({
        "wait": np.array([90, "NaT"], dtype="timedelta64[s]"), "flag": np.array([True, False], dtype=object),
        "gap": [1, None], "whole": [1, 2**60], "long": [2**60, None], "text": np.array([b" a ", None], dtype=object),
        "mixed": np.array([True, "x"], dtype=object), "half": np.array([0.5, 1.0], np.float16), "range": range(2),
    })  # fmt: skip
    assert table["wait"].tolist()[0] == 90.0 and cells_of(table, "wait")[1] is None
    assert table["flag"].dtype == bool and table["whole"].dtype == np.int64
    assert table["gap"].dtype == table["half"].dtype == float and cells_of(table, "gap")[1] is None
    assert cells_of(table, "long") == [str(2**60), None]  # no double holds it
    assert cells_of(table, "text") == ["a", None] and table["mixed"].tolist() == ["true", "x"]


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet", "t.feather", "t.csv.gz", "t.npz", "t.xlsx"])
def test_round_trip(tmp_path, name):
    table = as_table({"id": ["007", 'a,"b"\n', "ü"], "x": [0.1, np.nan, 1e-300],
                      "day": np.array(["2024-01-02", "NaT", "2024-01-03"], dtype="datetime64[D]")})  # fmt: skip
    write_table(table, tmp_path / name)
    again = read_table(tmp_path / name)
    assert again["id"].tolist() == table["id"].tolist()
    np.testing.assert_array_equal(parse_numbers(again["x"])[0], table["x"])
    assert [str(cell)[:10] for cell in cells_of(again, "day") if cell] == ["2024-01-02", "2024-01-03"]
    assert not list(tmp_path.glob("*.part"))


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


# ---------------------------------------------------------------- cells


def test_times_are_hours(write):
    column = describe(read_table(write("t,x\n7:30,a\n14:00:36,b\n36:15,a\n,b\nlate,a\n" + "0:45,b\n" * 20)))[0]
    assert (column.kind, column.unit) == ("number", "h:mm") and "'late' in row 5" in column.note
    values = parse_numbers(as_table({"t": ["7:30", "14:00:36", "0:75"]})["t"], column.style)[0]
    np.testing.assert_allclose(values, [7.5, 14.01, np.nan])


@pytest.mark.parametrize("text", ["0,1.5\n1,2\n", "Sales of 2023,,\nmonth,units,price\n1,2,3\n"])
def test_a_file_whose_first_line_is_no_header_is_told(write, text):
    with pytest.raises(TableError, match="does not look like a header"):
        read_table(write(text))["price"]
