# One command sets up, checks and shows. Everything is made inside this folder, but the system packages Java,
# kcat and Chromium, which are installed only where the machine lets us (root with apt-get) and asked for elsewhere.

BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest
PARTS ?= 3
PROOF := $(addprefix tests/acceptance/test_, kills.py killed_at_steps.py group.py commits_disturbed.py revoke.py failures.py parallel.py exactly_once.py cluster.py frames.py stopping.py hygiene_of_sinks.py no_python.py three_nodes.py) \
	tests/postgres/test_crashes.py $(addprefix tests/spark/test_, patterns.py lost.py on_error.py parallel.py to_kafka.py to_postgres.py rewind_running.py)
# From both ends (tests/both_ends.py): what takes long is first and last, so that all parts end at about the same time,
# and what one server or one Spark session serves stands together.
REST := tests/acceptance tests/docs tests/browser tests/web tests/broker tests/postgres tests/spark

# The rings come in order, the quick ones first, whatever -j says.
.NOTPARALLEL:
.PHONY: test unit rest lint format demo docs bench bench-sinks proof chaos soak clean setup java kcat chromium jars registry archives

test: lint unit rest

# Pure thinking, no network: seconds.
unit: setup
	$(PYTEST) -n $(PARTS) tests/unit

# Three parts side by side, file by file, each with one broker: most of a test's time is waiting, for sessions that
# end and Sparks that start. PARTS=0 runs all in one process, with its output as it comes.
rest: setup java kcat chromium jars registry archives
	$(PYTEST) -p tests.both_ends -n $(PARTS) --dist loadfile --no-loadscope-reorder $(REST)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The whole thing on this machine: a broker, a pipeline, a crash, a restart.
demo: setup java
	$(BIN)/tidegate demo

# The documentation as a site of its own: open site/index.html. A link that leads nowhere is an error.
docs: setup
	$(BIN)/python scripts/build_docs.py

# How fast it is beside its peers, and how often the laws hold under faults. WORK=A is a part, QUICK=1 a trial.
bench: setup java jars archives
	$(BIN)/python -m bench $(WORK) $(if $(QUICK),--quick)

# The same for the sinks that keep the marks, for DataFrames, for lanes and partitions, and for Python workers.
bench-sinks: setup java jars
	$(BIN)/python -m bench.exactly_once
	$(BIN)/python -m bench.postgres
	$(BIN)/python -m bench.kafka_to_postgres
	$(BIN)/python -m bench.dataframes
	$(BIN)/python -m bench.lanes
	$(BIN)/python -m bench.workers

proof: setup java jars archives
	PROOF_SCHEDULES=50000 $(PYTEST) tests/unit/test_ledger.py
	PROOF_DRIVER_SCHEDULES=600000 $(PYTEST) tests/unit/test_driver_schedules.py
	PROOF_KILLS=20 PROOF_HANDOVERS=20 PROOF_OUTAGE=180 PROOF_BOTH_WAYS=1 $(PYTEST) $(PROOF)
	PROOF_GROUPS=400 PROOF_REQUESTS=100 $(PYTEST) tests/web/test_many_groups.py tests/web/test_any_request.py
	$(PYTEST) tests/proof
	$(MAKE) chaos SECONDS=900 SEED=$(SEED)
	$(MAKE) chaos SECONDS=300 SEED=$(SEED) EVERY=10 NODES=3 PIPELINES=function,later,http,kafka-once,kafka-ordered,postgres

# Random faults against running pipelines, then the laws. A seed that failed can be run again: make chaos SEED=1.
# NODES=3: a Kafka of three nodes, which are killed, restarted and lost one by one.
SECONDS := 60
SEED := 1
EVERY := 4
NODES := 1
PIPELINES := function,keys,later,ragged,lists,children,http,kafka,kafka-once,kafka-ordered,postgres,frames,jdbc
chaos: setup java jars archives
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) --every $(EVERY) --nodes $(NODES) --pipelines $(PIPELINES) --json chaos-report.json

# An hour, or as long as MINUTES says: is memory steady, does nothing pile up?
soak: setup java jars
	$(BIN)/python -m tests.soak --kind $(or $(KIND),object) --minutes $(or $(MINUTES),60) --json soak.json

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@python=$$(scripts/find-python) && { test -x $(BIN)/python || "$$python" -m venv .venv; }
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

java:
	@scripts/need-java

kcat:
	@scripts/need-kcat

chromium:
	@scripts/need-chromium

# Kafka's jars, once: a download is no part of a test's time.
jars: setup java
	@$(BIN)/python -m tidegate.dev.jars

# The schema registry that the tests use, and PostgreSQL's driver for Java, once.
registry: setup java
	@$(BIN)/python -m tests.registry_server
	@$(BIN)/python -m tests.postgres_driver

# Java's classes in the form that starts quickest, once: the tests start Spark a hundred times.
archives: setup java
	@$(BIN)/tidegate prepare || echo "the tests take some minutes longer"

# The virtual environment and the downloaded jars stay.
clean:
	rm -rf build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
