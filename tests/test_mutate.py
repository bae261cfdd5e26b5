"""tools/mutate.py names modules and tests that exist, and its mutants are noticed."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def mutate():
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_modules_and_tests_exist(mutate):
    for module, tests in mutate.TESTS.items():
        assert (ROOT / "src" / "relvec" / module).is_file(), module
        for name in tests:
            file, *names = name.partition("[")[0].split("::")
            assert (ROOT / file).is_file(), file
            tree = ast.parse((ROOT / file).read_text())
            defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            assert set(names) <= defined, name


def test_a_mutant_differs_at_one_place(mutate):
    source = "LIMIT = 3\n\n\ndef half(x: int = 2) -> float:\n    '''Doc 7.'''\n    return x / 2 if x > 0 else -x\n"
    found = [mutate.mutant(source, i) for i in range(len(mutate.places(ast.parse(source))))]
    assert {line for _, line, _ in found} == {4, 6} and len(found) == 7
    assert len({ast.unparse(tree) for tree, *_ in found}) == 7
    assert all("LIMIT = 3" in ast.unparse(tree) and "Doc 7." in ast.unparse(tree) for tree, *_ in found)


@pytest.mark.parametrize(("code", "count"), [
    ("max(1.0, abs(x))", 0), ("max(2.0, abs(x))", 1), ("np.round(x + y, 9)", 1), ("x / np.where(m > 0.0, y, 1.0)", 3),
    ("zip(x, y, strict=True)", 0), ("all_threads(x ** 3)", 0), ("logger.info(x + 1)", 0), ("x + 1", 2),
])  # fmt: skip
def test_what_changes_no_result_by_its_kind_is_left(mutate, code, count):
    assert len(mutate.places(ast.parse(f"def f(x):\n    return {code}\n"))) == count
    assert not mutate.places(ast.parse(f"def scan_work(x):\n    return {code}\n"))


def test_a_default_that_nothing_reads_is_left(mutate):
    source = "def f(x=1, y=2, *, z=3, w):\n    return x + z\n"
    assert [mutate.mutant(source, i)[2] for i in range(len(mutate.places(ast.parse(source))))] == [
        "1  ->  2", "3  ->  4", "x + z  ->  x - z",
    ]  # fmt: skip


def test_a_mutant_is_put_in_where_a_module_is_used_already(mutate, tmp_path):
    source = (
        "from dataclasses import dataclass\nfrom functools import cached_property\n\n\n"
        "def twice(x, by=2):\n    return by * x\n\n\n@dataclass\nclass One:\n    x: int = 5\n\n"
        "    @cached_property\n    def more(self):\n        return self.x + 1\n\n"
        "    @property\n    def less(self):\n        return self.x - 1\n\n"
        "    @staticmethod\n    def nothing():\n        return 0\n"
    )
    path = tmp_path / "used_already.py"
    path.write_text(source)
    found = []
    for number in range(len(mutate.places(ast.parse(source)))):
        spec = importlib.util.spec_from_file_location("used_already", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["used_already"] = module
        spec.loader.exec_module(module)
        twice, one = module.twice, module.One()  # imported, and made, before
        mutate.put_in(module, mutate.mutant(source, number)[0])
        found.append((twice(10), one.more, one.less, one.nothing()))
    del sys.modules["used_already"]
    assert found == [(30, 6, 4, 0), (0.2, 6, 4, 0), (20, 4, 4, 0), (20, 7, 4, 0), (20, 6, 6, 0), (20, 6, 3, 0),
                     (20, 6, 4, 1)]  # fmt: skip


def test_mutants_of_compiled_code_are_switched_at_run_time(mutate):
    source = "def total(x):\n s = 0\n for i in range(len(x)):\n  if x[i] > 0:\n   s += x[i]\n return s\n"
    text, places = mutate.native_mutants.switched(source)
    assert [line for line, _ in places] == [3, 4, 5]
    found, names = [], {}
    text = text.replace("cdef int ", "").replace(
        "cdef inline bint changes(int place) noexcept nogil", "def changes(place)"
    )
    exec(text.replace("cdef unsigned char REACHED[10000]", "REACHED = bytearray(10000)"), names)
    for number in (-1, 0, 1, 2, 3):
        names["set_mutant"](number)
        found.append(names["total"]([5, -3, 2]))
    assert found == [7, 5, -3, -7, 7]
    assert names["take_reached"]() == [0, 1, 2] and names["take_reached"]() == []
    names["total"]([-1])
    assert names["take_reached"]() == [0, 1]  # no term was added


def test_a_mutant_meets_the_tests_that_come_by_it_and_those_that_notice_most_a_second_first(mutate):
    module, (first, *_) = "inference/evidence.py", mutate.TESTS["inference/evidence.py"]
    runner = mutate.Runner(iter(()), [module], 1, False)
    here, elsewhere = frozenset({(module, 7)}), frozenset({(module, 8)})
    runner.measured = {
        f"{first}::slow": mutate.Measured(True, 9.0, here), f"{first}::quick": mutate.Measured(True, 0.1, here),
        f"{first}::other": mutate.Measured(True, 0.1, elsewhere), f"{first}::broken": mutate.Measured(False, 0.1, here),
        "tests/test_not_listed.py::test": mutate.Measured(True, 0.1, here),
    }  # fmt: skip
    runner.items = dict.fromkeys(runner.measured)
    at_line, default = (mutate.Mutant(module, ast.parse(""), line, "") for line in (7, 9))
    assert runner.tests_of(at_line) == [f"{first}::quick", f"{first}::slow"]
    runner.killed[module, f"{first}::slow"] += 1000
    assert runner.tests_of(at_line) == [f"{first}::slow", f"{first}::quick"]
    assert set(runner.tests_of(default)) == {f"{first}::quick", f"{first}::slow", f"{first}::other"}
