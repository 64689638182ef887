#include "v16_neon.h"
#include "dots_neon.h"
// As isa_*.cpp: all but the table has internal linkage.
#include "integers.h"

extern const Integers neondot_integers = INTEGERS;
