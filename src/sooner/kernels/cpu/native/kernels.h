#pragma once
// clang-format off: in the order of use
#include "table.h"
#include "lanes_math.h"
#include "pieces.h"
#include "formats.h"
#include "product.h"
#include "attend.h"
#include "choose.h"

#define KERNELS \
  {linear, rmsnorm, embed, attend, choose, attend_scratch, PANEL * 16 + PART * 32, Choice::room}
