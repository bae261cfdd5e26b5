"""Tables: what is read is what was written, and errors say where."""

import gzip
import io
import json
import sys
import time
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
from relvec.tables import Table, TableError, as_table, binary, delimited, files, fit_table, read_table, write_table
from relvec.tables import table as table_module
from relvec.tables.cells import labels_of, parse_numbers
from relvec.tables.kinds import describe
from relvec.tables.table import TableLimits

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
    for module in (binary, files):
        monkeypatch.setattr(module, "LIMITS", TableLimits(min_unpacked_bytes=100_000))
    path = tmp_path / f"bomb{ending}"
    if ending == ".npz":
        np.savez_compressed(path, x=np.zeros(200_000))
    else:
        path.write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 200_000))
    with pytest.raises(TableError, match="to more than"):
        read_table(path)
    for module in (binary, files):
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


def test_wide_headers_take_time_in_proportion(write):
    """Twenty times the columns: a hundred times the time at most, where a search of a list takes four hundred."""

    def seconds(names):
        path = write(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
        taken = []
        for _ in range(3):  # the quickest: the machine may be busy
            begin = time.process_time()
            assert len(read_table(path).names) == len(names)
            taken.append(time.process_time() - begin)
        return min(taken)

    for names in ([f"c{i}" for i in range(40_000)], ["a"] * 40_000):
        assert seconds(names) < max(100 * seconds(names[:2_000]), 3.0)


def test_columns_beyond_the_limit_are_refused(write, monkeypatch):
    monkeypatch.setattr(delimited, "LIMITS", TableLimits(max_columns=3))
    with pytest.raises(TableError, match=r"t\.csv: 4 columns, and at most 3 can be read; check the delimiter"):
        read_table(write("a,b,c,d\n1,2,3,4\n", "t.csv"))


def test_json_lines_with_a_key_of_its_own_in_every_row_are_refused(write):
    path = write("".join(f'{{"k{i}":1}}\n' for i in range(8_000)), "wide.jsonl")
    tracemalloc.start()
    try:
        with pytest.raises(TableError, match="8,000 rows and 8,000 columns are too many cells for a file of"):
            read_table(path)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    sparse = write("".join(f'{{"k{i % 50}":1}}\n' for i in range(1_000)), "sparse.jsonl")
    assert len(read_table(sparse).names) == 50


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
