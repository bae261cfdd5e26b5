"""tools/mutate.py names modules and tests that exist, and its mutants are noticed."""

import ast
import importlib.util
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


def test_mutants_of_compiled_code_are_switched_at_run_time(mutate, monkeypatch):
    source = "def total(x):\n s = 0\n for i in range(len(x)):\n  if x[i] > 0:\n   s += x[i]\n return s\n"
    text, places = mutate.native_mutants.switched(source)
    assert [line for line, _ in places] == [3, 4, 5]
    found = []
    for number in (-1, 0, 1, 2, 3):
        monkeypatch.setenv("RELVEC_MUTANT", str(number))
        names: dict = {}
        exec(text.replace("cdef int ", ""), names)
        found.append(names["total"]([5, -3, 2]))
    assert found == [7, 5, -3, -7, 7]
