# `make` without a goal prints the help.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# CMake builds everything, so make's built-in rules are off.
MAKEFLAGS += --no-builtin-rules

DEFAULT_TORCH := 2.11.0
TORCH ?= $(DEFAULT_TORCH)
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
# Number of C++ test programs, and of Python test files, that run at a time. Most of them wait more
# than they compute.
TESTS_AT_ONCE ?= 3
FILES_AT_ONCE ?= 6
# Prefer Debian's own Python, for which python3-venv and python3-dev are installed. Another Python
# in the path may lack them.
PYTHON ?= $(shell command -v apt-get >/dev/null && echo /usr/bin/python3 || command -v python3)

GOALS := setup build build-tests build-bench captures demo demo-mlx wheel chaos chaos-peers test test-cluster test-cpp test-integrations test-large test-long test-mpi test-python test-torch-suite bench bench-check lint lock sbom

.PHONY: help packages packages-cluster packages-test packages-lint peers clean coverage docs format fuzz sanitize test-aarch64 macos test-rdma test-rdma-machines test-kernel-tls deb wheels wheels-hosted test-wheels mac-checklist $(GOALS)

# make splits names at blanks, and some other characters are special to linkers. Non-ASCII letters
# work.
UNUSABLE := $(shell pwd -P | LC_ALL=C tr -d 'A-Za-z0-9_/.+@\n\200-\377-')
ifneq ($(and $(UNUSABLE),$(filter-out help clean,$(or $(MAKECMDGOALS),help))),)
$(error MCCL cannot be built by make in "$(CURDIR)": the path of a clone may have letters, digits and _ / . + @ - only. \
Move the clone to such a path. Nothing was installed)
endif

help:
	@sed -n '/^# HELP/,$$ { /^# HELP/d; s/^# \{0,1\}//p }' Makefile

packages:
	@scripts/install_packages.sh

packages-test: | packages
	@scripts/install_packages.sh apt-packages-test.txt

packages-lint: | packages
	@scripts/install_packages.sh apt-packages-lint.txt

# The libraries against which MCCL is benchmarked.
peers: | packages
	@scripts/install_peers.sh build/peers

ifeq ($(TORCH),newest)

# The version determines the names of folders. So find it first, and make the goal with it.
$(GOALS): | packages
	@version=$$(scripts/newest_torch.sh $(PYTHON)); echo "torch: the newest is $$version"; \
	$(MAKE) TORCH=$$version $@

else

# Each torch version other than the default has its own folders, so that switching back needs no
# rebuild.
SUFFIX := $(if $(filter $(DEFAULT_TORCH),$(TORCH)),,-torch-$(TORCH))
VENV := .venv$(SUFFIX)
BUILD := build/release$(SUFFIX)
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)

ENVIRONMENT := $(VENV)/.installed
TEST_ENVIRONMENT := $(VENV)/.installed-test
BUILT := $(BUILD)/.installed
# Pinned versions and hashes, which exist for the default torch.
LOCK := $(if $(filter $(DEFAULT_TORCH),$(TORCH)),scripts/requirements.lock)
TEST_LOCK := $(if $(LOCK),scripts/requirements-test.lock)
PINNED = $(if $(LOCK),--require-hashes -r $(LOCK),torch==$(TORCH) -r scripts/requirements.txt)
TEST_PINNED = $(if $(TEST_LOCK),--require-hashes -r $(TEST_LOCK),torch==$(TORCH) -r scripts/requirements-test.txt)
# Python compiles the modules that are imported; compiling all of them takes longer.
PIP_INSTALL := pip install --disable-pip-version-check --no-compile $(if $(MAKE_TERMOUT),,--quiet)
# Sources of the package. Folders are included, since their times change when a file is added or
# removed.
SOURCES := $(shell find CMakeLists.txt pyproject.toml cmake include src bindings -name __pycache__ -prune -o -print)
# The compiler that this Python was built with; $(1) is CC or CXX.
pythons = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("$(1)").split()[0])')
CTEST := ctest --test-dir $(BUILD) --output-on-failure -LE large
SHOW_PROGRESS := $(PYTHON) scripts/show_progress.py

setup: build

# Goals that run tests. For these, one call of pip installs what tests need too, and the C++ tests
# are compiled meanwhile.
FOR_TESTS := $(filter test test-cpp test-python test-long build-tests,$(MAKECMDGOALS))
# Goals that need `packages-cluster`. These packages are installed while the compiler runs.
FOR_CLUSTER := $(filter test test-python test-long,$(MAKECMDGOALS))

$(ENVIRONMENT): scripts/requirements.txt $(wildcard scripts/*.lock) | packages $(if $(FOR_TESTS),packages-test)
	@echo "setup: $(VENV) with torch $(TORCH); several gigabytes, so this takes minutes"
	@echo "setup: $(if $(LOCK),packages are checked against the hashes in $(LOCK),no lock for this torch: the hashes of packages are not checked)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@# Compiles in the background what does not need torch. A failure there also fails the build below.
	@# The compilers are those that pip uses: under another name, ccache would miss.
	@mkdir -p $(BUILD); export CC=$${CC:-$(call pythons,CC)} CXX=$${CXX:-$(call pythons,CXX)}; { test -e $(BUILD)/CMakeCache.txt || { \
		cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DMCCL_PYTHON=OFF $(if $(FOR_TESTS),-DMCCL_TESTS=ON) && \
		cmake --build $(BUILD) --parallel $(JOBS) $(if $(FOR_TESTS),,--target mccl mccl_program); } || true; } >$(BUILD)/library.log 2>&1 & \
	$(if $(FOR_CLUSTER),scripts/install_packages.sh apt-packages-launch.txt apt-packages-rdma.txt >$(BUILD)/packages.log 2>&1 || true & \
	)status=0; $(BIN)/python -m $(PIP_INSTALL) $(if $(FOR_TESTS),$(TEST_PINNED),$(PINNED)) || status=$$?; \
	wait; exit $$status
	@echo "$(TORCH)" > $@
	@$(if $(FOR_TESTS),touch $(TEST_ENVIRONMENT))

$(TEST_ENVIRONMENT): scripts/requirements-test.txt $(wildcard scripts/*.lock) $(ENVIRONMENT) | packages-test
	@echo "setup: what only tests need"
	@$(BIN)/python -m $(PIP_INSTALL) $(TEST_PINNED)
	@touch $@

# All goals share one build folder, and each builds only what it needs. The package is installed in
# editable mode: Python reads its files from python/mccl.
$(BUILT): $(ENVIRONMENT) $(SOURCES) | $(if $(FOR_TESTS),$(TEST_ENVIRONMENT))
	@echo "build: C++ and Python extensions in $(BUILD)"
	@mkdir -p $(BUILD)
	@# Before 0.1, the distribution was called mccl. The two cannot be in the same environment.
	@if compgen -G "$(VENV)/lib/python*/site-packages/mccl-*.dist-info" >/dev/null; then \
		$(BIN)/python -m pip uninstall --quiet --yes mccl; fi
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(SHOW_PROGRESS) build $(BUILD)/build.log \
		$(BIN)/python -m pip install --disable-pip-version-check --verbose \
		--no-build-isolation --no-deps --editable . --config-settings=build-dir=$(BUILD)
	@touch $@

build: $(BUILT) | packages

build-tests: build $(TEST_ENVIRONMENT)
	@echo "build: C++ tests in $(BUILD)"
	@cmake -S . -B $(BUILD) -DMCCL_TESTS=ON >$(BUILD)/configure.log
	@$(SHOW_PROGRESS) tests $(BUILD)/tests.log cmake --build $(BUILD) --parallel $(JOBS)

build-bench: build $(TEST_ENVIRONMENT) peers
	@cmake -S . -B $(BUILD) -DMCCL_BENCH=ON >$(BUILD)/configure.log
	@$(SHOW_PROGRESS) bench $(BUILD)/bench.log \
		cmake --build $(BUILD) --parallel $(JOBS) --target mccl_kernels_bench mccl_mpi_layer

demo: build
	@OMP_NUM_THREADS=1 $(BIN)/torchrun --nproc_per_node=2 --standalone examples/ddp_digits.py
	@echo
	@echo "Where to look next:"
	@echo "  examples/ddp_digits.py   what just ran; --help shows what it takes"
	@echo "  docs/pytorch.md          a 20-line program of your own"
	@echo "  docs/machines/index.md   the same on several machines"
	@echo "  make bench               MCCL beside Gloo, Open MPI, MPICH and MLX's ring"

demo-mlx: build
	@$(BIN)/mccl launch -n 2 --no-prefix examples/mlx_digits.py
	@echo
	@echo "Where to look next:"
	@echo "  examples/mlx_digits.py   what just ran; --help shows what it takes"
	@echo "  docs/mlx.md              from five lines to tensor-parallel inference"

wheel: build $(TEST_ENVIRONMENT)
	@scripts/build_wheel.sh $(BIN)/python $(BUILD) build/wheels

# Runs the Python tests. MARKS selects tests by their marks; without it, long tests and campaigns are
# left out. Test files start in the order that tests/conftest.py sets.
# Byte code goes to the build folder, even if PYTHONDONTWRITEBYTECODE is set: thousands of processes
# import the same modules.
PYTEST = env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(BUILD)/pycache BUILD_FOLDER=$(BUILD) \
	$(BIN)/python -m pytest $(MARKS)
RUN_PYTEST = $(PYTEST) -n $(FILES_AT_ONCE) --dist loadfile --no-loadscope-reorder tests/python tests/install || { \
		echo "test: what failed, once more and alone"; \
		$(PYTEST) --last-failed --last-failed-no-failures none tests/python tests/install; }

# The C++ tests run before the Python tests, not beside them: on crowded cores, ranks that wait for
# each other waste most of the processor's time. Meanwhile, one process compiles the Python tests, so
# that the processes that run them do not all do so.
test: build-tests packages-cluster
	@echo "test: C++ (output in $(BUILD)/ctest.log)"
	@$(PYTEST) --collect-only -q tests/python tests/install >$(BUILD)/collect.log 2>&1 & \
	status=0; $(CTEST) --parallel $(TESTS_AT_ONCE) >$(BUILD)/ctest.log 2>&1 || { \
		tail -n 60 $(BUILD)/ctest.log; echo "test: the C++ tests that failed, once more and alone"; \
		$(CTEST) --rerun-failed || status=$$?; }; \
	grep -q 'tests passed' $(BUILD)/ctest.log || { echo "test: ctest ended early, see $(BUILD)/ctest.log"; status=1; }; \
	echo "test: Python, examples and installation"; { $(RUN_PYTEST); } || status=$$?; \
	[ $$status -ne 0 ] || echo "test: all C++ and Python tests passed"; exit $$status

test-cpp: build-tests
	@echo "test: C++"
	@$(CTEST) --parallel $(TESTS_AT_ONCE) || { \
		echo "test: what failed, once more and alone"; $(CTEST) --rerun-failed; }

test-large: build-tests
	@ctest --test-dir $(BUILD) --output-on-failure -L large

test-mpi: build build-tests $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-launch.txt
	@BUILD_FOLDER=$(BUILD) $(BIN)/python -m pytest -m "campaign or not campaign" tests/python/test_mpi.py tests/python/test_mpi_failures.py

# CLUSTER holds options of tests/campaign/campaign.py, such as CLUSTER="--replay 17".
test-cluster: build $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-launch.txt
	@BUILD_FOLDER=$(BUILD) $(BIN)/python tests/campaign/campaign.py $(CLUSTER)

# CHAOS holds options of tests/chaos/chaos.py, such as CHAOS="--replay 17".
chaos: build $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-launch.txt || \
		echo "chaos: the trials on MPI are left out" >&2
	@BUILD_FOLDER=$(BUILD) $(BIN)/python tests/chaos/chaos.py $(CHAOS)

# CHAOS holds options of tests/chaos/peer_libraries.py, such as CHAOS="--trials 1".
chaos-peers: build $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-launch.txt
	@$(BIN)/python tests/chaos/peer_libraries.py $(CHAOS)

packages-cluster: | packages
	@scripts/install_packages.sh apt-packages-launch.txt || \
		echo "test: what starts under Slurm and MPI is left out" >&2
	@scripts/install_packages.sh apt-packages-rdma.txt || \
		echo "test: what runs in a guest with RDMA is left out" >&2

test-long: MARKS := -m long
test-long: build-tests
test-python test-long: build $(TEST_ENVIRONMENT) packages-cluster
	@echo "test: Python, examples and installation$(if $(MARKS), ($(MARKS)))"
	@$(RUN_PYTEST)

test-torch-suite: build $(TEST_ENVIRONMENT)
	@echo "test: PyTorch's own distributed tests"
	@$(BIN)/python -m pytest -p no:cacheprovider tests/torch_suite

# The frameworks get an environment of their own, which sees the packages of $(VENV).
test-integrations: $(VENV)-integrations/.installed build
	@echo "test: frameworks"
	@BUILD_FOLDER=$(BUILD) $(VENV)-integrations/bin/python -m pytest tests/integrations

$(VENV)-integrations/.installed: scripts/requirements-integrations.txt $(TEST_ENVIRONMENT)
	@echo "setup: $(VENV)-integrations"
	@test -x $(VENV)-integrations/bin/python || $(PYTHON) -m venv $(VENV)-integrations
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
		> "$$($(VENV)-integrations/bin/python -c "$$packages")/shared.pth"
	@$(VENV)-integrations/bin/python -m $(PIP_INSTALL) -r $<
	@touch $@

# Needs a machine with GPUs; writes build/gpu.md.
test-gpu: build $(TEST_ENVIRONMENT)
	@PYTHON=$(BIN)/python tests/gpu/run.sh

# BENCH holds options of bench/compare.py, such as BENCH=--quick.
bench: build build-bench peers
	@$(BIN)/python bench/compare.py --plots build/bench --report $(BENCH)

bench-check: build build-bench peers
	@$(BIN)/python bench/compare.py --check --json build/bench-check.json $(BENCH)

# Renews the locks, which hold the hashes for every system and processor. A version stays as it is
# if it fits; `make lock LOCK_OPTIONS=--upgrade` takes the newest ones.
lock: | $(ENVIRONMENT)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet uv
	@for name in requirements requirements-test; do \
		echo "torch==$(DEFAULT_TORCH)" | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
			--generate-hashes --no-annotate --custom-compile-command "make lock" $(LOCK_OPTIONS) \
			--output-file scripts/$$name.lock - scripts/$$name.txt; done

sbom: build
	@$(BIN)/python scripts/sbom.py $(BUILD)/src/libmccl.so $(LOCK) $(TEST_LOCK) > build/sbom.json
	@echo "sbom: build/sbom.json"

lint: build $(TEST_ENVIRONMENT) | packages-lint
	@scripts/lint.sh $(BUILD) $(JOBS)

format: $(TEST_ENVIRONMENT) | packages-lint
	@scripts/lint.sh --fix

endif

# The sanitized builds need no Python.
sanitize: | packages-test
	@for preset in asan tsan; do \
		echo "sanitize: $$preset"; \
		cmake --preset $$preset >/dev/null; \
		cmake --build --preset $$preset --parallel $(JOBS); \
		ctest --preset $$preset --parallel $(TESTS_AT_ONCE); \
	done

# FUZZ holds names of targets, such as FUZZ="frame messages".
fuzz: | packages-test
	@scripts/install_packages.sh apt-packages-fuzz.txt
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --parallel $(JOBS) --target mccl_fuzz
	@scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ)

# Skipped if the cross compiler, the emulator or Debian's libraries for ARM are missing.
test-aarch64: build-tests
	@scripts/test_aarch64.sh $(CURDIR)/build/aarch64 $(JOBS)
	@scripts/aarch64/engine.sh build/aarch64 build/release $(JOBS) || [ $$? -eq 3 ]

# Needs the packages of a build, and the network the first time.
macos: | packages
	@scripts/install_packages.sh apt-packages-macos.txt
	@scripts/macos/build.sh build/macos $(JOBS) $(PYTHON) newest

# Needs the C++ tests and qemu. Skipped with a reason if no guest can be started. RDMA_CHECKS
# selects sections of the checks, such as RDMA_CHECKS="link calls".
RDMA_CHECKS ?= link calls bench failure network frameworks
test-rdma: build-tests | $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-rdma.txt || true
	@scripts/guest.sh -t 3600 -- tests/rdma/checks.sh $(BUILD) $(BIN)/python \
		$(RDMA_CHECKS) || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

# Like test-rdma, but between two guests on a virtual network.
test-rdma-machines: build-tests | $(TEST_ENVIRONMENT)
	@scripts/install_packages.sh apt-packages-rdma.txt || true
	@tests/rdma/two_guests.sh $(BUILD) $(BIN)/python || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

# Needs the C++ tests and qemu. Skipped with a reason if no guest can be started.
test-kernel-tls: build-tests
	@scripts/install_packages.sh apt-packages-rdma.txt || true
	@scripts/guest.sh -k trixie-backports -n 1 -t 1800 -- tests/kernel_tls/checks.sh $(BUILD) || \
		{ status=$$?; [ $$status -eq 77 ] || exit $$status; }

# Line coverage of src by the C++ tests. Ranks that the tests fork write their counts when they end.
coverage: | packages-test
	@scripts/install_packages.sh apt-packages-coverage.txt
	@cmake --preset coverage >/dev/null
	@cmake --build --preset coverage --parallel $(JOBS)
	@find build/coverage -name '*.gcda' -delete
	@ctest --preset coverage --parallel $(TESTS_AT_ONCE) || \
		echo "coverage: some tests failed, which may be due to the slower build" >&2
	@mkdir -p build/coverage/html
	@gcovr --root . --filter src/ --object-directory build/coverage build/coverage --print-summary \
		--sort-percentage --txt build/coverage/lines.txt --html-details build/coverage/html/index.html
	@echo "coverage: build/coverage/html/index.html"

# Needs no build of MCCL. Warnings are errors; the pages work from the disk, without a server.
# Sphinx does not know that the API pages depend on headers and bindings, so -E reads everything anew.
docs: .venv-docs/.installed
	@mkdir -p build/docs
	@.venv-docs/bin/sphinx-build -E -W --keep-going -n -q -b html -d build/docs/doctrees docs build/docs/html
	@echo "docs: build/docs/html/index.html"

# Shows the tools on real jobs, and writes what they print to docs/inspect.md.
captures: build $(TEST_ENVIRONMENT)
	@$(BIN)/python scripts/captures.py

.venv-docs/.installed: scripts/requirements-docs.txt scripts/apt-packages-docs.txt
	@scripts/install_packages.sh apt-packages-docs.txt
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --disable-pip-version-check --quiet -r $<
	@touch $@

# FRAMEWORKS holds the versions for which the wheel has extensions, such as
# FRAMEWORKS="torch==2.11.0 torch==2.15.0 mlx==0.32.4".
FRAMEWORKS ?= $(shell sed '/^\#/d' scripts/frameworks.txt)
wheels: .venv-wheels/.installed
	@scripts/fetch_frameworks.sh .venv-wheels/bin/python build/frameworks "" $(FRAMEWORKS)
	@PATH=$(CURDIR)/.venv-wheels/bin:$$PATH MCCL_FRAMEWORKS=build/frameworks CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
		scripts/build_wheel.sh .venv-wheels/bin/python build/release-wheels build/wheels

# WHEEL is a wheel for this Python. Downloads every torch for which it is, several gigabytes each.
WHEEL ?= $(lastword $(filter-out $(wildcard build/wheels/*+*),$(wildcard build/wheels/*.whl)))
test-wheels: .venv-wheels/.installed
	@test -f "$(WHEEL)" || { echo "test-wheels: there is no wheel '$(WHEEL)'; run make wheels, or set WHEEL=FILE" >&2; exit 1; }
	@WHEEL=$(WHEEL) .venv-wheels/bin/python -m pytest -m long tests/install/test_wheels.py

# The wheels for a package index, for every Python; on Linux, in containers of manylinux.
wheels-hosted:
	@test -x .venv-cibuildwheel/bin/python || $(PYTHON) -m venv .venv-cibuildwheel
	@.venv-cibuildwheel/bin/python -m pip install --disable-pip-version-check --quiet cibuildwheel==4.3.5
	@.venv-cibuildwheel/bin/cibuildwheel --output-dir build/wheels

.venv-wheels/.installed: scripts/requirements-wheels.txt | packages
	@test -x .venv-wheels/bin/python || $(PYTHON) -m venv .venv-wheels
	@.venv-wheels/bin/python -m pip install --disable-pip-version-check --quiet -r $<
	@touch $@

# On a Mac: what docs/platforms.md asks a Mac's user to run, without what needs a second Mac.
mac-checklist: build
	@sed -n '/^## macOS/,/^## /p' docs/platforms.md | sed -n '/^```sh/,/^```/p' | sed '/^```/d; /OTHER/d' | \
		while IFS= read -r line; do echo "$$line"; eval "$$line" </dev/null || exit 1; done

# The packages are made from a copy of the tracked files, beside which dpkg-buildpackage puts them.
deb: | packages
	@scripts/install_packages.sh apt-packages-debian.txt
	@rm -rf build/debian && mkdir -p build/debian/mccl
	@git ls-files | tar -c -T - | tar -x -C build/debian/mccl
	@cd build/debian/mccl && DEB_BUILD_OPTIONS=parallel=$(JOBS) dpkg-buildpackage -us -uc >../build.log 2>&1 || \
		{ tail -n 30 ../build.log >&2; exit 1; }
	@cd build/debian && lintian --fail-on error,warning mccl_*.changes && ls -1 *.deb

clean:
	rm -rf build .venv .venv-cibuildwheel .venv-docs .venv-integrations .venv-torch-* .venv-wheels

# HELP
# MCCL: collective communication for the machines people really have.
#
#   make demo              set up, build, and train a digit classifier on two processes
#   make demo-mlx          the same with MLX
#   make test              set up, build, and run the tests (about 15 minutes on two cores)
#
#   make setup             install packages, make .venv, build and install mccl into it
#   make build             the same, after a change of the sources; build-tests and build-bench also
#                          build the C++ tests and benchmarks
#   make wheel             a wheel for this Python, torch and MLX, in build/wheels, that needs no
#                          compiler where it is installed
#   make wheels            one wheel for several versions of torch and MLX, those of
#                          scripts/frameworks.txt or of FRAMEWORKS="torch==2.11.0 mlx==0.32.4";
#                          make test-wheels runs jobs with it in clean environments, and
#                          make wheels-hosted builds it for every Python, as hosted CI does
#   make deb               Debian packages of the library, the headers and the program in build/debian
#   make mac-checklist     what docs/platforms.md asks a Mac's user to run
#   make test-cpp          the C++ tests alone
#   make test-python       the Python, example and installation tests alone
#   make test-long         the Python tests that make test leaves out: installations by pip, RDMA in a
#                          guest, models of mlx-lm, many hosts, and further cases of what it tests
#   make test-integrations Accelerate, Transformers, Lightning, Ignite, DeepSpeed, Ray and torchft on MCCL,
#                          installed into an environment of their own, and the manifests of Kubernetes
#   make test-torch-suite  PyTorch's own distributed tests against MCCL
#   make test-mpi          the mpi backend under Open MPI and MPICH, with every size from 1 to 8
#   make test-cluster      50 random clusters with random faults, from config and doctor to jobs of torch
#                          and MLX (15 to 20 minutes; CLUSTER=--help lists options)
#   make chaos             1,000 random faults against random calls between 2 to 8 processes of C++,
#                          NumPy, torch and MLX: hangs, crashes, wrong results, and the times until
#                          errors and healing (at most 20 minutes on two cores; CHAOS=--help lists
#                          options)
#   make chaos-peers       the same faults against MCCL, Gloo, MLX's ring and Open MPI, as a table (20
#                          minutes; CHAOS=--help lists options)
#   make test-large        sums of more than 2^31 elements; needs 12 GiB of memory
#   make test-rdma         links, calls and frameworks through RDMA devices in software, in a guest
#                          under qemu (test-rdma-machines: between two guests)
#   make test-kernel-tls   connections that the Linux kernel encrypts, in a guest under qemu (2 minutes)
#   make test-gpu          what needs GPUs; writes build/gpu.md
#   make test-aarch64      run as ARM programs under qemu: the lock-free code, every kernel, and one job
#                          over TCP with ranks of both processors
#   make macos             compile and link for Macs with Apple silicon, and check the result without
#                          running it
#   make bench             measure MCCL beside Gloo, Open MPI, MPICH and MLX's ring (about an hour;
#                          BENCH=--quick takes minutes, BENCH=--help lists options)
#   make bench-check       measure only the bounds of bench/bounds.json, and fail if one is broken
#   make lock              renew the pinned hashes of the Python packages that setup downloads
#   make sbom              a software bill of materials (CycloneDX) in build/sbom.json
#   make lint              clang-format, clang-tidy, ruff, codespell, and the wording of texts
#   make format            let clang-format and ruff rewrite what they can
#   make sanitize          the C++ tests under address, undefined and thread sanitizers (25 minutes
#                          on two cores)
#   make coverage          the share of the lines of src that the C++ tests run; writes
#                          build/coverage/html
#   make fuzz              fuzz every parser of input from peers and users for FUZZ_SECONDS=60 each,
#                          with libFuzzer; FUZZ="frame messages" selects targets
#   make captures          run the tools that docs/inspect.md shows, and write their output there
#   make docs              build the documentation as a site in build/docs/html; needs no build of MCCL
#   make clean             remove build/ and the virtual environments
#
# Variables: TORCH=2.11.0 (a version, or `newest`), JOBS=2, PYTHON=/usr/bin/python3.
# After `make setup`, .venv/bin/python imports mccl.
