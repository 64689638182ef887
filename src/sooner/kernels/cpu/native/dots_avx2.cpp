#include "v16_avx2.h"
#include "dots_avx2.h"
// As isa_*.cpp: all but the table has internal linkage.
#include "integers.h"

extern const Integers avx2_integers = INTEGERS;
