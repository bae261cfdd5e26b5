"""tools/branches.py counts the branches of the compiled code that stand in its source, and no others."""

import pytest

from tools import branches

GENERATED = """
  /* "View.MemoryView":3
  if (__pyx_t_1) {
  /* "relvec/solvers/_native/gaussian.pyx":2
  __pyx_t_1 = (__pyx_v_n == 0);
  if (unlikely(__pyx_t_1)) {
  __pyx_t_2 = call(__pyx_v_n); if (unlikely(!__pyx_t_2)) __PYX_ERR(0, 2, __pyx_L1_error)
  if (unlikely(!__pyx_t_2)) __PYX_ERR(0, 2, __pyx_L1_error)
  /* "relvec/solvers/_native/gaussian.pyx":3
  if (__pyx_t_1) {
  /* "relvec/solvers/_native/gaussian.pyx":4
  for (__pyx_t_3 = 0; __pyx_t_3 < __pyx_t_2; __pyx_t_3+=1) {
  /* "relvec/solvers/_native/gaussian.pyx":5
  if (!__pyx_v_self->dense) {
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    native = tmp_path / "src" / branches.NATIVE
    native.mkdir(parents=True)
    body = ["if n == 0:", "    raise ValueError", "for i in range(n):", "    x = 1 if self.dense else 2"]
    (native / "gaussian.pyx").write_text("def f(n):\n    " + "\n    ".join(body))
    monkeypatch.setattr(branches, "ROOT", tmp_path)
    return tmp_path


def test_conditions_and_loops_of_the_source_count_and_checks_of_calls_do_not(root):
    generated = root / "gaussian.c"
    generated.write_text(GENERATED)
    found = {number: place for number, place in enumerate(branches.source_lines(generated), 1) if place}
    lines = GENERATED.splitlines()
    assert found == {
        lines.index("  if (unlikely(__pyx_t_1)) {") + 1: ("gaussian.pyx", 2),
        lines.index("  for (__pyx_t_3 = 0; __pyx_t_3 < __pyx_t_2; __pyx_t_3+=1) {") + 1: ("gaussian.pyx", 4),
        lines.index("  if (!__pyx_v_self->dense) {") + 1: ("gaussian.pyx", 5),
    }


def test_totals_are_shares_of_branches_and_missing_ones_are_shown(root, monkeypatch, capsys):
    monkeypatch.setattr(branches.shutil, "which", lambda name: name)
    monkeypatch.setattr(branches, "python_branches", lambda: (3, 4))
    taken = {("gaussian.pyx", 2, 0): 0, ("gaussian.pyx", 2, 1): 7, ("gaussian.pyx", 4, 0): 9, ("gaussian.pyx", 4, 1): 1}
    monkeypatch.setattr(branches, "native_branches", lambda: taken)
    branches.main()
    assert capsys.readouterr().out.splitlines() == [
        "gaussian.pyx:2: branch 0 of if n == 0:",
        "branches, Python: 3 of 4 (75.00%)",
        "branches, native: 3 of 4 (75.00%)",
        "branches, together: 6 of 8 (75.00%)",
    ]
    monkeypatch.setattr(branches.shutil, "which", lambda name: None)
    branches.main()
    assert "branches, native: 0 of 0 (none: they need gcc and gcov)" in capsys.readouterr().out
