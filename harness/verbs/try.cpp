#include "harness/verbs/verbs.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "harness/base/files.hpp"
#include "harness/base/json.hpp"
#include "harness/base/parallel.hpp"
#include "harness/base/process.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/verbs/check.hpp"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// ---- what a file may say --------------------------------------------------------------------------------------------

Result<std::string> read_kernel(const std::string& file) {
  std::error_code error;
  if (fs::is_directory(file, error)) {
    return usage(
        "{} is a directory; try takes the file of a kernel.\n"
        "  Perhaps:  ./ladder try {}",
        file, (fs::path(file) / "kernel.cuh").string());
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return usage("{}: {}.", file, std::strerror(errno));
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return usage("{} is empty.", file);
  return text;
}

// The text with comments and what stands between quotes blanked out, line by line as long as before.
std::string code_of(std::string text) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "/*") == 0) {
      end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
    } else if (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1])))) {
      end = std::min(text.find('\'', i + (text.compare(i + 1, 1, "\\") == 0 ? 3 : 2)), text.size() - 1) + 1;
    } else if (text[i] == '"' && (i == 0 || text[i - 1] != 'R')) {  // raw text is seen, and refused
      for (++end; end < text.size() && text[end] != '"' && text[end] != '\n'; ++end) {
        if (text[end] == '\\') ++end;
      }
      end = std::min(end + 1, text.size());
    }
    if (end == i) ++i;
    for (; i < end; ++i) {
      if (text[i] != '\n') text[i] = ' ';
    }
  }
  return text;
}

// The name that begins there, or nothing.
std::string word_at(const std::string& line, size_t begin) {
  size_t end = std::min(begin, line.size());
  begin = end;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) || line[end] == '_')) ++end;
  return line.substr(begin, end - begin);
}

// Whether a declaration, from its first word on, is that of a function: it has parameters, and then a brace.
bool begins_function(std::string_view code) {
  int depth = 0;
  bool has_parameters = false;
  for (const char each : code) {
    if (each == '(') ++depth, has_parameters = true;
    if (each == ')') --depth;
    if (depth == 0 && (each == ';' || each == '=' || each == '{')) return each == '{' && has_parameters;
  }
  return false;
}

// A kernel knows the GPU and nothing of those who judge it. What cannot be seen in the text is seen in the object file.
Status check_words(const std::string& file, const std::string& text) {
  static const std::set<std::string_view> FOREIGN = {"ladder", "emulator", "emulated", "std",     "extern",
                                                     "asm",    "__asm__",  "__asm",    "goto",    "__attribute__",
                                                     "define", "dlsym",    "__FILE__", "_Pragma", "requires"};
  static const std::set<std::string_view> DIRECTIVES = {"", "include", "pragma", "if", "else", "endif"};
  constexpr const char* WHITE = " \t\v\f\r";
  const std::string code = code_of(text);
  std::istringstream lines(text), code_lines(code);
  std::string line, code_line;
  size_t line_begin = 0;
  for (int number = 1; std::getline(lines, line) && std::getline(code_lines, code_line);
       ++number, line_begin += code_line.size() + 1) {
    const auto refuse = [&](std::string_view what) {
      return failure(
          ExitCode::check_failed,
          "{}:{}: {}\n  {}\nA kernel includes \"common/gpu.cuh\", which names all that it may use, and parts of "
          "common/words/ alone.",
          file, number, what, line);
    };
    const size_t first = code_line.find_first_not_of(WHITE);
    if (first != std::string::npos && code_line[first] == '#') {
      const std::string directive = word_at(code_line, code_line.find_first_not_of(WHITE, first + 1));
      static const std::regex OURS(R"re(\s*#\s*include "common/(gpu|words/[a-z_]+)\.cuh"\s*(//.*)?)re");
      if (directive == "include" && !std::regex_match(line, OURS)) return refuse("not for a kernel to include.");
      const std::string pragma = word_at(code_line, code_line.find_first_not_of(WHITE, code_line.find("pragma") + 6));
      const std::string condition = word_at(code_line, code_line.find_first_not_of(WHITE, code_line.find("if") + 2));
      if (directive.starts_with("if") && condition != "0" && condition != "1") {
        return refuse("a kernel is the same text for every compiler; only #if 0 and #if 1 may leave a part out.");
      }
      if (!DIRECTIVES.contains(directive) || (directive == "pragma" && pragma != "unroll" && pragma != "once")) {
        return refuse("a directive for no kernel.");  // #import and #embed read files too
      }
    }
    for (const char* trick : {"##", "%:", "R\""}) {
      if (code_line.find(trick) != std::string::npos) return refuse(fmt::format("'{}' is for no kernel.", trick));
    }
    if (code_line.ends_with('\\')) return refuse("a line ends where it ends.");
    for (size_t begin = 0; begin < code_line.size();) {
      if (!std::isalpha(static_cast<unsigned char>(code_line[begin])) && code_line[begin] != '_') {
        ++begin;
        continue;
      }
      const std::string word = word_at(code_line, begin);
      // Some of the compiler's own functions tell where the judge's code and stack are. By __CUDA_ARCH__ and its like a
      // kernel would be another one on a GPU.
      if (FOREIGN.contains(word) || word.starts_with("__builtin") || word.starts_with("__CUDA")) {
        return refuse(fmt::format("'{}' is no word of a kernel.", word));
      }
      const size_t next = code_line.find_first_not_of(WHITE, begin + word.size());
      // A struct's function is none. What looks like one and is none is seen in the object file.
      if (word == "static" && (next == std::string::npos || word_at(code_line, next) != "constexpr") &&
          !begins_function(std::string_view(code).substr(line_begin + begin))) {
        return refuse("a static variable remembers one launch in the next.");
      }
      begin += word.size();
    }
  }
  return {};
}

// "// 02_swizzle: ..." in the first line says which rung a kernel stands for.
Result<const Rung*> rung_for(const Options& options, const std::string& text) {
  if (!options.like.empty()) return find_rung(options.like, rungs());
  const std::string first = text.substr(0, text.find('\n'));
  for (const Rung& rung : rungs()) {
    if (first.find(rung.name) != std::string::npos) return &rung;
  }
  return usage(
      "{0}: its first line names no stage. Which one does it stand for?\n"
      "  For example:  ./ladder try {0} --like 02",
      options.file);
}

// ---- compiling ------------------------------------------------------------------------------------------------------

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// How a build compiles a rung: the command without what it makes of what.
struct Recipe {
  std::string compiler, command, object;
};

Result<std::vector<Recipe>> recipes_for(const Rung& rung) {
  const fs::path build = LADDER_BUILD_DIR, listed = build / "compile_commands.json";
  std::vector<Recipe> recipes;
  const std::string wrapper = fmt::format("/stages_emulator/{}.cpp", rung.name);
  for (const Json& entry : Json::parse(read_text(listed)).elements()) {
    if (!entry["file"].text().value_or("").ends_with(wrapper)) continue;
    std::string command = entry["command"].text().value_or("");
    const size_t output = command.rfind(" -o "), source = command.rfind(" -c ");
    if (output == std::string::npos || source == std::string::npos || source < output) continue;
    const std::string object = command.substr(output + 4, source - output - 4);
    command.resize(output);
    // A reader's unused variable is no error.
    if (const size_t strict = command.find(" -Werror "); strict != std::string::npos) command.erase(strict, 8);
    recipes.push_back(
        {command.substr(0, command.find(' ')), command, fs::path(entry["directory"].text().value_or("")) / object});
  }
  if (recipes.size() < 2) {
    return failure(ExitCode::cannot_run_here,
                   "{} does not say how {} was compiled.\n  Configured again, it knows:  ./ladder build ladder",
                   listed.string(), rung.name);
  }
  return recipes;
}

// What a run in a shell left: 0, or what it wrote to standard error.
struct Outcome {
  int status = 0;
  std::string errors;
};

Outcome shell(const std::string& command, const fs::path& log) {
  const int status =
      std::system(fmt::format("LC_ALL=C {} </dev/null >{} 2>&1", command, shell_word(log.string())).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(log)};
}

// The compiler's first error as it wrote it, and how many more there are. Its later ones mostly follow from the first.
std::string first_error(const std::string& log, const std::string& path, const std::string& typed) {
  std::istringstream lines(log);
  std::string line, from, block;
  int errors = 0;
  bool inside = false;
  while (std::getline(lines, line)) {
    for (size_t at = line.find(path); at != std::string::npos; at = line.find(path, at + typed.size())) {
      line.replace(at, path.size(), typed);
    }
    const bool is_error = line.find(" error: ") != std::string::npos;
    const bool is_other = line.find(": note: ") != std::string::npos || line.find(": warning: ") != std::string::npos;
    if (is_error) ++errors;
    if (is_error && errors == 1) {
      block = from + line + "\n";
      inside = true;
    } else if (is_error || is_other || line.find("In file included") != std::string::npos ||
               line.find("In instantiation") != std::string::npos) {
      inside = false;
    } else if (inside) {
      block += line + "\n";
    }
    // Of an error within a header, the line of the kernel that led there.
    const bool leads = line.starts_with(typed) && line.find("required from") != std::string::npos;
    if (leads && errors == 0) from = line + "\n";
  }
  if (errors == 0) return log.substr(0, 2000);
  if (errors > 1) block += fmt::format("({} more error{} after it)\n", errors - 1, errors == 2 ? "" : "s");
  block.pop_back();
  return block;
}

// A name as the linker knows it, as it is written in C++.
std::string demangled(const std::string& name) {
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

// Names in an object file, as the linker knows them.
struct Names {
  std::set<std::string> wanted;     // from others
  std::set<std::string> variables;  // its own, which can be written
};
Names names_in(const std::string& object, const fs::path& log) {
  std::istringstream lines(shell(fmt::format("nm -P {}", shell_word(object)), log).errors);
  Names names;
  for (std::string name, kind, rest; lines >> name >> kind && std::getline(lines, rest);) {
    if (kind == "U") names.wanted.insert(name);
    if (std::string_view("bBdDcC").find(kind) != std::string_view::npos) names.variables.insert(name);
  }
  return names;
}

// Beyond what the rung itself wants: GPU instructions, and C's functions on floats and memory.
Status check_names(const std::string& file, const Recipe& recipe, const std::string& object, const fs::path& log) {
  static const std::set<std::string_view> HARMLESS = {
      "fmaxf", "fminf", "fabsf", "expf", "exp2f", "logf", "log2f", "sqrtf", "fmaf", "memcpy", "memset", "wmemset",
      "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_", "__tls_get_addr",  // these two come with -fPIC
      // Where the compiler adds a check: common/emulator/sanitizer.cpp.
      "__ubsan_handle_out_of_bounds", "__ubsan_handle_shift_out_of_bounds", "__ubsan_handle_float_cast_overflow",
      "__ubsan_handle_divrem_overflow"};
  const Names known = names_in(recipe.object, log), own = names_in(object, log);
  const bool keeps_unused =
      recipe.command.find(" -Og") != std::string::npos;  // an object that nobody uses; the last build does not
  for (const std::string& name : keeps_unused ? std::set<std::string>() : own.variables) {
    if (known.variables.contains(name) || name.find("__ubsan") != std::string::npos || name.starts_with(".")) continue;
    return failure(ExitCode::check_failed,
                   "{}: {} is a variable outside of the kernel, which remembers one launch in the next.\n"
                   "A kernel knows its arguments alone.",
                   file, demangled(name));
  }
  for (const std::string& name : own.wanted) {
    if (known.wanted.contains(name) || HARMLESS.contains(name) || name.starts_with("_ZN8emulated")) continue;
    return failure(ExitCode::check_failed,
                   "{}: it calls {}, which is no GPU instruction.\nA kernel includes \"common/gpu.cuh\", which names "
                   "all that it may use, and parts of common/words/ alone.",
                   file, demangled(name));
  }
  return {};
}

// Compiles the rung with the file in its kernel's place, in each build as it was compiled itself, and loads them: what they
// register stands for the rung from then on.
Status replace(const Rung& rung, const std::string& file) {
  const auto recipes = recipes_for(rung);
  if (!recipes) return passed_on(recipes);
  const Folder folder(fs::temp_directory_path());
  const fs::path& work = folder.path();
  const fs::path stage_file = fs::path(LADDER_SOURCE_DIR) / rung.directory / "stage.cu";
  const std::string rung_text = read_text(stage_file);
  if (rung_text.empty()) {
    return failure(ExitCode::cannot_run_here,
                   "{}, into which the kernel is put, cannot be read. This program was built from the clone in {}.\n"
                   "  Built here:  ./ladder build ladder",
                   stage_file.string(), LADDER_SOURCE_DIR);
  }
  const std::string path = fs::absolute(file).lexically_normal().string();
  // stage.cu includes the kernel that lies beside it.
  std::ofstream(work / "kernel.cuh") << fmt::format("#include \"{}\"\n", path);
  std::ofstream(work / "stage.cpp") << fmt::format("#line 1 \"{}\"\n", stage_file.string()) << rung_text;
  if (read_text(work / "stage.cpp").empty()) {
    return failure(ExitCode::cannot_run_here, "{}: nothing can be written there. TMPDIR names another place.",
                   fs::temp_directory_path().string());
  }

  std::vector<std::string> commands, objects;
  for (const Recipe& recipe : *recipes) {
    objects.push_back((work / fmt::format("{}.o", objects.size())).string());
    commands.push_back(fmt::format("{} -fPIC -o {} -c {}", recipe.command, shell_word(objects.back()),
                                   shell_word((work / "stage.cpp").string())));
  }
  std::vector<Outcome> outcomes(commands.size());
  parallel_for(std::ssize(commands), 1,
               [&](int64_t i, int64_t) { outcomes[i] = shell(commands[i], work / fmt::format("{}.log", i)); });
  if (std::ranges::find(outcomes, 128 + SIGINT, &Outcome::status) != outcomes.end()) {
    return failure(ExitCode::interrupted, "Interrupted while it was compiled.");
  }
  constexpr int NOT_FOUND = 127;
  for (size_t i = 0; i < recipes->size(); ++i) {
    const Outcome& outcome = outcomes[i];
    if (outcome.status == NOT_FOUND) {
      return failure(ExitCode::cannot_run_here,
                     "The compiler that built the ladder, {}, is not there any more.\n  With another one, in a "
                     "build directory of its own:  CXX=... LADDER_BUILD=build-other ./ladder try {}",
                     (*recipes)[i].compiler, file);
    }
    if (outcome.status != 0) {
      const std::string error = first_error(outcome.errors, path, file);
      const std::string about = error.find(stage_file.string()) == 0
                                    ? fmt::format("\n{} tells of the kernel, and uses names that {} has not.",
                                                  (fs::path(rung.directory) / "stage.cu").string(), file)
                                    : "";
      return failure(ExitCode::check_failed, "It does not compile.\n{}{}", error, about);
    }
    if (auto status = check_names(file, (*recipes)[i], objects[i], work / "names.log"); !status)
      return passed_on(status);
  }
  const std::string library = (work / "kernel.so").string();
  std::string link = fmt::format("{} -shared -o {}", recipes->front().compiler, shell_word(library));
  for (const std::string& object : objects) link += " " + shell_word(object);
  const Outcome linked = shell(link, work / "link.log");
  if (linked.status != 0) {
    return failure(ExitCode::cannot_run_here, "It compiles, and does not link.\n" + linked.errors.substr(0, 2000));
  }
  forget_variants(rung);
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr || rung.variants.empty()) {
    const char* const why = dlerror();
    return failure(ExitCode::check_failed, "It compiles, and cannot be loaded: {}.", why ? why : "no reason");
  }
  return {};
}

}  // namespace

Result<ExitCode> try_verb(const Options& options) {
  if (options.on == Where::gpu) {
    return usage(
        "try runs a kernel on the emulator. Leave --on gpu out.\n"
        "  Its time on a GPU:  ./ladder learn time {} --like {}",
        options.file, options.like.empty() ? "03" : options.like);
  }
  const auto text = read_kernel(options.file);
  if (!text) return passed_on(text);
  const auto rung = rung_for(options, *text);
  if (!rung) return passed_on(rung);
  if (auto status = check_words(options.file, *text); !status) return passed_on(status);
  std::string seal;
  if (options.sealed) {  // read before the kernel is there to read it
    std::getline(std::cin, seal);
    if (seal.empty() || options.json != "-") {
      return usage("--sealed takes a secret on standard input, and --json - for what it seals.");
    }
  }
  const std::vector<Variant> own = (*rung)->variants;
  if (auto status = replace(**rung, options.file); !status) return passed_on(status);
  const auto own_of = [&](const Variant& variant) -> const Variant* {
    const auto number = static_cast<size_t>(&variant - (*rung)->variants.data());
    return number < own.size() ? &own[number] : nullptr;
  };

  Options named = options;
  named.rungs = {*rung};
  named.rungs_named = named.first_failure = true;
  named.on = Where::cpu;
  const Variant& first = (*rung)->variants.front();
  std::vector<Subject> subjects = {{*rung, &first, std::string((*rung)->name), false, own_of(first)}};
  for (const Variant& variant : (*rung)->variants) {  // its text is theirs, too
    const bool able = std::ranges::all_of(shapes_for(named, EMULATOR_SHAPE, &variant.accepts), [&](const Spec& shape) {
      return supports(**rung, variant, shape).has_value();
    });
    if (!able || &variant == &first) continue;
    const std::string name = fmt::format("{} ({})", (*rung)->name, variant.label);
    subjects.push_back({*rung, &variant, name, true, own_of(variant)});
  }
  const auto checked = check(named, subjects, true, seal);
  if (checked) fmt::print(table_stream(options), "{} in the place of {}\n", options.file, (*rung)->name);
  if (!checked || *checked != ExitCode::done || options.sealed) return checked;
  const auto explained = explain_counts(named);
  return explained ? checked : explained;
}

}  // namespace ladder
