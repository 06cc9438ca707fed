# Two commands do all: `make bench` and `make test`. `make help` lists the rest.
GO       ?= go
VM       ?= auto
# Inputs, not seconds: at the end of a time Go's fuzzing engine now and then fails
# with "context deadline exceeded" (it compares two contexts of which one ends later).
FUZZTIME ?= 2000x
# Of one package: it ends a hang, on a machine with other work as well.
LIMIT    ?= 40m
# What `make test` runs, and on which packages of this module and in which others.
TESTS    ?= lint unit debug race nocgo fuzz launchers device
UNITPKGS ?= ./...
DEBUGPKGS ?= . ./rmanet ./internal/...
RACEPKGS ?= $(UNITPKGS)
MODULES  ?= metrics examples/grpc bench/peers
OUT      ?= out
# Flags of `rmabench report`, such as "--time 10ms --sizes 8,4K,1M".
BENCH    ?=
# no: `make bench` and `make test` install nothing as root either, they say what.
INSTALL  ?= auto
export INSTALL
export GOFLAGS := -buildvcs=false $(GOFLAGS)

# Tests run with settings of their own: what the caller set, in the environment or
# behind make, is taken away, so that `make test RMA_FABRIC=tcp` is `make test`. Set
# it for `go test ./package` instead. These are for the tests' own running, and mean
# the same in both places: RMA_REQUIRE_RDMA=1 demands a device and a C compiler,
# RMA_REQUIRE_LAUNCHERS=1 the launchers, both only of the parts that need them.
# `make bench` measures with the settings that it is given.
ifeq ($(filter bench,$(MAKECMDGOALS)),)
$(foreach v,$(filter-out RMA_SOFTROCE_CACHE RMA_TEST_SLOW,$(filter RMA_%,$(.VARIABLES))),$(eval unexport $v))
endif
RMA_REQUIRE_RDMA ?=
RMA_REQUIRE_LAUNCHERS ?=
REQUIRED = RMA_REQUIRE_RDMA=$(RMA_REQUIRE_RDMA) RMA_REQUIRE_LAUNCHERS=$(RMA_REQUIRE_LAUNCHERS)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: build deps fresh test abi unit debug bench lint race nocgo cross test32 portable fuzz softroce softroce-selftest softroce-perf launchers chaos suites clean help

SOFTROCE = SOFTROCE_CMD=$(1) tests/softroce/run

build: ## build every package, and the commands into bin/
	@mkdir -p bin
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

deps: ## install the packages that anything here needs (Debian, Ubuntu; as root)
	@tests/packages install deps $(DEVICE) uml perf launchers && echo "deps: all packages are there"

# Packages of the tests on devices and of the race detector, and of measuring in a VM.
DEVICE = cgo verbs abi common qemu

test: ## everything: lint, unit, debug, race, nocgo, fuzz, launchers and, in a VM, the tests on devices
	@start=$$SECONDS; unset MAKELEVEL; skipped=; sets=; \
	[ -z "$(filter race,$(TESTS))" ] || sets=cgo; \
	[ -z "$(filter device,$(TESTS))" ] || sets="$(DEVICE)"; \
	[ -z "$(filter launchers,$(TESTS))" ] || sets="$$sets launchers"; \
	tests/packages install "make test" $$sets || { [ $$? = 3 ] && [ "$(RMA_REQUIRE_RDMA)" != 1 ]; }; \
	for t in $(TESTS:device=abi softroce-selftest softroce); do \
	  case $$t in \
	    race) needs=$$(tests/packages missing cgo) ;; \
	    launchers) needs=$$(tests/packages missing launchers) ;; \
	    abi|softroce*) needs=$$(tests/packages missing $(DEVICE)); [ "$(RMA_REQUIRE_RDMA)" != 1 ] || needs= ;; \
	    *) needs= ;; \
	  esac; \
	  printf '\n==== make %s (%ds)\n' $$t $$((SECONDS-start)); \
	  if [ -n "$$needs" ]; then echo "$$t: NOT RUN: packages are missing: $$needs"; skipped="$$skipped $$t"; \
	  else $(MAKE) --no-print-directory $$t VM=$(VM) $(REQUIRED); fi; \
	done; \
	if [ -z "$$skipped" ]; then printf '\n==== make test: all passed in %ds\n' $$((SECONDS-start)); \
	else printf '\n==== make test: passed in %ds, but NOT RUN:%s\n' $$((SECONDS-start)) "$$skipped"; \
	  INSTALL=no tests/packages install "make test" $$sets || true; fi

fresh: ## both README commands in an empty Debian, as root and as a user (as root; ROLES=root or user)
	@tests/fresh/run $(ROLES)

unit: ## the tests of all packages, metrics/, examples/grpc/ and bench/peers/ included, in random order
	$(GO) test -timeout $(LIMIT) -shuffle=on $(UNITPKGS)
	@for m in $(MODULES); do echo "in $$m:"; (cd $$m && $(GO) test -timeout $(LIMIT) -shuffle=on ./...); done

debug: ## the tests of the engine with its assertions (build tag rmadebug)
	$(GO) vet -tags rmadebug $(DEBUGPKGS)
	$(GO) test -timeout $(LIMIT) -tags rmadebug -shuffle=on $(DEBUGPKGS)

lint: ## gofmt, go vet, functions that only tests reach, and golangci-lint if it is installed
	@bad=$$(git ls-files -z -co --exclude-standard '*.go' | xargs -0 -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "gofmt these:" $$bad >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) mod verify
	@for m in $(MODULES); do echo "vet and tidy in $$m"; (cd $$m && $(GO) vet ./... && $(GO) mod tidy -diff); done
	@echo "tidy in tools"; cd tools && $(GO) mod tidy -diff
	@tools/deadcode
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./... && (cd metrics && golangci-lint run ./...) && (cd bench/peers && golangci-lint run ./...); \
	else echo "lint: golangci-lint is not installed, its checks were not run (gofmt, vet and internal/lint were)"; fi

# A process under the race detector sleeps a second before it exits, and tests
# start many: let it be short.
race: export GORACE := atexit_sleep_ms=20
# shmipc-go closes a session while its reader may still look: its program is left out.
race: ## all tests under the race detector
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null; then \
	  $(GO) test -timeout $(LIMIT) -race -shuffle=on $(RACEPKGS); \
	  [ -z "$(filter metrics,$(MODULES))" ] || (cd metrics && $(GO) test -timeout $(LIMIT) -race ./...); \
	  [ -z "$(filter bench/peers,$(MODULES))" ] || (cd bench/peers && $(GO) test -timeout $(LIMIT) -race ./play/... ./cmd/rmapeer-net ./cmd/rmapeer-grpc); \
	elif [ "$(RMA_REQUIRE_RDMA)" = 1 ]; then echo "race: needs a C compiler: apt-get install -y gcc libc6-dev" >&2; exit 1; \
	else echo "race: NOT RUN: needs a C compiler: apt-get install -y gcc libc6-dev"; fi

nocgo: ## build and test without cgo: shm, tcp and sim must do
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) test -timeout $(LIMIT) -shuffle=on ./...

# Systems beside this one that the module builds for. Links work on linux; elsewhere
# what cannot says so when it is opened.
CROSS ?= linux/amd64 linux/arm64 linux/386 linux/s390x darwin/arm64 freebsd/amd64 windows/amd64

cross: ## build and vet for other systems and processors, tests included
	@for t in $(CROSS); do \
	  echo "cross $$t"; \
	  export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
	  $(GO) build ./... && $(GO) vet ./... || { echo "cross: $$t failed" >&2; exit 1; }; \
	done

test32: ## the tests where int and pointers have 32 bits (linux/386, on amd64)
	CGO_ENABLED=0 GOARCH=386 $(GO) test -timeout $(LIMIT) -shuffle=on . ./eager ./fabric/... ./flowctl ./gather ./verbs ./internal/event ./internal/offheap ./internal/progress ./internal/wireup

portable: ## the tests of tcp with the system calls of macOS and FreeBSD
	CGO_ENABLED=0 $(GO) test -timeout $(LIMIT) -shuffle=on -tags rma_portable ./fabric/tcp

# One instrumented test binary a package, not one a target; minimising an input that
# was merely interesting may take longer than the search itself, so it is bounded.
fuzz: ## every fuzz target over its corpus, then FUZZTIME=2000x new inputs each
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; start=$$SECONDS; \
	git grep --untracked -o '^func Fuzz[[:alnum:]_]*' -- '*_test.go' | sed -E 's,^,./,; s,/[^/]*:func , ,' | sort >"$$tmp/targets"; \
	while read -r dir name; do \
	  bin=$$tmp/$${dir//\//_}.test; \
	  [ -e "$$bin" ] || $(GO) test -c -fuzz=. -o "$$bin" "$$dir"; \
	  echo "fuzz $$dir $$name"; \
	  (cd "$$dir" && "$$bin" -test.run='^$$' -test.fuzz="^$$name\$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=5x \
	    -test.fuzzcachedir="$$($(GO) env GOCACHE)/fuzz/$${dir#./}"); \
	done <"$$tmp/targets"; \
	echo "fuzz: $$(wc -l <"$$tmp/targets") targets in $$((SECONDS-start))s"

launchers: ## jobs under mpirun (Open MPI, MPICH) and srun, for real
	@RMA_REQUIRE_LAUNCHERS=$(RMA_REQUIRE_LAUNCHERS) tests/launchers/run

suites: ## other projects' tests over rmanet beside sockets (SUITES=net/http,yamux; ARGS=-json f)
	@tests/suites/run $(ARGS)

abi: ## verbs' own header against <infiniband/verbs.h> and libibverbs
	RMA_REQUIRE_RDMA=1 $(GO) test -count=1 -run '^Test(ABI|SymbolVersions|SystemLibrary)' ./verbs

softroce: ## device tests on real SoftRoCE (VM=native|qemu|uml; PKGS=... ARGS=...)
	@$(call SOFTROCE,suite) -vm $(VM) $(ARGS) $(PKGS)

softroce-selftest: ## the harness's own promises: exit codes, time-outs, nothing left behind
	@RMA_SOFTROCE_SELFTEST=$(VM) $(GO) test -count=1 -run '^TestHarness' ./tests/softroce

# SEED, PARTS and ROUND repeat what a failure prints; VM=qemu runs it in a guest, where
# PARTS=netem can: go run ./tests/chaos --help has more.
TIME ?= 10m
chaos: ## jobs that are killed, stopped, starved and flooded, for TIME=10m (SEED, PARTS, ROUND; VM=qemu PARTS=netem)
	$(GO) run ./tests/chaos --time $(TIME) $(if $(SEED),--seed $(SEED)) $(if $(PARTS),--parts $(PARTS)) $(if $(ROUND),--round $(ROUND)) $(if $(JSON),--json $(JSON)) $(if $(filter-out auto native,$(VM)),--vm $(VM))

softroce-perf: build ## perftest beside rmabench in one boot (VM=uml for figures; ARGS=...)
	@$(call SOFTROCE,perftest) -vm $(VM) $(ARGS)

bench: ## latency, bandwidth and rate of every link; report with plots in out/
	@sets="cgo verbs"; vm=; if ! ls /sys/class/infiniband/* >/dev/null 2>&1; then sets="cgo verbs common qemu"; vm=1; fi; \
	missing=; tests/packages install "make bench" $$sets || { [ $$? = 3 ]; missing=1; }; \
	mkdir -p $(OUT) bin; echo "make bench: building"; \
	$(GO) build -o bin/ ./cmd/... >$(OUT)/build.log 2>&1 || { tail -n 20 $(OUT)/build.log; echo "make bench: the build failed; all of it: $(OUT)/build.log"; exit 1; }; \
	if [ -n "$$missing" ] || [ -z "$$vm" ]; then bin/rmabench report --out $(OUT)/ $(BENCH); \
	else bin/rmabench report --out $(OUT)/ $(BENCH) --verbs-by "tests/softroce/run -vm $(VM) -timeout 30m -out $(OUT) --"; fi; \
	if [ -n "$$missing" ]; then echo "make bench: verbs NOT MEASURED"; INSTALL=no tests/packages install "make bench" $$sets || true; fi

clean: ## remove bin/, out/ and the harness's cached kernels
	rm -rf bin $(OUT)
	@$(call SOFTROCE,clean)

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
