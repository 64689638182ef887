// The kernels of one ISA, chosen at run time.
#pragma once
#include <stddef.h>

#include "api.h"
#include "pool.h"

struct Table {
  Job linear, rmsnorm, embed, attend, choose;
  void (*attend_scratch)(const Attend&, int threads, size_t& shared, size_t& local);
  size_t linear_local;  // floats of scratch of a thread
  size_t (*choose_scratch)(int threads, int vocabulary);  // bytes
};

// Products of quantised weights with rounded inputs (integers.h), and rows of such weights.
struct Integers {
  Job linear, embed;
  void (*linear_scratch)(const Linear&, size_t& shared, size_t& local);
};

extern const Table generic_table;
extern const Integers generic_integers;
#if defined(__x86_64__)
extern const Table avx2_table, avx512_table;
extern const Integers avx2_integers, avxvnni_integers, avx512vnni_integers;
#elif defined(__aarch64__)
extern const Table neon_table;
extern const Integers neon_integers, neondot_integers;
#endif
