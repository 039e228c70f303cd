#include "harness/conformance/fixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

namespace ladder::conformance {
namespace {

// Distance in units in the last place between two finite floats: their bits, as sign and magnitude, are ordered.
uint64_t ulp_distance(uint32_t left, uint32_t right) {
  const auto ordered = [](uint32_t bits) {
    const int64_t magnitude = bits & 0x7fffffffu;
    return bits >> 31 ? -magnitude : magnitude;
  };
  const int64_t distance = ordered(left) - ordered(right);
  return static_cast<uint64_t>(distance < 0 ? -distance : distance);
}

bool conforms(uint32_t expected, uint32_t actual, uint32_t max_ulp) {
  if (expected == actual) return true;
  if (max_ulp == 0) return false;
  const float left = std::bit_cast<float>(expected), right = std::bit_cast<float>(actual);
  if (std::isnan(left) && std::isnan(right)) return true;
  if (!std::isfinite(left) || !std::isfinite(right) || left == 0.0f || right == 0.0f) return false;
  return ulp_distance(expected, actual) <= max_ulp;
}

}  // namespace

std::filesystem::path fixture_path(const std::filesystem::path& directory, std::string_view primitive) {
  return directory / (std::string(primitive) + ".txt");
}

std::filesystem::path shared_path(const std::filesystem::path& directory, const std::vector<uint32_t>& words) {
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a, a word at a time
  for (const uint32_t word : words) digest = (digest ^ word) * 0x100000001b3;
  return directory / "shared" / fmt::format("{:016x}.txt", digest);
}

Status write_fixture(const std::filesystem::path& directory, const Case& test, const std::vector<uint32_t>& words,
                     const Provenance& provenance, bool is_shared) {
  std::string answer;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool ends_line = (i + 1) % test.words_per_line == 0 || i + 1 == words.size();
    answer += fmt::format("{:08x}{}", words[i], ends_line ? '\n' : ' ');
  }
  const std::filesystem::path file = fixture_path(directory, test.primitive), shared = shared_path(directory, words);
  const auto write = [](const std::filesystem::path& to, const std::string& text) -> Status {
    std::error_code ignored;  // an unusable directory shows when the file is written
    std::filesystem::create_directories(to.parent_path(), ignored);
    std::ofstream stream(to);
    stream << text << std::flush;
    if (!stream) return failure(ExitCode::usage, "cannot write {}", to.string());
    return {};
  };
  if (is_shared) {
    if (const Status status = write(shared, answer); !status) return status;
    answer = fmt::format("= {}\n", shared.stem().string());
  }
  return write(file, fmt::format("# {}: {}\n# {}\n# {}, CUDA {}, {}\n{}", test.primitive, test.what, test.layout,
                                 provenance.gpu, provenance.cuda, provenance.date, answer));
}

Result<std::vector<uint32_t>> read_fixture(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) {
    return failure(ExitCode::check_failed,
                   fmt::format("{} is missing; conformance_record writes it on a machine with a GPU", file.string()));
  }
  std::vector<uint32_t> words;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with("= ")) return read_fixture(file.parent_path() / "shared" / (line.substr(2) + ".txt"));
    std::istringstream tokens(line);
    for (std::string token; tokens >> token;) {
      uint32_t word = 0;
      const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), word, 16);
      if (error != std::errc() || end != token.data() + token.size()) {
        return failure(ExitCode::check_failed, fmt::format("{}: \"{}\" is not a hex word", file.string(), token));
      }
      words.push_back(word);
    }
  }
  return words;
}

std::string difference(const Case& test, const std::vector<uint32_t>& expected, const std::vector<uint32_t>& actual) {
  if (expected.size() != actual.size()) {
    return fmt::format("{}: {} words expected, {} there", test.primitive, expected.size(), actual.size());
  }
  size_t differing = 0;
  std::string text;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (conforms(expected[i], actual[i], test.max_ulp)) continue;
    if (++differing <= 8) text += fmt::format("\n  word {}: {:08x} expected, {:08x} there", i, expected[i], actual[i]);
  }
  if (differing == 0) return "";
  return fmt::format("{}: {} of {} words differ ({}){}", test.primitive, differing, expected.size(), test.layout, text);
}

}  // namespace ladder::conformance
