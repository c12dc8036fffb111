# Everything a contributor needs; see `make help`. The environment is .venv, created from requirements/ on first use.

PYTHON ?= python3
EXAMPLE ?= examples/launch-note.playbook.md
ARGS ?=

BIN := .venv/bin
# The tests start thousands of processes; without cached bytecode, each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
heading = @printf '\n==> %s\n'

.DEFAULT_GOAL := help
.PHONY: help demo serve pipeline program agent watch node servers test tests test-bare check chaos real-agent fuzz bench lock build clean browser python environment dev

help: ## Show this list
	@echo 'Cuebook: make COMMAND [PYTHON=python3.12] [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: environment ## Install everything needed and run an example playbook with the embedded model
	$(heading) 'cuebook run $(EXAMPLE) $(ARGS)'
	@$(BIN)/cuebook run --live $(EXAMPLE) $(ARGS)
	@printf '\nThe command is %s: put it on your path with ". .venv/bin/activate", then try "cuebook --help".\n' $(BIN)/cuebook
	@printf '"make serve" does the same in a browser: run the examples, watch, answer and download.\n'

serve: environment ## Serve the web app with the examples; open the link that it prints
	@trap : INT; $(BIN)/cuebook serve --folder examples $(ARGS) || [ $$? -eq 130 ]

pipeline: environment ## Run a release on a scratch git repository: tests, notes, your approval, tag, webhook
	@$(MAKE) --no-print-directory -C examples/release release CUEBOOK=$(CURDIR)/$(BIN)/cuebook $(ARGS)

program: environment ## Talk to a program that splits bills; without a terminal, the answers are read from stdin
	$(heading) 'cuebook run examples/bill/bill.pbasm $(ARGS)'
	@CUEBOOK=$(CURDIR)/$(BIN)/cuebook sh examples/bill/demo.sh $(ARGS)

agent: environment ## Watch nodes that work on their own find a bug, fix it and open a pull request, on this machine alone
	@CUEBOOK=$(CURDIR)/$(BIN)/cuebook sh examples/triage/demo.sh $(ARGS)

watch: dev browser ## Watch a page of a local shop in a browser, and order when the price falls and you agree (ARGS=approve)
	@CUEBOOK=$(CURDIR)/$(BIN)/cuebook sh examples/watch/demo.sh $(ARGS)

node: environment ## Run a command on a second machine after two of three people approved (ARGS=approve)
	@CUEBOOK=$(CURDIR)/$(BIN)/cuebook sh examples/second-machine/demo.sh $(ARGS)

servers: dev ## Start a Postgres and a Temporal server on loopback, to try several workers (docs/guides/scale.md)
	@$(BIN)/python scripts/servers.py .servers

test: check ## Run the checks below, then all tests (ARGS go to pytest)
	$(heading) 'Tests (pytest)'
	@$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

tests: test

# The folders and files whose tests use an optional program.
OPTIONAL := tests/gate tests/performers tests/packaging tests/dialects/pipeline tests/surfaces/web/browser \
  tests/dialects/program/machine/test_python_playbooks.py tests/examples/test_release.py tests/examples/test_watch.py tests/surfaces/cli/test_completion.py \
  tests/docs/test_web_guide.py

test-bare: dev ## Run the tests that use optional programs (bubblewrap, chromium, curl, git), with those programs hidden
	$(heading) 'Tests (pytest), optional programs hidden'
	@$(BIN)/python scripts/bare.py $(CURDIR)/$(BIN)/python -m pytest -n 3 --dist worksteal $(OPTIONAL) $(ARGS)

check: dev ## Check format, lint, types and import rules
	$(heading) 'Format (ruff format)'
	@$(BIN)/ruff format --check .
	$(heading) 'Lint (ruff check)'
	@$(BIN)/ruff check .
	$(heading) 'Types (mypy)'
	@$(BIN)/mypy
	$(heading) 'Import rules (import-linter)'
	@$(BIN)/lint-imports --no-cache --no-logo

browser: ## Install a browser for the page tests, if there is none (Debian, as root)
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { \
	  apt-get install -y --no-install-recommends chromium fonts-liberation || { \
	    apt-get update && apt-get install -y --no-install-recommends chromium fonts-liberation; }; }

chaos: dev ## Kill processes at every write and at random moments, and run in full all other tests that the suite only samples
	@CUEBOOK_THOROUGH=1 $(BIN)/python -m pytest -n 2 $$(grep -rl --include='test_*.py' 'tests\.support\.sampling' tests) $(ARGS)

# The agents' own packages are fetched from the npm registry into .agents/. The others together take about 1 GB:
# make real-agent AGENTS="opencode-ai @agentclientprotocol/claude-agent-acp @agentclientprotocol/codex-acp @google/gemini-cli"
AGENTS ?= opencode-ai
real-agent: dev ## Let a real coding agent (opencode, from its package) execute a playbook with a scripted model; try others (AGENTS)
	@npm install --silent --no-audit --no-fund --prefix .agents $(AGENTS)
	@OPENCODE=$$(ls -d $(CURDIR)/.agents/node_modules/opencode-*/bin/opencode | grep -v baseline | head -1) \
	  AGENTS=$(CURDIR)/.agents/node_modules/.bin \
	  $(BIN)/python -m pytest --timeout 300 tests/real_agents/opencode.py tests/real_agents/handshakes.py $(ARGS)

fuzz: dev ## Feed mutated playbooks to the Markdown parser for five minutes (ARGS="--seconds 60")
	@$(BIN)/python -m tests.dialects.markdown.parse.fuzz --seconds 300 $(ARGS)

bench: dev ## Measure durable steps, parsing and programs against raw SQLite and other engines (ARGS go to bench/run.py)
	@$(BIN)/python -m bench.run $(ARGS)

build: dev ## Build the wheel and the source archive into dist/
	@$(BIN)/python -m build --no-isolation $(ARGS)

lock: python ## Rewrite requirements/*.txt from pyproject.toml (ARGS=--upgrade for newer versions)
	@$(PYTHON) scripts/environment.py .venv-lock requirements/lock.txt
	@PATH="$(CURDIR)/.venv-lock/bin:$$PATH" python scripts/lock.py $(ARGS)

clean: ## Remove environments, caches and build results
	@rm -rf .agents .servers .venv .venv-lock bench/.envs dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A mistyped target.
.DEFAULT:
	@echo 'make: there is no command "$@". The commands are:' >&2
	@$(MAKE) --no-print-directory help >&2
	@exit 2

environment: python
	@$(PYTHON) scripts/environment.py --project .venv requirements/run.txt requirements/build.txt requirements/model.txt

dev: python
	@$(PYTHON) scripts/environment.py --project .venv requirements/dev.txt requirements/model.txt

python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo '$(PYTHON) was not found. Install Python 3.11 or newer, or give its path: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Cuebook needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V 2>&1`." >&2; \
	  echo 'Install a newer version, or select one: make PYTHON=python3.12 ...' >&2; exit 1; }
