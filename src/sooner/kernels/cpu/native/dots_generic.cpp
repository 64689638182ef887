#include "v16_generic.h"
#include "dots_generic.h"
// As isa_*.cpp: all but the table has internal linkage.
#include "integers.h"

extern const Integers generic_integers = INTEGERS;
