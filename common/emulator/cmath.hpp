// <cmath> without C++17's special functions: GCC's library would have Bessel's, Legendre's and Riemann's compiled with every file, for
// 40 ms each.
#pragma once
#include <cstdint>  // and so the library's macros
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
