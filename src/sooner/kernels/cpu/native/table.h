// The kernels of one ISA, chosen at run time.
#pragma once
#include <stddef.h>

#include "api.h"
#include "pool.h"

struct Table {
  const char* name;
  Job linear, rmsnorm, embed, attend, choose;
  void (*attend_scratch)(const Attend&, int threads, size_t& shared, size_t& local);
  size_t linear_local;  // floats of scratch of a thread
  size_t (*choose_scratch)(int threads, int vocabulary);  // bytes
};

extern const Table generic_table;
#if defined(__x86_64__)
extern const Table avx2_table, avx512_table;
#elif defined(__aarch64__)
extern const Table neon_table;
#endif
