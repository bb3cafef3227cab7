# Each command is defined once, here; CI and people call the same targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 4  # tests at once; most of them wait for replicas

.DEFAULT_GOAL := help
.PHONY: help run browser test check format migrate bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.txt requirements-browser.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; found $$($(PYTHON) --version 2>&1). Set PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the requirements into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

run: $(READY) ## start everything locally and show it
	@$(BIN)/python manage.py dev

browser: ## install Debian's Chromium, for scans with engine: browser
	@sh tests/install_browser.sh

test: $(READY) ## run all tests against real servers; ARGS="tests/unit -k cron" runs a part, one by one
	@sh tests/install_browser.sh || echo "The tests of the browser engine will fail."
	@$(BIN)/pytest $(if $(ARGS),$(ARGS),-n $(strip $(WORKERS)) --dist loadgroup)

check: $(READY) ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## format the code, sort the imports
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

migrate: $(READY) ## bring the database to the newest schema
	@$(BIN)/python run_migrations.py

bench: $(READY) ## measure; ARGS=--quick for a look, PEERS=1 beside other schedulers
	@$(BIN)/python -m benchmarks $(if $(PEERS),--peers) $(ARGS)

clean: ## remove the virtual environment, caches and embedded servers' data
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m services.embedded stop || true; fi
	rm -rf $(VENV) .embedded .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
