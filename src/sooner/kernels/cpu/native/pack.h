#pragma once
#include "api.h"
#include "pool.h"

// Rows [n, k] of a file to blocks from, from + every, ... of `packed`.
struct Pack {
  const uint8_t* source;
  int32_t n, k, format, from, every;
  uint8_t* packed;
};

size_t packed_bytes(int n, int k, int format);
void pack(Team& team, const void* arguments);
