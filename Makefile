# make demo: the main job on real data.  make test: everything that must hold.  make help: the rest.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
# What is in one group runs in one process. A process that dies ends the run, which says which test was under way.
SPREAD := --dist loadgroup --max-worker-restart=0 -q
# Or every process that a test starts compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE
CODE := src tests scripts examples $(wildcard benchmarks)

.PHONY: help setup postgres postgres-versions mariadb mysql mysql8 kafka s3 azure bytewax archives demo demo-late demo-kafka demo-postgres test lint types unit long iceberg mutants oldest chaos simulate format bench walk docs lock clean
help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

setup: ## create .venv from the lock file, look for Java
	@./scripts/setup.sh

postgres: ## look for PostgreSQL, of which the tests start a server of their own
	@./scripts/postgres.sh

mariadb: ## look for MariaDB, of which `make long` starts servers of its own
	@./scripts/mariadb.sh

mysql: ## fetch MySQL 5.6, of which `make long` starts servers of its own
	@./scripts/mysql.sh 5.6

mysql8: ## fetch MySQL 8.0, of which `make long` starts servers of its own
	@./scripts/mysql.sh 8.0

postgres-versions: setup ## fetch PostgreSQL 12 to 18, of which `make long` starts servers of its own
	@$(BIN)/python scripts/postgres_versions.py

kafka: setup ## fetch Kafka, of which the tests start a broker of their own
	@$(BIN)/python scripts/kafka.py

demo: setup ## the main job on real data, with a crash in the middle
	@$(BIN)/python examples/flights/demo.py

demo-late: setup ## a table that is added in the midst of the year of flights, without Spark
	@$(BIN)/python -m examples.flights.late

demo-kafka: kafka ## from Kafka to tables on a real broker, with the lag in Kafka's own tool
	@$(BIN)/python examples/kafka/demo.py

demo-postgres: setup postgres ## from a database to tables: pgbench runs, the driver is killed, the sums agree
	@$(BIN)/python examples/postgres/demo.py

test: lint types unit ## everything that must hold (9 minutes at most)

lint: setup ## style, format, import contracts, names, prose, generated pages
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python scripts/error_page.py --check
	$(BIN)/python scripts/cases.py --check
	$(BIN)/python scripts/names.py
	$(BIN)/python scripts/prose.py --check

types: setup ## mypy strict and pyright, side by side
	@$(BIN)/mypy & mypy=$$!; $(BIN)/pyright && wait $$mypy

s3: setup ## make an environment with an S3-compatible server, of which the tests start one
	@$(BIN)/python scripts/environments.py s3

azure: setup ## make an environment with an emulator of Azure's blobs, for `make long`
	@$(BIN)/python scripts/environments.py azure

bytewax: setup ## make an environment with a foreign connector for bytewax, and the Redis that it reads, for `make long`
	@$(BIN)/python scripts/environments.py bytewax

iceberg: setup ## make an environment with the Spark and the DuckDB that read Iceberg, and a REST catalog, for `make long`
	@$(BIN)/python scripts/environments.py iceberg

archives: setup kafka ## archive the classes that the tests' JVMs load, so that they come up sooner
	@$(BIN)/python scripts/archives.py

unit: setup postgres kafka s3 archives ## tests and doctests, three at a time: many of them wait for a disk, a server or a process
	$(BIN)/pytest -n 3 $(SPREAD) -m "not long"

long: setup postgres postgres-versions mariadb mysql mysql8 kafka s3 azure bytewax iceberg archives ## the rest: clusters of three, old versions, chaos (35 minutes at most)
	TIDEGAUGE_DEEP=1 $(BIN)/pytest -n 2 $(SPREAD) -m "(long or deep) and not later"
	@$(MAKE) --no-print-directory mutants MUTANTS=--fourth
	@$(MAKE) --no-print-directory oldest

mutants: setup s3 postgres postgres-versions mariadb mysql mysql8 ## plant bugs, one at a time, and see that each is found (MUTANTS='zombie lease': which; --fourth: every fourth one)
	$(BIN)/python scripts/mutants.py $(MUTANTS)

oldest: setup kafka ## the main job on the oldest versions that are declared, in an environment of their own
	@$(BIN)/python scripts/oldest.py

chaos: postgres kafka ## kill and freeze drivers, broker and store at random instants (CHAOS='--seed N --seconds S')
	$(BIN)/python -m tests.chaos $(CHAOS)

simulate: setup ## simulate the flow of the tests from N seeds on all cores; SIMULATE='--first 500 shop.py' sets more
	@$(BIN)/python scripts/simulate.py --seeds $(or $(N),10000) $(SIMULATE)

format: setup ## put everything into the one style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup s3 ## measure beside the peers, print the table
	$(BIN)/python -m benchmarks

walk: kafka ## follow one message from a topic to a table (WALK=--modules: which)
	$(BIN)/python scripts/walk.py $(WALK)

docs: setup ## write the generated pages anew
	$(BIN)/python scripts/error_page.py
	$(BIN)/python scripts/cases.py
	$(BIN)/python scripts/prose.py

lock: setup ## write the lock file anew from pyproject.toml (needs uv)
	./scripts/lock.sh --upgrade

clean: ## remove what was generated
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse demo-data
