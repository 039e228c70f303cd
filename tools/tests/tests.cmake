# Tests of what is not compiled: the front door, the Makefile, the evidence scripts, the plots and the README.

find_python(LADDER_PYTHON matplotlib jsonschema)
if(NOT LADDER_PYTHON)
  message(STATUS "No Python with matplotlib and jsonschema: the scripts and plots are not tested (./ladder test installs one)")
  return()
endif()

# Modules of the package tools, from the repository's root.
set(python WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMAND ${LADDER_PYTHON} -m)
# The built program says which rungs there are (tools/rungs.py).
set(asks_ladder ENVIRONMENT LADDER=$<TARGET_FILE:ladder>)

foreach(name api rungs front_door release evidence chapters predictions rows book peers lengths)
  add_test(NAME ${name} ${python} tools.tests.${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS scripts ${asks_ladder})
endforeach()
# Tools that judge or draw with whole rungs, 10 s of a core each and more: for who changes one of them, and .ci/run.
foreach(name plots course.grade)
  string(REPLACE "course." "" test ${name})
  add_test(NAME ${test} CONFIGURATIONS site release ${python} tools.tests.${name}_tests)
  set_tests_properties(${test} PROPERTIES LABELS "scripts;tools;release" ${asks_ladder})
endforeach()
set_property(TEST grade APPEND PROPERTY LABELS course)

# The maker of mutants reads C++ by tree-sitter, which PyPI has and Debian has not: .ci/run puts it there.
set(LADDER_SYNTAX_PYTHON ${PROJECT_BINARY_DIR}/venv-syntax/bin/python3)
find_python(LADDER_SYNTAX_PYTHON tree_sitter tree_sitter_cpp)
if(LADDER_SYNTAX_PYTHON)
  add_test(NAME mutants CONFIGURATIONS site release COMMAND ${LADDER_SYNTAX_PYTHON} -m tools.tests.mutants_tests WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(mutants PROPERTIES LABELS "scripts;tools;release" ${asks_ladder})
endif()

# Of a rung that changes more, its stage.cu says why.
add_test(NAME one_idea_per_rung ${python} tools.evidence.rung_diff --most 60 --most-new 120)
add_test(NAME readme_is_current ${python} tools.site.readme --check)
add_test(NAME chapters_are_current ${python} tools.site.chapters --check)
add_test(NAME drawings_are_current ${python} tools.site.draw --check)
add_test(NAME course_is_current ${python} tools.site.course --check)
# These run the emulator for seconds, so they are for who changes what such a page shows, and for .ci/nightly: what the emulator says of a
# wait that is missing its own tests hold, and each rung's tests hold its bytes to what it predicts.
add_test(NAME demonstration_is_current CONFIGURATIONS release ${python} tools.site.demonstration --check)
add_test(NAME traffic_is_current CONFIGURATIONS release ${python} tools.evidence.traffic --emulator --n 256
         --build ${PROJECT_BINARY_DIR} --check ${PROJECT_SOURCE_DIR}/docs/results/h200_traffic.csv)
foreach(name demonstration_is_current traffic_is_current)
  set_tests_properties(${name} PROPERTIES LABELS "scripts;docs;release" ${asks_ladder})
endforeach()
set_tests_properties(one_idea_per_rung readme_is_current chapters_are_current drawings_are_current course_is_current PROPERTIES LABELS scripts ${asks_ladder})

# As a code host shows the pages.
add_test(NAME markdown ${python} tools.tests.markdown_tests)
set_tests_properties(markdown PROPERTIES LABELS "scripts;docs" SKIP_RETURN_CODE 77)

# It builds a copy of the repository, minutes of it: `ctest -C release` alone runs it, and that is what .ci/nightly calls.
add_test(NAME adds_a_rung CONFIGURATIONS release ${python} tools.tests.adds_a_rung_tests $<TARGET_FILE:ladder>)
set_tests_properties(adds_a_rung PROPERTIES LABELS release RUN_SERIAL ON TIMEOUT 1800)

foreach(name learn course_pages)
  add_test(NAME ${name} ${python} tools.tests.course.${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS "scripts;course" ${asks_ladder})
endforeach()
# As they are committed; .ci/nightly runs them.
add_test(NAME notebooks ${python} tools.tests.course.notebooks_tests AsCommitted)
set_tests_properties(notebooks PROPERTIES LABELS "scripts;course" ${asks_ladder})
# A class of a hundred with attackers in it, minutes of it: before a release, and before a lecturer relies on it
# (course/grading.md), on the machine that will grade.
add_test(NAME grade_class CONFIGURATIONS release ${python} tools.tests.course.grade_class_tests)
set_tests_properties(grade_class PROPERTIES LABELS "class;course" RUN_SERIAL ON TIMEOUT 1800 ${asks_ladder})
# The exercises of the course on paper; and, minutes of it, each in earnest: it fails, its solution passes, ways around it are
# refused. `ctest -C release -L course`.
set(exercise_tests ${python} tools.tests.course.exercise_tests)
add_test(NAME exercises ${exercise_tests} all)
set_tests_properties(exercises PROPERTIES LABELS "scripts;course" ${asks_ladder})
file(GLOB names CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/course/exercises ${PROJECT_SOURCE_DIR}/course/exercises/*)
foreach(name IN LISTS names)
  add_test(NAME exercise_${name} CONFIGURATIONS release ${exercise_tests} ${name})
  set_tests_properties(exercise_${name} PROPERTIES LABELS "release;course" ${asks_ladder})
endforeach()

# All kernels that were written to get past the check: .ci/nightly.
add_test(NAME invented CONFIGURATIONS release ${python} tools.mutants.invented)
set_tests_properties(invented PROPERTIES LABELS mutants RUN_SERIAL ON TIMEOUT 3600 ${asks_ladder})

# The site, built once for all that read it: pages_tests.py without a browser, the others in one. For who changes pages, and for
# .ci/run:   ./ladder test -C site   And what asks one page's script by hand, key by key, for who changes that page, and for
# .ci/nightly:   ./ladder test -C release -L docs   With -FS '^site$' they read the one that ./ladder docs has built.
set(site ${PROJECT_BINARY_DIR}/site)
add_test(NAME site_built CONFIGURATIONS site release ${python} tools.tests.site.browser ${site})
set_tests_properties(site_built PROPERTIES SKIP_RETURN_CODE 77 FIXTURES_SETUP site ${asks_ladder})
file(GLOB site_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/site/*_tests.py)
foreach(file IN LISTS site_tests)
  get_filename_component(module ${file} NAME_WE)
  string(REGEX REPLACE "^(.*)_tests$" "site_\\1" name ${module})
  set(when release)
  if(name MATCHES "^site_(pages|browser|reading)$")  # all pages
    set(when site release)
  endif()
  add_test(NAME ${name} CONFIGURATIONS ${when} ${python} tools.tests.site.${module})
  set_tests_properties(${name} PROPERTIES LABELS "docs;release" SKIP_RETURN_CODE 77 FIXTURES_REQUIRED site
    ENVIRONMENT "LADDER_SITE=${site};LADDER=$<TARGET_FILE:ladder>")
endforeach()

# The longest first, also in the first run of a build: none of them shall be left over at the end, for one processor alone. In the
# browser and the bench there is waiting, so others run beside them.
foreach(name site_browser bench_cli harness grade cli site_pages site_reading front_door mutants plots)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 30)
  endif()
endforeach()

if(LADDER_HAS_CUDA)
  add_test(NAME registers_and_spills ${python} tools.evidence.resources ${PROJECT_BINARY_DIR})
  set_tests_properties(registers_and_spills PROPERTIES LABELS scripts SKIP_RETURN_CODE 77 ${asks_ladder})
endif()
