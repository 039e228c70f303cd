#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("V is loaded into registers once, however long a walk is, and every bit of the gradients is as before") {
  const Spec longer = asked("nq=1024 nk=512 d=96"), shorter = asked("nq=512 nk=512 d=96");
  CHECK(counted(rung(), longer).ldmatrix == counted(rung(), shorter).ldmatrix);
  CHECK(counted(rung(), longer).ldmatrix > counted(previous(), longer).ldmatrix);
  const Spec lengths = asked("h=4 kv=2 d=80 causal lens_q=100,0,37 lens_k=100,70,5");
  CHECK(same_bits(checked(rung(), lengths), checked(previous(), lengths)));
}
