"""Change the code at one place and look whether the tests notice: `python tools/mutate.py --count 400`.

A mutant swaps an operator, turns a comparison, flips a flag or changes a number inside a function. Left alone is what
by its kind changes no result:

- numbers at the top of a module: they are what the search prefers, not what is right, and benchmarks judge them;
- `strict` of a `zip` and `check_finite`, which look at what is so;
- how much work there is, where only the number of threads depends on it: what `all_threads` is given, and functions
  named `..._work`;
- what is said and not done: errors, messages, the log;
- the default of a parameter that a function has for its likes and does not read;
- the 1.0 of `max(1.0, abs(x))`, from which on a tolerance is relative, and the digits of `np.round`, which decide when
  values are equal;
- the 1.0 of `x / np.where(known, y, 1.0)`, which stands in where nothing is to be divided by.

Mutants of the compiled modules are switched in one build (`native_mutants.py`). At first every test is run without a
change, which tells how long it takes and which lines it comes by. Mutants are drawn by a seed; each meets the tests
that come by its line in a process of its own, until one fails; a test that takes far longer than before has failed.
What survives is printed with its line, and the score with the lower end of its 95 % interval.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import native_mutants  # noqa: E402

SEARCHES = "tests/solvers/test_searches.py"
REACHED = "test_the_evidence_is_at_least_that_recorded"
STAGES = f"{SEARCHES}::test_stages_reach_what_is_recorded"
REGRESSIONS, CLASSES = f"{SEARCHES}::TestRegressions", f"{SEARCHES}::TestClassesAndCounts"
LEVELS, CLASS_LEVELS = [STAGES, f"{REGRESSIONS}::{REACHED}"], [STAGES, f"{CLASSES}::{REACHED}"]
EVIDENCE, GRADIENTS = "tests/inference/test_evidence.py", "tests/hyperparameters/test_tune.py::TestGradients"
SEARCH, TEXTBOOK = "tests/solvers/test_gaussian_search.py", "tests/solvers/test_textbook.py"
NATIVE, SEQUENTIAL = "tests/solvers/test_native.py", "tests/solvers/test_sequential.py"
FIXED, LONG = "tests/solvers/test_fixed_point.py", "tests/solvers/test_long_dictionaries.py"
SOLVERS = [*LEVELS, FIXED, TEXTBOOK, SEARCH, LONG, "tests/solvers/test_solvers.py", EVIDENCE, REGRESSIONS]
ENGINE = [*LEVELS, NATIVE, SEARCH, LONG, "tests/solvers/test_solvers.py", EVIDENCE, REGRESSIONS]
SCANS, MODES = "tests/solvers/test_laplace_search.py", "tests/inference/test_laplace_posterior.py"
CERTIFICATES = "tests/solvers/test_laplace_certificate.py"
LAPLACE = [*CLASS_LEVELS, "tests/solvers/test_laplace_moves.py", SCANS, FIXED, MODES, CERTIFICATES,
           "tests/solvers/test_laplace_rows.py", "tests/solvers/test_laplace.py",
           CLASSES]  # fmt: skip
DEVICE = "tests/design/test_device.py::test_classification_finds_the_same_model"
PROGRESS = "tests/runtime/test_progress.py"
PROCESS = "tests/gaussian_process/test_gaussian_process.py"
# The tests that speak for a module, those that find most first.
TESTS = {
    "inference/evidence.py": [EVIDENCE, TEXTBOOK, *LEVELS, REGRESSIONS, CLASSES, "tests/solvers/test_solvers.py",
                              "tests/solvers/test_laplace.py"],
    "inference/laplace_posterior.py": [MODES, GRADIENTS, CERTIFICATES, SCANS, *CLASS_LEVELS,
                                       CLASSES, "tests/solvers/test_laplace.py", DEVICE],
    "inference/laplace.py": [MODES, SCANS, *CLASS_LEVELS, CLASSES, "tests/solvers/test_laplace_rows.py",
                             "tests/solvers/test_laplace.py", GRADIENTS, DEVICE],
    "solvers/gaussian/model.py": ENGINE,
    "solvers/gaussian/restarts.py": ENGINE,
    "solvers/gaussian/proposals.py": [LONG, *LEVELS, SEARCH, "tests/solvers/test_solvers.py"],
    "solvers/sequential.py": [SEQUENTIAL, *CLASS_LEVELS, *SOLVERS, NATIVE, PROGRESS],
    "solvers/active_set.py": [*SOLVERS, "tests/design/test_large.py"],
    "solvers/loop.py": [SEQUENTIAL, *SOLVERS, PROGRESS],
    "solvers/fixed_point.py": SOLVERS,
    "solvers/gaussian/textbook.py": [TEXTBOOK, *SOLVERS],
    "solvers/laplace/solve.py": [TEXTBOOK, *LAPLACE],
    "solvers/laplace/problem.py": LAPLACE,
    "solvers/laplace/fixed_point.py": LAPLACE,
    "solvers/laplace/scan.py": LAPLACE,
    "solvers/laplace/search.py": LAPLACE,
    "solvers/laplace/precisions.py": LAPLACE,
    "solvers/laplace/moves.py": LAPLACE,
    "gaussian_process/bound.py": [f"{PROCESS}::test_bounds_enclose_the_evidence",
                                  f"{PROCESS}::test_predictions_are_those_of_the_textbook",
                                  f"{PROCESS}::test_sums_over_rows_are_added_and_taken_away",
                                  "tests/gaussian_process/test_streamed_process.py"],
    "solvers/_native/gaussian.pyx": ENGINE,
    "solvers/_native/laplace.pyx": [*CLASS_LEVELS, "tests/solvers/test_laplace_rows.py", *LAPLACE],
}  # fmt: skip
# All but one test that takes as long as all the others.
OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-m", "not slow",
           "-k", "not a_hundred_classes", "-p", "no:terminalreporter"]  # fmt: skip
# CPU seconds that a test of a mutant may take: so many, and so many times what it takes without a change.
MIN_CPU_SECONDS, TIMES_THE_TEST = 3.0, 4.0
MEASURED = native_mutants.BUILD.parent / "measured-tests"
NATIVE: dict[int, str] = {}  # the module of each place of the compiled code
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
          ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.MatMult: ast.Mult}  # fmt: skip
COMPARED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip


class Places(ast.NodeVisitor):
    """Collects what can be changed: inside of functions, but no annotation, no docstring and no text of an error."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []
        self.inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.endswith("_work"):
            return
        self.inside += 1
        read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        named, defaults = [*node.args.posonlyargs, *node.args.args], node.args.defaults
        pairs = [*zip(named[len(named) - len(defaults) :], defaults, strict=True)]
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for part in [*[value for name, value in pairs if value is not None and name.arg in read], *node.body]:
            self.visit(part)
        self.inside -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self.inside:
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Leave what is only checked."""
        if node.arg not in ("strict", "check_finite"):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Leave work, the log, and where a tolerance becomes relative."""
        called = ast.unparse(node.func)
        if called == "all_threads" or called.startswith("logger."):
            return
        if called == "max" and ast.unparse(node.args[0]) == "1.0" and ast.unparse(node.args[1]).startswith("abs("):
            self.visit(node.args[1])
        elif called == "np.round":
            self.visit(node.args[0])
        else:
            self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Leave what stands in for a divisor."""
        right = node.right
        masked = isinstance(right, ast.Call) and ast.unparse(right.func) in ("np.where", "xp.where")
        if masked and isinstance(node.op, ast.Div) and ast.unparse(right.args[2]) == "1.0":
            self.found.append(node)
            for part in (node.left, *right.args[:2]):
                self.visit(part)
        else:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave what an error says."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave what a message says."""

    def generic_visit(self, node: ast.AST) -> None:
        if self.inside and (
            (isinstance(node, ast.BinOp) and type(node.op) in BINARY)
            or (isinstance(node, ast.AugAssign) and type(node.op) in BINARY)
            or (isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED)
            or isinstance(node, ast.BoolOp | ast.IfExp)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert))
            or (isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float))
        ):
            self.found.append(node)
        super().generic_visit(node)


def change(node: ast.AST) -> ast.AST:
    """Return the node with one thing different; it is changed in place where it can be."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = BINARY[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = COMPARED[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = (
            not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2.0 * value + 1.0
        )
    elif isinstance(node, ast.UnaryOp):
        return node.operand
    return node


class Swap(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST) -> None:
        self.old = old

    def visit(self, node: ast.AST) -> ast.AST:
        return change(node) if node is self.old else self.generic_visit(node)


def mutant(source: str, number: int) -> tuple[ast.Module, int, str]:
    """Return the module with its place ``number`` changed, the line, and what happened there."""
    tree = ast.parse(source)
    node = places(tree)[number]
    line, before = node.lineno, ast.unparse(node)  # type: ignore[attr-defined]
    tree = ast.fix_missing_locations(Swap(node).visit(tree))
    after = ast.unparse(node.operand if isinstance(node, ast.UnaryOp) else node)
    return tree, line, f"{before}  ->  {after}"


def places(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a module that can be changed."""
    visitor = Places()
    visitor.visit(tree)
    return visitor.found


def plain(value: object) -> types.FunctionType | None:
    """Return the function behind a method, a property or a decorated function."""
    for name in ("fget", "func", "__func__", "__wrapped__"):
        value = getattr(value, name, None) or value
    return value if isinstance(value, types.FunctionType) else None


def functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """Return the functions written in a module and the methods of its classes, by name."""
    found = dict(vars(module))
    for name, value in vars(module).items():
        if isinstance(value, type):
            found |= {f"{name}.{key}": one for key, one in vars(value).items()}
    plain_ones = {name: f for name, value in found.items() if (f := plain(value)) is not None}
    return {name: f for name, f in plain_ones.items() if f.__code__.co_filename == module.__file__}


def put_in(module: types.ModuleType, tree: ast.Module) -> None:
    """Change the functions of an imported module to those of a tree, in place: whoever imported them has the others."""
    made = types.ModuleType(module.__name__)
    made.__file__, made.__package__ = module.__file__, module.__package__
    sys.modules[module.__name__] = made  # where dataclasses look for names
    exec(compile(tree, str(module.__file__), "exec"), vars(made))
    sys.modules[module.__name__] = module
    old = functions(module)
    for name, new in functions(made).items():
        f = old[name]
        f.__code__, f.__defaults__, f.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


class Mutant(NamedTuple):
    """A changed tree of a module, or the number of a place of the compiled ones, with its line and what is changed."""

    module: str
    tree: ast.Module | int
    line: int
    words: str

    def apply(self) -> None:
        """Change the code of this process."""
        if isinstance(self.tree, int):
            native_mutants.switch(self.tree)
        else:
            put_in(importlib.import_module("relvec." + self.module.removesuffix(".py").replace("/", ".")), self.tree)

    @property
    def place(self) -> tuple[str, int]:
        """Where a test has to come by to notice it."""
        return (self.module, self.tree if isinstance(self.tree, int) else self.line)


class Measured(NamedTuple):
    """What a test does without any change: whether it passes, its CPU seconds, and the places it comes by."""

    passed: bool
    seconds: float
    places: frozenset[tuple[str, int]]


def is_listed(name: str, tests: Iterable[str]) -> bool:
    """Whether a test is one of those listed, or in a file or class listed."""
    return any(name == test or name.startswith((f"{test}::", f"{test}[")) for test in tests)


class Runner:
    """A plugin of pytest that runs mutants in place of the tests it has collected, each in a process of its own.

    The tests of a mutant are those of `TESTS` that come by its line, the ones that notice most a second first.
    """

    def __init__(self, mutants: Iterator[Mutant], modules: list[str], jobs: int, passing: bool) -> None:
        self.mutants, self.jobs, self.failed, self.spent = mutants, jobs, False, 0.0
        self.files = {str(ROOT / "src" / "relvec" / module): module for module in modules}
        self.compiled = bool(set(modules) & set(native_mutants.MODULES))
        self.passing, self.results, self.killed = passing, Counter[tuple[str, bool]](), Counter[tuple[str, str]]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        listed = {test for module in self.files.values() for test in TESTS[module]}
        self.items = {item.nodeid: item for item in session.items if is_listed(item.nodeid, listed)}
        self.measured = pickle.loads(MEASURED.read_bytes()) if self.passing and MEASURED.exists() else {}
        if not self.items.keys() <= self.measured.keys():
            child = os.fork()
            if child == 0:
                self.leave(self.measure)
            os.waitpid(child, 0)
            self.measured = pickle.loads(MEASURED.read_bytes())
        for name, found in self.measured.items():
            if not found.passed:
                print(f"{name} fails without any change: left out", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # the score of those before
            self.run_all()
        return True

    def leave(self, work: Callable[[], Any]) -> NoReturn:
        """Do the work of a forked process in silence, and end it."""
        silent, code = os.open(os.devnull, os.O_WRONLY), 1
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            code = int(work() or 0)
        finally:
            os._exit(code)

    def run(self, name: str, following: str | None) -> bool:
        """Whether a test passes."""
        self.failed, item = False, self.items[name]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None if following is None else self.items[following])
        return not self.failed

    def measure(self) -> None:
        """Run every test once, and store what it does."""
        seen: set[tuple[str, int]] = set()

        def note_line(frame: types.FrameType, event: str, _: Any) -> Any:
            seen.add((self.files[frame.f_code.co_filename], frame.f_lineno))
            return note_line

        def note_call(frame: types.FrameType, event: str, _: Any) -> Any:
            return note_line(frame, event, _) if frame.f_code.co_filename in self.files else None

        found, names = {}, list(self.items)
        for name, following in zip(names, [*names[1:], None], strict=True):
            seen.clear()
            begin = time.process_time()
            sys.settrace(note_call)
            threading.settrace(note_call)
            passed = self.run(name, following)
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            numbers = native_mutants.take_reached() if self.compiled else []
            places = {*seen, *((NATIVE[number], number) for number in numbers)}
            found[name] = Measured(passed, time.process_time() - begin, frozenset(places))
        MEASURED.parent.mkdir(parents=True, exist_ok=True)
        MEASURED.write_bytes(pickle.dumps(found))

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that may notice a mutant, the most promising first."""
        own = [name for name in self.items if self.measured[name].passed and is_listed(name, TESTS[mutant.module])]
        reaching = [name for name in own if mutant.place in self.measured[name].places]
        if not isinstance(mutant.tree, int):  # a default, which is no line of its function
            reaching = reaching or [
                name for name in own if any(m == mutant.module for m, _ in self.measured[name].places)
            ]

        def promise(name: str) -> float:
            noticed = 3 * self.killed[mutant.module, name] + self.killed["", name]
            return -(noticed + 0.1) / (self.measured[name].seconds + 0.02)

        return sorted(reaching, key=promise)

    def try_tests(self, mutant: Mutant, names: list[str], told: int) -> int:
        """Run the tests until one fails, and tell its number; a test that takes far longer ends this process."""
        mutant.apply()
        for number, name in enumerate(names):
            os.pwrite(told, number.to_bytes(4, "little"), 0)
            seconds = MIN_CPU_SECONDS + TIMES_THE_TEST * self.measured[name].seconds
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(int(20 * seconds))  # for a mutant that waits for something
            if not self.run(name, names[number + 1] if number + 1 < len(names) else None):
                return 1
        return 0

    def run_all(self) -> None:
        """Run the mutants, so many at a time, and count those that are noticed."""
        running: dict[int, tuple[Mutant, list[str], Any]] = {}

        def wait() -> None:
            child, status, usage = os.wait4(-1, 0)
            mutant, names, told = running.pop(child)
            self.spent += usage.ru_utime + usage.ru_stime
            self.results[mutant.module, status == 0] += 1
            if status == 0:
                print(f"survived: {mutant.words} ({len(names)} tests)", flush=True)
            else:
                name = names[int.from_bytes(os.pread(told.fileno(), 4, 0), "little")]
                self.killed.update([(mutant.module, name), ("", name)])
            told.close()

        for mutant in self.mutants:
            names, told = self.tests_of(mutant), tempfile.TemporaryFile()
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                self.leave(functools.partial(self.try_tests, mutant, names, told.fileno()))
            running[child] = mutant, names, told
            if len(running) >= self.jobs:
                wait()
        while running:
            wait()


def main() -> int:
    """Run as many mutants as asked for, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"some of {', '.join(TESTS)}; all by default")
    parser.add_argument("--count", type=int, default=400, help="mutants, evenly over all places")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the draw")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--built", action="store_true", help="the compiled mutants are built: do not build them again")
    parser.add_argument("--passing", action="store_true", help="use what the last call measured of the tests")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    from scipy.stats import beta

    os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for once_for_all in ("numpy", "scipy.optimize", "scipy.stats", "sklearn.utils.estimator_checks", "sklearn.svm",
                         "sklearn.pipeline", "pytest", "mpmath", "torch", "dask.dataframe"):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(once_for_all)

    modules = chosen.modules or list(TESTS)
    sources = {m: (ROOT / "src" / "relvec" / m).read_text() for m in modules if m.endswith(".py")}
    native = native_mutants.places()
    NATIVE.update({number: module for module, number, *_ in native})
    everywhere = [(module, i) for module, source in sources.items() for i in range(len(places(ast.parse(source))))]
    everywhere += [(module, i) for module, i, *_ in native if module in modules]
    if set(modules) & set(native_mutants.MODULES):
        if not chosen.built:
            native_mutants.build()
        sys.meta_path.insert(0, native_mutants.Finder())
    drawn = random.Random(chosen.seed).sample(everywhere, len(everywhere))[chosen.first :][: chosen.count]
    begin = time.monotonic()

    def mutants() -> Iterator[Mutant]:
        for module, number in drawn:
            if time.monotonic() - begin > 60.0 * chosen.minutes:
                return
            tree, line, what = mutant(sources[module], number) if module in sources else native[number][1:]
            yield Mutant(module, tree, line, f"{module}:{line}: {what}")

    files = list(dict.fromkeys(file.partition("::")[0] for module in modules for file in TESTS[module]))
    runner = Runner(mutants(), modules, chosen.jobs, chosen.passing)
    import pytest

    pytest.main([*OPTIONS, *files], plugins=[runner])
    results = runner.results
    total = sum(results.values())
    for module in modules:
        alive, dead = results[module, True], results[module, False]
        if alive + dead:
            print(f"{module}: {dead} of {alive + dead} killed")
    dead = sum(count for (_, alive), count in results.items() if not alive)
    share = dead / max(total, 1)
    least = beta.ppf(0.05, dead, total - dead + 1) if dead else 0.0  # Clopper and Pearson's, one-sided
    print(f"{dead} of {total} mutants killed ({share:.1%}, with 95 % confidence at least {least:.1%}), drawn from "
          f"{len(everywhere)} places")  # fmt: skip
    print(f"seed {chosen.seed}, {runner.spent:.0f} CPU s of the mutants")
    return 0


if __name__ == "__main__":
    sys.exit(main())
