#include "common/emulator/fiber.hpp"

// What a function must leave as it was is kept on the stack that is left; all else the caller of such a function has kept. The rounding
// of floats and what they signal are of the processor and the same for all fibers.
#if defined(__x86_64__)  // System V ABI, 3.2.1: rbx, rbp and r12 to r15
asm(R"(
.text
.p2align 4
.globl ladder_switch_stack
.hidden ladder_switch_stack
.type ladder_switch_stack, @function
ladder_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, %rax
  movq %rdi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size ladder_switch_stack, . - ladder_switch_stack

.globl ladder_begin_fiber
.hidden ladder_begin_fiber
.type ladder_begin_fiber, @function
ladder_begin_fiber:
  movq %r12, %rdi
  movq %rax, %rsi
  jmpq *%rbx
.size ladder_begin_fiber, . - ladder_begin_fiber
)");
#elif defined(__aarch64__)  // AAPCS64, 6.1: x19 to x30, and the lower halves of v8 to v15
asm(R"(
.text
.p2align 4
.globl ladder_switch_stack
.hidden ladder_switch_stack
.type ladder_switch_stack, %function
ladder_switch_stack:
  stp d8, d9, [sp, #-160]!
  stp d10, d11, [sp, #16]
  stp d12, d13, [sp, #32]
  stp d14, d15, [sp, #48]
  stp x19, x20, [sp, #64]
  stp x21, x22, [sp, #80]
  stp x23, x24, [sp, #96]
  stp x25, x26, [sp, #112]
  stp x27, x28, [sp, #128]
  stp x29, x30, [sp, #144]
  mov x1, sp
  mov sp, x0
  mov x0, x1
  ldp d10, d11, [sp, #16]
  ldp d12, d13, [sp, #32]
  ldp d14, d15, [sp, #48]
  ldp x19, x20, [sp, #64]
  ldp x21, x22, [sp, #80]
  ldp x23, x24, [sp, #96]
  ldp x25, x26, [sp, #112]
  ldp x27, x28, [sp, #128]
  ldp x29, x30, [sp, #144]
  ldp d8, d9, [sp], #160
  ret
.size ladder_switch_stack, . - ladder_switch_stack

.globl ladder_begin_fiber
.hidden ladder_begin_fiber
.type ladder_begin_fiber, %function
ladder_begin_fiber:
  mov x1, x0
  mov x0, x19
  mov x30, xzr
  br x20
.size ladder_begin_fiber, . - ladder_begin_fiber
)");
#endif
