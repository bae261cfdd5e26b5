"""Sphinx settings; `make docs` builds with every warning an error."""

import os
import re
from pathlib import Path

import relvec
from relvec.app.cli.arguments import make_parser

project = "relvec"
author = "The relvec developers"
copyright = "the relvec developers"
release = version = relvec.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "auto_examples/**/*.ipynb", "auto_examples/*.py"]
html_theme = "pydata_sphinx_theme"
html_title = "relvec"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["relvec.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
HERE = Path(__file__).parent
if (HERE / "_static" / "mathjax" / "tex-mml-chtml.js").is_file():  # by `make docs`: formulas without a network
    mathjax_path = "mathjax/tex-mml-chtml.js"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # numpydoc states the types
numpydoc_show_class_members = False  # the class template lists them

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "capture_repr": (),
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 3600,  # the time it took is of no use to a reader
    "write_computation_times": False,
    "show_signature": False,
}


def escape_bars(app, what, name, obj, options, lines):
    """Docstrings write |x - z| in plain text, where reStructuredText sees a substitution."""
    literal = None  # indentation of the line that opened a literal block
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None and not line.lstrip().startswith(">>>"):
            lines[i] = re.sub(r"(`+.*?`+)|\|", lambda match: match[1] or r"\|", line)
        if literal is None and line.rstrip().endswith("::"):
            literal = indent


def skip_inherited_from_sklearn(app, what, name, obj, skip, options):
    """Their docstrings refer to labels of scikit-learn's own pages."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn") else None


def write_commands(app):
    """The reference of the command line, as the commands print it themselves."""
    os.environ["COLUMNS"] = "100"
    parser = make_parser()
    parts = ["# Commands\n\nThe texts of `relvec COMMAND --help`. The [guide](guide/tables.md) shows them at work.\n"]
    choices = next(action.choices for action in parser._actions if action.dest == "command" or action.choices)
    for name, command in choices.items():
        parts.append(f"## relvec {name}\n\n```text\n{command.format_help().strip()}\n```\n")
    (HERE / "commands.md").write_text("\n".join(parts), encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write_commands)
    app.connect("autodoc-process-docstring", escape_bars, priority=400)  # before numpydoc's, at 500
    app.connect("autodoc-skip-member", skip_inherited_from_sklearn)
