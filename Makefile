# A thin front over ./ladder and CMake; `make help` lists the targets. Stages are found, never listed.
BUILD  ?= $(or $(LADDER_BUILD),build)
STAGE  ?=
STAGES := $(filter-out build% work%,$(patsubst %/stage.cu,%,$(sort $(wildcard */stage.cu)) $(sort $(wildcard */*/stage.cu))))
# A Python with matplotlib and jsonschema: the system's, where another one comes first in PATH.
PYTHON ?= $(shell for p in python3 /usr/bin/python3; do $$p -c 'import matplotlib, jsonschema' 2>/dev/null && echo $$p && exit; done; echo python3)
CSV    ?= $(wildcard docs/results/h200.csv)

export LADDER_BUILD := $(abspath $(BUILD))
SANITIZERS := memcheck racecheck initcheck synccheck

TARGETS := help all ladder test docs handouts slides diff plots resources profile mutants format release clean $(SANITIZERS)

# A stage goes by the names that ./ladder takes: make 3, 03, kvpipe, 03_kvpipe or its directory; p3 and p03 alike.
name   = $(notdir $1)
number = $(firstword $(subst _, ,$(name)))
short  = $(if $(filter 0%,$(number)),$(patsubst 0%,%,$(number)),$(subst p0,p,$(number)))
names  = $(filter-out $(TARGETS) $1,$(sort $(name) $(number) $(short) $(patsubst $(number)_%,%,$(name))))
define alias
.PHONY: $(names)
$(names): $1
endef
$(foreach stage,$(STAGES),$(eval $(call alias,$(stage))))

.PHONY: $(TARGETS) $(STAGES)
.DEFAULT_GOAL := help

help:
	@echo 'make STAGE                 build, check and (with a GPU) time one stage, print its card; 03 or kvpipe will do. Stages:'
	@echo '                             $(notdir $(STAGES))'
	@echo 'make ladder                all of it: install, build, check every stage, print the table'
	@echo 'make test                  the test-suite'
	@echo 'make docs                  the site'
	@echo 'make handouts              every page of it as a PDF (needs Chromium), answers left out; ANSWERS=1 with them; STAGE=03 for one'
	@echo 'make slides                for the lecture, HTML and (with Chromium) PDF; STAGE=03 for one rung'
	@echo 'make diff STAGE=03         what changed in kernel.cuh since the rung before, and how many lines'
	@echo 'make plots                 figures, README table, chapters, drawings, anew; CSV=FILE for another'
	@echo 'make resources             registers and spills of every kernel, against the bounds (needs nvcc)'
	@echo 'make profile STAGE=03      bytes at every memory level, conflicts, stalls over N, by ncu (needs a GPU); OUT=FILE.csv'
	@echo 'make memcheck STAGE=03     compute-sanitizer on one stage (needs a GPU); also racecheck, initcheck, synccheck'
	@echo 'make mutants STAGE=03      wrong kernels made out of a rung: which of them does the check let pass?'
	@echo 'make format                clang-format all C++ and CUDA'
	@echo 'make release               what is checked before a release, hours of it, on a clean tree'
	@echo 'make clean                 remove $(BUILD)/'

$(STAGES):
	@./ladder card $@

ladder all:
	@./ladder
test:
	@./ladder test
docs:
	@./ladder docs
handouts: docs
	@$(PYTHON) -m tools.site.handouts $(if $(ANSWERS),--answers) $(BUILD)/site $(BUILD)/handouts$(if $(ANSWERS),-with-answers) $(STAGE)
slides: docs
	@$(PYTHON) -m tools.site.slides $(BUILD)/site $(BUILD)/slides $(STAGE) || [ $$? -eq 77 ]
diff:
	@./ladder describe >/dev/null
	@$(PYTHON) -m tools.evidence.rung_diff $(STAGE)

plots:
	@./ladder build ladder
	@for csv in $(CSV); do for figure in climb tflops_per_rung time_over_n; do \
	  $(PYTHON) -m tools.plots $$figure $$csv || exit; done; \
	  for figure in regimes power engines; do $(PYTHON) -m tools.plots $$figure $$csv || [ $$? -eq 77 ] || exit; done; \
	  for figure in bytes_over_n memory_over_n roofline; do \
	  $(PYTHON) -m tools.plots $$figure $${csv%.csv}_traffic.csv || [ $$? -eq 77 ] || exit; done; done
	@for figure in predictions which halves; do $(PYTHON) -m tools.plots $$figure || exit; done
	@$(PYTHON) -m tools.site.readme
	@$(PYTHON) -m tools.site.chapters
	@$(PYTHON) -m tools.site.course
	@$(PYTHON) -m tools.site.draw
	@$(PYTHON) -m tools.site.demonstration

resources:
	@./ladder build ladder
	@$(PYTHON) -m tools.evidence.resources $(BUILD)

profile:
	@./ladder build ladder
	@$(PYTHON) -m tools.evidence.traffic $(STAGE) --build $(BUILD) $(if $(OUT),--csv $(OUT))

# The table is of whole runs.
mutants:
	@./ladder build ladder
	@$(or $(wildcard $(BUILD)/venv-syntax/bin/python3),$(PYTHON)) -m tools.mutants.mutants --build $(BUILD) $(if $(STAGE),$(STAGE),--csv docs/results/mutants.csv)

$(SANITIZERS):
	@command -v compute-sanitizer >/dev/null || { echo 'compute-sanitizer is not on PATH; it comes with the CUDA Toolkit.' >&2; exit 77; }
	@./ladder build ladder
	compute-sanitizer --tool $@ --error-exitcode 1 $(BUILD)/ladder check $(STAGE) --on gpu --batch 1 --heads 2 --n 256

format:
	@git ls-files -z '*.cpp' '*.hpp' '*.cu' '*.cuh' | xargs -0 clang-format -i

release:
	@harness/release/release

clean:
	@rm -rf $(BUILD)
