// Runs the tests of one program. A run that matches no test fails: green must mean that something was executed.
#define CATCH_CONFIG_RUNNER
#include "harness/tests/catch.hpp"

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int usage_error = session.applyCommandLine(argc, argv); usage_error != 0) return usage_error;
#if !__has_include(<catch2/catch_all.hpp>)  // version 3 fails such a run by itself
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoTests);
#endif
  return session.run();
}
