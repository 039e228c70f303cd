#include "harness/verbs/options.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "harness/base/nearest.hpp"
#include "harness/base/process.hpp"
#include "harness/base/text.hpp"
#include "harness/problem/shapes.hpp"
#include "harness/problem/spec.hpp"

namespace ladder {
namespace {

constexpr int64_t MAX_BATCH_HEADS = 65535;  // CUDA's limit of gridDim.y, where every rung puts batch * heads

// The flags as typed. Numbers and lists stay text, so that their errors can be ours.
struct RawFlags {
  std::string n, d, batch, heads, seed, inputs, on;
  std::string rounds, soak, timeout;
  std::vector<std::string> rungs;
};

// Of a flag that is given more than once the last one counts.
CLI::Option* add_text(CLI::App& app, const char* flag, std::string& value, const char* type, const char* help) {
  return app.add_option(flag, value, help)->take_last()->type_name(type);
}

void add_shape_flags(CLI::App& app, RawFlags& raw, Options& options) {
  const auto text = [&](const char* flag, std::string& value, const char* type, const char* help) {
    add_text(app, flag, value, type, help)->group("Shape and place");
  };
  text("--problem", options.problem, "WORDS",
       "what is asked: \"kv=8 nq=1 nk=4096 bf16 causal\"; the flags below are short forms");
  text("--n", raw.n, "N[,N..]", "sequence length");
  text("--d", raw.d, "D", "head dimension");
  text("--batch", raw.batch, "B", "batch size");
  text("--heads", raw.heads, "H", "heads");
  app.add_flag("--causal", options.causal, "query i sees keys 0..i alone; without STAGE, the stages that can")
      ->group("Shape and place");
  text("--seed", raw.seed, "SEED", "seed of the inputs; default 1");
  text("--inputs", raw.inputs, "KIND[,..]", "input sets, or all; course/exercises.md says what they are");
  text("--on", raw.on, "WHERE", "auto, cpu (the emulator) or gpu");
}

template <class Number>
Result<Number> parse_number(std::string_view flag, std::string_view text, Number least, Number most) {
  const auto number = number_in<Number>(text);
  if (number && *number >= least && *number <= most) return *number;
  return usage("{} takes {} from {} to {}; '{}' is none.", flag,
               std::is_integral_v<Number> ? "a whole number" : "seconds", least, most, text);
}

// Of a flag that may have been given.
template <class Number>
Status take_number(const char* flag, const std::string& text, Number least, Number most, auto& value) {
  if (text.empty()) return {};
  const auto number = parse_number(flag, text, least, most);
  if (!number) return passed_on(number);
  value = *number;
  return {};
}

// The words of --problem, none of which a flag says as well.
Status parse_problem(const Options& options) {
  const std::vector<std::string> words = words_of(options.problem);
  const std::tuple<const char*, std::vector<const char*>, bool> flags[] = {
      {"--n", {"n", "nq", "nk"}, !options.n.empty()},
      {"--d", {"d"}, options.d.has_value()},
      {"--batch", {"b"}, options.batch.has_value()},
      {"--heads", {"h"}, options.heads.has_value()},
      {"--causal", {"causal"}, options.causal},
      {"--sweep", {"b", "n", "nq", "nk", "lens_q", "lens_k"}, options.sweep}};
  for (const auto& [name, short_for, given] : flags) {
    for (const char* word : short_for) {
      if (given && std::ranges::find(words, word) != words.end()) {
        return usage("{} and '{}' in --problem say the same thing: one of them is enough.", name, word);
      }
    }
  }
  if (!options.problem.empty() && words.empty()) return usage("--problem is given, and empty. It takes WORDS.");
  Spec flagged;
  flagged.batch = options.batch.value_or(flagged.batch);
  flagged.heads = options.heads.value_or(flagged.heads);
  flagged.n = options.n.empty() ? flagged.n : std::ranges::min(options.n);
  const auto spec = parse_spec(options.problem, flagged);
  if (!spec) return passed_on(spec);
  if (spec->batch_heads() > MAX_BATCH_HEADS) {
    return usage("b times h must be at most {} (a CUDA grid's second dimension); {} is not.", MAX_BATCH_HEADS,
                 spec->batch_heads());
  }
  return {};
}

Status parse_shape(const RawFlags& raw, Options& options) {
  constexpr int MAX_INT = std::numeric_limits<int>::max();
  for (const std::string_view part : raw.n.empty() ? std::vector<std::string_view>() : split(raw.n, ',')) {
    const auto n = parse_number("--n", part, 1, MAX_INT);
    if (!n) return passed_on(n);
    options.n.push_back(*n);
  }
  for (const Status& taken :
       {take_number("--d", raw.d, 1, MAX_INT, options.d), take_number("--batch", raw.batch, 1, MAX_INT, options.batch),
        take_number("--heads", raw.heads, 1, MAX_INT, options.heads),
        take_number("--seed", raw.seed, int64_t{0}, std::numeric_limits<int64_t>::max(), options.seed)}) {
    if (!taken) return taken;
  }
  return parse_problem(options);
}

Status parse_inputs(const RawFlags& raw, Options& options) {
  if (raw.inputs.empty()) return {};
  const auto kinds = all_input_kinds();
  std::vector<std::string> names;
  for (const InputKind kind : kinds) names.emplace_back(to_string(kind));
  names.emplace_back("all");
  bool all = false;
  for (const std::string_view part : split(raw.inputs, ',')) {
    const size_t known = std::ranges::find(names, part) - names.begin();
    if (known == names.size()) {
      return usage("There are no inputs named '{}'.{}\n  There are: {}", part, did_you_mean(part, names),
                   fmt::join(names, ", "));
    }
    if (known < kinds.size()) options.inputs.push_back(kinds[known]);
    all = all || known == kinds.size();
  }
  if (all) options.inputs.assign(kinds.begin(), kinds.end());
  const bool is_timed = options.verb == Verb::bench || options.verb == Verb::compare;
  const auto nan = std::ranges::find_if_not(options.inputs, has_numbers);
  if (is_timed && nan != options.inputs.end()) {
    return usage(
        "The answers to {0} inputs hold NaN: there is nothing to time.\n"
        "  Right or wrong on them:  ladder check STAGE --inputs {0}",
        to_string(*nan));
  }
  return {};
}

Status parse_place(const RawFlags& raw, Options& options) {
  if (raw.on == "cpu") options.on = Where::cpu;
  if (raw.on == "gpu") options.on = Where::gpu;
  if (options.on != Where::automatic || raw.on.empty() || raw.on == "auto") return {};
  return usage("--on takes auto, cpu or gpu; not '{}'.", raw.on);
}

Status parse_timing(const RawFlags& raw, Options& options) {
  for (const Status& taken : {take_number("--rounds", raw.rounds, 1, 1'000'000, options.rounds),
                              take_number("--soak", raw.soak, 0.0, 3600.0, options.soak_seconds),
                              take_number("--timeout", raw.timeout, 0.1, 1e6, options.timeout)}) {
    if (!taken) return taken;
  }
  if (options.burst && options.alone) {
    return usage("--burst and --alone are two ways to measure: one at a time.");
  }
  if (options.resume && (options.csv.empty() || options.csv == "-")) {
    return usage("--resume goes on with what a file holds: name it with --csv FILE.");
  }
  return {};
}

// Opening is the only honest test. A file that was not there before is removed again.
Status check_writable(const char* flag, const std::string& path) {
  if (path.empty() || path == "-") return {};
  const bool existed = std::filesystem::exists(path);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return usage("{} {}: cannot be written: {}.", flag, path, std::strerror(errno));
  close(file);
  if (!existed) unlink(path.c_str());
  return {};
}

// A file may have several names, and need not be there yet.
std::filesystem::path real_path(const std::string& path) {
  if (path.empty() || path == "-") return path;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  return error ? std::filesystem::path(path) : real;
}

Status check_files(const Options& options) {
  const std::pair<const char*, const std::string&> files[] = {{"--csv", options.csv},
                                                              {"--json", options.json},
                                                              {"--trace", options.trace},
                                                              {"--rounds-csv", options.rounds_csv}};
  std::map<std::filesystem::path, const char*> flags;  // two documents in one file are none
  for (const auto& [flag, path] : files) {
    const auto [other, is_new] = flags.try_emplace(real_path(path), flag);
    if (is_new || path.empty()) continue;
    return path == "-" ? usage("Only one of {} - and {} - can have stdout.", other->second, flag)
                       : usage("{} and {} are the same file, {}.", other->second, flag, path);
  }
  for (const auto& [flag, path] : files) {
    if (auto status = check_writable(flag, path); !status) return status;
  }
  return {};
}

Status resolve_rungs(const RawFlags& raw, const std::vector<Rung>& known, Options& options) {
  for (const std::string& typed : raw.rungs) {
    // compare also takes a rung's other variants, as 02:64x32 or as the tables write them, 02_swizzle[64x32, 2 warps].
    const size_t mark = options.verb == Verb::compare ? typed.find_first_of(":[") : std::string::npos;
    std::string& label = options.variants.emplace_back(mark == std::string::npos ? "" : typed.substr(mark + 1));
    const bool is_peer = options.verb == Verb::compare && typed.starts_with("peer:");
    if (is_peer && label.empty()) return usage("peer:NAME takes a peer's name, for example peer:fa2.");
    if (!is_peer && label.ends_with(']')) label.pop_back();
    const Result<const Rung*> rung = is_peer ? nullptr : find_rung(typed.substr(0, mark), known);
    if (!rung) return passed_on(rung);
    options.rungs.push_back(*rung);
  }
  options.rungs_named = !options.rungs.empty();
  if (options.verb == Verb::compare && options.rungs.size() != 2) {
    return usage(
        "compare takes two stages, for example:  ./ladder compare 02 03\n"
        "  or two variants of one:  ./ladder compare 02:64x32 02:64x128\n"
        "  or one and a peer:       ./ladder compare 02 peer:fa2");
  }
  if (options.verb == Verb::peer && options.peers.empty()) {
    return usage("peer takes a command line, for example:  ./ladder peer harness/peers/fa2.py");
  }
  if (options.verb == Verb::try_file) {
    if (options.file.empty()) {
      return usage("try takes the file of a kernel, for example:  ./ladder try work/kernel.cuh --like 02");
    }
    return {};  // the file may say itself what it stands for (try.cpp)
  }
  if (options.verb == Verb::explain && options.rungs.empty()) {
    return usage("explain takes a stage, for example:  ./ladder explain 03");
  }
  if (options.rungs.empty()) {
    for (const Rung& rung : known) {
      const uint32_t asked = needs(with_problem(options, {.causal = options.causal}));
      if ((asked & ~rung.variants.front().accepts.features) == 0) options.rungs.push_back(&rung);
    }
  }
  return {};
}

// Words that no verb or flag took.
Unexpected unknown_word(const std::string& word, const CLI::App& app, const std::vector<Rung>& known) {
  const CLI::App* const program = app.get_parent() ? app.get_parent() : &app;
  const auto verbs = program->get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> words;
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> owners;  // another verb's flag is no typo
    for (const CLI::App* verb : verbs) {
      if (verb->get_option_no_throw(flag) != nullptr) owners.push_back(verb->get_name());
    }
    // Without the dashes, which are never mistyped and would make every pair of words look alike.
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_name().starts_with("--")) words.push_back(option->get_name().substr(2));
    }
    const std::string best = nearest(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())), words);
    return usage("There is no flag {} here.{}\n  All flags:  ./ladder {}{}--help", flag,
                 !owners.empty() ? fmt::format(" It belongs to {}.", fmt::join(owners, " and "))
                 : best.empty()  ? ""
                                 : fmt::format(" Did you mean --{}?", best),
                 app.get_parent() ? app.get_name() : "", app.get_parent() ? " " : "");
  }
  if (app.get_parent() && app.get_name() == "try") {
    return usage("try takes one file; '{}' is one word too many.", word);
  }
  if (app.get_parent()) {  // a verb that takes no rung
    const auto rung = find_rung(word, known);
    return usage("{0} takes no stage: it tells of all. '{1}' is one word too many.{2}", app.get_name(), word,
                 rung ? fmt::format("\n  That one alone:  ./ladder explain {}", (*rung)->number()) : "");
  }
  if (find_rung(word, known)) {
    return usage(
        "'{0}' is a stage; what to do with it?\n  ./ladder check {0}    ./ladder explain {0}    ./ladder bench {0}",
        word);
  }
  for (const CLI::App* verb : verbs) words.push_back(verb->get_name());
  return usage("There is no verb '{}'.{}\n  There are: {}", word, did_you_mean(word, words), fmt::join(words, ", "));
}

}  // namespace

Result<const Rung*> find_rung(std::string_view typed, const std::vector<Rung>& known) {
  std::string name(typed);
  while (name.ends_with('/')) name.pop_back();  // from completing the directory's name
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // 3 is 03, and p3 is p03.
  const size_t first = std::min(name.find_first_of("0123456789"), name.size());
  const bool number =
      first <= 1 && first < name.size() && name.find_first_not_of("0123456789", first) == std::string::npos;
  if (number && first + 1 == name.size()) name.insert(first, "0");
  std::vector<std::string> names;
  for (const Rung& rung : known) {
    if (name == rung.name || name == rung.number() || name == rung.word() || name == rung.directory) return &rung;
    names.emplace_back(rung.word());  // a typo is looked for in the word and in the whole
  }
  if (name.find(',') != std::string::npos) {
    std::string apart(typed);
    std::ranges::replace(apart, ',', ' ');
    return usage("There is no stage '{}'. Between stages stands a space:  {}", typed, apart);
  }
  std::vector<std::string_view> near;
  if (number) {  // by counting, among those with the same letter
    const auto away = [&](const Rung* rung) {
      return std::abs(std::strtol(rung->number().data() + first, nullptr, 10) - std::strtol(&name[first], nullptr, 10));
    };
    std::vector<const Rung*> alike;
    for (const Rung& rung : known) {
      if (rung.number().size() > first && rung.number().substr(0, first) == name.substr(0, first) &&
          std::isdigit(rung.number()[first]))
        alike.push_back(&rung);
    }
    std::ranges::stable_sort(alike, {}, away);
    for (size_t i = 0; i < std::min<size_t>(3, alike.size()); ++i) near.push_back(alike[i]->name);
  } else {
    const size_t words = names.size();
    for (const Rung& rung : known) names.emplace_back(rung.name);
    const size_t index = std::ranges::find(names, nearest(name, names)) - names.begin();
    if (index < names.size()) near.push_back(known[index % words].name);
  }
  return usage("There is no stage '{}'.{}\n  All {}:  ./ladder list", typed,
               near.empty() ? "" : fmt::format(" Nearest: {}.", fmt::join(near, ", ")), known.size());
}

Result<Options> parse_options(std::span<const std::string> arguments, const std::vector<Rung>& known) {
  Options options;
  RawFlags raw;
  CLI::App app("flash-ladder: FlashAttention, one idea per rung, on the GPU and on an emulator of it.", "./ladder");
  app.footer(
      "Without a verb: this machine, the stages, and what to do next.\n"
      "STAGE is 3, 03, kvpipe or 03_kvpipe.\n"
      "Exit codes: 0 done, 1 a check failed, 2 usage, 77 cannot run here, 130 interrupted.");
  app.allow_extras();
  app.add_flag("--all", options.all, "without a verb: all stages in the table, not only those of the line");
  add_shape_flags(app, raw, options);

  const auto add_bare = [&](Verb meant, const char* name, const char* help, const char* examples) {
    return app.add_subcommand(name, help)
        ->allow_extras()
        ->callback([&, meant] { options.verb = meant; })
        ->footer(fmt::format("Examples:\n{}\n\n{}", examples, app.get_footer()));
  };
  const auto add_verb = [&](Verb meant, const char* name, const char* help, const char* examples,
                            const char* stages = "all when none is named") {
    CLI::App* verb = add_bare(meant, name, help, examples);
    verb->add_option("STAGE", raw.rungs, stages);
    add_shape_flags(*verb, raw, options);
    return verb;
  };
  CLI::App* check = add_verb(Verb::check, "check", "right or wrong, on the emulator and on the GPU if there is one",
                             "  ./ladder check 03                            all trials of one stage\n"
                             "  ./ladder check 48 --problem \"bf16 causal nk=900\" --inputs normal");
  CLI::App* bench =
      add_verb(Verb::bench, "bench", "the TFLOPS table; without a GPU, what was recorded",
               "  ./ladder bench 02 03                         two stages, and the peers that are installed\n"
               "  ./ladder bench --causal --csv results.csv    all that have a causal mask");
  CLI::App* compare = add_verb(Verb::compare, "compare",
                               "two stages, interleaved: ratio, interval, verdict; without a GPU, what was recorded",
                               "  ./ladder compare 02 03\n"
                               "  ./ladder compare 38 peer:fa2 --n 4096",
                               "two; 02:64x32 is a variant of one, peer:fa2 a peer");
  CLI::App* explain =
      add_verb(Verb::explain, "explain", "the idea, predicted against counted, conflicts by source line",
               "  ./ladder explain 02\n"
               "  ./ladder explain 03 --n 256 --trace trace.json",
               "one, or several");
  CLI::App* describe =
      add_bare(Verb::describe, "describe", "parts and rungs as they are",
               "  ./ladder describe                            a line for each\n"
               "  ./ladder describe --json -                   all that there is to know, for a script");
  CLI::App* list =
      add_bare(Verb::list, "list", "the line of the ladder, and what hangs under it; what comes after a stage",
               "  ./ladder list\n"
               "  ./ladder list 23                             what comes before and after it");
  list->add_option("STAGE", raw.rungs, "what it starts from, what starts from it, and the next of the line");
  CLI::App* peer = add_bare(Verb::peer, "peer", "tries a peer by itself, and says what of the protocol it keeps",
                            "  ./ladder peer \"python3 harness/peers/fa2.py\"\n"
                            "  ./ladder peer \"python3 mine.py --fast\" --n 2048");
  peer->add_option("CMD", options.peers, "its command line, for the shell; in quotes where it has flags");
  add_shape_flags(*peer, raw, options);
  CLI::App* attempt =
      add_bare(Verb::try_file, "try", "any kernel file, compiled alone, checked and counted as a stage is",
               "  ./ladder try mine.cuh                        whose first line names its stage, as kernel.cuh's do\n"
               "  ./ladder try mine.cuh --like 03 --counts     judged by what it costs, too");
  attempt->add_option("FILE", options.file, "a kernel, written like the stage's kernel.cuh");
  add_text(*attempt, "--like", options.like, "STAGE",
           "the stage whose place it takes; default: the one that its first line names");
  attempt->add_flag("--counts", options.counts, "what it costs beside the stage is judged, too, and not told alone");
  attempt->add_flag("--any-scores", options.any_scores,
                    "scores as large as f32 has them, also where the stage takes none such");
  attempt->add_flag("--sealed", options.sealed,
                    "JSON between two copies of the secret on standard input, which no kernel can forge");
  add_shape_flags(*attempt, raw, options);
  for (CLI::App* verb : {check, bench, compare, explain, describe, list, attempt})
    add_text(*verb, "--json", options.json, "FILE", "results; - is stdout");
  for (CLI::App* verb : {bench, compare}) {
    add_text(*verb, "--csv", options.csv, "FILE", "results; - is stdout");
    verb->add_flag("--burst", options.burst, "short bursts on a cool GPU instead of taking turns on a warm one");
    verb->add_flag("--alone", options.alone, "long groups, each after a lead-in by the same kernel, instead of turns");
    add_text(*verb, "--rounds", raw.rounds, "COUNT", "rounds of the rotation; default 20 or more");
    add_text(*verb, "--soak", raw.soak, "SECONDS", "load before the first round; default 3");
    add_text(*verb, "--rounds-csv", options.rounds_csv, "FILE", "every group of every round");
  }
  for (CLI::App* verb : {check, bench}) {
    verb->add_flag("--ablate", options.ablate, "all variants of a stage, not only its default");
  }
  for (CLI::App* verb : {check, attempt}) {
    verb->add_flag("--thorough", options.thorough, "many random problems more, and the properties of attention");
    verb->add_flag("--answers-only", options.answers_only, "counts may differ from the predicted ones");
    add_text(*verb, "--timeout", raw.timeout, "SECONDS", "for one launch with its inputs and reference");
  }
  attempt->get_option("--thorough")->description("as check does");
  attempt->get_option("--answers-only")->description("counts are not even told")->excludes("--counts");
  check->add_flag("--quick", options.quick, "a few problems of each stage, as the climb does")->excludes("--thorough");
  check->add_flag("--record-counts", options.record_counts, "first records what stage.cu leaves to counts.tsv, anew")
      ->excludes("--quick");
  check->add_flag("--first-failure", options.first_failure, "a stage's check ends with its first wrong answer");
  bench->add_flag("--sweep", options.sweep, "N from 512 to 16384 with batch * N = 16384");
  for (CLI::App* verb : {bench, compare}) {
    verb->add_option("--peer", options.peers, "a program that takes its turn; may be repeated")
        ->allow_extra_args(false)
        ->type_name("CMD");
    verb->add_flag("--no-peers", options.no_peers, "no peers but those of --peer");
  }
  add_text(*bench, "--versus", options.versus, "NAME", "whose rate the last ratio is over; default fa2");
  bench->add_flag("--resume", options.resume, "without what --csv FILE holds already of this commit");
  add_text(*explain, "--trace", options.trace, "FILE", "the first block's instructions, as JSON; - is stdout");

  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return failure(ExitCode::done, app.help());  // of the verb, if there is one
  } catch (const CLI::ParseError& error) {
    return usage("{}\n  All flags:  ./ladder --help", error.what());
  }

  const auto verbs = app.get_subcommands();
  std::vector<const CLI::App*> parsed(verbs.begin(), verbs.end());
  parsed.insert(parsed.begin(), &app);
  for (const CLI::App* part : parsed) {
    for (const CLI::Option* option : part->get_options()) {
      if (option->count() > 0 && std::ranges::find(option->results(), "") != option->results().end()) {
        return usage("{} is given, and empty. It takes {}.", option->get_name(), option->get_type_name());
      }
    }
  }
  if (const auto left = app.remaining(); !left.empty()) return unknown_word(left.front(), app, known);
  if (verbs.size() > 1) {
    return usage("One verb at a time: {} or {}.", verbs[0]->get_name(), verbs[1]->get_name());
  }
  for (const CLI::App* verb : verbs) {
    if (const auto left = verb->remaining(); !left.empty()) return unknown_word(left.front(), *verb, known);
  }
  // Words that the shell has taken apart already.
  if (options.verb == Verb::peer && options.peers.size() > 1) {
    std::string line;
    for (const std::string& word : options.peers) line += (line.empty() ? "" : " ") + shell_word(word);
    options.peers = {line};
  }
  for (const Status& status : {parse_shape(raw, options), parse_inputs(raw, options), parse_place(raw, options),
                               parse_timing(raw, options), resolve_rungs(raw, known, options), check_files(options)}) {
    if (!status) return passed_on(status);
  }
  return options;
}

std::FILE* table_stream(const Options& options) {
  const bool reserved = options.json == "-" || options.csv == "-" || options.trace == "-";
  return reserved ? stderr : stdout;
}

Spec with_problem(const Options& options, const Spec& spec) {
  return parse_spec(options.problem, spec).value_or(spec);  // what can be wrong about it was said when it was parsed
}

std::vector<Spec> shapes_for(const Options& options, const Spec& defaults, const Accepts* accepts) {
  if (accepts == nullptr && options.rungs_named && options.rungs.front() != nullptr) {
    accepts = &options.rungs.front()->variants.front().accepts;
  }
  Spec shape = accepts != nullptr ? fitted(*accepts, defaults) : defaults;
  shape.d = options.d.value_or(shape.d);
  shape.batch = options.batch.value_or(defaults.batch);
  shape.heads = options.heads.value_or(defaults.heads);
  shape.causal = options.causal;
  std::vector<Spec> shapes;
  for (const int n : options.n.empty() ? std::vector{shape.n} : options.n) {
    shape.n = n;
    shapes.push_back(with_problem(options, shape));
  }
  return shapes;
}

}  // namespace ladder
