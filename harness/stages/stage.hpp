// What a stage.cu includes to say of its rung all that the harness knows: it fills one Rung and registers it. It is compiled three
// times, by the C++ compiler for the emulator, twice, and by nvcc; each build hands over the same words and its own way to start the
// kernels, and the registry (rung.hpp) joins them by name.
#pragma once
#include "harness/stages/stage_words.hpp"

namespace ladder {
using namespace told;
}
