#include "harness/verbs/ptx.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>

namespace ladder {
namespace {

// What is executed from its first instruction to its last, or not at all.
struct BasicBlock {
  int products = 0, others = 0;
  std::map<std::string, int> beside;
  std::vector<size_t> to;  // blocks that may follow
};

// "void (anonymous namespace)::attention<(anonymous namespace)::Config<64> >(Params)": attention<Config<64> >.
std::string without_namespaces(std::string name) {
  constexpr std::string_view ANONYMOUS = "(anonymous namespace)::", RETURNED = "void ";
  for (size_t at = name.find(ANONYMOUS); at != std::string::npos; at = name.find(ANONYMOUS, at))
    name.erase(at, ANONYMOUS.size());
  if (name.starts_with(RETURNED)) name.erase(0, RETURNED.size());
  return name.substr(0, name.rfind('('));
}

// The number behind a word, or 0.
int number_behind(const std::string& text, std::string_view word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + word.size());
}
// And before it.
int number_before(const std::string& text, std::string_view word) {
  size_t begin = text.find(word);
  if (begin == std::string::npos) return 0;
  while (begin > 0 && (std::isdigit(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == ' ')) --begin;
  return std::atoi(text.c_str() + begin);
}

bool is_mma(const std::string& opcode) {
  return opcode.starts_with("mma.") || opcode.starts_with("wmma.mma") || opcode.starts_with("wgmma.mma_async");
}

// Registers with a product that nothing reads but one addition or subtraction: ptxas makes one instruction of the two.
std::set<std::string> merged_products(const std::string& body) {
  std::map<std::string, int> read;
  std::set<std::string> products, added;
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    const bool is_product = line.find("mul.f32") != std::string::npos;
    const bool is_sum = line.find("add.f32") != std::string::npos || line.find("sub.f32") != std::string::npos;
    bool is_written = is_product || is_sum;  // the first one of these
    for (size_t at = line.find("%f"); at != std::string::npos; at = line.find("%f", at + 1)) {
      const std::string name = line.substr(at, line.find_first_not_of("0123456789", at + 2) - at);
      if (is_written && is_product) products.insert(name);
      if (!is_written) ++read[name];
      if (!is_written && is_sum) added.insert(name);
      is_written = false;
    }
  }
  std::erase_if(products, [&](const std::string& name) { return read[name] != 1 || !added.contains(name); });
  return products;
}

std::vector<BasicBlock> blocks_of(const std::string& body, bool has_mma) {
  const std::set<std::string> merged = merged_products(body);
  std::vector<BasicBlock> blocks(1);
  std::map<std::string, size_t>
      labels;  // so far: those of inline assembly come again and again, and are jumped back to
  std::vector<std::pair<size_t, std::string>> jumps;  // ahead
  bool ended = false, goes_on = true;  // whether its last instruction ends a block, and whether the next one may follow
  const auto begin_block = [&] {
    if (goes_on) blocks.back().to.push_back(blocks.size());
    blocks.emplace_back();
    ended = false, goes_on = true;
  };
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.find("//")));
    std::istringstream words(line);
    std::string word, target;
    if (!(words >> word)) continue;
    const bool is_guarded = word[0] == '@';
    if (is_guarded) words >> word;
    if (word.back() == ':') {
      begin_block();
      labels[word.substr(0, word.size() - 1)] = blocks.size() - 1;
      continue;
    }
    if (!std::isalpha(static_cast<unsigned char>(word[0]))) continue;  // a declaration, or operands of the line before
    if (ended) begin_block();
    if (word.back() == ';') word.pop_back();
    BasicBlock& block = blocks.back();
    const std::string name = word.substr(0, word.find('.'));
    if (name == "bra" && words >> target) {
      target.resize(std::min(target.size(), target.find(';')));
      const auto known = labels.find(target);
      if (known != labels.end()) block.to.push_back(known->second);
      if (known == labels.end()) jumps.emplace_back(blocks.size() - 1, target);
    }
    if (name == "bra" || name == "ret" || name == "exit" || name == "trap") ended = true, goes_on = is_guarded;
    const bool is_merged = word == "mul.f32" && words >> target && merged.contains(target.substr(0, target.find(',')));
    if (has_mma ? is_mma(word) : name == "fma") {
      ++block.products;
    } else if (name != "mov" && !is_merged) {
      ++block.others;
      ++block.beside[word];
    }
  }
  for (const auto& [from, label] : jumps) {
    if (const auto found = labels.find(label); found != labels.end()) blocks[from].to.push_back(found->second);
  }
  return blocks;
}

// Loops as edges that lead back to a block that is still open when they are met, depth first. Fills the order in which blocks are left.
std::set<std::pair<size_t, size_t>> edges_back(const std::vector<BasicBlock>& blocks, std::vector<size_t>& left) {
  enum class State { unseen, open, left };
  std::vector<State> states(blocks.size(), State::unseen);
  std::set<std::pair<size_t, size_t>> back;
  std::vector<std::pair<size_t, size_t>> path = {{0, 0}};  // a block, and which of its edges comes next
  states[0] = State::open;
  while (!path.empty()) {
    auto& [block, edge] = path.back();
    if (edge == blocks[block].to.size()) {
      states[block] = State::left;
      left.push_back(block);
      path.pop_back();
      continue;
    }
    const size_t next = blocks[block].to[edge++];
    if (states[next] == State::open) back.insert({block, next});
    if (states[next] != State::unseen) continue;
    states[next] = State::open;
    path.emplace_back(next, 0);
  }
  return back;
}

// The blocks from which a loop's end is reached without its head.
std::set<size_t> body_of(const std::vector<BasicBlock>& blocks, size_t head, size_t end) {
  std::vector<std::vector<size_t>> from(blocks.size());
  for (size_t block = 0; block < blocks.size(); ++block) {
    for (const size_t next : blocks[block].to) from[next].push_back(block);
  }
  std::set<size_t> body = {head};
  for (std::vector<size_t> open = {end}; !open.empty();) {
    const size_t block = open.back();
    open.pop_back();
    if (body.insert(block).second) open.insert(open.end(), from[block].begin(), from[block].end());
  }
  return body;
}

void find_main_loop(CompiledKernel& kernel, const std::vector<BasicBlock>& blocks) {
  struct Way {
    int products, others;
    std::vector<size_t> through;
    bool operator<(const Way& other) const {
      return products != other.products ? products < other.products : others > other.others;
    }
  };
  std::vector<size_t> order;
  const auto back = edges_back(blocks, order);
  std::ranges::reverse(order);
  size_t smallest = 0;
  for (const auto& [end, head] : back) {
    const std::set<size_t> body = body_of(blocks, head, end);
    std::map<size_t, Way> ways = {{head, {blocks[head].products, blocks[head].others, {head}}}};
    for (const size_t block : order) {
      const auto way = ways.find(block);
      if (way == ways.end()) continue;
      for (const size_t next : blocks[block].to) {
        if (!body.contains(next) || back.contains({block, next})) continue;
        Way longer = way->second;
        longer.products += blocks[next].products;
        longer.others += blocks[next].others;
        longer.through.push_back(next);
        const auto [known, is_new] = ways.try_emplace(next, longer);
        if (!is_new && known->second < longer) known->second = std::move(longer);
      }
    }
    const auto turn = ways.find(end);
    if (turn == ways.end() || turn->second.products < kernel.products ||
        (turn->second.products == kernel.products && body.size() >= smallest)) {
      continue;  // of loops in each other with as many products the inner one
    }
    kernel.products = turn->second.products;
    smallest = body.size();
    kernel.beside.clear();
    for (const size_t block : turn->second.through) {
      for (const auto& [name, times] : blocks[block].beside) kernel.beside[name] += times;
    }
  }
}

int others(const CompiledKernel& kernel) {
  int sum = 0;
  for (const auto& [name, times] : kernel.beside) sum += times;
  return sum;
}

}  // namespace

std::string demangled(const std::string& name) {
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

std::vector<CompiledKernel> compiled_kernels(const std::string& ptx, const std::string& log) {
  constexpr std::string_view ENTRY = ".entry ";
  std::vector<CompiledKernel> kernels;
  for (size_t at = ptx.find(ENTRY), next = 0; at != std::string::npos; at = next) {
    next = ptx.find(ENTRY, at + 1);
    const std::string text = ptx.substr(at + ENTRY.size(), next == std::string::npos ? next : next - at - ENTRY.size());
    const std::string symbol = text.substr(0, text.find_first_of("( \n"));
    const size_t body = std::min(text.find("\n{"), text.size());
    CompiledKernel kernel{.name = without_namespaces(demangled(symbol)),
                          .most_threads = number_behind(text.substr(0, body), ".maxntid ")};
    if (const size_t said = log.find(fmt::format("'{}'", symbol)); said != std::string::npos) {
      const std::string its = log.substr(said, log.find("entry function", said) - said);
      kernel.registers = number_behind(its, "Used ");
      kernel.stack_bytes = number_before(its, "bytes stack frame");
    }
    kernel.has_mma = text.find("mma.", body) != std::string::npos;
    find_main_loop(kernel, blocks_of(text.substr(body), kernel.has_mma));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::vector<Failure> dearer(const std::vector<CompiledKernel>& kernels, const std::vector<CompiledKernel>& own) {
  constexpr double MORE = 1.05;
  constexpr int MORE_STACK = 64;    // bytes; a few registers more or less are ptxas's own choice
  constexpr int REGISTERS = 65536;  // of an SM
  std::vector<Failure> found;
  for (const CompiledKernel& kernel : kernels) {
    const auto its = std::ranges::find(own, kernel.name, &CompiledKernel::name);
    if (its == own.end()) continue;
    const auto fail = [&](FailureKind kind, const std::string& what) {
      found.push_back({kind, fmt::format("{}, in {}", what, kernel.name), "nvcc"});
    };
    if (kernel.registers * its->most_threads > REGISTERS) {
      fail(FailureKind::launch_failed,
           fmt::format("registers: {} for each of {} threads are more than the {} of an SM, so no GPU launches it",
                       kernel.registers, its->most_threads, REGISTERS));
    }
    if (kernel.stack_bytes > its->stack_bytes + MORE_STACK) {
      fail(FailureKind::counts_differ,
           fmt::format("local memory: {} bytes a thread, where the rung's own kernel has {}", kernel.stack_bytes,
                       its->stack_bytes));
    }
    if (kernel.products == 0 || its->products == 0 || kernel.has_mma != its->has_mma) continue;
    const auto each = [](int times, const CompiledKernel& of) { return double(times) / of.products; };
    const double counted = each(others(kernel), kernel), fewest = each(others(*its), *its);
    if (counted <= MORE * fewest) continue;
    std::string most;
    double most_more = 0;
    for (const auto& [instruction, times] : kernel.beside) {
      const auto known = its->beside.find(instruction);
      const double here = each(times, kernel), there = known == its->beside.end() ? 0 : each(known->second, *its);
      if (here - there <= most_more) continue;
      most_more = here - there;
      most = fmt::format("{}, {:.2f} and {:.2f}", instruction, here, there);
    }
    fail(FailureKind::counts_differ,
         fmt::format(
             "instructions of the main loop: {:.2f} for each {}, where the rung's own kernel has {:.2f} (most of "
             "all {})",
             counted, kernel.has_mma ? "mma" : "fma", fewest, most));
  }
  return found;
}

}  // namespace ladder
