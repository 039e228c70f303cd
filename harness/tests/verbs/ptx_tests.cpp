// What is read from PTX, and when a kernel costs more than another one.
#include "harness/verbs/ptx.hpp"

#include <fmt/format.h>

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

// A kernel with a loop over tiles: products, some instructions, others in a branch that a tile may go round, and a wait in a loop of its
// own. Before it a loop with a product less.
std::string ptx(const std::string& always, const std::string& in_branch) {
  return fmt::format(R"(
.visible .entry _Z9attention6ParamsILi64EE(
	.param .align 8 .b8 params[8]
)
.maxntid 128, 1, 1
{{
	.reg .b32 	%r<9>;
$L__first:
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2,
	%f3, %f4}}, {{%r1, %r2}};
	@%p1 bra 	$L__first;
$L__tile:                               // =>This Loop Header
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2}}, {{%r1, %r2}};
	mov.f32 	%f5, %f1;
	// begin inline asm
	{{
  .reg .pred complete;
again:
  mbarrier.try_wait.parity.shared.b64 complete, [%r4], %r5;
  @!complete bra again;
}}
	// end inline asm
{}	@%p2 bra 	$L__calm;
{}$L__calm:
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2}}, {{%r1, %r2}};
	setp.ne.s32 	%p3, %r6, %r7;
	@%p3 bra 	$L__tile;
	bra.uni 	$L__end;
$L__end:
	st.global.f32 	[%rd1], %f1;
	ret;
}}
)",
                     always, in_branch);
}

std::string times(int count, const std::string& instruction) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("\t{} \t%f1, %f1, %f2;\n", instruction);
  return text;
}

std::string log(int registers, int stack) {
  return fmt::format(
      "ptxas info    : Compiling entry function '_Z9attention6ParamsILi64EE' for 'sm_90a'\n"
      "ptxas info    : Function properties for _Z9attention6ParamsILi64EE\n"
      "    {} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used {} registers, used 1 barriers\n",
      stack, registers);
}

std::vector<Failure> beside_own(const std::string& always, const std::string& in_branch, int registers, int stack) {
  return dearer(compiled_kernels(ptx(always, in_branch), log(registers, stack)),
                compiled_kernels(ptx(times(40, "add.f32"), times(40, "mul.f32")), log(200, 8)));
}

}  // namespace

TEST_CASE("of the loop with most products the shortest way through it is read") {
  const auto kernels = compiled_kernels(ptx(times(3, "add.f32"), times(4, "mul.f32")), log(201, 24));
  REQUIRE(kernels.size() == 1);
  const CompiledKernel& kernel = kernels[0];
  CHECK(kernel.most_threads == 128);
  CHECK(kernel.registers == 201);
  CHECK(kernel.stack_bytes == 24);
  CHECK(kernel.has_mma);
  CHECK(kernel.products == 2);
  CHECK(kernel.beside ==
        std::map<std::string, int>{
            {"add.f32", 3}, {"bra", 3}, {"mbarrier.try_wait.parity.shared.b64", 1}, {"setp.ne.s32", 1}});
}

TEST_CASE("a kernel costs more by its instructions, its local memory or its registers") {
  CHECK(beside_own(times(40, "add.f32"), times(40, "mul.f32"), 200, 8).empty());
  CHECK(beside_own(times(41, "add.f32"), times(90, "mul.f32"), 255, 40)
            .empty());  // a little, and where no tile has to go

  const auto more = beside_own(times(40, "add.f32") + times(40, "mul.f32"), "", 200, 8);
  REQUIRE(more.size() == 1);
  CHECK(more[0].kind == FailureKind::counts_differ);
  CHECK(more[0].detail == "nvcc");
  CHECK(more[0].message.find("mul.f32, 20.00 and 0.00") != std::string::npos);

  const auto local = beside_own(times(40, "add.f32"), times(40, "mul.f32"), 200, 256);
  REQUIRE(local.size() == 1);
  CHECK(local[0].kind == FailureKind::counts_differ);

  const auto too_many = beside_own(times(40, "add.f32"), times(40, "mul.f32"), 520, 8);
  REQUIRE(too_many.size() == 1);
  CHECK(too_many[0].kind == FailureKind::launch_failed);
}
