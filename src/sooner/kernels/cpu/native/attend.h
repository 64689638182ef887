// Attention over paged keys and values. A query row walks the positions that it sees in order; its sums are taken over
// segments of 64 positions, at absolute multiples of 64, which are then folded together in order. Neither the rows
// that share loads with it nor the threads that compute its segments can change its bits.
#pragma once

namespace {

constexpr int PAGE = 16;
constexpr int PAGES = 4;  // of a segment
constexpr int SEGMENT = PAGES * PAGE;
constexpr int MOST_SIZE = 256;  // of a head

INLINE int ceil_div(int a, int b) { return (a + b - 1) / b; }
INLINE int lesser(int a, int b) { return a < b ? a : b; }
INLINE int greater(int a, int b) { return a > b ? a : b; }
INLINE const uint8_t* bytes(const float* p) { return reinterpret_cast<const uint8_t*>(p); }

// Derived numbers of one call, and where its scratch lies.
struct Attention {
  const Attend& job;
  const Rows& rows;
  const Heads& heads;
  int group;        // query heads of a kv head
  int tile_heads;   // of them, as many as a tile holds
  int tile_rows;    // neighbouring rows of a sequence that a tile holds beside them
  int segments;     // most segments of a row
  int stride;       // floats of a partial: [size] sum of weight * value, greatest score, sum of weights
  bool apart;       // segments are work items of their own, since there are few rows
  float* queries;   // [kv, rows, group, size], normalised and rotated
  float* partials;  // [rows, query, segments, stride] if apart

  Attention(const Attend& job, int threads, float* scratch) : job(job), rows(*job.rows), heads(*job.heads) {
    group = heads.query / heads.kv;
    tile_heads = ceil_div(group, ceil_div(group, ROWS));
    tile_rows = greater(ROWS / group, 1);
    int longest = 0;
    for (int r = 0; r < rows.rows; ++r) longest = greater(longest, rows.context[r]);
    segments = ceil_div(longest + rows.extra_width, SEGMENT);
    stride = heads.size + PAGE;
    apart = threads > 1 && rows.rows * heads.kv < 8 * threads;
    queries = scratch;
    partials = queries + size_t(rows.rows) * size_t(heads.query * heads.size);
  }

  size_t scratch() const {
    return size_t(rows.rows) * size_t(heads.query) * size_t(heads.size + (apart ? segments * stride : 0));
  }
  size_t local_scratch() const {
    return size_t(ROWS) * size_t(SEGMENT + 2 * stride) + size_t(tile_rows) * 2 * size_t(SEGMENT * heads.size);
  }

  int total(int row) const {
    int n = 0;
    while (n < rows.extra_width && rows.extra[row * rows.extra_width + n] >= 0) ++n;
    return rows.context[row] + n;
  }
  int first(int row) const { return heads.window ? greater(rows.positions[row] + 1 - heads.window, 0) : 0; }
  int first_segment(int row) const { return first(row) / SEGMENT; }
  int last_segment(int row) const { return (total(row) - 1) / SEGMENT; }

  int page(int row, int index) const { return rows.tables[rows.sequence[row] * rows.table_width + index]; }
  int slot(int row, int position) const {
    const int beyond = position - rows.context[row];
    if (beyond >= 0) return rows.extra[row * rows.extra_width + beyond];
    return page(row, position / PAGE) * PAGE + position % PAGE;
  }
  float* keys(int page, int kv) const { return job.keys + page_of(page, kv); }
  float* values(int page, int kv) const { return job.values + page_of(page, kv); }
  size_t page_of(int page, int kv) const { return (size_t(page) * heads.kv + kv) * size_t(heads.size * PAGE); }
  float* query(int row, int kv, int head) const {
    return queries + ((size_t(kv) * rows.rows + row) * group + head) * size_t(heads.size);
  }
  float* partial(int row, int head, int segment) const {
    return partials + ((size_t(row) * heads.query + head) * segments + segment) * size_t(stride);
  }
  float* out(int row, int head) const { return job.out + (size_t(row) * heads.query + head) * size_t(heads.size); }
};

// One head of one row, normalised and rotated: rotary positions on half-split pairs (i, i + half).
INLINE void prepare_head(const Heads& h, const float* norm, float eps, int position, const float* x, float* y) {
  if (norm)
    normalise(x, h.size, norm, eps, nullptr, y);
  else
    memcpy(y, x, size_t(h.size) * sizeof(float));
  const int half = h.rotary_half;
  const float *cos = h.cos + size_t(position) * size_t(half), *sin = h.sin + size_t(position) * size_t(half);
  for (int i = 0; i < half; ++i) {
    const float a = y[i], b = y[i + half];
    y[i] = a * cos[i] - b * sin[i];
    y[i + half] = b * cos[i] + a * sin[i];
  }
}

// Head `head` of a qkv row: queries go to scratch, keys and values to their slot of the cache.
void prepare(const Attention& t, int row, int head) {
  const Heads& h = t.heads;
  const float* x = t.job.qkv + (size_t(row) * size_t(h.query + 2 * h.kv) + size_t(head)) * size_t(h.size);
  const int position = t.rows.positions[row], page = t.rows.slots[row] / PAGE, offset = t.rows.slots[row] % PAGE;
  if (head < h.query) {
    float* y = t.query(row, head / t.group, head % t.group);
    return prepare_head(h, h.query_norm, h.query_eps, position, x, y);
  }
  head -= h.query;
  if (head >= h.kv) {
    memcpy(t.values(page, head - h.kv) + offset * h.size, x, size_t(h.size) * sizeof(float));
    return;
  }
  float key[MOST_SIZE];
  prepare_head(h, h.key_norm, h.key_eps, position, x, key);
  float* keys = t.keys(page, head) + offset;
  for (int i = 0; i < h.size; ++i) keys[i * PAGE] = key[i];
}

// Query r * heads + h of a tile is head `head + h` (within its kv head's group) of row `row + r`.
struct Span {
  int row, rows, kv, head, heads;
};

// The part of one page that one row sees, and where its keys [size][16] and values [16][size] are.
struct Seen {
  int from, to;  // offsets in the page
  const float *keys, *values;
};

// Positions from..to of row's page `index`, copied from their slots to where a page would have them.
INLINE void gather(const Attention& t, int row, int kv, int index, int from, int to, float* keys, float* values) {
  const int size = t.heads.size;
  for (int lane = from; lane < to; ++lane) {
    const int slot = t.slot(row, index * PAGE + lane);
    const float* key = t.keys(slot / PAGE, kv) + slot % PAGE;
    for (int i = 0; i < size; ++i) keys[i * PAGE + lane] = key[i * PAGE];
    memcpy(values + lane * size, t.values(slot / PAGE, kv) + slot % PAGE * size, size_t(size) * sizeof(float));
  }
}

INLINE Seen look(const Attention& t, int row, int kv, int index, float* scratch) {
  const int from = greater(t.first(row) - index * PAGE, 0), to = lesser(t.total(row) - index * PAGE, PAGE);
  if (from >= to) return {0, 0, nullptr, nullptr};
  if (index * PAGE + to <= t.rows.context[row]) {
    const int page = t.page(row, index);
    return {from, to, t.keys(page, kv), t.values(page, kv)};
  }
  float* values = scratch + PAGE * t.heads.size;
  gather(t, row, kv, index, from, to, scratch, values);
  return {from, to, scratch, values};
}

// One segment of one tile: scores, then weights, then weighted values.
struct SegmentWork {
  const Attention& t;
  const Span span;
  float* scores;    // [queries][SEGMENT], then weights
  float* partials;  // [queries][stride]
  Seen seen[ROWS][PAGES];
  bool shared[PAGES];  // every row of the tile sees the whole page

  SegmentWork(const Attention& t, const Span& span, int segment, float* scratch, float* partials)
      : t(t), span(span), scores(scratch), partials(partials) {
    float* gathered = scratch + ROWS * SEGMENT;
    for (int p = 0; p < PAGES; ++p) {
      shared[p] = true;
      for (int r = 0; r < span.rows; ++r, gathered += 2 * PAGE * t.heads.size) {
        seen[r][p] = look(t, span.row + r, span.kv, segment * PAGES + p, gathered);
        shared[p] &= seen[r][p].to - seen[r][p].from == PAGE && seen[r][p].keys == seen[0][p].keys;
      }
    }
  }

  const float* query(int r) const { return t.query(span.row + r, span.kv, span.head); }

  // Scores of all heads of rows [r, r + rows) with page p and those after it that are shared as well; returns how many.
  int score(int r, int rows, int p, int most) {
    const int n = lesser(widest<WalkF32>(rows * span.heads), most);
    const uint8_t* keys[PAGES];
    for (int i = 0; i < n; ++i) keys[i] = bytes(seen[r][p + i].keys);
    tile_for<WalkF32>(rows * span.heads, n)(keys, 0, query(r), size_t(t.heads.size), t.heads.size,
                                            scores + r * span.heads * SEGMENT + p * PAGE, SEGMENT, false);
    return n;
  }

  void score_all() {
    for (int p = 0; p < PAGES;) {
      int run = 0;
      while (p + run < PAGES && shared[p + run]) ++run;
      if (run) {
        p += score(0, span.rows, p, run);
        continue;
      }
      for (int r = 0; r < span.rows; ++r)
        if (seen[r][p].keys) score(r, 1, p, 1);
      ++p;
    }
  }

  // Scores of one query to weights, exp(score - greatest); what the row does not see weighs 0.
  void weigh(int query) {
    const Seen* pages = seen[query / span.heads];
    float* s = scores + query * SEGMENT;
    static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const v16 lane = load(lanes), nothing = all(-__builtin_inff());
    v16 most = nothing, kept[PAGES];
    for (int p = 0; p < PAGES; ++p) {
      v16 x = mul(load(s + p * PAGE), all(t.heads.scale));
      if (t.heads.softcap != 0.0f) x = mul(all(t.heads.softcap), tanh(div(x, all(t.heads.softcap))));
      x = where_ge(lane, all(float(pages[p].from)), x, nothing);
      kept[p] = where_ge(lane, all(float(pages[p].to)), nothing, x);
      most = max(kept[p], most);
    }
    const float greatest_score = greatest(most);
    v16 weights = zero();
    for (int p = 0; p < PAGES; ++p) {
      const v16 w = exp(sub(kept[p], all(greatest_score)));
      store(s + p * PAGE, w);
      weights = add(weights, w);
    }
    partials[query * t.stride + t.heads.size] = greatest_score;
    partials[query * t.stride + t.heads.size + 1] = sum(weights);
  }

  // Adds weight * value of page p to the sums of all heads of rows [r, r + rows).
  void mix(int r, int rows, int p) {
    const Seen& page = seen[r][p];
    const int size = t.heads.size, queries = rows * span.heads, query = r * span.heads;
    const float* weights = scores + query * SEGMENT + p * PAGE + page.from;
    for (int at = 0; at < size;) {
      const int n = lesser(widest<WalkStrided>(queries), (size - at) / 16);
      const uint8_t* values[BLOCKS];
      for (int i = 0; i < n; ++i) values[i] = bytes(page.values + page.from * size + at + 16 * i);
      tile_for<WalkStrided>(queries, n)(values, size_t(size) * sizeof(float), weights, SEGMENT, page.to - page.from,
                                        partials + query * t.stride + at, size_t(t.stride), true);
      at += 16 * n;
    }
  }

  void mix_all() {
    for (int p = 0; p < PAGES; ++p) {
      if (shared[p]) {
        mix(0, span.rows, p);
        continue;
      }
      for (int r = 0; r < span.rows; ++r)
        if (seen[r][p].keys) mix(r, 1, p);
    }
  }

  void run() {
    score_all();
    for (int q = 0; q < span.rows * span.heads; ++q) {
      weigh(q);
      memset(partials + q * t.stride, 0, size_t(t.heads.size) * sizeof(float));
    }
    mix_all();
  }
};

// Joins the next segment's partial to a row's state.
INLINE void fold(float* state, const float* next, int size) {
  const float most = state[size] > next[size] ? state[size] : next[size];
  const v16 a = all(exp(state[size] - most)), b = all(exp(next[size] - most));
  for (int i = 0; i < size; i += 16) store(state + i, fma(load(state + i), a, mul(load(next + i), b)));
  float sums[16];
  store(sums, fma(all(state[size + 1]), a, mul(all(next[size + 1]), b)));
  state[size] = most;
  state[size + 1] = sums[0];
}

INLINE void divide(const float* state, int size, float* out) {
  for (int i = 0; i < size; i += 16) store(out + i, div(load(state + i), all(state[size + 1])));
}

// All segments of one tile, one after another.
void attend_whole(const Attention& t, const Span& span, float* scratch) {
  float *partials = scratch, *state = partials + ROWS * t.stride;
  int from = t.first_segment(span.row), to = 0;
  for (int r = 0; r < span.rows; ++r) to = greater(to, t.last_segment(span.row + r));
  for (int segment = from; segment <= to; ++segment) {
    SegmentWork(t, span, segment, state + ROWS * t.stride, partials).run();
    for (int q = 0; q < span.rows * span.heads; ++q) {
      const int row = span.row + q / span.heads;
      float *mine = state + q * t.stride, *next = partials + q * t.stride;
      if (segment == t.first_segment(row))
        memcpy(mine, next, size_t(t.stride) * sizeof(float));
      else if (segment > t.first_segment(row) && segment <= t.last_segment(row))
        fold(mine, next, t.heads.size);
    }
  }
  for (int q = 0; q < span.rows * span.heads; ++q)
    divide(state + q * t.stride, t.heads.size,
           t.out(span.row + q / span.heads, span.kv * t.group + span.head + q % span.heads));
}

// One segment of one tile, left in t.partials.
void attend_apart(const Attention& t, const Span& span, int segment, float* scratch) {
  SegmentWork(t, span, segment, scratch + ROWS * t.stride, scratch).run();
  for (int q = 0; q < span.rows * span.heads; ++q) {
    const int row = span.row + q / span.heads, head = span.kv * t.group + span.head + q % span.heads;
    memcpy(t.partial(row, head, segment), scratch + q * t.stride, size_t(t.stride) * sizeof(float));
  }
}

void fold_apart(const Attention& t, int row, int head) {
  const int first = t.first_segment(row), last = t.last_segment(row);
  float* state = t.partial(row, head, first);
  for (int segment = first + 1; segment <= last; ++segment) fold(state, t.partial(row, head, segment), t.heads.size);
  divide(state, t.heads.size, t.out(row, head));
}

// Calls body(span) for every tile of the pass.
template <class Body>
void each_tile(const Attention& t, Body&& body) {
  for (int row = 0, n; row < t.rows.rows; row += n) {
    for (n = 1; n < t.tile_rows && row + n < t.rows.rows; ++n)
      if (t.rows.sequence[row + n] != t.rows.sequence[row]) break;
    for (int kv = 0; kv < t.heads.kv; ++kv)
      for (int head = 0; head < t.group; head += t.tile_heads)
        body(Span{row, n, kv, head, lesser(t.tile_heads, t.group - head)});
  }
}

void attend(Team& team, const void* arguments) {
  const Attention t(*static_cast<const Attend*>(arguments), team.size, team.shared);
  const int heads = t.heads.query + 2 * t.heads.kv, prepared = t.rows.rows * heads;
  for (int i = team.begin(prepared); i < team.end(prepared); ++i) prepare(t, i / heads, i % heads);
  team.barrier();
  int item = 0, mine = team.take(0);
  const auto claimed = [&] { return item++ == mine ? (mine = team.take(0), true) : false; };
  each_tile(t, [&](const Span& span) {
    if (!t.apart) {
      if (claimed()) attend_whole(t, span, team.local);
      return;
    }
    for (int segment = 0; segment < t.segments; ++segment)
      if (claimed()) attend_apart(t, span, segment, team.local);
  });
  if (!t.apart) return;
  team.barrier();
  const int folded = t.rows.rows * t.heads.query;
  for (int i = team.begin(folded); i < team.end(folded); ++i) fold_apart(t, i / t.heads.query, i % t.heads.query);
}

// The scratch that attend() wants, in floats.
void attend_scratch(const Attend& job, int threads, size_t& shared, size_t& local) {
  const Attention t(job, threads, nullptr);
  shared = t.scratch();
  local = t.local_scratch();
}

}  // namespace
