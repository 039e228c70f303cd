// Files that are written whole, or not at all, and folders for a while.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "harness/base/error.hpp"

namespace ladder {

// "-" is standard output. A file's old text is there until the new one is safe on the disk.
Status write_text(const std::string& file, std::string_view text);
// Adds lines to a file, with the header when it is new or empty.
Status append_text(const std::string& file, const std::string& header, const std::string& lines);

// A new folder below another one, removed with the object.
class Folder {
 public:
  explicit Folder(const std::filesystem::path& below);
  Folder(Folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Folder& operator=(Folder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~Folder();
  const std::filesystem::path& path() const { return path_; }  // empty where none could be made

 private:
  std::filesystem::path path_;
};

}  // namespace ladder
