# Two commands set up all they need: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
unexport PYTHONDONTWRITEBYTECODE # the tests start hundreds of processes, which shall not compile everything anew

.PHONY: help demo docs test lint audit bench faults large spark security soak deploy-check fuzz tutorials examples setup setup-demo clean

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

# Peers are installed one by one; one that cannot be had is told in the table.
$(VENV)/bench.stamp: $(VENV)/test.stamp
	PYTHONPATH=tests $(BIN)/python -m benchmarks.install
	@touch $@

setup-demo: $(VENV)/demo.stamp
setup: $(VENV)/test.stamp ## Install everything for development into .venv.

demo: setup-demo ## The main job on a real list; DEMO_FILE=list.txt takes yours.
	$(BIN)/veilset demo --state .demo/state $(if $(DEMO_FILE),--file '$(DEMO_FILE)')

test: setup ## All tests but the long suites, in under five minutes.
	$(BIN)/python -m pytest -m 'not audit and not faults and not large and not spark and not soak and not deploy and not security and not examples' -n 4 --dist loadfile

lint: setup ## ruff, mypy --strict, import-linter, buf, spelling.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell client server protos docs deploy tests README.md CHANGELOG.md
	cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code

$(VENV)/docs.stamp: $(VENV)/test.stamp
	$(BIN)/python -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip --disable-pip-version-check --quiet install --upgrade 'pip>=25.1'
	$(VENV)/docs/bin/python -m pip --disable-pip-version-check --quiet install --group contract-docs
	@touch $@

docs: setup $(VENV)/docs.stamp ## The API reference of library and service, into build/docs.
	mkdir -p build/docs
	$(BIN)/python -W error -m pdoc -o build/docs/library veilset '!veilset.core' '!veilset.cli' '!veilset.v1'
	$(BIN)/buf build protos -o build/docs/contract.binpb --as-file-descriptor-set
	cd docs && ../$(VENV)/docs/bin/sabledocs

audit: setup ## The long statistical audit.
	$(BIN)/python -m pytest -m audit -s

faults: setup ## The long fault suite: kills, outages, full disks, restored folders; under 15 minutes on two cores.
	$(BIN)/python -m pytest -m faults -n auto --dist worksteal tests/faults tests/integration tests/e2e

fuzz: setup ## FUZZ_RUNS=300000 inputs for each reader of hostile bytes.
	$(PIP) install --group fuzz
	$(BIN)/python tests/fuzz/fuzzing.py --runs $(or $(FUZZ_RUNS),300000) --seconds $(or $(FUZZ_SECONDS),900)

tutorials: setup ## Run the pages of docs/tutorials, and make their figures and notebooks anew.
	$(BIN)/python docs/tutorials/run.py

examples: setup ## Notebooks of docs/tutorials in a Jupyter kernel, with small lists, and the programs of docs/examples.
	$(BIN)/python -m pytest -m examples tests/e2e/test_tutorials.py tests/e2e/test_examples.py

large: setup ## A vector of 5·10^9 bits, 600 MiB, from upload to reader, and lists of 10^7 lines; needs 4 GB of disk and of memory.
	$(BIN)/python -m pytest -m large -s

$(VENV)/spark.stamp: $(VENV)/test.stamp
	$(PIP) install --editable '.[spark]'
	@touch $@

spark: setup $(VENV)/spark.stamp ## A data frame's column into a set by a real Spark in local mode; needs Java 17.
	$(BIN)/python -m pytest -m spark -s

security: setup ## Hostile clients at full size: resets, stalls, floods, guesses; honest ones' times beside them.
	$(BIN)/python -m pytest -m security -s tests/e2e tests/integration tests/statistical

soak: setup ## SOAK_MINUTES=30 of mixed load with restarts and Redis failures.
	$(BIN)/python -m pytest -m soak -s tests/faults/test_soak.py

deploy-check: setup ## deploy/ under Helm, hadolint, promtool, systemd-analyze and whatever else of the kind is there.
	$(PIP) install --group deploy
	$(BIN)/python -m pytest -m deploy -ra tests/deploy

bench: setup $(VENV)/bench.stamp ## Measure against the peers; BENCH='--rows ingest --json bench.json' chooses.
	PYTHONPATH=tests $(BIN)/python -m benchmarks.runner $(BENCH)

clean: ## Remove everything that make made.
	rm -rf $(VENV) .demo build dist client/veilset/v1 .mypy_cache .ruff_cache .pytest_cache .hypothesis
