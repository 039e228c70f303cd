#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;
