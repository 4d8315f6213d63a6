# `make audit` and `make test` are all that a fresh machine needs: Python 3.11 or newer, and make.

PYTHON ?= python3
VENV ?= .venv
# Pip's own options, e.g. PIP_OPTIONS=--no-index; and a further package index for PyTorch's CPU-only wheels.
PIP_OPTIONS ?=
TORCH_INDEX ?=
# What `make audit` hands to `seepage audit`; empty: its defaults.
AUDIT_OPTIONS ?=
# What `make test` hands to pytest.
PYTEST_OPTIONS ?=
WORKERS ?= auto

# Compiled modules are kept, where the surroundings say otherwise too: each process of a test would compile them anew.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --quiet \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(PIP_OPTIONS) --constraint constraints.txt
# An empty file each, newer than what it was made from: a second run installs nothing.
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev audit test quick lint types contracts docs pictures notebooks tests slow format clean

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

install: $(INSTALLED) ## Create the environment and install seepage into it

install-dev: $(INSTALLED_DEV) ## As install, and the tools that check it

audit: $(INSTALLED) ## Run the default audit on bundled data (AUDIT_OPTIONS="--batch-size 32 ...")
	$(BIN)/seepage audit $(AUDIT_OPTIONS)

# Types are checked beside the tests, which leave a core idle while they start and end.
test: lint contracts ## Run lint, types, import contracts and tests
	$(MAKE) --no-print-directory -j 2 types tests

# What a change breaks most often, without what is marked as long; the rest takes about half an hour on two cores.
QUICK := tests/assessment tests/config tests/models tests/results tests/tabular tests/test_errors.py \
	tests/test_learning.py tests/tools tests/test_repository.py tests/test_seeds.py tests/wire
QUICK_AUDITS := tests/attacks tests/run tests/settings
NOT_LONG := -m "not slow and not long"
# One thread a worker: the workers already use every core. A file stays with one worker: the blocks of a document
# build on each other, and a module's fixtures are made once.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

quick: lint types contracts ## Run lint, types, import contracts and the fast tests, before every commit
	$(PYTEST) $(NOT_LONG) $(CHECKED) $(PYTEST_OPTIONS) $(QUICK)
	$(PYTEST) $(NOT_LONG) $(PYTEST_OPTIONS) $(QUICK_AUDITS)

lint: $(INSTALLED_DEV) ## Check style, format and the words of docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/plain_words.py

types: $(INSTALLED_DEV) ## Check types
	$(BIN)/basedpyright

contracts: $(INSTALLED_DEV) ## Check which package imports which
	$(BIN)/lint-imports --no-logo

# Strict: a link that leads nowhere, or a page that would fetch something from elsewhere, fails. The variable silences
# the theme's announcement of its successor.
docs: $(INSTALLED_DEV) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Shapes and types of tensors are checked at each call where functions are tested by themselves: in whole attacks and
# audits, and in what is marked as long, that takes two thirds of the time. `make slow` checks them in attacks.
CHECKED := --jaxtyping-packages=seepage,beartype.beartype
SHAPES := tests/assessment tests/attacks/labels tests/attacks/pooled tests/attacks/vertical tests/baselines \
	tests/defenses tests/laws tests/models tests/protocols tests/shadow tests/tabular tests/wire
pictures: $(INSTALLED_DEV) ## Draw the pictures of README and documentation (needs Chromium and minutes)
	$(BIN)/python tools/pictures.py

notebooks: $(INSTALLED_DEV) ## Run the notebooks and store what they print
	$(BIN)/python tools/notebooks.py

tests: $(INSTALLED_DEV) ## Run the tests, the docstring examples and the code blocks of short documents
	$(PYTEST) $(CHECKED) $(NOT_LONG) $(PYTEST_OPTIONS) $(SHAPES)
	$(PYTEST) -m "long and not slow" $(PYTEST_OPTIONS) $(SHAPES)
	$(PYTEST) $(PYTEST_OPTIONS) $(SHAPES:%=--ignore=%)

# Checks of types draw random numbers, and a network during whose runs some are drawn is certified nothing.
CERTIFIED := $(addprefix tests/attacks/test_,certificates.py certifying.py forms.py rounds.py spear.py traced.py unmix.py)
slow: $(INSTALLED_DEV) ## Run what takes long: site, long documents, notebooks, repeated tests, attacks with shapes checked
	$(PYTEST) -m slow $(PYTEST_OPTIONS) tests docs CONTRIBUTING.md
	$(PYTEST) $(CHECKED) $(PYTEST_OPTIONS) tests/attacks $(CERTIFIED:%=--ignore=%)

format: $(INSTALLED_DEV) ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and everything the tools left behind
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last thing that venv writes: where it is missing, the environment is not complete.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "seepage needs Python 3.11 or newer; $(PYTHON) is older or missing. Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml constraints.txt constraints-newest.txt | $(BIN)/pip
	@echo "Installing seepage into $(VENV): some minutes the first time, with nothing printed."
	$(INSTALL) --constraint constraints-newest.txt --editable .
	@touch $@

# Most modules of what checks it are never imported, and the others are compiled when they first are.
$(INSTALLED_DEV): pyproject.toml constraints.txt constraints-flower.txt | $(BIN)/pip
	@echo "Installing seepage and what checks it into $(VENV): some minutes the first time, with nothing printed."
	$(INSTALL) --no-compile --constraint constraints-flower.txt --editable '.[dev]'
	@touch $(INSTALLED) $@
