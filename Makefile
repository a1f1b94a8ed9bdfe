# `make demo` and `make test` need Python 3.11+ and make, nothing else: they build their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test oldest lint docs wheels smoke fuzz torture mutation bench gpu clean

demo: $(VENV)/.installed
	$(BIN)/cvxsnn demo --output out/demo

# The tests' problems are tiny: threads would wait for each other more than work.
test: export OMP_NUM_THREADS ?= 1
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n auto --dist loadfile

# The lowest versions that pyproject.toml declares, and the command with each click that it works with. These tests use
# the other libraries; `make oldest TESTS=tests` runs all. Old libraries use what newer ones of their requirements deprecate.
OLDEST := build/oldest
OLDEST_PIP := $(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OLDEST_TEST := $(OLDEST)/bin/python -m pytest -n auto --dist loadfile -W ignore::DeprecationWarning
TESTS ?= tests/cli tests/core tests/data tests/estimators tests/test_command.py tests/test_import.py
oldest: export OMP_NUM_THREADS ?= 1
oldest: $(OLDEST)/.installed
	$(OLDEST_PIP) click==8.2 && $(OLDEST_TEST) tests/cli tests/test_command.py
	$(OLDEST_PIP) click==8.1 && $(OLDEST_TEST) $(TESTS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docstrings.py
	$(BIN)/python tools/walk.py --check

# The site, in build/site: open build/site/index.html. Warnings are errors, and nothing is fetched from a network.
docs: export OMP_NUM_THREADS ?= 1
docs: $(VENV)/.installed-docs
	$(BIN)/python -m website

# A wheel and a source archive in dist/, each installed into an empty environment, where it fits a model.
wheels: $(VENV)/.installed-release
	$(BIN)/python tools/check_wheels.py

# Every experiment of the paper, very small: `cvxsnn reproduce --scale paper` is the real thing, and takes hours with a GPU.
smoke: $(VENV)/.installed
	$(BIN)/cvxsnn reproduce --scale smoke --output out/results
	$(BIN)/cvxsnn report --records out/results --scale smoke --output out/report.html

# Every hostile case: about an hour on two cores. `make test` runs the first ones of each kind.
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m fuzz

# Work that is killed, starved or unplugged, in throw-away folders: about half an hour on two cores. The soak is apart:
# python -m torture soak --minutes 60
torture: $(VENV)/.installed-test
	$(BIN)/python -m torture

# Which changes of the library does no test notice? `make mutation FILES=core/storage` asks about one file, FILES=neurons
# about a folder. All of it takes hours.
mutation: $(VENV)/.installed-test $(VENV)/.installed-mutation
	$(BIN)/python tools/mutation.py $(FILES)

# Peers get LIMIT seconds for each problem: `make bench LIMIT=30` takes half an hour, the default most of a day.
LIMIT ?= 600
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks rollout dictionary kernels memory scale pools out_of_core cluster exchange quantisation
	$(BIN)/python -m benchmarks solvers --limit $(LIMIT)

# What needs a GPU, on whatever torch PYTHON has: `make gpu` here, `make gpu PYTHON=/path/to/python` where one is set up.
gpu: export PYTHONPATH := src:tests:$(PYTHONPATH)
gpu:
	$(PYTHON) -m pytest -W default tests/test_cuda.py
	$(PYTHON) -m benchmarks gpu

clean:
	rm -rf $(VENV) out build dist

# torch goes in first, by itself: see constraints.txt.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cvxsnn needs Python 3.11 or newer, and $(PYTHON) is %d.%d: run make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(PIP) -e '.[$*]'
	touch $@

$(OLDEST)/.installed: pyproject.toml constraints.txt tools/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST_PIP) torch
	$(OLDEST)/bin/python tools/oldest.py > $(OLDEST)/lowest.txt
	$(OLDEST_PIP) -r $(OLDEST)/lowest.txt -e .
	touch $@

.PRECIOUS: $(VENV)/.installed-%
