// From a file's rows to the packed layouts of formats.h and integers.h: outputs in the lanes of blocks of 16, padded
// with zeros.
#include "pack.h"

#include <string.h>

namespace {

struct Source {
  const uint8_t* rows;
  int n;
  size_t row_bytes;
  // Bytes of group g of row r, or null past the last row.
  const uint8_t* at(int r, int g, size_t group_bytes) const {
    return r < n ? rows + size_t(r) * row_bytes + size_t(g) * group_bytes : nullptr;
  }
};

// How a group of one row lies in its file: scales, then quants; f32 and f16 have a single number.
struct Kind {
  int group, scales, quants;  // inputs, and bytes
  int each = 2;               // bytes of a scale
  int bytes() const { return scales + quants; }
  int groups(int k) const { return (k + group - 1) / group; }
};

Kind kind_of(int format) {
  switch (format) {
    case F32: return {1, 0, 4};
    case Q8_0: return {32, 2, 32};
    case Q4_0: return {32, 2, 16};
    case Q4_1: return {32, 4, 16};
    case G32Q4: return {32, 8, 16, 4};
    case G32Q8: return {32, 8, 32, 4};
    case G16Q8: return {16, 4, 16, 4};
    case BF16: return {2, 0, 4};
    default: return {1, 0, 2};
  }
}

// Quants of 32 inputs: low nibbles are inputs 0..15, high nibbles 16..31 in the file; when packed, `run` inputs in low
// nibbles alternate with as many in high ones.
uint8_t nibble(const uint8_t* quants, int i) { return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4; }

// `inputs`: of this group that the row has; an odd row of bf16 ends in half a group.
void pack_group(const Source& source, int block, int g, int inputs, const Pack& job, const Kind& kind, uint8_t* out) {
  const int run = job.integer ? 4 : 1;  // inputs of an output that lie side by side
  for (int lane = 0; lane < 16; ++lane) {
    const uint8_t* in = source.at(16 * block + lane, g, size_t(kind.bytes()));
    if (!in) continue;
    for (int s = 0; s < kind.scales; s += kind.each)
      memcpy(out + 16 * s + kind.each * lane, in + s, size_t(kind.each));
    uint8_t* to = out + 16 * kind.scales;
    const uint8_t* quants = in + kind.scales;
    if (kind.group == 1)
      memcpy(to + lane * kind.quants, quants, size_t(kind.quants));
    else if (job.format == BF16)
      for (int i = 0; i < inputs; ++i) memcpy(to + 4 * lane + 2 * (1 - i), quants + 2 * i, 2);
    else if (kind.quants == kind.group)
      for (int i = 0; i < kind.group; i += run) memcpy(to + 16 * i + run * lane, quants + i, size_t(run));
    else
      for (int i = 0; i < 32; i += 2 * run)
        for (int j = 0; j < run; ++j)
          to[8 * i + run * lane + j] = uint8_t(nibble(quants, i + j) | nibble(quants, i + j + run) << 4);
  }
}

}  // namespace

size_t packed_bytes(int n, int k, int format) {
  const Kind kind = kind_of(format);
  return size_t((n + 15) / 16) * size_t(kind.groups(k)) * size_t(kind.bytes()) * 16;
}

void pack(Team& team, const void* arguments) {
  const Pack& job = *static_cast<const Pack*>(arguments);
  const Kind kind = kind_of(job.format);
  const int blocks = (job.n + 15) / 16, groups = kind.groups(job.k);
  const size_t group_bytes = size_t(kind.bytes()) * 16, block_bytes = size_t(groups) * group_bytes;
  const Source source{job.source, job.n, size_t(job.k) * size_t(kind.bytes()) / size_t(kind.group)};
  for (int b = team.begin(blocks); b < team.end(blocks); ++b) {
    uint8_t* out = job.packed + size_t(b * job.every + job.from) * block_bytes;
    memset(out, 0, block_bytes);
    for (int g = 0; g < groups; ++g, out += group_bytes) {
      const int left = job.k - g * kind.group;
      pack_group(source, b, g, left < kind.group ? left : kind.group, job, kind, out);
    }
  }
}
