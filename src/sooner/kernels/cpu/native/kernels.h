#pragma once
// clang-format off: in the order of use
#include "table.h"
#include "lanes_math.h"
#include "formats.h"
#include "product.h"
#include "attend.h"

#define KERNELS(name) {name, linear, rmsnorm, embed, attend, attend_scratch, PANEL * 16 + PART * 32}
