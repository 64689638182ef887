#include "v16_avx512.h"
#include "dots_avx512vnni.h"
// As isa_*.cpp: all but the table has internal linkage.
#include "integers.h"

extern const Integers avx512vnni_integers = INTEGERS;
