# Each command is defined once, here; CI and people call the same targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.ready-to-run
READY := $(VENV)/.ready
WORKERS ?= 4  # tests at once; most of them wait for replicas
CORE := tests/unit tests/integration/test_distributed_lock.py $(addprefix tests/integration/,engine ledger schedules database)

.DEFAULT_GOAL := help
.PHONY: help run browser test quick check format migrate bench faults simulate mutants prove clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUNS): requirements.txt requirements-run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || { echo "making a virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python .ci/install.py "what running needs" -r requirements-run.txt
	@touch $@

$(READY): $(RUNS) requirements-apprise.txt requirements-async.txt requirements-browser.txt requirements-celery.txt requirements-dev.txt
	@$(BIN)/python .ci/install.py "the development tools" -r requirements-dev.txt
	@touch $@

run: $(RUNS) ## start everything locally and show it; FLEET=1 runs the scans on two Celery workers
	@$(if $(FLEET),$(BIN)/python -c 'import celery' 2>/dev/null || $(BIN)/python .ci/install.py "Celery" -r requirements-celery.txt)
	@$(BIN)/python manage.py dev $(if $(FLEET),--fleet)

browser: $(RUNS) ## install Debian's Chromium, for scans with engine: browser
	@sh tests/support/install_browser.sh
	@$(BIN)/python .ci/install.py "what drives the browser" -r requirements-browser.txt

test: $(READY) ## run all tests against real servers; ARGS="tests/unit -k cron" runs a part, one by one
	@sh tests/support/install_browser.sh || echo "The tests of the browser engine will fail."
	@sh tests/support/install_rabbitmq.sh || echo "The test with RabbitMQ will be skipped."
	@$(BIN)/pytest $(if $(ARGS),$(ARGS),-n $(strip $(WORKERS)))

quick: check ## the checks, the unit tests and the core of the integration tests, in two minutes
	@$(BIN)/pytest $(CORE) -n $(strip $(WORKERS))

check: $(READY) ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## format the code, sort the imports
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

migrate: $(RUNS) ## bring the database to the newest schema
	@$(BIN)/python run_migrations.py

bench: $(READY) ## measure; ARGS=--quick for a look, PEERS=1 compares with other schedulers
	@$(BIN)/python -m benchmarks $(if $(PEERS),--peers) $(ARGS)

faults: $(READY) ## break real replicas for MINUTES=5 by a SEED=… and judge from outside; ARGS=--help shows more
	@$(BIN)/python -m tests.proof.fault_run --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: $(READY) ## play RUNS=1000 histories of virtual replicas from SEED=1 on and judge them; ARGS=--help shows more
	@$(BIN)/python -m tests.proof.simulation --seed $(or $(SEED),1) --runs $(or $(RUNS),1000) $(ARGS)

mutants: $(READY) ## take one defence away at a time: a test must notice; SAMPLE=40 SEED=1 draws others; ARGS=--list names them
	@$(BIN)/python -m tests.proof.mutants --jobs $(or $(JOBS),2) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

prove: $(READY) ## break it for five minutes, simulated and for real, and write proof.html; SEED=… repeats the same
	@$(BIN)/python -m tests.proof.prove $(if $(SEED),--seed $(SEED)) $(ARGS)

clean: ## remove the virtual environment, caches and embedded servers' data
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m services.embedded stop || true; fi
	rm -rf $(VENV) .embedded proof.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
