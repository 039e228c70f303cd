#include "harness/base/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "harness/base/process.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

Status cannot_write(const std::string& file, int error) {
  const std::string_view way_out = error == ENOSPC ? "\n  Free some space, or name a file on another disk." : "";
  return failure(ExitCode::check_failed, "cannot write {}: {}{}", file, std::strerror(error), way_out);
}

Status write_all(int descriptor, std::string_view text, const std::string& file) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(file, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Status write_text(const std::string& file, std::string_view text) {
  if (file == "-") return write_all(STDOUT_FILENO, text, "standard output");
  std::error_code ignored;
  const bool special = fs::exists(file, ignored) && !fs::is_regular_file(file, ignored);
  const std::string target = special ? file : file + ".new";
  {
    const Descriptor out(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (out.get() < 0) return cannot_write(target, errno);
    Status written = write_all(out.get(), text, file);
    if (written && !special && ::fsync(out.get()) != 0) written = cannot_write(file, errno);
    if (!written) {
      if (!special) fs::remove(target, ignored);
      return written;
    }
  }
  if (!special && ::rename(target.c_str(), file.c_str()) != 0) return cannot_write(file, errno);
  return {};
}

Status append_text(const std::string& file, const std::string& header, const std::string& lines) {
  std::error_code ignored;
  const bool is_new =
      !fs::exists(file, ignored) || (fs::is_regular_file(file, ignored) && fs::file_size(file, ignored) == 0);
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (out.get() < 0) return cannot_write(file, errno);
  const uintmax_t before = is_new ? 0 : fs::file_size(file, ignored);
  Status written = write_all(out.get(), (is_new ? header : "") + lines, file);
  if (!written && fs::is_regular_file(file, ignored)) fs::resize_file(file, before, ignored);  // no half of it stays
  return written;
}

Folder::Folder(const fs::path& below) {
  std::string name = (below / "ladder-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace ladder
