# The two main commands are `make bench` and `make test`; `make help` lists the others.
GO       ?= go
VM       ?= auto
# Inputs, not seconds: at the end of a time Go's fuzzing engine now and then fails
# with "context deadline exceeded" (it compares two contexts of which one ends later).
FUZZTIME ?= 1000x
# Time limit of the tests of one package: it ends a hang, and is ample on a busy machine.
LIMIT    ?= 40m
# off: go test does not vet. make test sets it, because make lint has vetted.
VET      ?=
NOVET    = $(if $(filter off,$(VET)),-vet=off)
GOTEST   = $(GO) test -timeout $(LIMIT) $(NOVET)
# What `make test` runs, in this order, and on which packages of this module and in which others. The
# last ones repeat much of what the others have run; with MINUTES, none begins after so long.
TESTS    ?= lint unit race launchers device debug nocgo fuzz
MINUTES  ?=
MODULE   := github.com/seed33544411/rma
DEVICETESTS ?= abi numa softroce-one softroce-two
UNITPKGS ?= ./...
# Packages with assertions, and what runs mostly in them.
DEBUGPKGS ?= $(shell $(GO) list . ./rmanet ./internal/... | grep -Ev '/internal/(bench|launch|lint)')
# Under the race detector: what has goroutines that share memory. Only with RACEPKGS=./..., which is
# everything: coll, whose tests take as long as all others, and packages whose data belongs to the
# goroutine that drives the engine, which is checked in the root package.
RACEPKGS ?= $(shell $(GO) list . ./rmanet ./locks ./mr ./fabric/... ./internal/... | grep -Ev '/internal/(bench|bulk|bytesize|enum|fifo|initiator|launch|lint|message|onesided|settings|topo)|/fabric/(fabrictest|sim|ibv)$$')
# Without cgo only verbs has other files: what imports it but rmabench, and a program. `make debug` runs
# without cgo what is in DEBUGPKGS.
NOCGOPKGS ?= ./verbs ./fabric/ibv ./internal/bench/choice ./examples/rcpingpong ./examples/hello
MODULES  ?= metrics examples/grpc bench/peers
OUT      ?= out
# Flags of `rmabench report`, such as "--time 10ms --sizes 8,4K,1M".
BENCH    ?=
# no: `make bench` and `make test` install no packages, even as root, but print what is missing.
INSTALL  ?= auto
export INSTALL
export GOFLAGS := -buildvcs=false $(GOFLAGS)

# Tests choose their own settings: variables RMA_* of the environment or the command line
# are removed, so that `make test RMA_FABRIC=tcp` is the same as `make test`. Set them for
# `go test ./package` instead. Two variables control the tests themselves:
# RMA_REQUIRE_RDMA=1 requires a device and a C compiler, RMA_REQUIRE_LAUNCHERS=1 the
# launchers, each only for the parts that use them. `make bench` keeps all settings.
ifeq ($(filter bench,$(MAKECMDGOALS)),)
$(foreach v,$(filter-out RMA_SOFTROCE_CACHE RMA_TEST_SLOW,$(filter RMA_%,$(.VARIABLES))),$(eval unexport $v))
endif
RMA_REQUIRE_RDMA ?=
RMA_REQUIRE_LAUNCHERS ?=
REQUIRED = RMA_REQUIRE_RDMA=$(RMA_REQUIRE_RDMA) RMA_REQUIRE_LAUNCHERS=$(RMA_REQUIRE_LAUNCHERS)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: build deps fresh test abi unit debug bench lint race nocgo cross test32 portable fuzz softroce softroce-one softroce-two softroce-selftest softroce-perf numa zoo rails overlap launchers chaos suites clean help

SOFTROCE = SOFTROCE_CMD=$(1) tests/softroce/run

build: ## build every package, and the commands into bin/
	@mkdir -p bin
	$(GO) build ./...
	$(GO) build -o bin/ ./cmd/...

deps: ## install the packages that anything here needs (Debian, Ubuntu; as root)
	@tests/packages install deps $(DEVICE) uml perf launchers && echo "deps: all packages are installed"

# Sets of packages for the device tests, the race detector, and measurements in a VM.
DEVICE = cgo verbs abi common qemu

test: ## everything: lint, unit, race, launchers, the tests on devices in a VM, debug, nocgo and fuzz
	@start=$$SECONDS; unset MAKELEVEL; skipped=; sets=; lacks=; \
	[ -z "$(filter race,$(TESTS))" ] || sets=cgo; \
	[ -z "$(filter device,$(TESTS))" ] || sets="$(DEVICE)"; \
	[ -z "$(filter launchers,$(TESTS))" ] || sets="$$sets launchers"; \
	tests/packages install "make test" $$sets || { code=$$?; [ $$code = 3 ] && [ "$(RMA_REQUIRE_RDMA)" != 1 ] || exit $$code; }; \
	for t in $(TESTS:device=$(DEVICETESTS)); do \
	  case $$t in \
	    race) needs=$$(tests/packages missing cgo); [ -n "$$needs" ] || [ "$$($(GO) env CGO_ENABLED)" = 1 ] || needs="CGO_ENABLED=1" ;; \
	    launchers) needs=$$(tests/packages missing launchers) ;; \
	    abi|numa|softroce*) needs=$$(tests/packages missing $(DEVICE)); [ "$(RMA_REQUIRE_RDMA)" != 1 ] || needs= ;; \
	    *) needs= ;; \
	  esac; \
	  printf '\n==== make %s (%ds)\n' $$t $$((SECONDS-start)); \
	  if [ -n "$(MINUTES)" ] && [ $$((SECONDS-start)) -ge $$(($(or $(MINUTES),0)*60)) ]; then \
	    echo "$$t: NOT RUN: $(MINUTES) minutes are over"; skipped="$$skipped $$t"; \
	  elif [ -n "$$needs" ]; then echo "$$t: NOT RUN: missing: $$needs"; skipped="$$skipped $$t"; lacks=1; \
	  else $(MAKE) --no-print-directory $$t VM=$(VM) $(if $(filter lint,$(TESTS)),VET=off) $(REQUIRED); fi; \
	done; \
	if [ -z "$$skipped" ]; then printf '\n==== make test: all passed in %ds\n' $$((SECONDS-start)); \
	else printf '\n==== make test: passed in %ds, but NOT RUN:%s\n' $$((SECONDS-start)) "$$skipped"; \
	  [ -z "$$lacks" ] || INSTALL=no tests/packages install "make test" $$sets || true; fi

fresh: ## both README commands in an empty Debian, as root and as a user (as root; ROLES=root or user)
	@tests/fresh/run $(ROLES)

unit: ## tests of all packages, including metrics/, examples/grpc/ and bench/peers/, in random order
	$(GOTEST) -shuffle=on $(UNITPKGS)
	@for m in $(MODULES); do echo "in $$m:"; (cd $$m && $(GOTEST) -shuffle=on ./...); done

debug: ## tests of the engine with its assertions (build tag rmadebug), and without cgo
	$(GO) vet -tags rmadebug $(DEBUGPKGS)
	CGO_ENABLED=0 $(GOTEST) -tags rmadebug -shuffle=on $(DEBUGPKGS)

lint: ## gofmt, go vet, functions that only tests reach, and golangci-lint if it is installed
	@bad=$$(git ls-files -z -co --exclude-standard '*.go' | xargs -0 -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "lint: run gofmt -w on:" $$bad >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags rma_zoo . ./fabric/ibv ./verbs
	$(GO) mod verify
	@for m in $(MODULES); do echo "vet and tidy in $$m"; (cd $$m && $(GO) vet ./... && $(GO) mod tidy -diff); done
	@echo "tidy in tools"; cd tools && $(GO) mod tidy -diff
	@tools/deadcode
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./... && (cd metrics && golangci-lint run ./...) && (cd bench/peers && golangci-lint run ./...); \
	else echo "lint: golangci-lint is not installed: only gofmt, vet and deadcode were run"; fi

# A process under the race detector sleeps for a second before it exits, and tests start
# many processes: shorten the sleep.
race: export GORACE := atexit_sleep_ms=20
# shmipc-go has a race when it closes a session: its program is omitted.
race: ## tests of packages with goroutines under the race detector (RACEPKGS=./...)
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null; then \
	  $(GOTEST) -race -shuffle=on $(RACEPKGS); \
	  [ -z "$(filter metrics,$(MODULES))" ] || (cd metrics && $(GOTEST) -race ./...); \
	  [ -z "$(filter bench/peers,$(MODULES))" ] || (cd bench/peers && $(GOTEST) -race ./play/... ./cmd/rmapeer-net ./cmd/rmapeer-grpc); \
	elif [ "$(RMA_REQUIRE_RDMA)" = 1 ]; then echo "race: needs a C compiler: apt-get install -y gcc libc6-dev" >&2; exit 1; \
	else echo "race: NOT RUN: needs a C compiler: apt-get install -y gcc libc6-dev"; fi

nocgo: ## build without cgo (links shm, tcp and sim), and test what imports verbs and is not in debug
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) vet $(NOCGOPKGS)
	CGO_ENABLED=0 $(GOTEST) -shuffle=on $(NOCGOPKGS)

# Systems that the module builds for. Links that a system does not support return an error
# when they are opened.
CROSS ?= linux/amd64 linux/arm64 linux/386 linux/s390x darwin/arm64 freebsd/amd64 windows/amd64

cross: ## build and vet for other systems and processors, tests included
	@for t in $(CROSS); do \
	  echo "cross $$t"; \
	  export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
	  $(GO) build ./... && $(GO) vet ./... || { echo "cross: $$t failed" >&2; exit 1; }; \
	done

test32: ## tests with int and pointers of 32 bits (linux/386, on amd64)
	CGO_ENABLED=0 GOARCH=386 $(GO) test -timeout $(LIMIT) -shuffle=on . ./eager ./fabric/... ./flowctl ./gather ./verbs ./internal/event ./internal/offheap ./internal/progress ./internal/wireup

portable: ## tests of tcp with the system calls of macOS and FreeBSD
	CGO_ENABLED=0 $(GO) test -timeout $(LIMIT) -shuffle=on -tags rma_portable ./fabric/tcp

# One test binary per package, not one per target, in which only packages of this module are
# instrumented (-fuzz instruments those of Go as well: minutes, for branches nobody searches).
# The time for minimising an interesting input is bounded, because it may exceed that of the
# search.
fuzz: ## every fuzz target over its corpus, then FUZZTIME=1000x new inputs each
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; start=$$SECONDS; \
	git grep --untracked -o '^func Fuzz[[:alnum:]_]*' -- '*_test.go' | sed -E 's,^,./,; s,/[^/]*:func , ,' | sort >"$$tmp/targets"; \
	while read -r dir name; do \
	  bin=$$tmp/$${dir//\//_}.test; \
	  [ -e "$$bin" ] || $(GO) test -c $(NOVET) -ldflags='-s -w' -gcflags='$(MODULE)/...=-d=libfuzzer' -o "$$bin" "$$dir"; \
	  echo "fuzz $$dir $$name"; \
	  (cd "$$dir" && "$$bin" -test.run='^$$' -test.fuzz="^$$name\$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=5x \
	    -test.fuzzcachedir="$$($(GO) env GOCACHE)/fuzz/$${dir#./}"); \
	done <"$$tmp/targets"; \
	echo "fuzz: $$(wc -l <"$$tmp/targets") targets in $$((SECONDS-start))s"

launchers: ## tests of jobs under real launchers: mpirun (Open MPI, MPICH) and srun
	@RMA_REQUIRE_LAUNCHERS=$(RMA_REQUIRE_LAUNCHERS) tests/launchers/run

suites: ## test suites of other projects over rmanet and over sockets (SUITES=net/http,yamux; ARGS=-json f)
	@tests/suites/run $(ARGS)

abi: ## compare the declarations of verbs with <infiniband/verbs.h> and libibverbs
	RMA_REQUIRE_RDMA=1 $(GO) test -count=1 -run '^Test(ABI|SymbolVersions|SystemLibrary)' ./verbs

softroce: ## device tests on real SoftRoCE (VM=native|qemu|uml; PKGS=... ARGS=...)
	@$(call SOFTROCE,suite) -vm $(VM) $(ARGS) $(PKGS)

# The two parts of it that make test runs: on one device, and over a wire, with disturbances.
softroce-one: TOPOLOGIES = one
softroce-two: TOPOLOGIES = two,guests
softroce-one softroce-two:
	@$(call SOFTROCE,suite) -vm $(VM) -topologies $(TOPOLOGIES) $(ARGS) $(PKGS)

softroce-selftest: ## tests of the SoftRoCE harness: exit codes, time-outs, clean-up (not in make test)
	@RMA_SOFTROCE_SELFTEST=$(VM) $(GO) test -timeout $(LIMIT) -count=1 -run '^TestHarness' ./tests/softroce

# SEED, PARTS and ROUND repeat a round, as a failure prints them. VM=qemu runs the campaign
# in a guest whose kernel has netem. go run ./tests/chaos --help describes all flags.
TIME ?= 10m
chaos: ## jobs that are killed, stopped, starved and flooded, for TIME=10m (SEED, PARTS, ROUND; VM=qemu PARTS=netem)
	$(GO) run ./tests/chaos --time $(TIME) $(if $(SEED),--seed $(SEED)) $(if $(PARTS),--parts $(PARTS)) $(if $(ROUND),--round $(ROUND)) $(if $(JSON),--json $(JSON)) $(if $(filter-out auto native,$(VM)),--vm $(VM))

numa: ## placement of ranks, progress threads and memory on two NUMA nodes, in a guest
	@mkdir -p $(OUT)
	@$(GO) test -c -o $(OUT)/rmarun.test ./cmd/rmarun
	@tests/softroce/run -vm qemu -smp 4 -numa 2 -- $(abspath $(OUT))/rmarun.test -test.v -test.run '^TestNUMA$$' | awk '{ print } /^--- PASS: TestNUMA / { ran = 1 } END { exit !ran }'

softroce-perf: build ## perftest and rmabench in alternation, in one boot (VM=uml for measurements; ARGS=...)
	@$(call SOFTROCE,perftest) -vm $(VM) $(ARGS)

# OUT is where zoo.jsonl goes. PROFILES=siw,efa runs only these.
zoo: ## the link's tests on SoftRoCE with limits and habits of other adapters (VM=uml|qemu PROFILES=... OUT=out)
	@$(call SOFTROCE,zoo) -vm $(VM) -out $(OUT) $(if $(PROFILES),-profiles $(PROFILES)) $(ARGS)

# OUT is where rails.jsonl goes. ARGS="-ratios 1:4 -sum 16M" and others: tests/softroce/run -h with SOFTROCE_CMD=rails.
rails: ## puts, gets and messages over two shaped networks beside each alone (VM=uml for measurements, qemu; OUT=out ARGS=...)
	@$(call SOFTROCE,rails) -vm $(VM) -out $(OUT) $(ARGS)

# OUT is where overlap.jsonl goes. ARGS="-rate 16M -sizes 1M -ratios 1,2" and others: tests/softroce/run -h with SOFTROCE_CMD=overlap.
overlap: ## transfers beside computation between two guests on a slow wire (VM=uml for measurements, qemu; OUT=out ARGS=...)
	@$(call SOFTROCE,overlap) -vm $(VM) -out $(OUT) $(ARGS)

bench: ## latency, bandwidth and rate of every link; report with plots in out/
	@sets="cgo verbs"; vm=; if ! ls /sys/class/infiniband/* >/dev/null 2>&1; then sets="cgo verbs common qemu"; vm=1; fi; \
	missing=; tests/packages install "make bench" $$sets || { [ $$? = 3 ]; missing=1; }; \
	mkdir -p $(OUT) bin; echo "make bench: building"; \
	$(GO) build -o bin/ ./cmd/... >$(OUT)/build.log 2>&1 || { tail -n 20 $(OUT)/build.log; echo "make bench: the build failed; full output: $(OUT)/build.log"; exit 1; }; \
	if [ -n "$$missing" ] || [ -z "$$vm" ]; then bin/rmabench report --out $(OUT)/ $(BENCH); \
	else bin/rmabench report --out $(OUT)/ $(BENCH) --verbs-by "tests/softroce/run -vm $(VM) -timeout 30m -out $(OUT) --"; fi; \
	if [ -n "$$missing" ]; then echo "make bench: verbs NOT MEASURED"; INSTALL=no tests/packages install "make bench" $$sets || true; fi

clean: ## remove bin/, out/ and the harness's cached kernels
	rm -rf bin $(OUT)
	@$(call SOFTROCE,clean)

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
