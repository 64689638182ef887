#include "v16_avx2.h"
// The kernels, written once over v16. All but the table has internal linkage, so that code compiled for this ISA can
// never be linked into another's.
#include "kernels.h"

extern const Table avx2_table = KERNELS;
