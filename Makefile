# The two commands: `make up` (a live desk) and `make test` (every test). The rest is in `make help`.

.DEFAULT_GOAL := help
.PHONY: help up down build dashboard templates check test test-all test-rust test-client test-fleet test-chaos test-dialects test-mcp
.PHONY: test-dashboard test-gce test-clouds test-conformance test-conformance-all test-k8s test-bare test-as-root bench bench-scale lint fmt fuzz clean

CARGO ?= cargo

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

up: ## Set everything up, start a fleet and one desk; prints its address
	@scripts/prepare run
	@target/release/hotdesk up

down: ## Stop what `make up` started
	@target/release/hotdesk down

build: dashboard ## Build the binary
	@scripts/build -p hotdesk

dashboard: ## Build the page that is embedded in the binary
	@scripts/dashboard

templates: ## Build the root file systems that tests and benchmarks use
	@target/release/hotdesk template build bare base code desktop openmanus

# Three tiers. `check` is for the inner loop, `test` is what a change must pass, `test-all` is for a release.
check: lint ## Format, lints, unit tests, golden files: minutes
	@scripts/build --workspace --lib --bins --tests
	@scripts/test-rust --unit

test: ## Set everything up and run every test that a change must pass
	@scripts/as-root $(MAKE) --no-print-directory test-as-root

# What needs the processors or compares times has the machine to itself; the rest mostly waits, so it waits together.
test-as-root:
	@scripts/prepare test
	@scripts/together 1 rust \
	  next 5 fleet:shared conformance:e2b conformance:daytona dialects conformance:docker gce dashboard conformance:qemu clouds mcp client \
	  next 1 conformance:osworld fleet:alone

test-all: test ## And the rest: older SDKs, every suite in Docker and on an emulated machine, long chaos, Kubernetes, fuzzing, a bare machine
	@$(MAKE) --no-print-directory test-chaos
	@$(MAKE) --no-print-directory test-conformance-all
	@$(MAKE) --no-print-directory test-k8s
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory test-bare

test-rust: ## Unit and integration tests
	@scripts/test-rust

test-client: ## OSWorld's own client from PyPI against a desk
	@scripts/test-client

test-fleet: ## A whole fleet from outside: life, API, keys, chaos, OSWorld's DesktopEnv
	@scripts/test-fleet

test-chaos: ## Two minutes of kill -9 instead of half a minute
	@HOTDESK_CHAOS_SECONDS=120 scripts/test-fleet test_chaos.py

test-dialects: ## Daytona's and E2B's SDKs from PyPI, as they are, on a fleet
	@scripts/test-dialects

test-mcp: ## The MCP client from PyPI, and computer-use models' actions, on a fleet
	@scripts/test-mcp

test-dashboard: ## The dashboard in a real browser; pictures of its pages end up in target/dashboard-shots
	@scripts/test-dashboard

test-gce: ## Desks at Google, against a stand-in made from Google's description of its API
	@scripts/test-gce

test-clouds: ## Desks at Daytona and E2B, against servers made from their own descriptions
	@scripts/test-clouds

test-conformance: ## The conformance suites, where they are at hand
	@scripts/test-conformance

test-conformance-all: ## The same with older SDKs, timers of minutes and images that are built: an hour
	@HOTDESK_CONFORMANCE_LONG=1 scripts/test-conformance
	@SDK=2.20.3 scripts/test-e2b

test-k8s: ## Real desks on three nodes of a cluster of our own, one of them killed; the scale run in small (root; builds Kubernetes once)
	@scripts/setup kubernetes
	@$(CARGO) build --release --locked --workspace --examples --bins
	@scripts/kubernetes build
	@target/release/hotdesk template build bare
	$(CARGO) test --release --locked --workspace --lib kubernetes
	@scripts/test-kubernetes

bench: dashboard ## Run us and the plain Python way side by side; prints medians and ratios
	@scripts/setup bench
	@$(CARGO) build --release --locked -p hotdesk -p hotdesk-bench
	@bench/run $(BENCH)
	@$(MAKE) --no-print-directory templates
	@bench/fleet $(BENCH_FLEET)
	@bench/disk $(BENCH_DISK)
	@bench/vm
	@bench/view
	@bench/dialects $(BENCH_DIALECTS)

bench-scale: ## 5,000 desks on simulated nodes through a fleet, with losses; draws docs/scale.svg (root; 5 minutes)
	@scripts/setup kubernetes
	@$(CARGO) build --release --locked --workspace --examples --bins
	@scripts/kubernetes build
	@PYTHONPATH=python $$(scripts/python-env tests/fleet) tests/kubernetes/scale.py --out docs/scale.json $(BENCH_SCALE)
	@tests/kubernetes/plot.py docs/scale.json docs/scale.svg docs/scale.md

lint: ## Format, clippy, shell scripts, licences, and that nothing is missing from a list
	@scripts/setup lint
	@$(CARGO) fmt --all --check
	@scripts/lint-shell
	@scripts/check-environments
	@scripts/check-features
	@scripts/test-scripts
	@scripts/deny
	$(CARGO) clippy --release --locked --workspace --all-targets --quiet -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt --all

fuzz: ## Fuzz every parser of outside bytes for a minute
	@scripts/fuzz run 60

test-bare: ## `make up` and `.ci/run` in a fresh Debian, as root and as a user with sudo: hours
	@scripts/bare up ci
	@scripts/bare --user up test

clean: ## Remove what was built
	$(CARGO) clean
