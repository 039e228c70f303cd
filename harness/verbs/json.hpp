// What scripts read: the JSON of design, stable names.
#pragma once
#include <string>

#include "harness/base/error.hpp"
#include "harness/base/json.hpp"
#include "harness/verify/check.hpp"

namespace ladder {

// {"stage","backend","batch","heads","n","d","causal","inputs","ok","max_err","tolerance","counters":{...}} and more.
// A max_err of NaN is null. Counters are there on the emulator only.
Json to_json(const CheckResult& result);
// The counts by their names.
Json to_json(const Counts& counts);

// Writes an array to a file, to standard output for "-", or nowhere for "", between two copies of `seal`. A full disk is an error.
Status write_document(const std::string& file, const Json& document, const std::string& seal = "");

}  // namespace ladder
