# Each target does all that it needs, on a fresh machine too. `make help` lists them.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Set PYTHON to choose the interpreter that .venv is made from: make demo PYTHON=/path/to/python3.12
PYTHON ?=
PYTHON_CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3.10 python3)
# Passes on an interpreter that runs, is of a version that all requirements are published for, and
# can make virtual environments.
PYTHON_IS_SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))

VENV := .venv
# AllenNLP's metadata contradicts what is installed on purpose; pip need not say so every time.
# Most modules are never imported: each is compiled when it is, not now.
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --no-compile

# What a processor without AVX-512 runs.
WITHOUT_AVX512 := ELMO_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2

# Where results depend on the vector units: the other tests of the biLM name their unit, or compute nothing.
TESTS_OF_ARITHMETIC := tests/bilm/{bilm,character_encoder,frozen,kept_vectors,lstm,many_langs,threads}_test.py tests/bilm/simd/library_test.py \
  tests/bilm/runners_test.py::TestChoice tests/modules/elmo_test.py tests/modules/elmo_snapshot_test.py

# Else each of the many programs that tests start would compile torch and AllenNLP anew.
unexport PYTHONDONTWRITEBYTECODE

# Stamps are written last, so an interrupted step is done again. A changed prerequisite does it again too.
PYTHON_STAMP := $(VENV)/.stamp-python
RUNTIME_STAMP := $(VENV)/.stamp-runtime
DEV_STAMP := $(VENV)/.stamp-dev

# Workers take whole files, whose fixtures are made once, in the order of tests/conftest.py: xdist would keep files of
# few tests for the end.
PYTEST := -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
COVERAGE := $(VENV)/bin/python -m coverage
# Not by pytest-cov: in the workers of pytest-xdist it starts after the package is imported.
define TEST
	$(COVERAGE) erase
	$(COVERAGE) run $(PYTEST) $(1)
	$(COVERAGE) combine --quiet
	$(COVERAGE) report
endef

.PHONY: help demo docs compile test test-all test-torch attack sanitize lint audit wheels release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUNTIME_STAMP) ## train and try a small ELMo tagger on real text
	@$(VENV)/bin/python scripts/demo.py

docs: $(DEV_STAMP) ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs --quiet build --strict
	@echo "Open site/index.html, or serve it: $(VENV)/bin/python -m http.server --directory site"

compile: $(RUNTIME_STAMP) ## compile the C++ again if it was changed; an error ends it
	@ELMO_BUILD_MACHINE=$$(uname -m) $(VENV)/bin/python setup.py --quiet build_ext --inplace

test: $(DEV_STAMP) ## run the tests but the slow ones, with coverage of the package
	$(call TEST,-m "not slow")

test-all: $(DEV_STAMP) ## run all tests: the slow ones too, and those of the biLM's arithmetic as on a processor without AVX-512
	$(call TEST)
	@if grep -qs avx512f /proc/cpuinfo; then \
	  set -x; $(WITHOUT_AVX512) $(VENV)/bin/python $(PYTEST) -m "not slow" $(TESTS_OF_ARITHMETIC); \
	fi

test-torch: ## run the tests of the core without AllenNLP, with another torch or Python: make test-torch TORCH=2.4.1 PYTHON=python3.10
	@test -n "$(TORCH)" || { echo "Name a version: make test-torch TORCH=2.4.1" >&2; exit 1; }
	$(or $(PYTHON),python3) -m venv --clear .venv-torch-$(TORCH)
	.venv-torch-$(TORCH)/bin/python -m pip install --quiet "setuptools>=77" wheel torch==$(TORCH)
	.venv-torch-$(TORCH)/bin/python -m pip install --quiet --no-build-isolation --editable . hypothesis pytest safetensors
	.venv-torch-$(TORCH)/bin/python -m pytest tests/bilm tests/modules

attack: $(DEV_STAMP) ## attack what the package promises with random input, ten minutes: make attack OPTIONS="--minutes 60"
	$(VENV)/bin/python -m attacks $(OPTIONS)

sanitize: $(DEV_STAMP) ## attack the C++ under the address, undefined behavior and thread sanitizers (half an hour): make sanitize OPTIONS="threads --trials 50"
	$(VENV)/bin/python -m attacks.sanitizers $(OPTIONS)

lint: $(DEV_STAMP) ## check style, format, types, and the workflow by its schema
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Strict: a package that the service does not know, or cannot be asked about, is an error.
audit: ## ask PyPI for known vulnerabilities of all pinned packages, but those in audit-exceptions.txt
	$(or $(PYTHON),python3) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements-dev.txt pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps $(patsubst %,-r %,$(sort $(wildcard requirements*.txt))) \
	  $(patsubst %,--ignore-vuln %,$(shell sed 's/#.*//' audit-exceptions.txt))

wheels: ## build the source archive and the wheels into dist/
	PYTHON="$(PYTHON)" scripts/wheels.sh

release-check: wheels ## install them into empty environments and run docs/start.md there: make release-check OPTIONS="--python 3.11 --torch newest"
	.venv-wheels/bin/python -m scripts.release_check $(OPTIONS)

clean: ## remove caches and build leftovers; .venv and runs/ stay
	rm -rf build dist site .venv-torch-* .venv-audit .venv-wheels *.egg-info htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(PYTHON_STAMP):
	@if $(VENV)/bin/python -c '$(PYTHON_IS_SUITABLE)' 2>/dev/null \
	    && $(VENV)/bin/python -m pip --version >/dev/null 2>&1; then \
	  echo "Using the $(VENV) that is here."; \
	else \
	  python=; \
	  for candidate in $(PYTHON_CANDIDATES); do \
	    if "$$candidate" -c '$(PYTHON_IS_SUITABLE)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "No Python 3.10, 3.11, 3.12 or 3.13 that runs and has its venv module (tried: $(PYTHON_CANDIDATES))." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$python" --version)."; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@touch $@

$(RUNTIME_STAMP): $(PYTHON_STAMP) requirements.txt requirements-nodeps.txt pyproject.toml setup.py $(wildcard elmo_plugin/bilm/simd/*.cpp elmo_plugin/bilm/simd/*.h)
	@echo "Installing what elmo_plugin needs into $(VENV) (the first time this downloads a few GB and takes minutes) ..."
	@$(PIP_INSTALL) --constraint requirements.txt setuptools wheel
	@# This package is compiled while the others are downloaded.
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable . & compiling=$$!; \
	  $(PIP_INSTALL) --no-build-isolation -r requirements.txt && \
	  $(PIP_INSTALL) --no-deps --constraint requirements-nodeps.txt allennlp && \
	  wait $$compiling
	@touch $@

$(DEV_STAMP): $(RUNTIME_STAMP) requirements-dev.txt
	@echo "Installing what the tests, checks and pages need into $(VENV) (a minute the first time) ..."
	@$(PIP_INSTALL) --no-build-isolation -r requirements-dev.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation -r requirements-nodeps.txt
	@touch $@
