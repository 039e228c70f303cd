// What a reader of `ladder check` sees: the table, and for what went wrong the cause first and once.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "harness/verify/check.hpp"

namespace ladder {

// All results of one variant at one shape on one back end: a line of the table.
struct CheckLine {
  std::string name;  // of the rung, with its variant where several are checked
  Place backend;
  Shape shape;
  std::vector<CheckResult> results;
  std::string directory;  // of the rung, where its chapter lies

  bool answers_right() const;
  bool counts_right() const;
};

struct CheckReport {
  std::vector<CheckLine> lines;
  std::vector<std::string> notes;  // what was left out, and why
};

void print(const CheckReport& report, std::FILE* out);

// The cause of a line's failures as a reader should meet it: in the first line the first failure of the most telling kind, then the lines
// of source, where it was and in how many other input sets, what follows from it in a sentence, and where to read on. Empty if all is
// right.
std::string explain_failures(const CheckLine& line);

// Where a kind of failure is explained: "docs/emulator.md, Races". `report` is an emulator report's kind, or empty.
std::string where_to_read(const Failure& failure);

}  // namespace ladder
