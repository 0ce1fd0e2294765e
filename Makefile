# Two commands on a machine with Python 3.11+ and make:
#   make demo   a private treatment effect, from an empty folder to a summary table
#   make test   style, types, and the tests that tell what a change broke: about ten minutes on two cores
# and: make test-long runs what takes longer (vignettes, the site, code of pages, wheels, processes, simulations,
# whole grids), make docs builds the site to docs/_build/html, make vignettes runs and renders the vignettes,
# make evidence measures the tables of benchmarks/results, make test-lowest runs tests with the oldest versions that are
# allowed, make dist makes what is published.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SPHINX := $(BIN)/python -m sphinx -q

.PHONY: demo federation-demo office-demo test lint types doctests unit test-long test-lowest dist docs outputs notebook vignettes evidence clean

demo: $(VENV)/.installed
	$(BIN)/python vignettes/quick_start.py

federation-demo: $(VENV)/.installed-federation
	$(BIN)/python -m dpeffects.services.federation.demo

office-demo: $(VENV)/.installed-office
	dpeffects/services/office/deploy/demo.sh $(BIN)/python

# Types and doctests are checked beside the tests. Processes that tests start read the compiled package, also where
# the environment would not keep it.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q

test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory --jobs=4 lint types doctests unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

doctests: $(VENV)/.installed-dev
	$(PYTEST) --doctest-modules dpeffects

unit: $(VENV)/.installed-dev
	$(PYTEST) -n 2 --dist worksteal

test-long: $(VENV)/.installed-long
	$(PYTEST) -n 2 --dist worksteal -m long

# The lower ends of all ranges, in an environment of its own; FILES are tests that touch other libraries much.
LOWEST := .venv-lowest
EXTRAS := plot,word,progress,cate,ebm,sites,server,accounting,study,polars,duckdb,dask
TOUCH  := encoding formula expression dates missing json results report compare tables survival datasets engines
FILES  ?= $(TOUCH:%=tests/test_%.py) tests/contract

test-lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -n 2 --dist worksteal -m "long or not long" $(FILES)

# The wheel and the sdist, with their page as a public index would show it checked.
dist: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

# Vignettes are run in quick mode while the site is built, and again only when their source changed.
docs: $(VENV)/.installed-docs
	$(SPHINX) -W --keep-going docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html
	$(BIN)/python docs/check_pages.py docs/_build/html

# The pages of the site are kept with their outputs; a build runs only those whose code has changed.
outputs: $(VENV)/.installed-docs
	$(BIN)/python docs/steps/outputs.py

# The notebook of the site is kept with its outputs, too.
notebook: $(VENV)/.installed-docs
	$(BIN)/python docs/notebooks/make.py

# FULL=1 makes the tables behind the papers' pages anew: hours.
vignettes: $(VENV)/.installed-docs
	FULL=$(FULL) $(SPHINX) docs docs/_build/html
	@echo "docs/_build/html/generated/vignettes/index.html"

# TABLE=coverage makes one table (or some), RUNS=1000 with so many runs of a cell, MINUTES=60 with more time.
evidence: $(VENV)/.installed-dev
	$(BIN)/python benchmarks $(TABLE) $(RUNS:%=--runs %) $(MINUTES:%=--minutes %)

# Packages are compiled when they are first imported: most of their modules never are.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --editable

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpeffects needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	$(INSTALL) .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml
	$(INSTALL) ".[dev]"
	@touch $@ $(VENV)/.installed

# Without the extra "data", which brings an older pandas: tests of its data sets are skipped where it is missing.
$(VENV)/.installed-long: $(VENV)/.installed-dev
	$(INSTALL) ".[dev,docs]"
	@touch $@

$(VENV)/.installed-federation: $(VENV)/.installed
	$(INSTALL) ".[federation]"
	@touch $@

$(VENV)/.installed-office: $(VENV)/.installed
	$(INSTALL) ".[office]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) ".[docs,data]"
	@touch $@

$(LOWEST)/.installed: pyproject.toml .ci/lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet --constraint .ci/lowest.txt --editable ".[$(EXTRAS)]" \
		pytest pytest-xdist hypothesis html5lib markdown-it-py
	@touch $@

clean:
	rm -rf docs/_build docs/generated $(VENV) $(LOWEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
