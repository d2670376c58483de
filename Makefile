# flux-dws: everything is set up by the target that needs it.
#
#   make demo     watch a job get storage, from submit to inactive
#   make check    lint, types, tests; t/*.t too when a flux is on PATH
#   make soak     what takes hours, from a drawn seed (SEED=N repeats it): the oldest and
#                 the newest Python, 1,000 seeds of torture, every crash point, the mutants,
#                 the survivors, 20,000 hostile jobs, 2,000 examples of a property, packages
#                 and the manual, the day, long outages of a real Flux, and jobs on it for
#                 an hour; at its end what was skipped, and which tool was missing for it
#   make torture-mutants  whether torture finds what it should (an hour)
#   make survivors  which of 200 small faults (SEED=N, NUMBER=N) the tests do not find,
#                 in portions: it goes on where it was ended (an hour and a half)
#   make docs     the manual: build/html, and doc/man, the man pages as installed
#   make pictures the pictures of the manual (one of them with a Chromium on PATH)
#   make day      a day of a whole machine, simulated, and of one ten times as large:
#                 the numbers, tables and plots of doc/scale.md (half an hour)
#   make day-saving  the same day of a smaller machine in all modes: the numbers, tables
#                 and plots of doc/saving.md (a quarter of an hour)
#   make bench    measure: a table, and a file in bench/results (or OUTPUT=FILE)
#   make bench-compare OLD=... NEW=...  what differs by more than its noise
#   make bench-flame  what the service does, as a flame graph (or OUTPUT=FILE)
#   make wheel    build what make install WHEELS=dist takes
#   make install  for the Flux on PATH, into DEST; make uninstall removes it
#                 WHEELS=DIR: from the wheels in DIR, without a network, and
#                 without a compiler if a wheel of flux-dws is among them
#
# One test: .venv/bin/python -m pytest t/python/test_nodes.py -k drain

# The Python of the Flux on PATH, if there is one: its modules run under it.
PYTHON ?= $(shell flux python -c 'import sys; print(sys.executable)' \
		2>/dev/null || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEST ?= /opt/flux-dws
WHEELS ?=
SPHINX := $(BIN)/sphinx-build -W --keep-going -q -d build/doctrees
# As many workers as cores, and each begins with tests that are beside each other.
PYTEST_FLAGS ?= -n auto --dist worksteal
SOURCES := pyproject.toml setup.py $(shell find src etc doc/help.d doc/man -type f \
		! -name '*.so' ! -name '*.o' ! -name '*.pyc' ! -path '*.egg-info*')

# Without its cache, each process of the tests compiles anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo check lint types pytest flux-check soak soak-pythons soak-torture \
	soak-hostile soak-properties soak-scheduler soak-phases soak-flux soak-day \
	torture-mutants survivors docs pictures day day-saving bench bench-compare \
	bench-flame wheel install uninstall clean

all: $(INSTALLED)

$(BIN)/python:
	./t/setup.sh "$(PYTHON)"
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile 'pip>=25'

# Python compiles what is imported, a quarter of what pip would. (A pip that came with
# Python may take twice as long as a new one. What is left in build/ of modules that are
# gone would be installed again.)
$(INSTALLED): $(BIN)/python $(SOURCES)
	@echo "flux-dws is built into $(VENV): about a minute"
	rm -rf build/lib*
	$(BIN)/python -m pip install --quiet --no-compile '.[test]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python -m rabbitsim demo

# mypy has one thread, and t/*.t wait half of their time.
check: lint pytest
	$(MAKE) --jobs=2 types flux-check

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin --quiet --no-tips --no-parse-comments --violations --target=3.9- \
		--exclude tomllib src bench doc setup.py
	PYTHONPATH=src/pymod $(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy

pytest: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

flux-check: $(INSTALLED)
	./t/run.sh

# What make soak draws; SEED=N repeats it.
DRAWN := $(or $(SEED),$(shell date +%s))

# The short ones first, and the one that says what was skipped at the end: what fails
# before it does not keep it from that. Packages and the manual are tests, which
# soak-properties has.
soak:
	$(MAKE) --keep-going soak-scheduler soak-phases soak-day soak-torture torture-mutants \
		soak-flux survivors soak-hostile soak-properties soak-pythons

# PYTHONS="python3.9 ..." names them; by default the oldest and the newest that are found.
soak-pythons:
	./t/pythons.sh $(PYTHONS)

soak-torture: $(INSTALLED)
	seq $(DRAWN) 20 $$(($(DRAWN) + 999)) | xargs -P "$$(nproc)" -I SEED \
		$(BIN)/python -m rabbitsim torture --seed SEED --seeds 20 --jobs 40

soak-properties: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_FLAGS) --hypothesis-profile=soak \
		--hypothesis-seed=$(DRAWN)

soak-hostile: $(INSTALLED)
	LIMIT=7200 FLUX_DWS_HOSTILE=20000 FLUX_DWS_SEED=$(DRAWN) ./t/run.sh t1020-dws-hostile.t

soak-scheduler: $(INSTALLED)
	FLUX_DWS_SOAK=1 ./t/run.sh t1046-sched-rabbit-stage.t t1047-sched-rabbit-release.t

soak-phases: $(INSTALLED)
	FLUX_DWS_SOAK=1 ./t/run.sh $$(cd t && grep -lE 'test_expect_in_soak|SOAK' t[0-9]*.t)

soak-flux: $(INSTALLED)
	$(BIN)/python bench/soak.py

torture-mutants: $(INSTALLED)
	$(BIN)/python t/mutants.py

survivors: $(INSTALLED)
	$(BIN)/python t/survivors $(if $(SEED),--seed $(SEED)) \
		$(if $(NUMBER),--number $(NUMBER))

# doc/man is in the repository: a node gets the man pages without Sphinx.
docs: $(INSTALLED)
	$(SPHINX) -b html doc build/html
	$(SPHINX) -b man doc doc/man

pictures: $(INSTALLED)
	$(BIN)/python doc/pictures.py

# Without the page, which would differ in the processor times of this machine.
soak-day: $(INSTALLED)
	$(BIN)/python -m rabbitsim day --out build/day
	$(BIN)/python -m rabbitsim day --nodes 111360 --rabbits 6960 --jobs 2083 \
		--hours 0.5 --out build/day-ten

day: soak-day
	$(BIN)/python doc/scale.py build/day build/day-ten

day-saving: $(INSTALLED)
	for stage in prolog ahead; do for release in teardown unmounted; do \
		$(BIN)/python -m rabbitsim day --nodes 704 --rabbits 44 --jobs 625 \
			--stage $$stage --release $$release \
			--out build/saving/$$stage-$$release || exit; \
	done; done
	$(BIN)/python doc/saving.py build/saving

bench: $(INSTALLED)
	$(BIN)/python bench/run.py $(if $(OUTPUT),--output "$(OUTPUT)")

bench-compare: $(INSTALLED)
	$(BIN)/python bench/compare.py --old $(OLD) --new $(NEW)

bench-flame: $(BIN)/py-spy
	$(BIN)/python bench/flame.py $(if $(OUTPUT),--output "$(OUTPUT)")

$(BIN)/py-spy: | $(INSTALLED)
	$(BIN)/python -m pip install --quiet '.[bench]'

# The wheels of flux-dws and of all that it needs, for make install WHEELS=...
wheel: $(BIN)/python
	rm -f "$(or $(WHEELS),dist)"/flux_dws-*.whl
	$(BIN)/python -m pip wheel --quiet --wheel-dir "$(or $(WHEELS),dist)" .

install:
	@PYTHON="$(PYTHON)" ./src/install.sh "$(DEST)" "$(WHEELS)"

uninstall:
	@./src/install.sh --remove "$(DEST)"

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/pymod/*.egg-info
