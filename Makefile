# Two commands set up all they need: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test lint audit faults setup setup-demo clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	$(PIP) install --upgrade 'pip>=25.1'

# A stamp per kind of set-up, made anew when what it depends on changes.
$(VENV)/demo.stamp: $(BIN)/python pyproject.toml hatch_build.py $(wildcard protos/veilset/v1/*.proto)
	$(PIP) install --editable '.[server,embedded]' --group demo
	@touch $@

$(VENV)/test.stamp: $(BIN)/python pyproject.toml hatch_build.py $(wildcard protos/veilset/v1/*.proto)
	$(PIP) install --editable '.[server,embedded,parquet,plot,fast,tracing]' --group dev
	@touch $@ $(VENV)/demo.stamp

setup-demo: $(VENV)/demo.stamp
setup: $(VENV)/test.stamp ## Install everything for development into .venv.

demo: setup-demo ## The main job on a real list; DEMO_FILE=list.txt takes yours.
	$(BIN)/veilset demo --state .demo/state $(if $(DEMO_FILE),--file '$(DEMO_FILE)')

test: setup ## All tests but the long suites, in under five minutes.
	$(BIN)/python -m pytest -m 'not audit and not faults' -n auto --dist loadfile

lint: setup ## ruff, mypy --strict, import-linter, buf.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code

audit: setup ## The long statistical audit.
	$(BIN)/python -m pytest -m audit -s

faults: setup ## The long fault suite: kills, outages, full disks, restored folders.
	$(BIN)/python -m pytest -m faults -s tests/faults tests/integration

clean: ## Remove everything that make made.
	rm -rf $(VENV) .demo build dist client/veilset/v1 .mypy_cache .ruff_cache .pytest_cache .hypothesis
