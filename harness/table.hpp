// Text tables for a terminal: columns as wide as their widest cell.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace ladder {

class Table {
 public:
  // A title that starts with '<' is left-aligned (the sign is not shown); the others are right-aligned, as numbers are.
  explicit Table(std::vector<std::string> titles);
  void add(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

// "right" or "WRONG", coloured if `stream` is a terminal.
std::string verdict_word(bool right, std::FILE* stream);

// "right" or "DIFFER", likewise.
std::string count_word(bool right, std::FILE* stream);

// 1234567 as "1,234,567".
std::string grouped(uint64_t value);

// 1.5 KiB, 2.1 MiB
std::string bytes_text(double bytes);

}  // namespace ladder
