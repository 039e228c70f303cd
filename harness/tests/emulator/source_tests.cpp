// What the emulator cannot see in a kernel, because a C++ compiler knows nothing of it, is read from the kernel's source: the
// bound on a block's threads, and where a tensor map lies that is a parameter.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "harness/tests/catch.hpp"

namespace {

namespace fs = std::filesystem;
using Problems = std::vector<std::string>;

std::string read_text(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(//[^\n]*|/\*[^*]*\*+([^/*][^*]*\*+)*/)"), "");
}

std::string without_spaces(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(\s+)"), "");
}

// What stands between the bracket at `open` and its partner; its parts between commas.
std::vector<std::string> list_at(const std::string& text, size_t open) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    const bool opens = c == '(' || c == '{' || c == '[' || (c == '<' && i > 0 && (std::isalnum(text[i - 1]) != 0));
    const bool closes = c == ')' || c == '}' || c == ']' || (c == '>' && depth > 1);
    if (closes && --depth == 0) break;
    if (c == ',' && depth == 1) {
      parts.emplace_back();
    } else if (i > open) {
      parts.back() += c;
    }
    if (opens) ++depth;
  }
  return parts;
}

struct Kernel {
  std::string name;
  std::string bound;  // of its threads, without spaces; empty: none
  std::vector<std::string> parameters;
};

std::vector<Kernel> kernels_in(const std::string& text) {
  std::vector<Kernel> kernels;
  const std::string mark = "__global__", bound = "__launch_bounds__";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    Kernel& kernel = kernels.emplace_back();
    size_t open = text.find('(', at);
    if (text.substr(0, open).ends_with(bound)) {
      kernel.bound = without_spaces(list_at(text, open)[0]);
      const size_t name = std::min(text.find(bound, at), open) + bound.size();
      int depth = 0;  // past the bound
      size_t end = name;
      do depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      while (depth > 0 && ++end < text.size());
      open = text.find('(', end + 1);
    }
    const size_t end = text.find_last_not_of(" \n", open - 1) + 1;
    const size_t begin = text.find_last_of(" \n*", end - 1) + 1;
    kernel.name = text.substr(begin, end - begin);
    kernel.parameters = list_at(text, open);
  }
  return kernels;
}

// `bounded` counts the launches of kernels that have a bound; those of `parts`, which may be launched here, too, are not counted.
Problems problems_of(const std::string& kernel_source, const std::string& launch_source, size_t* bounded = nullptr,
                     const std::string& parts = "") {
  Problems problems;
  std::map<std::string, std::string> bounds, bounds_of_parts;
  for (const Kernel& kernel : kernels_in(without_comments(parts))) bounds_of_parts[kernel.name] = kernel.bound;
  for (const Kernel& kernel : kernels_in(without_comments(kernel_source))) {
    bounds[kernel.name] = kernel.bound;
    for (const std::string& parameter : kernel.parameters) {
      static const std::regex MAP(R"(\bTensorMap\b)"), RIGHT(R"(\s*const\s+__grid_constant__\s+TensorMap\s+\w+\s*)");
      if (std::regex_search(parameter, MAP) && !std::regex_match(parameter, RIGHT)) {
        problems.push_back(kernel.name + " takes \"" + std::regex_replace(parameter, std::regex(R"(^\s+|\s+$)"), "") +
                           "\", which the compiler may copy to where the copy engine cannot read it; it must be const "
                           "__grid_constant__ TensorMap");
      }
    }
  }
  const std::string launches = without_comments(launch_source);
  for (const std::string mark : {"launch(", "launch_clusters(", "launch_dependent("}) {
    for (size_t at = launches.find(mark); at != std::string::npos; at = launches.find(mark, at + 1)) {
      const std::vector<std::string> arguments = list_at(launches, at + mark.size() - 1);
      if (arguments.size() < 5) continue;
      // flash_attention<C>, or one of two of its kind: condition ? flash_attention<A> : flash_attention<B>
      std::string chosen = arguments[1];
      if (const size_t question = chosen.find('?'); question != std::string::npos) chosen.erase(0, question + 1);
      const std::string name = without_spaces(chosen.substr(0, chosen.find('<')));
      const std::string block = without_spaces(arguments[3]);
      const auto kernel = bounds.find(name), part = bounds_of_parts.find(name);
      if (kernel == bounds.end() && part == bounds_of_parts.end()) continue;
      const std::string bound = kernel == bounds.end() ? part->second : kernel->second;
      if (bound.empty()) continue;
      if (bounded != nullptr && kernel != bounds.end()) ++*bounded;
      if (block != "dim3(" + bound + ")") {
        problems.push_back(name + " is launched on " + block + " threads, and its __launch_bounds__ are " + bound +
                           "; the hardware refuses more, so the two must be the same expression");
      }
    }
  }
  return problems;
}

}  // namespace

TEST_CASE("what kernels and launches say of themselves is what the hardware needs", "[emulator][source]") {
  const fs::path root = LADDER_SOURCE_DIR;
  size_t found = 0, bounded = 0;
  const auto check = [&](const fs::path& directory) {
    if (!fs::exists(directory / "kernel.cuh")) return;
    const std::string kernel = read_text(directory / "kernel.cuh"), stage = read_text(directory / "stage.cu");
    INFO(directory);
    std::string parts;
    static const std::regex INCLUDE(R"re(#include "(common/words/\w+\.cuh)")re");
    for (std::sregex_iterator match(kernel.begin(), kernel.end(), INCLUDE), end; match != end; ++match) {
      parts += read_text(root / (*match)[1].str());
    }
    CHECK(problems_of(kernel, kernel + stage, &bounded, parts) == Problems{});
    found += kernels_in(without_comments(kernel)).size();
  };
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory() || entry.path().filename().string().starts_with("build")) continue;
    check(entry.path());
    for (const auto& inner : fs::directory_iterator(entry.path())) {
      if (inner.is_directory()) check(inner.path());
    }
  }
  for (const auto& entry : fs::directory_iterator(root / "common" / "words")) {
    const std::string part = read_text(entry.path());
    INFO(entry.path());
    CHECK(problems_of(part, part) == Problems{});
  }
  CHECK(found > 0);
  CHECK(bounded == found);  // every kernel has a bound, and one launch that names it
}

TEST_CASE("a kernel's source that the hardware would punish", "[emulator][source]") {
  const auto problems = [](const std::string& text) { return problems_of(text, text); };
  const std::string right = R"(
    template <int WARPS> __global__ void __launch_bounds__(WARPS * 32, 8 / WARPS)  // a (comment
        attend(Params p, const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap V_map) {}
    __global__ void plain(Params p) {}
    void start() { launch(device, attend<4, (1 > 2)>, dim3(p.n / 64, p.heads), dim3(WARPS * 32), BYTES<4>, p, map(K)); }
    void also() { launch(device, plain, dim3(7), dim3(1024), 0, p); })";
  CHECK(kernels_in(without_comments(right)).size() == 2);
  CHECK(kernels_in(without_comments(right))[0].name == "attend");
  CHECK(kernels_in(without_comments(right))[0].bound == "WARPS*32");
  CHECK(kernels_in(without_comments(right))[1].name == "plain");
  CHECK(problems(right) == Problems{});
  const auto broken = [&](const std::string& from, const std::string& to, const std::string& words) {
    std::string text = right;
    REQUIRE(text.find(from) != std::string::npos);
    const Problems all = problems(text.replace(text.find(from), from.size(), to));
    REQUIRE(all.size() == 1);
    CHECK_THAT(all[0], Contains(words));
  };
  broken("const __grid_constant__ TensorMap V_map", "const TensorMap V_map", "attend takes \"const TensorMap V_map\"");
  broken("const __grid_constant__ TensorMap V_map", "const __grid_constant__ TensorMap& V_map", "takes");
  broken("const __grid_constant__ TensorMap K_map", "TensorMap K_map", "attend takes \"TensorMap K_map\"");
  broken("dim3(WARPS * 32)", "dim3(WARPS * 64)",
         "attend is launched on dim3(WARPS*64) threads, and its __launch_bounds__ are WARPS*32");
  broken("plain(Params p)", "plain(TensorMap p)", "plain takes");
  const std::string part = "__global__ void __launch_bounds__(D) zeros(Params p) {}",
                    start = "void start() { launch(device, zeros<T, D>, dim3(7), dim3(D), 0, p); }";
  size_t bounded = 0;
  CHECK(problems_of("", start, &bounded, part) == Problems{});
  CHECK(bounded == 0);
  CHECK(problems_of("", std::regex_replace(start, std::regex("dim3.D."), "dim3(64)"), &bounded, part).size() == 1);
}
