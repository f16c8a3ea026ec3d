# `make run` serves everything on 127.0.0.1:$PORT; `make test` runs every check. Both need only Python 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# chalice packs with these, and a new environment has the ones that its Python brought, with known weaknesses. They are no
# requirements of the package: that would take them from whatever else is in a user's environment.
PACKERS := 'pip>=26.2,<26.3' 'setuptools>=83,<85'

.PHONY: run demo test check fmt bench audit clean

$(VENV)/run.stamp: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Cascade needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade $(PACKERS)
	$(BIN)/pip install --disable-pip-version-check --quiet --editable .
	touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/run.stamp
	$(BIN)/pip install --disable-pip-version-check --quiet --editable '.[dev]'
	touch $@

run: $(VENV)/run.stamp
	@exec $(BIN)/cascade serve

demo: $(VENV)/run.stamp
	@$(BIN)/cascade demo

test: check
	$(BIN)/pytest -n auto --maxprocesses 4

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/cfn-lint infra/*.yaml

fmt: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks --write

# Looks up the known weaknesses of what the project depends on. It asks a public service, so it is no part of `make test`,
# and --strict: where that service is not reached, pip-audit would else call it a success to have looked nothing up.
# With ADVISORIES=../advisory-database, a checkout of pypa/advisory-database, it asks nobody.
audit: $(if $(ADVISORIES),$(VENV)/dev.stamp)
ifdef ADVISORIES
	@$(BIN)/python -m infra.audit '$(ADVISORIES)'
else
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/pip install --disable-pip-version-check --quiet pip-audit
	$(VENV)-audit/bin/pip-audit --strict --progress-spinner off .
endif

clean:
	rm -rf $(VENV) $(VENV)-audit build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

include deploy.mk
