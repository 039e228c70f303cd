// Text tables for a terminal: columns as wide as their widest cell.
#pragma once
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace ladder {

class Table {
 public:
  // Marks in front of a title say how its column is set; they are not shown:
  //   <   left-aligned; without it right-aligned, as numbers are
  //   ~   left-aligned, and broken into several lines where the table is too wide
  //   ?   may be left out where the table is still too wide; the more of them, the sooner
  explicit Table(std::vector<std::string> titles);
  void add(std::initializer_list<std::string_view> cells);

  // Fitted to the stream's width (harness/terminal.hpp). A last line says which columns were left out and what shows
  // them.
  std::string text(std::FILE* stream) const;
  // The same for a width in characters; 0: all columns, as wide as they are.
  std::string text(size_t columns = 0) const;

 private:
  struct Column {
    bool left = false;
    bool wraps = false;
    int marks = 0;  // how soon it is left out; 0: never
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "right" or "WRONG", or another word for that, coloured if `stream` is a terminal.
std::string verdict_word(bool right, std::FILE* stream, std::string_view wrong = "WRONG");

// 1234567 as "1,234,567".
std::string grouped(uint64_t value);

// 1.5 KiB, 2.1 MiB
std::string bytes_text(double bytes);

}  // namespace ladder
