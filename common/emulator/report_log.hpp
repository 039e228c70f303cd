// The distinct faults of one worker. A fault is looked up before its message is made: a race repeats a million times.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "common/emulator/emulator.hpp"
#include "common/emulator/site.hpp"

namespace emulator {

struct Fault {
  ReportKind kind;
  SiteId site = NO_SITE;
  SiteId other = NO_SITE;  // the access it clashes with
  std::string_view buffer = "";
  bool within_warp = false;
  auto operator<=>(const Fault&) const = default;
};

struct LoggedReport {
  Report report;
  uint64_t block = 0;  // linear index, to put the reports of several workers in order
};

class ReportLog {
 public:
  // Make returns the message; it is called for the first fault of its sort only.
  template <class Make>
  void add(const Fault& fault, const SiteTable& sites, uint64_t block, Make&& make) {
    const auto [entry, is_new] = index_.try_emplace(fault, reports_.size());
    if (!is_new) {
      ++reports_[entry->second].report.times;
      return;
    }
    LoggedReport& added = reports_.emplace_back();
    added.block = block;
    added.report.kind = fault.kind;
    added.report.message = make();
    added.report.buffer = fault.buffer;
    added.report.within_warp = fault.within_warp;
    for (const SiteId site : {fault.site, fault.other}) {
      if (site != NO_SITE) added.report.where.push_back(source_line(sites[site].call));
    }
  }
  std::vector<LoggedReport>& reports() { return reports_; }

 private:
  std::map<Fault, size_t> index_;
  std::vector<LoggedReport> reports_;
};

// "0-31, 40, 64-127"
std::string ranges(const std::vector<uint32_t>& ascending);

}  // namespace emulator
