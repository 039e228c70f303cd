// Tables and paragraphs at the width of what they are printed on.
#include "harness/base/table.hpp"

#include <cstdlib>

#include "harness/base/terminal.hpp"
#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

Table some_table() {
  Table table({"<stage", "?verdict", "??mma", "??barriers", "TFLOPS"});
  table.add({"93_longer", "right", "32,768", "16", "311.3"});
  return table;
}

}  // namespace

TEST_CASE("a table without a limit has all of its columns") {
  const std::string whole =
      "stage      verdict     mma  barriers  TFLOPS\n"
      "93_longer    right  32,768        16   311.3\n";
  CHECK(some_table().text() == whole);
  CHECK(some_table().text(size_t{44}) == whole);
}

TEST_CASE("a narrow table leaves out what has the most marks, from the right, and says so") {
  CHECK(some_table().text(size_t{43}) ==
        "stage      verdict     mma  TFLOPS\n"
        "93_longer    right  32,768   311.3\n"
        "Left out in 43 columns: barriers.\n"
        "COLUMNS=44 shows all.\n");
  CHECK_THAT(some_table().text(size_t{30}), StartsWith("stage      verdict  TFLOPS\n"));
  CHECK_THAT(some_table().text(size_t{20}), StartsWith("stage      TFLOPS\n"));
  CHECK_THAT(some_table().text(size_t{5}), StartsWith("stage      TFLOPS\n"));  // what has no mark always stays
}

TEST_CASE("a column that may be broken is broken before others are left out") {
  Table table({"<stage", "~idea", "?mma"});
  table.add({"93_longer", "cp.async brings V in while QK runs, and the next K while PV runs.", "1"});
  table.add({"94_third", "Short.", "2"});
  CHECK(table.text(size_t{55}) ==
        "stage      idea                                     mma\n"
        "93_longer  cp.async brings V in while QK runs, and    1\n"
        "           the next K while PV runs.\n"
        "94_third   Short.                                     2\n");
}

TEST_CASE("a colour takes no room") {
  Table table({"<a", "b"});
  table.add({"\x1b[32mright\x1b[0m", "1"});
  CHECK(table.text(size_t{8}) == "a      b\n\x1b[32mright\x1b[0m  1\n");
}

TEST_CASE("a paragraph is broken at spaces and keeps its own lines") {
  CHECK(wrapped("one two three", 7) == "one two\nthree");
  CHECK(wrapped("one two three", 6) == "one\ntwo\nthree");
  CHECK(wrapped("extraordinary on", 5) == "extraordinary\non");
  CHECK(wrapped("one\ntwo three\n", 20) == "one\ntwo three\n");
  CHECK(wrapped("", 5).empty());
}

TEST_CASE("COLUMNS decides the width, and a file has none") {
  const char* const before = std::getenv("COLUMNS");
  const std::string kept = before != nullptr ? before : "";
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  setenv("COLUMNS", "72", 1);
  CHECK(columns_of(file) == 72);
  for (const char* no_width : {"", "0", "wide", "80x24"}) {
    setenv("COLUMNS", no_width, 1);
    CHECK(columns_of(file) == 0);
  }
  CHECK_FALSE(has_colour(file));
  std::fclose(file);
  if (before != nullptr) {
    setenv("COLUMNS", kept.c_str(), 1);
  } else {
    unsetenv("COLUMNS");
  }
}
