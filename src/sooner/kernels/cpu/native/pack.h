#pragma once
#include "api.h"
#include "pool.h"

// Rows [n, k] of a file to blocks from, from + every, ... of `packed`. integer: for rounded inputs.
struct Pack {
  const uint8_t* source;
  int32_t n, k, format, from, every;
  uint8_t* packed;
  int32_t integer;
};

size_t packed_bytes(int n, int k, int format);
void pack(Team& team, const void* arguments);
