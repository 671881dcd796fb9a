# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What builds the package is pinned too: pip before 25.3 reads the first, later ones the second.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
EXTRAS := torch,data,report,flower,simulation,onnx,dev

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz lint types check docs wheel release test-flower test-flower-versions flower-secure lock sbom audit bench reproduce clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

$(VENV)/.ready: pyproject.toml constraints.txt locked.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedmerit needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT= $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r locked.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

setup: $(VENV)/.ready  ## make .venv and install everything into it

demo: setup  ## 40 % of the clients are poisoned: FedAvg against recipes that notice; tables, an HTML report
	rm -rf demo
	$(BIN)/fedmerit demo

test: setup  ## all tests
	$(BIN)/python -m pytest -n 3 --dist worksteal

fuzz: setup  ## the fuzzers of the tests with 20 times as many inputs (an hour)
	FEDMERIT_FUZZ=20 $(BIN)/python -m pytest -n 2 tests/flower/test_fuzzed_replies.py tests/config/test_fuzzed_configs.py \
	  tests/tasks/test_fuzzed_files.py tests/store/test_verify.py

lint: setup  ## ruff, and ESLint for the report's JavaScript (skipped, saying so, without node)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	sh tools/eslint/lint.sh

types: setup  ## mypy --strict
	$(BIN)/mypy

check: lint types test  ## lint, types and tests: what continuous integration runs

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## the site in site/: five notebooks executed, links, spelling, barriers (4 minutes); no network
	$(BIN)/python -m pytest tests/test_docs.py tests/test_pictures.py
	$(BIN)/python tools/site/build.py

wheel: setup  ## wheel and source archive in dist/, built to the same bytes twice and tried alone, without torch
	rm -rf build dist
	$(BIN)/python tools/release.py dist

release: setup  ## as wheel, and all tests against the installed wheel in a fresh environment (15 minutes)
	rm -rf build dist
	$(BIN)/python tools/release.py dist --tests

test-flower: setup  ## the long tests: the grid of liars; on Flower the deployment of the docs, kills, hostile and sleeping nodes, recipes and apps (40 minutes)
	$(BIN)/python -m pytest -m long tests

test-flower-versions: setup  ## Merit's tests on the oldest and the newest release of Flower; needs a network
	$(BIN)/python tools/flower_versions.py

flower-secure: setup  ## a deployment on loopback with TLS and node keys: who is refused, and a run
	$(BIN)/python examples/flower_secure.py

lock: setup  ## locked.txt anew, of constraints.txt: versions with the hashes of their files; needs a network
	$(BIN)/python tools/lock.py '$(EXTRAS)'

sbom: setup  ## what .venv consists of, as CycloneDX in sbom.json
	$(BIN)/python tools/sbom.py > sbom.json

audit: setup  ## offline: installed files against their hashes and the lock; known weaknesses with ADVISORIES=DIR, a copy of github.com/pypa/advisory-database
	$(BIN)/python tools/audit.py $(ADVISORIES)
	@echo "newer weaknesses, over a network: pip-audit --requirement locked.txt --require-hashes --disable-pip"

bench: setup  ## speed and memory against peers (hours); writes runs/bench.md
	$(BIN)/python benchmarks/bench.py

reproduce: setup  ## a published table again, e.g. TABLE=pmcfl-table4, into runs/; without TABLE the list
	$(BIN)/python -m reproductions $(if $(TABLE),$(TABLE) --out runs/$(TABLE),--list)

clean:  ## remove what the commands above made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo site tools/eslint/node_modules tools/axe/node_modules
